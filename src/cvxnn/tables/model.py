"""A model of a table: a trained estimator, the columns it takes, and what its bounds rest on.

    table -> encoder -> estimator -> predictions, by the names of columns and labels

The file of a model holds data and no code: JSON and arrays beside the network (see `modelfile.py`).
Among them are the patterns of the convex program and the dual point behind the lower bound, so that
the bound can be checked again on the same rows, and which rows were trained on and which were held
out. The numbers that define the program are in the file as well, so that another machine poses
exactly the same program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

import cvxnn
from cvxnn import estimators, modelfile
from cvxnn.arrays import is_stored
from cvxnn.bits import Bits
from cvxnn.bounds.base import Bound
from cvxnn.certificates import Certificate, Multipliers
from cvxnn.checkpoints import Store
from cvxnn.digits import text_above
from cvxnn.estimators.base import NetworkEstimator, Watch, train
from cvxnn.estimators.ensembles import ProvenMember
from cvxnn.estimators.posing import Fit, Posing
from cvxnn.estimators.rows import Numbers, Rows
from cvxnn.estimators.targets import Labels
from cvxnn.generation.rounds import Round
from cvxnn.improvement import improve
from cvxnn.modelfile import Content, ModelFileError
from cvxnn.networks import NETWORKS, TwoLayerNetwork
from cvxnn.problems import CReLU, lambda_max
from cvxnn.progress import step
from cvxnn.pruning import prune
from cvxnn.rounding import Ball
from cvxnn.sharded import ShardedRows
from cvxnn.solvers.base import Solver
from cvxnn.solvers.results import Progress, Solution, Status
from cvxnn.stored import StoredRows
from cvxnn.tables.deciding import MAX_CATEGORIES
from cvxnn.tables.description import content_of
from cvxnn.tables.encoding import Encoder
from cvxnn.tables.estimation import KINDS, make_estimator, scores_by_part
from cvxnn.tables.exporting import to_onnx, to_torch
from cvxnn.tables.frames import as_table
from cvxnn.tables.gathered import outputs_of
from cvxnn.tables.notes import warn_about_guesses
from cvxnn.tables.preparation import HELD_OUT, TRAINED, Part, Target, TrainingData, fingerprint_of
from cvxnn.tables.programs import PosedAgain
from cvxnn.tables.restoration import restored
from cvxnn.tables.shards import ShardedTable
from cvxnn.tables.spilling import encoded_rows
from cvxnn.tables.table import TableError, count
from cvxnn.tables.transformer import TableEncoder
from cvxnn.validation import check_choice
from cvxnn.verification.all_patterns import verify_bound
from cvxnn.verification.results import Verification

if TYPE_CHECKING:
    import torch

_OLD_FILE = (
    "a file of format version 3, whose claims were made up to rounding: the bounds found here are "
    "proven, for row weights and scalings as this machine computes them"
)
# How far a claimed objective is above the one that was computed in floating point, relative.
WIDE_MARGIN = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A trained model with names for its columns and labels.

    Attributes
    ----------
    estimator : the fitted estimator.
    encoder : how columns become features.
    target : what is predicted.
    rows : (n,), what became of each row of the table: 0 trained on, 1 held out, 2 left out.
    fingerprint : a hash of the training rows, to recognise them.
    bits, dual : patterns and dual point of the certified program, on distinct training rows; of
        none if several processes have them.
    multipliers : those of its cone constraints; None for gated models, and in files of version 3.
    numbers : what else defines the program; None in files of version 3, for which it is computed
        again.
    scores : the scores by name, for "training" and "held out".
    notes : what was done to the data, in words.
    versions : those of cvxnn and of the packages it was trained with.
    merged : whether equal rows are one row of the program, in sorted order; rows that were trained
        on in a file are as they are in the table.
    status : how training ended; None for a model from a file.
    proof : the bound over all patterns with its dual point and its evidence; None where nothing was
        proven about them.
    members : where the network is a mean of several, all of these with what proves each of them;
        bounds and whatever they rest on are those of the first, of all rows.
    """

    estimator: NetworkEstimator
    encoder: Encoder
    target: Target
    rows: np.ndarray
    fingerprint: str
    bits: Bits
    dual: np.ndarray
    scores: dict[str, dict[str, float]]
    notes: tuple[str, ...] = ()
    versions: dict[str, str] | None = None
    multipliers: Multipliers | None = None
    numbers: Numbers | None = None
    merged: bool = True
    status: Status | None = None
    proof: Bound | None = None
    members: tuple[ProvenMember, ...] = ()

    def __repr__(self) -> str:
        classes = self.target.classes
        what = "regression" if classes is None else f"{len(classes)} classes"
        columns = count(len(self.encoder.columns), "column")
        lines = [
            f"Model of {self.target.name!r} ({what}) from {columns}, "
            f"{count(len(self.encoder.features), 'feature')}",
            f"  {type(self.estimator).__name__}, alpha {self.estimator.alpha_:.4g}, "
            f"{count(self.network.n_neurons, 'neuron')}",
            f"  relative gap {text_above(self.certificate.relative_gap, 2)}, "
            f"{self.certificate.scope}",
        ]
        if self.members:
            lines[-1] += f"; the first of {len(self.members)} networks whose mean is not certified"
        for part, scores in self.scores.items():
            listed = ", ".join(f"{name} {value:.4g}" for name, value in scores.items())
            lines.append(f"  {part}: {listed}")
        return "\n".join(line if len(line) <= 100 else line[:97] + "..." for line in lines)

    @property
    def network(self) -> TwoLayerNetwork:
        return self.estimator.network_

    @property
    def certificate(self) -> Certificate:
        return self.estimator.certificate_

    @property
    def task(self) -> str:
        return self.target.task

    @property
    def certified(self) -> tuple[ProvenMember, ...]:
        """The networks that certificates are about: the model's own, or those whose mean it is."""
        return self.members or (
            ProvenMember(
                network=self.network,
                certificate=self.certificate,
                alpha=self.estimator.alpha_,
                converged=self.estimator.converged_,
                share=1.0,
                places=None,
                bits=self.bits,
                dual=self.dual,
                multipliers=self.multipliers,
                numbers=self.numbers,
            ),
        )

    # -- training

    @classmethod
    def fit(
        cls,
        table: Any,
        target: str,
        *,
        task: str | None = None,
        kind: str = "relu",
        alpha: float | None = None,
        drop: Sequence[str] = (),
        categorical: Sequence[str] = (),
        use: Sequence[str] = (),
        na: Sequence[str | float] = (),
        weight: str | None = None,
        impute: bool = True,
        holdout: float = 0.2,
        max_categories: int = MAX_CATEGORIES,
        day_first: bool | None = None,
        seed: int = 0,
        on_data: Callable[[Sequence[str]], object] | None = None,
        on_iteration: Callable[[Progress], object] | None = None,
        on_round: Callable[[Round], object] | None = None,
        on_alpha: Callable[[int, int], object] | None = None,
        checkpoint: str | PathLike[str] | Store | None = None,
        **settings: object,
    ) -> Model:
        """Train a model of a column of a table.

        Parameters
        ----------
        table : a frame of pandas, Polars or PyArrow, a dict of columns, a `Table`, the name of a
            file or of several, or a `ShardedTable`, of which every process has some rows. Texts,
            categories, booleans, dates and missing values are encoded as `cvxnn.TableEncoder` does
            it.
        target : the name of the column to predict; rows without a value there are left out.
        task : "classification" or "regression"; None to decide by the target: texts, and up to ten
            different whole numbers, are classes.
        kind : "relu" or "gated".
        alpha : strength of the penalty; None to choose by cross-validation.
        drop : names of columns not to learn from.
        categorical : names of columns whose values are categories even if they are numbers.
        use : names of columns to learn from although they look like identifiers or names.
        na : further texts or numbers that stand for missing values, such as -999.
        weight : the name of a column of sample weights; rows of weight zero are left out.
        impute : fill in missing values; otherwise they are an error.
        holdout : share of the rows to hold out from training and score the model on.
        max_categories : columns with more different texts are left out.
        day_first : whether 01/02/2003 is in February, where the dates leave it open.
        seed : for the rows held out, the patterns, and the folds.
        on_data : called with the notes on the data, before training.
        on_iteration, on_round, on_alpha : called during training, with the solver's progress, with
            the rounds of generation, and with the number of strengths compared and planned.
        checkpoint : a file that keeps the run of the solver, as in `cvxnn.solve`; `alpha` has to be
            given, because folds are not kept.
        settings : other parameters of the estimator, such as `n_patterns` or `tol`.
        """
        check_choice(kind, "kind", KINDS)
        if checkpoint is not None and alpha is None:
            raise TypeError("checkpoint is given without alpha: folds cannot be kept")
        if checkpoint is not None and settings.get("patterns") == "generate":
            raise TypeError("checkpoint is given with patterns='generate': rounds cannot be kept")
        table = table if isinstance(table, ShardedTable) else as_table(table)
        encoder = TableEncoder(
            drop=drop,
            categorical=categorical,
            use=use,
            na=na,
            impute=impute,
            max_categories=max_categories,
            day_first=day_first,
        )
        with step("preparing the columns"):
            data = TrainingData.of(table, target, task, weight, holdout, seed, encoder)
        ranks = data.ranks
        if on_data is None:
            warn_about_guesses(data.notes)
        else:
            on_data(data.notes)
        given = {} if alpha is None else {"alpha": alpha}
        estimator = make_estimator(
            kind, data.target.task, alpha is None, seed, {**given, **settings}
        )
        X, y, weights = data.part(TRAINED)
        kept = Path(checkpoint) if isinstance(checkpoint, str | PathLike) else checkpoint
        watch = Watch(on_iteration, on_round, on_alpha, data.encoder.features, kept)
        with step("training"):
            shared: Any = X if ranks is None else ShardedRows(X, ranks)
            found = train(estimator, shared, y, weights, watch)
        with step("scoring"):
            parts = {"training": (X, y, weights), "held out": data.part(HELD_OUT)}
            scores = scores_by_part(estimator, parts, ranks)
        model = cls(
            estimator=estimator,
            encoder=data.encoder,
            target=data.target,
            rows=data.rows,
            fingerprint=fingerprint_of(X, y, weights) if ranks is None else "",
            scores=scores,
            notes=data.notes,
            versions=_versions(),
            numbers=found.posed.numbers,
            merged=found.solution.problem.operator.in_memory,
            proof=found.bound if found.bound.over_all_patterns else None,
            members=found.members,
            **_outcome(found.solution),
        )
        with step("bounding the objective"):
            if ranks is not None:
                return model._with_margin(X, found)._without_rows()
            if not model.merged:
                return model._with_margin(X, found)
            return model._claiming(table)

    # -- use

    def predict(self, table: Any) -> np.ndarray:
        """The predictions for the rows of a table: labels as they were in training, or numbers.
        Columns may be in any order, and among others."""
        columns, notes = self.predictions(table)
        warn_about_guesses(notes)
        predicted = columns["prediction"]
        return predicted if self.target.classes is None else self.target.restored(predicted)

    def predict_proba(self, table: Any) -> np.ndarray:
        """The probabilities (n, classes) of the classes, in the order of `classes_`."""
        columns, notes = self.predictions(table)
        if len(columns) == 1:
            raise AttributeError(
                f"a {self.task} with loss={self.estimator.loss!r} has no probabilities"
            )
        warn_about_guesses(notes)
        return np.column_stack([columns[name] for name in list(columns)[1:]])

    @property
    def classes_(self) -> np.ndarray:
        """The labels in the order of the probabilities."""
        if self.target.classes is None:
            raise AttributeError("a regression has no classes")
        return self.target.restored(self.estimator.classes_)

    def predictions(self, table: Any) -> tuple[dict[str, np.ndarray], list[str]]:
        """Columns of predictions, with a value for each row of the table, and notes on the data.
        The columns are `prediction` and, if the loss gives probabilities, a `probability_<class>`
        for each class, all of them as in a file."""
        X, notes = self.encoder.encode(as_table(table))
        columns: dict[str, np.ndarray] = {"prediction": self.estimator.predict(X)}
        if hasattr(self.estimator, "predict_proba"):
            probabilities = self.estimator.predict_proba(X)
            for k, label in enumerate(self.estimator.classes_):
                columns[f"probability_{label}"] = probabilities[:, k]
        return columns, notes

    def training_rows(self, table: Any) -> Part:
        """Features, targets and weights of the rows that the model was trained on, if this is the
        table that they came from."""
        table = as_table(table)
        if not self.fingerprint:
            raise TableError(
                f"the model was trained on {np.sum(self.rows == TRAINED):,} rows in several "
                "processes, and its file holds neither their patterns nor their dual point: its "
                "bounds were proven in training, and cannot be checked again"
            )
        X, y, weights = self._part(table, TRAINED)
        if fingerprint_of(X, y, weights) != self.fingerprint:
            raise TableError(
                f"{table.source} has as many rows as the table that the model was trained on, but "
                "its training rows are different, or in another order"
            )
        return X, y, weights

    def held_out_rows(self, table: Any) -> Part:
        return self._part(table, HELD_OUT)

    def _part(self, table: Any, part: int) -> Part:
        table = as_table(table).with_missing(self.encoder.na)
        if len(table) != len(self.rows):
            raise TableError(
                f"{table.source} has {len(table)} rows, but the model was trained on a table with "
                f"{len(self.rows)}: give that one"
            )
        some = table.select(self.rows == part)
        X = encoded_rows(self.encoder, some) if table.in_files else self.encoder.encode(some)[0]
        return X, self.target.values(some), self.target.weights(some)

    def verify(
        self,
        table: Any,
        *,
        max_seconds: float | None = None,
        on_leaves: Callable[[int, int], object] | None = None,
    ) -> Verification:
        """Check the bounds of the certificate on the table that the model was trained on, by code
        that shares nothing with the solvers (see `verification.verify_network`). Where the network
        is a mean of several, each of them is checked on its own rows.

        A bound over all patterns is checked as well, from the evidence in the file; `max_seconds`
        is for that, and `on_leaves` is called with the leaves of its trees that are proven, and
        the number of all.
        """
        given = self._given(table)
        found = []
        for k, member in enumerate(self.certified, start=1):
            of_all = f" of network {k} of {len(self.members)}" if self.members else ""
            with step(f"checking the objective and the lower bound{of_all}"):
                posed = self._posed_of(given, member)
                found.append(posed.verified(member))
                if k == 1:
                    first = posed
        own = found[0]
        checked = own.checked if self.numbers is not None else (*own.checked, _OLD_FILE)
        over_all = None
        if self.proof is not None:
            with step("checking the proof over all patterns"):
                over_all = verify_bound(
                    self.proof,
                    first.program,
                    own.objective,
                    columns=first.numbers.scope,
                    max_seconds=math.inf if max_seconds is None else max_seconds,
                    report=on_leaves and (lambda at: on_leaves(at.leaves, at.n_leaves)),
                )
        return replace(own, checked=checked, over_all=over_all, others=tuple(found[1:]))

    def prune(self, table: Any) -> Model:
        """A minimal network with the same predictions on the training rows, and no higher an
        objective there."""
        posed = self._posed_alone(table, "pruned")
        smaller = prune(posed.numbers.scale_network(self.network), posed.rows.X)
        return self._with_network(posed.numbers.unscale_network(smaller), table)

    def improve(
        self,
        table: Any,
        *,
        n_patterns: int = 0,
        alpha: float | None = None,
        tol: float = 1e-4,
        random_state: int | np.random.Generator | None = 0,
        solver: str | Solver = "auto",
        max_seconds: float | None = None,
        on_iteration: Callable[[Progress], object] | None = None,
    ) -> Model:
        """The model with the best network over the patterns of this one and `n_patterns` sampled
        ones; the parameters are those of `cvxnn.improve`, with `on_iteration` for its callback."""
        with step("preparing the columns"):
            posed = self._posed_alone(table, "improved")
        network, rows = posed.numbers.scale_network(self.network), posed.rows
        found = improve(
            network,
            rows.X,
            rows.Y[:, 0] if network.flat_output else rows.Y,
            self.estimator.alpha_ if alpha is None else alpha,
            loss=posed.program.loss,
            sample_weight=rows.weight,
            n_patterns=n_patterns,
            huber_delta=posed.program.delta if posed.program.loss == "huber" else None,
            tol=tol,
            random_state=random_state,
            solver=solver,
            max_seconds=max_seconds,
            callback=on_iteration,
        )
        estimator, solution = self._with_given_alpha(found.solution, tol), found.solution
        estimator.certificate_ = replace(
            solution.certificate, scope=solution.certificate.scope + posed.numbers.scope
        )
        estimator.bound_ = Bound.of_certificate(estimator.certificate_)
        estimator.n_iter_ = max(solution.n_iter, 1)
        estimator.n_patterns_ = len(solution.problem.patterns)
        estimator.lambda_max_ = lambda_max(solution.problem)
        better = replace(
            self,
            estimator=estimator,
            notes=(*self.notes, _improved(network, found.solution, n_patterns)),
            numbers=posed.numbers.with_weights_of(solution.problem),
            proof=None,
            **_outcome(solution),
        )
        return better._with_network(posed.numbers.unscale_network(found.network), table)

    def _with_given_alpha(self, solution: Solution, tol: float) -> NetworkEstimator:
        """The estimator without cross-validation, with the alpha of a new solution."""
        name = type(self.estimator).__name__.removesuffix("CV")
        cls = getattr(estimators, name)
        known = {k: v for k, v in self.estimator.get_params().items() if k in cls().get_params()}
        estimator = cls(**{**known, "alpha": solution.problem.lam, "tol": tol})
        chosen = ("alphas_", "cv_scores_", "cv_neurons_", "best_index_", "best_score_", "scorer_")
        own = {k: v for k, v in vars(self.estimator).items() if k.endswith("_") and k not in chosen}
        vars(estimator).update(own)
        estimator.alpha_, estimator.history_ = solution.problem.lam, solution.history
        estimator.converged_ = solution.converged
        return estimator

    def _given(self, table: Any) -> Rows:
        """The rows that the model was trained on, one for each row of the table."""
        posing = Posing.of_fitted(self.estimator)
        X, y, weights = self.training_rows(table)
        classes = posing.targets.classes if isinstance(posing.targets, Labels) else None
        if classes is not None and not np.array_equal(np.unique(y), classes):
            source = as_table(table).source
            raise ModelFileError(f"the model's classes are not those of its rows in {source}")
        return posing.rows(X[:] if is_stored(X) else X, y, weights)

    def _posed(self, table: Any) -> PosedAgain:
        """The certified program of the network of all rows."""
        return self._posed_of(self._given(table), self.certified[0])

    def _posed_of(self, given: Rows, member: ProvenMember) -> PosedAgain:
        return PosedAgain.of(self.estimator, given, member, merged=self.merged)

    def _posed_alone(self, table: Any, changed: str) -> PosedAgain:
        """The certified program of the only network."""
        if self.members:
            raise ValueError(
                f"this model is the mean of {len(self.members)} networks, and only a single one "
                f"can be {changed}: train it without ensemble"
            )
        return self._posed(table)

    def _with_network(self, network: TwoLayerNetwork, table: Any) -> Model:
        estimator = _copy(self.estimator)
        estimator.network_ = network
        rows = {"training": self.training_rows(table), "held out": self.held_out_rows(table)}
        found = scores_by_part(estimator, rows)
        model = replace(self, estimator=estimator, scores=found)
        return model._claiming(table)

    def _claiming(self, table: Any) -> Model:
        """The model with certificates whose objectives hold for the networks as they will be in the
        file (see `PosedAgain.claim`)."""
        given, claimed = self._given(table), []
        for member in self.certified:
            claim = self._posed_of(given, member).claim(member.network, member.certificate)
            claimed.append(replace(member, certificate=claim))
        estimator, certificate = _copy(self.estimator), claimed[0].certificate
        estimator.certificate_ = certificate
        objective = certificate.objective
        estimator.bound_ = replace(estimator.bound_, objective=objective)
        proof = None if self.proof is None else replace(self.proof, objective=objective)
        members = tuple(claimed) if self.members else ()
        if members:
            estimator.members_ = tuple(member.plain for member in members)
        return replace(self, estimator=estimator, proof=proof, members=members)

    def _with_margin(self, X: StoredRows, found: Fit) -> Model:
        """The model with a certificate whose objective is computed in floating point, for the
        network as it will be in the file, with far more of a margin than rounding needs: without
        rounding it would take hours for as many rows as there are in files."""
        claim, posed = self.certificate, found.posed
        if isinstance(posed.problem, CReLU) and self.fingerprint == "":  # posed on a sample
            return self._claimed(claim.objective)
        outputs = outputs_of(self.network, X)
        Z = posed.numbers.targets.apply(outputs.reshape(len(X), self.network.n_outputs))
        problem, U = posed.problem, posed.problem.check_weights(found.solution.weights)
        bias = np.zeros(Z.shape[1]) if problem.output_bias else None  # it is part of Z
        value = problem.loss.value_above(Ball(Z), bias) + problem.penalty.value(U)
        return self._claimed(max(value, claim.objective))

    def _claimed(self, objective: float) -> Model:
        """The model with an objective, and a wide margin for what is computed from raw rows."""
        estimator, objective = _copy(self.estimator), objective * (1 + WIDE_MARGIN)
        own = objective if self.certificate.network_objective is not None else None
        estimator.certificate_ = replace(
            self.certificate, objective=objective, network_objective=own
        )
        estimator.bound_ = Bound.of_certificate(estimator.certificate_)
        return replace(self, estimator=estimator)

    def _without_rows(self) -> Model:
        """The model without patterns and dual point of its rows, which no process has all of."""
        bits, C = Bits.empty(0, self.estimator.n_patterns_), self.network.n_outputs
        numbers = self.numbers
        assert numbers is not None
        numbers = replace(numbers, row_weight=np.zeros(0))
        return replace(
            self, bits=bits, dual=np.zeros((0, C)), numbers=numbers, multipliers=None, merged=False
        )

    # -- other programs

    @property
    def link(self) -> str | None:
        """What turns the outputs of the network into probabilities, if there are any."""
        if self.target.classes is None or not hasattr(self.estimator, "predict_proba"):
            return None
        return "logistic" if len(self.target.classes) == 2 else "softmax"

    def to_onnx(self, path: str | PathLike[str], *, dtype: str = "float64") -> None:
        """Write an ONNX model that takes the columns of the table, an input (n, 1) for each: texts
        for categories, with an empty one if the value is missing, and doubles for numbers and for
        dates (days since 1970), with NaN. It gives `prediction`, for classes also `label`, and
        `probabilities` if the loss has any."""
        to_onnx(self.network, self.encoder, self.target, path, link=self.link, dtype=dtype)

    def to_torch(self, *, dtype: str = "float64") -> torch.nn.Module:
        """A torch module that takes a matrix with one number for each column of
        `encoder.columns`: numbers, dates in days since 1970, and places of categories, with NaN
        where the value is missing. It gives numbers or, where the loss has them, probabilities."""
        return to_torch(self.network, self.encoder, link=self.link, dtype=dtype)

    # -- files

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a file that holds data and no code; `cvxnn.load` reads it. Parameters
        that are not data, such as gates or a solver of your own, are not kept."""
        modelfile.write(content_of(self), path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Model:
        """Read a model that `Model.save` or `cvxnn fit` has written."""
        content = modelfile.read(path, NETWORKS)
        if content.description is None:
            raise ModelFileError(
                f"{path} holds only a network, without columns: read it with cvxnn.load"
            )
        return cls.of_file(content, path)

    @classmethod
    def of_file(cls, content: Content, path: str | PathLike[str]) -> Model:
        """The model of a file's contents; `path` is for messages."""
        try:
            return cls(**restored(content))
        except KeyError as error:
            raise ModelFileError(f"{path} is incomplete: {error} is missing") from error
        except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
            raise ModelFileError(f"{path} is inconsistent: {error}") from error


class _Outcome(TypedDict):
    """How a run ended, and what its lower bound rests on: fields of a model."""

    status: Status
    bits: Bits
    dual: np.ndarray
    multipliers: Multipliers | None


def _outcome(solution: Solution) -> _Outcome:
    return {
        "status": solution.status,
        "bits": solution.problem.patterns.bits,
        "dual": np.asarray(solution.dual),
        "multipliers": solution.multipliers,
    }


def _improved(network: TwoLayerNetwork, solution: Solution, n_sampled: int) -> str:
    """The note on an improvement."""
    p = len(solution.problem.patterns)
    return (
        f"improved: solved again over {p} patterns, those of an earlier network with "
        f"{network.n_neurons} neurons and up to {n_sampled} sampled ones"
    )


def _versions() -> dict[str, str]:
    found = {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    return {"cvxnn": cvxnn.__version__, **found}


def _copy(estimator: NetworkEstimator) -> NetworkEstimator:
    other = type(estimator)(**estimator.get_params())
    other.__dict__.update(vars(estimator))
    return other
