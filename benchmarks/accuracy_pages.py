"""The page of the benchmark `accuracy`, from its pieces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks import regression_tables
from benchmarks.record import Row, Rows, geometric_mean, markdown_table

OURS, BEFORE = "ReLU", "0.1.0"
AGAIN = "default, again"  # measured together with the variants, whose times it is there for
TITLES = {
    "choice": "Choice half",
    "regression": "Regression",
    "confirmation": "Confirmation half",
}
Key = tuple[str, int]  # a set and a split


@dataclass(frozen=True)
class Part:
    """The pieces of one part, by model and by set and split; those that ended."""

    pieces: dict[str, dict[Key, Row]]

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Part:
        pieces: dict[str, dict[Key, Row]] = {}
        for row in rows:
            if row["status"] == "ended":
                pieces.setdefault(row["model"], {})[row["set"], row["split"]] = row
        return cls(pieces)

    def shared(self, models: Sequence[str]) -> list[Key]:
        """What all of these models have ended on."""
        found = set.intersection(*(set(self.pieces.get(model, {})) for model in models))
        return sorted(found)

    def table(self, models: Sequence[str], key: str, keys: Sequence[Key]) -> np.ndarray:
        """The means over splits: (sets, models); nan where early measurements lack something."""
        sets = sorted({name for name, _ in keys})
        return np.array(
            [
                [
                    np.mean([self.pieces[model][k].get(key, np.nan) for k in keys if k[0] == name])
                    for model in models
                ]
                for name in sets
            ]
        )

    def calibration(self, model: str, keys: Sequence[Key]) -> float:
        """The expected calibration error, its bins pooled over the splits of a set; the mean over
        the sets."""
        if not all("bins" in self.pieces[model][key] for key in keys):
            return np.nan
        errors = []
        for name in sorted({name for name, _ in keys}):
            bins = sum(np.array(self.pieces[model][k]["bins"]) for k in keys if k[0] == name)
            rows, confidence, right = np.asarray(bins)
            errors.append(np.abs(confidence - right).sum() / rows.sum())
        return float(np.mean(errors))


def mean_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1 for the smallest, ties shared, averaged over the sets."""
    below = (values[:, None, :] < values[:, :, None]).sum(axis=2)
    ties = (values[:, None, :] == values[:, :, None]).sum(axis=2)
    return np.mean(below + (ties + 1) / 2, axis=0)


def paired(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """The mean over the sets of the differences, and its standard error."""
    differences = theirs - ours
    error = differences.std(ddof=1) / np.sqrt(len(differences)) if len(differences) > 1 else np.nan
    return float(differences.mean()), float(error)


def part_of(rows: Rows, part: str) -> Part:
    return Part.of(row for row in rows.values() if row["part"] == part)


def entrants(rows: Rows, part: str) -> tuple[list[str], list[Key], Part]:
    """The default first, then the others that are no variants of it, what all of them have ended
    on, and the part. One that has ended on fewer than half as many pieces as the default waits
    until there are more."""
    found = part_of(rows, part)
    variants = {row["model"] for row in rows.values() if row["variant"]}
    most = len(found.pieces.get(OURS, {}))
    models = [
        model
        for model, pieces in found.pieces.items()
        if model not in {*variants, OURS, BEFORE} and 2 * len(pieces) > most
    ]
    models = [OURS, *models] if most else []
    return models, found.shared(models) if models else [], found


def present(rows: Rows) -> str:
    parts = [part for part in TITLES if any(row["part"] == part for row in rows.values())]
    text = [
        "Random splits into 80 and 20 percent, stratified by class. Differences are to "
        f"`{OURS}ClassifierCV` or `{OURS}RegressorCV` with default settings, with their standard "
        "errors over the sets; nothing is corrected for the number of comparisons. The SVM and the "
        "MLP are scikit-learn's, tuned over 16 and 6 settings by cross-validation on at most 4,000 "
        "rows; all others have their default settings. Whoever does not scale columns gets them "
        "standardised. "
        "Probabilities below 1e-15 count as that, which costs forests and boosting some log-loss: "
        "see the medians and the Brier scores beside it. Seconds are processor seconds of a fit "
        "on one thread."
    ]
    for part in parts:
        text += [f"## {TITLES[part]}", *_section(rows, part)]
    versions = sorted({row["version"] for row in rows.values() if "version" in row})
    return "\n\n".join([*text, f"Versions: {', '.join(versions)}."])


def _section(rows: Rows, part: str) -> list[str]:
    models, keys, found = entrants(rows, part)
    if not keys:
        return ["There is no set yet on which all models have ended."]
    n_sets, n_splits = len({name for name, _ in keys}), len({split for _, split in keys})
    if part == "regression":
        return [_about_tables(keys), *_regression(found, models, keys), _failures(rows, part)]
    about = {
        "choice": "Defaults are chosen on these sets: every set that a decision was ever based "
        "on, and every tenth of the others by size (`benchmarks/halves.py`). They show what the "
        "decisions were based on, not how good the models are on new tables.",
        "confirmation": "No decision was based on these sets.",
    }[part]
    return [
        f"{about} {n_sets} sets, up to {n_splits} of five splits: those that all of these models "
        "have ended on.",
        _standings(found, models, keys),
        _times(found, models, keys),
        *_variants(rows, part),
        "Log-loss by set, the mean of the splits:",
        _details(found, models, keys, "log_loss"),
        _failures(rows, part),
    ]


def _standings(found: Part, models: list[str], keys: list[Key]) -> str:
    accuracy = 100 * found.table(models, "accuracy", keys)
    losses = found.table(models, "log_loss", keys)
    brier = found.table(models, "brier", keys)
    ranks = mean_ranks(-accuracy), mean_ranks(losses)
    lines = []
    for j in np.argsort(ranks[1], kind="stable"):
        mine = models[j] == OURS
        lines.append(
            [
                f"**{models[j]}**" if mine else models[j],
                f"{accuracy[:, j].mean():.1f}",
                "" if mine else _difference(accuracy[:, 0], accuracy[:, j], ".1f"),
                f"{ranks[0][j]:.2f}",
                f"{losses[:, j].mean():.3f}",
                "" if mine else _difference(losses[:, 0], losses[:, j], ".3f"),
                f"{np.median(losses[:, j]):.3f}",
                f"{ranks[1][j]:.2f}",
                _number(brier[:, j].mean()),
                _number(found.calibration(models[j], keys)),
            ]
        )
    header = ["", "accuracy %", "difference (SE)", "mean rank", "log-loss", "difference (SE)"]
    return markdown_table([*header, "median", "mean rank", "Brier", "calibration error"], lines)


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.3f}"


