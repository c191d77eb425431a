"""What is inside the network: columns and neurons that matter."""

from __future__ import annotations

from cvxnn.reports.contents import Contents
from cvxnn.reports.importance import N_SHUFFLES
from cvxnn.reports.markup import Markup, element, join, name_of
from cvxnn.reports.numbers import alike, percent, signed
from cvxnn.reports.sections.parts import and_more, lower, metered, rows_of, scrolling, table_of


def columns(contents: Contents) -> Markup:
    if contents.n_neurons == 0:
        return element("p", "No column matters: the network has no neurons.")
    columns = contents.columns
    rows = rows_of(columns.n_rows, columns.of)
    if columns.n_rows < columns.n_given:
        rows = f"{columns.n_rows:,} of the {columns.n_given:,} {lower(columns.of)}"
    shuffled = (
        f"the rise of the {columns.loss} when the values of a column are shuffled among {rows}, "
        f"the mean of {N_SHUFFLES} shuffles with a fixed seed."
    )
    if columns.n_features > columns.n_columns:
        shuffled += (
            f" The {columns.n_features:,} features of the network come from {columns.n_columns:,} "
            "columns of the table; those of one column are shuffled together."
        )
    if columns.n_shuffled < columns.n_columns:
        shuffled += f" Only the {columns.n_shuffled} with the largest weights were shuffled."
    unit = "the outputs" if contents.classes else "the target, in standard deviations,"
    gate = ", as long as no gate switches" if contents.gated else ""
    weight = (
        "the sum over the neurons of |W₁| · ‖W₂‖₁ for a step of one standard deviation of the "
        f"column. Such a step changes {unit} by at most that much{gate}."
    )
    rises, weights = ([getattr(c, part) for c in columns.shown] for part in ("rise", "weight"))
    body = [
        element(
            "tr",
            element("th", name_of(column.name, 60), scope="row", class_="name"),
            metered(rise, column.rise, max(rises), "a"),
            metered(size, column.weight, max(weights), "c"),
        )
        for column, rise, size in zip(
            columns.shown, alike(rises, 3), alike(weights, 3), strict=True
        )
    ]
    table = table_of(["column", "shuffled", "weight"], body)
    return join(
        element("p", element("strong", "Shuffled:"), " ", shuffled),
        element("p", element("strong", "Weight:"), " ", weight),
        scrolling(table, "Columns"),
        and_more(columns.n_columns - len(columns.shown), "column"),
    )


def neurons(contents: Contents) -> Markup:
    neurons = contents.neurons
    if neurons.n_neurons == 0:
        return element("p", "The network has none: it is constant.")
    rows = lower(contents.results[0].label)
    text = [
        element("strong", "Size:"),
        " ‖W₁‖ · ‖W₂‖₁ on scaled columns, as a share of the sum over all neurons, to which the "
        "penalty is proportional. ",
        element("strong", "On:"),
        f" the share of the {rows} for which the neuron is switched on. ",
        element("strong", "Output:"),
        " what it acts on. "
        if contents.gated
        else " what it adds to (+) or subtracts from (−) where it is on. ",
        element("strong", "Columns:"),
        " its largest weights, for a standard deviation of the column, relative to the norm of "
        "all its weights.",
    ]
    body = []
    for rank, neuron in enumerate(neurons.shown, start=1):
        sign = "" if contents.gated else "+ " if neuron.raises else "− "
        output = "several" if neuron.output is None else join(sign, name_of(neuron.output, 24))
        parts = [
            join(name_of(name, 40), f"\N{NO-BREAK SPACE}{signed(value)}")
            for name, value in neuron.columns
        ]
        body.append(
            element(
                "tr",
                element("th", str(rank), scope="row"),
                metered(percent(neuron.share), neuron.share, neurons.shown[0].share, "c", "size"),
                metered(percent(neuron.on), neuron.on, 1.0, "a", "on"),
                element("td", output, class_="left nowrap", data_name="output"),
                element("td", join(*parts, by=", "), class_="left words"),
            )
        )
    table = table_of(["", "size", "on", "output", "columns"], body, left=2, css="wordy")
    return join(
        element("p", *text),
        scrolling(table, "Neurons"),
        and_more(neurons.n_neurons - len(neurons.shown), "neuron"),
    )
