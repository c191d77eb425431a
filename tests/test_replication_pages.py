"""What the pages of Figure 1 and Table 3 conclude from given numbers."""

from __future__ import annotations

import pytest
from replication.experiment import Done, Judgement
from replication.figure1 import page as figure1
from replication.paper import printed, selected
from replication.table3 import page as table3
from replication.table3 import settings
from replication.table3.cells import ADAM, R_FISTA, SGD, Cells


def done(settings_, row) -> Done:
    return Done("key", settings_, row, 1.0, "desk", "here")


def sgd_piece(objectives, accuracies, scale="convex"):
    runs = [
        {"seed": k, "status": "converged", "epochs": 9, "objective": f, "accuracy": a}
        | {"test_accuracy": 90.0, "curve": []}
        for k, (f, a) in enumerate(zip(objectives, accuracies, strict=True))
    ]
    row = {"runs": runs, "majority": [93.0, 93.0]}
    return done({"kind": "sgd", "teacher": "uniform", "scale": scale, "seeds": []}, row)


def test_runs_are_suboptimal_by_accuracy_or_by_objective():
    piece = sgd_piece([1.0, 1.19, 1.21, 1.0], [100, 100, 100, 99.6])
    runs = figure1.Runs.of([piece, sgd_piece([9.0], [50], "released")], "uniform")
    assert [run["seed"] for run in runs.suboptimal] == [2, 3]


@pytest.mark.parametrize(
    ("bad", "judgement"),
    [(0, Judgement.FAILS), (4, Judgement.HOLDS), (8, Judgement.FAILS)],
)
def test_claim_of_suboptimal_runs(bad, judgement):
    piece = sgd_piece([1.0] * 10, [99.0] * bad + [100.0] * (10 - bad))
    assert figure1.verdicts([piece])[0].judgement is judgement


def gradient_piece(name, method, accuracies, status="limit"):
    piece = settings.gated(name, method, 500, settings.GATED)
    runs = [
        {"accuracy": a, "objective": 0.1, "status": status, "epochs": 500, "seconds": 1.0}
        for a in accuracies
    ]
    return done(piece.settings, {"n_test": 67, "runs": runs})


def test_catastrophe_is_a_median_below_one_half():
    for accuracies, judgement in (
        ([3.0, 4.5, 4.5, 60.0, 60.0], Judgement.HOLDS),
        ([3.0, 4.5, 60.0, 60.0, 60.0], Judgement.FAILS),
    ):
        verdict = table3.verdicts([gradient_piece("ecoli", "sgd", accuracies)])[2]
        assert verdict.judgement is judgement
    others = [gradient_piece("ecoli", "adam", [4.5] * 5)]
    assert table3.verdicts(others)[2].judgement is Judgement.OPEN


def test_cells_find_their_runs_and_their_printed_numbers():
    cells = Cells([gradient_piece("ecoli", "sgd", [3.0, 4.0, 4.5, 5.0, 6.0])])
    cell = cells.get("ecoli", SGD)
    assert cell is not None
    assert cells.get("ecoli", ADAM) is None
    assert cell.printed == printed(3)["ecoli"]["sgd_gated_relu_test_accuracy_percent_median"]
    assert cell.agreement == "same"
    assert cell.cross_validated == pytest.approx(90.57)


def test_other_penalties_explain_a_printed_cell():
    piece, grid = settings.convex_gated("contrac", settings.GATE_SEEDS), settings.grid("contrac")
    run = {"accuracy": 53.4, "status": "converged", "seconds": 1.0, "gap": 0.1}
    row = {"n_test": 294, "rfista": [run] * 5, "optimum": [run] * 5}
    accuracies = [45.6] + [53.4] * (len(grid.settings["lams"]) - 1)
    cells = Cells(
        [done(piece.settings, row), done(grid.settings, {"n_test": 294, "accuracies": accuracies})]
    )
    cell = cells.get("contrac", R_FISTA)
    assert cell is not None
    assert cell.agreement == "far"
    assert "penalties 1e-06 of the grid" in table3._why(cell, cells)
    assert selected(3)["contrac"]["c_grelu_rfista_lambda"] == pytest.approx(4.64159e-4)