def _difference(ours: np.ndarray, theirs: np.ndarray, form: str) -> str:
    mean, error = paired(ours, theirs)
    return "" if np.isnan(mean) else f"{mean:+{form}} ({error:{form}})"


def _times(found: Part, models: list[str], keys: list[Key]) -> str:
    lines = []
    known = set(keys) <= set(found.pieces.get(BEFORE, {}))
    for model in [*models, *([BEFORE] if known else [])]:
        seconds = np.array([found.pieces[model][key]["seconds"] for key in keys])
        lines.append([model, *(f"{np.quantile(seconds, q):.2g}" for q in (0.1, 0.5, 0.9, 1.0))])
    header = ["seconds of a fit", "one in ten is below", "median", "one in ten is above", "longest"]
    return "\n\n".join([markdown_table(header, lines), *_elsewhere(found, keys)])


def _elsewhere(found: Part, keys: list[Key]) -> list[str]:
    """What was measured elsewhere, and therefore has other seconds."""
    machines: dict[str, list[str]] = {}
    for model, pieces in found.pieces.items():
        for machine in {pieces[key]["machine"] for key in keys if "machine" in pieces.get(key, {})}:
            machines.setdefault(machine, []).append(model)
    return [
        f"Seconds of {', '.join(models)} are of another machine, {machine}: compare them with "
        "each other only."
        for machine, models in machines.items()
    ]


def _variants(rows: Rows, part: str) -> list[str]:
    """Each against the default, on the pieces that both have ended on."""
    found = part_of(rows, part)
    variants = [
        model
        for model, pieces in found.pieces.items()
        if model == BEFORE or next(iter(pieces.values()))["variant"]
    ]
    lines = []
    for model in variants:
        keys = found.shared([OURS, model])
        if not keys:
            continue
        values = {
            key: found.table([OURS, model], key, keys) for key in ("accuracy", "log_loss", "brier")
        }
        lines.append(
            [
                model,
                f"{len(values['accuracy'])} / {len(keys)}",
                _difference(*(100 * values["accuracy"]).T, ".2f"),
                _difference(*values["log_loss"].T, ".4f"),
                f"{int(np.sum(values['log_loss'][:, 1] < values['log_loss'][:, 0]))}",
                _difference(*values["brier"].T, ".4f"),
                f"{_time_ratio(found, model, keys):.2f}",
            ]
        )
    if not lines:
        return []
    header = [
        "",
        "sets / pieces",
        "accuracy % (SE)",
        "log-loss (SE)",
        "sets with less",
        "Brier (SE)",
    ]
    return [
        "Variants of ours, as differences to the default, on the pieces that both have ended on; "
        "times are geometric means of ratios over the pieces, those of variants to the default "
        f"measured together with them ({AGAIN!r}), because other work slows a machine down:",
        markdown_table([*header, "time"], lines),
    ]


