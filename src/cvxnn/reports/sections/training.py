"""What is proven, how training went, and how the penalty was chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from cvxnn.generation.rounds import Round
from cvxnn.reports import charts
from cvxnn.reports.charts import Plot, Scale, legend
from cvxnn.reports.contents import Choice, Contents
from cvxnn.reports.markup import Markup, element, join
from cvxnn.reports.numbers import count, number
from cvxnn.reports.sections.parts import figure


def proven(contents: Contents) -> Markup:
    certificate, claims = contents.certificate, contents.claims
    picture = charts.interval(
        certificate.lower_bound,
        certificate.objective,
        certificate.zero_objective,
        "constant model" if ("fit_intercept", "True") in _values(contents) else "zero model",
    )
    figures = [element("figure", picture)]
    bound = contents.bound
    if bound.over_all_patterns:
        both = charts.two_intervals(
            certificate.lower_bound, certificate.objective, bound.lower_bound, bound.objective
        )
        figures.append(element("figure", both))
    fine = contents.converged or certificate.gap == 0
    return join(
        element("p", claims.verdict, class_="verdict" if fine else "verdict open"),
        element(
            "div",
            element("p", claims.objective),
            element("div", *figures) if len(figures) > 1 else figures[0],
            class_="columns",
        ),
        element(
            "div",
            element("div", element("h3", "Proven"), _statements(claims.proven)),
            element("div", element("h3", "Not proven"), _statements(claims.not_proven)),
            class_="columns",
        ),
    )


def _values(contents: Contents) -> set[tuple[str, str]]:
    return {(name, value) for name, value, _ in contents.parameters}


def _statements(statements: Iterable[tuple[str, str]]) -> Markup:
    return element(
        "ul",
        *(element("li", element("strong", head), " ", body) for head, body in statements),
    )


def training(contents: Contents) -> Markup:
    steps = contents.steps
    if contents.rounds:
        return _generation(contents)
    if not steps:
        return element("p", "The model keeps no record of its training.")
    passes = np.array([step.passes for step in steps])
    objective = np.array([step.objective for step in steps])
    bound = np.array([step.lower_bound for step in steps])
    gap = np.array([step.relative_gap for step in steps])
    spent = [
        count(contents.n_iter, "iteration"),
        f"{count(int(passes[-1]), 'pass', 'passes')} over the data",
    ]
    if contents.seconds is not None:
        spent.append(f"{number(contents.seconds, 2)} s")
    figures = [_value_figure(passes, objective, bound)]
    if np.any(gap > 0):
        figures.append(_gap_figure(passes, gap, contents.tol))
    return join(
        element("p", f"{', '.join(spent)}. Both curves show the best value so far."),
        element("div", *figures, class_="figures"),
    )


def _generation(contents: Contents) -> Markup:
    rounds = contents.rounds
    spent = [count(len(rounds), "round")]
    if contents.seconds is not None:
        spent.append(f"{number(contents.seconds, 2)} s")
    return join(
        element(
            "p",
            f"{', '.join(spent)}. Patterns were generated: every round searches for neurons that "
            "pay, and trains again. A lower bound is one over the patterns of its round. A price "
            "that a search finds is no bound: higher ones may exist.",
        ),
        element("div", _rounds_figure(rounds), _price_figure(rounds), class_="figures"),
    )


def _rounds_figure(rounds: Sequence[Round]) -> Markup:
    places = np.array([r.n_round for r in rounds])
    objective = np.array([r.objective for r in rounds])
    bound = np.array([r.lower_bound if r.lower_bound > 0 else np.nan for r in rounds])
    plot = Plot(
        Scale.counts(places),
        Scale.of(np.concatenate([objective, bound])),
        x_label="round",
        y_label="value",
    )
    plot.line(places, objective, "objective")
    plot.dots(places, objective, "objective small")
    plot.dots(places, bound, "b small")
    label = f"The objective falls from {number(objective[0])} to {number(objective[-1])}."
    return figure(
        "The objective of the best network so far",
        legend(
            ("line objective", "objective"),
            ("dots b", "lower bound over the patterns of the round"),
        ),
        plot.svg(label),
    )


def _price_figure(rounds: Sequence[Round]) -> Markup:
    places = np.array([r.n_round for r in rounds])
    price = np.array([r.price_ratio for r in rounds])
    known = price[np.isfinite(price) & (price > 0)]
    plot = Plot(
        Scale.counts(places),
        Scale.of(np.append(known, 1.0), log=True),
        x_label="round",
        y_label="price / alpha",
    )
    plot.line([plot.x.low, plot.x.high], [1.0, 1.0], "ideal")
    plot.line(places, price, "c")
    plot.dots(places, price, "c small")
    last = number(known[-1], 6) if len(known) else "none"
    return figure(
        "The highest price that a search found",
        legend(("line c", "price, in units of alpha"), ("line ideal", "where patterns pay")),
        plot.svg(f"The last price that was found is {last} times alpha."),
    )


def _value_figure(passes: np.ndarray, objective: np.ndarray, bound: np.ndarray) -> Markup:
    positive = bound[bound > 0]
    log = len(positive) > 0 and objective.max() > 20 * positive.max() > 0
    both = np.concatenate([objective, positive if log else bound])
    plot = Plot(
        Scale.of(passes, log=True),
        Scale.of(both, log=log, include=() if log else (0.0,)),
        x_label="passes over the data",
        y_label="value",
    )
    plot.band(passes, bound, objective, "a")
    plot.line(passes, bound, "bound")
    plot.line(passes, objective, "objective")
    if len(passes) <= 40:
        plot.dots(passes, objective, "objective small")
        plot.dots(passes, bound, "b small")
    label = (
        f"The objective falls from {number(objective[0])} to {number(objective[-1])}, the lower "
        f"bound rises from {number(bound[0])} to {number(bound[-1])}."
    )
    return figure(
        "The optimal value lies between the curves",
        legend(("line objective", "objective"), ("line bound", "lower bound")),
        plot.svg(label),
    )


def _gap_figure(passes: np.ndarray, gap: np.ndarray, tol: float) -> Markup:
    plot = Plot(
        Scale.of(passes, log=True),
        Scale.of(np.append(gap, tol), log=True),
        x_label="passes over the data",
        y_label="relative gap",
    )
    if tol > 0:
        plot.line([plot.x.low, plot.x.high], [tol, tol], "ideal")
    plot.line(passes, gap, "c")
    if len(passes) <= 40:
        plot.dots(passes, gap, "c small")
    label = f"The relative gap falls from {number(gap[0], 2)} to {number(gap[-1], 2)}."
    return figure(
        "The relative gap between them",
        legend(("line c", "relative gap"), ("line ideal", "tolerance")),
        plot.svg(label),
    )


def penalty(contents: Contents) -> Markup:
    choice = contents.choice
    where = f"alpha = {number(contents.alpha)}"
    if contents.lambda_max > 0:
        constant = "the strength at which the model becomes constant"
        if contents.rounds:
            constant = "the strength from which on a search found no neuron that pays"
        where += (
            f", {number(contents.alpha / contents.lambda_max, 2)} times {constant} "
            f"(lambda_max = {number(contents.lambda_max)})"
        )
    if choice is None:
        return element("p", f"The strength was given, not chosen by cross-validation: {where}.")
    rule = (
        "the largest strength whose mean score is within one standard error of the best"
        if choice.rule == "one_se"
        else "the strength with the best mean score"
    )
    text = (
        f"Chosen by cross-validation, with {count(choice.n_folds, 'fold')}, from "
        f"{count(len(choice.alphas), 'strength')}: {rule}. It is {where}."
    )
    remark = None
    if choice.at_edge is not None:
        remark = element(
            "p",
            f"This is the {choice.at_edge} strength that was tried; one beyond it may be better.",
        )
    figures = element("div", _score_figure(choice), _neurons_figure(choice), class_="figures")
    return join(element("p", text), remark, figures)


def _score_figure(choice: Choice) -> Markup:
    error = np.nan_to_num(choice.error)
    low, high = choice.score - error, choice.score + error
    plot = Plot(
        Scale.of(choice.alphas, log=True),
        Scale.of(np.concatenate([low, high])),
        x_label="alpha",
        y_label=f"mean {choice.scoring}",
    )
    plot.upright(choice.alphas[choice.chosen], "chosen")
    plot.whiskers(choice.alphas, low, high, "a")
    plot.line(choice.alphas, choice.score, "a")
    plot.dots(choice.alphas, choice.score, "a")
    label = (
        f"The mean {choice.scoring} over the strength of the penalty; at the chosen one, "
        f"{number(choice.alphas[choice.chosen])}, it is {number(choice.score[choice.chosen])}."
    )
    keys = [("line a", "mean over the folds, ± one standard error"), ("line chosen", "chosen")]
    return figure("Score on the held-out rows of each fold", legend(*keys), plot.svg(label))


def _neurons_figure(choice: Choice) -> Markup:
    plot = Plot(
        Scale.of(choice.alphas, log=True),
        Scale.counts(choice.most),
        x_label="alpha",
        y_label="neurons",
    )
    plot.upright(choice.alphas[choice.chosen], "chosen")
    plot.band(choice.alphas, choice.fewest, choice.most, "c")
    plot.line(choice.alphas, choice.neurons, "c")
    plot.dots(choice.alphas, choice.neurons, "c")
    label = (
        "The mean number of neurons over the strength of the penalty, from "
        f"{number(choice.neurons[0], 3)} at the smallest to {number(choice.neurons[-1], 3)} at the "
        "largest."
    )
    keys = [("line c", "mean over the folds"), ("band c", "their range"), ("line chosen", "chosen")]
    return figure("Number of neurons", legend(*keys), plot.svg(label))
