"""A report on a trained model: one HTML page that loads nothing and runs nothing.

estimator and rows -> contents (numbers) -> page (HTML, with charts as SVG) -> file
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline

from cvxnn.estimators.base import NetworkEstimator
from cvxnn.files import write_atomically
from cvxnn.reports.contents import contents_of, parts_of
from cvxnn.reports.page import page_of
from cvxnn.reports.samples import check_estimator
from cvxnn.tables.transformer import TableEncoder

__all__ = ["report"]


def report(
    estimator: NetworkEstimator | Pipeline,
    X: ArrayLike,
    y: ArrayLike,
    path: str | PathLike[str] = "report.html",
    *,
    sample_weight: ArrayLike | None = None,
    test: Sequence[ArrayLike | None] | None = None,
    title: str | None = None,
    feature_names: Sequence[object] | None = None,
    notes: str | None = None,
    facts: Iterable[tuple[object, object]] = (),
    columns: Sequence[object] | None = None,
    command: str | None = None,
    baselines: bool = True,
) -> Path:
    """Write a report on a fitted estimator: one HTML file that needs nothing else.

    It says what is proven about the network and what is not, how training and cross-validation
    went, how good the predictions are, which columns and neurons matter, and how to reproduce the
    model. Equal arguments give equal bytes.

    Parameters
    ----------
    estimator : one of the estimators of cvxnn, fitted, or a fitted pipeline that ends in one, such
        as `make_pipeline(TableEncoder(), ReLUClassifier())`. X is what the pipeline takes, and the
        page shows the importance of the columns of a table.
    X, y : rows and targets, usually those of the training. The page calls them training rows if
        the objective computed from them is the certified one.
    path : where to write the page. The file is written whole or not at all.
    sample_weight : (n,) weights of the rows, as in training.
    test : held-out rows, (X, y) or (X, y, sample_weight), shown beside the others.
    title : title of the page; None for the estimator's name.
    feature_names : names of the columns; None for those of the fit, or of X.
    notes : text to show on the page; empty lines separate paragraphs.
    facts : further (label, value) pairs for the section on how to reproduce the model.
    columns : for each feature the name of the column of a table that it was made from, where
        several may come from one, such as those of a category; their importance is then that of
        the columns.
    command : the command line that trains the model, to be shown.
    baselines : train a logistic or linear regression and boosted trees on the same rows, and show
        their scores beside those of the network.

    Returns
    -------
    The path of the file.
    """
    if isinstance(estimator, Pipeline):
        return _report_pipeline(
            estimator,
            X,
            y,
            path,
            test=test,
            feature_names=feature_names,
            columns=columns,
            sample_weight=sample_weight,
            title=title,
            notes=notes,
            facts=facts,
            command=command,
            baselines=baselines,
        )
    check_estimator(estimator)
    path = Path(path)
    if not path.parent.is_dir():  # before any work
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} to")
    contents = contents_of(
        estimator,
        X,
        y,
        sample_weight=sample_weight,
        test=test,
        title=title,
        feature_names=feature_names,
        notes=notes,
        facts=facts,
        columns=columns,
        command=command,
        baselines=baselines,
    )
    write_atomically(path, page_of(contents).encode("utf-8"))
    return path


def _report_pipeline(
    pipe: Pipeline,
    X: ArrayLike,
    y: ArrayLike,
    path: str | PathLike[str],
    *,
    test: Sequence[ArrayLike | None] | None,
    feature_names: Sequence[object] | None,
    columns: Sequence[object] | None,
    **settings: Any,
) -> Path:
    """A report on the estimator at the end of a pipeline, for rows as its last step sees them."""
    before, estimator = pipe[:-1], pipe[-1]
    check_estimator(estimator)
    encoder = before[-1] if len(before) else None
    if isinstance(encoder, TableEncoder):
        columns = columns or [c.name for c in encoder.encoder_.columns for _ in c.features]
        settings["notes"] = settings["notes"] or "\n\n".join(encoder.notes_) or None
    if len(before) and feature_names is None and hasattr(before, "get_feature_names_out"):
        feature_names = list(before.get_feature_names_out())
    if test is not None and len(before):
        X_test, *others = parts_of(test)
        test = (before.transform(X_test), *others)
    rows = before.transform(X) if len(before) else X
    return report(
        estimator,
        rows,
        y,
        path,
        test=test,
        feature_names=feature_names,
        columns=columns,
        **settings,
    )