def _time_ratio(found: Part, model: str, keys: list[Key]) -> float:
    again = found.pieces.get(AGAIN, {})
    ratios = []
    for key in keys:
        own, base = found.pieces[model][key], found.pieces[OURS][key]
        if own["variant"]:
            base = again.get(key, base)
        ratios.append(own["seconds"] / base["seconds"])
    return geometric_mean(ratios)


def _details(found: Part, models: list[str], keys: list[Key], key: str) -> str:
    values = found.table(models, key, keys)
    lines = []
    for name, line in zip(sorted({name for name, _ in keys}), values, strict=True):
        best = line.max() if key == "r2" else line.min()
        row = found.pieces[OURS][next(k for k in keys if k[0] == name)]
        cells = [f"**{v:.3f}**" if v == best else f"{v:.3f}" for v in line]
        lines.append([name, row["n"], row["d"], row["classes"] or "", *cells])
    return markdown_table(["", "rows", "columns", "classes", *models], lines)


def _about_tables(keys: list[Key]) -> str:
    names = sorted({name for name, _ in keys})
    origins: dict[str, list[str]] = {}
    for name in names:
        origins.setdefault(regression_tables.origin(name), []).append(name)
    listed = "; ".join(f"{origin}: {', '.join(names)}" for origin, names in origins.items())
    return f"{len(names)} tables. {listed}."


def _regression(found: Part, models: list[str], keys: list[Key]) -> list[str]:
    values = found.table(models, "r2", keys)
    ranks = mean_ranks(-values)
    lines = []
    for j in np.argsort(ranks, kind="stable"):
        mine = models[j] == OURS
        lines.append(
            [
                f"**{models[j]}**" if mine else models[j],
                f"{values[:, j].mean():.3f}",
                "" if mine else _difference(values[:, 0], values[:, j], ".3f"),
                f"{np.median(values[:, j]):.3f}",
                f"{ranks[j]:.2f}",
            ]
        )
    return [
        markdown_table(["", "R²", "difference (SE)", "median", "mean rank"], lines),
        _times(found, models, keys),
        "R² by table, the mean of the splits:",
        _details(found, models, keys, "r2"),
    ]


def _failures(rows: Rows, part: str) -> str:
    failed = [
        f"{row['model']} on {row['set']}, split {row['split']}: "
        + row.get("reason", f"no answer in {row.get('seconds', 0):.0f} s")
        for row in rows.values()
        if row["part"] == part and row["status"] != "ended"
    ]
    if not failed:
        return "Every piece that was begun has ended."
    return f"Without an answer, and left out: {'; '.join(failed)}."


def misses(rows: Rows) -> list[str]:
    """What the confirmation half and the tables of regression do not show as wanted."""
    models, keys, part = entrants(rows, "confirmation")
    found = _missed(part, models, keys) if keys else ["the confirmation half is not measured yet"]
    models, keys, part = entrants(rows, "regression")
    if not keys:
        return [*found, "regression is not measured yet"]
    ranks = mean_ranks(-part.table(models, "r2", keys))
    place = 1 + int(np.sum(ranks < ranks[0]))
    if place > 2:
        found.append(f"regression: place {place} by the mean rank of R², wanted the second")
    return found


def _missed(part: Part, models: list[str], keys: list[Key]) -> list[str]:
    found = []
    losses, accuracy = (part.table(models, key, keys) for key in ("log_loss", "accuracy"))
    ranks = mean_ranks(losses)
    if ranks[0] > ranks.min():
        best = models[int(ranks.argmin())]
        found.append(f"mean rank in log-loss {ranks[0]:.2f}, {best} has {ranks.min():.2f}")
    best = int(accuracy.mean(axis=0).argmax())
    behind, error = paired(accuracy[:, 0], accuracy[:, best])  # 0 if ours is the best
    if best > 0 and not behind <= error:
        found.append(
            f"mean accuracy {100 * behind:.1f} points behind {models[best]}, whose standard error "
            f"is {100 * error:.1f}"
        )
    shared = part.shared([OURS, BEFORE])
    if not shared:
        return [*found, "the time of 0.1.0 is not measured: set CVXNN_OTHER"]
    now, before = (
        np.median([part.pieces[model][key]["seconds"] for key in shared])
        for model in (OURS, BEFORE)
    )
    if now > before / 2:
        found.append(f"median fit {now:.1f} s, {before:.1f} s in 0.1.0: wanted half of that")
    return found
