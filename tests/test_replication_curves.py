"""Figures 5, 18, 19 and Table 4: what is said of curves and cases follows from their numbers."""

import numpy as np
import pytest
from replication.experiment import Done
from replication.figure5.curves import PUBLISHED, Curve, collect
from replication.figure5.settings import LAMS, strengths
from replication.table4 import pictures
from replication.table4.page import verdicts
from replication.table4.settings import METHODS


def curve(accuracy, neurons, test_rows=50):
    accuracy = np.atleast_2d(np.array(accuracy, dtype=float))
    neurons = np.broadcast_to(neurons, accuracy.shape)
    lams = np.logspace(-6, 0, accuracy.shape[1])
    return Curve(lams, accuracy, neurons, np.zeros_like(accuracy), test_rows)


@pytest.mark.parametrize(
    ("accuracy", "inverted", "best"),
    [
        ([60, 70, 62, 100], True, 1),  # the last has no neurons and does not count
        ([70, 70, 62, 100], False, 1),  # of equal places the one with fewer neurons
        ([60, 62, 70, 100], False, 2),  # best at the last network with neurons
        ([60, 60.9, 60, 100], False, 1),  # less than half a test row
    ],
)
def test_an_inverted_u_beats_both_of_its_ends(accuracy, inverted, best):
    found = curve(accuracy, [9, 5, 2, 0])
    assert (found.inverted, found.best) == (inverted, best)


def test_spreads_are_judged_where_there_are_neurons():
    low, high = [60, 60, 60, 0], [60, 64, 70, 100]
    found = curve([low, low, high, high], [9, 5, 2, 0])
    np.testing.assert_allclose(found.spread, [0, 4, 10, 100])
    # two of 50 test rows are four points
    np.testing.assert_array_equal(found.steady, [True, True, False])


def test_samplings_with_other_strengths_share_a_curve():
    """Every other strength of one, all of another."""

    def done(seed, stride):
        settings = {"data": "monks-3", "kind": "gated", "patterns": 10, "seed": seed}
        settings |= {"stride": stride, "least": 1e-5}
        numbers = list(map(float, strengths(settings)))
        rows = dict.fromkeys(("accuracy", "neurons", "gap"), numbers)
        row = {"test_rows": 24, "published": rows, "exact": rows}
        return Done(str(seed), settings, row, 1.0, "desk", "here")

    found = collect([done(650, 1), done(651, 2)])[PUBLISHED, "monks-3", 10]
    wanted = LAMS[::2][LAMS[::2] >= 1e-5]
    np.testing.assert_array_equal(found.lams, wanted)
    np.testing.assert_array_equal(found.accuracy, [wanted, wanted])


@pytest.mark.parametrize(
    ("released", "judgement"), [(95.5, "holds"), (97.5, "does not hold"), (None, "cannot be told")]
)
def test_table4_judges_the_largest_complete_size(released, judgement):
    """By the best stochastic method, on either scale of the loss."""

    def done(size, method, test, scale="convex"):
        settings = {"size": size, "data": "mnist", "gates": "patch", "method": method}
        row = {"test": test, "status": "limit"}
        return Done(f"{size} {method} {scale}", settings | {"scale": scale}, row, 1.0, "desk", "")

    pieces = [done("large", "rfista", 50.0)]  # of a size that is not complete
    if released is not None:
        pieces += [done("small", method, 95.0) for method in METHODS]
        pieces += [done("small", "sgd", released, "released")]
    mnist, cifar = verdicts(pieces)
    assert (mnist.judgement, cifar.judgement) == (judgement, "cannot be told")


def test_patch_gates_see_nine_pixels_and_columns_have_norm_one(monkeypatch):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (50, 784), dtype=np.uint8)
    monkeypatch.setattr(pictures, "images", lambda name: (images, np.zeros(50, int)) * 2)
    piece = {"data": "mnist", "rows": 30, "patterns": 8, "gate_seed": 123, "gates": "patch"}
    found = pictures.Pictures.of(piece)
    np.testing.assert_allclose(np.linalg.norm(found.X, axis=0), 1, rtol=1e-5)
    assert np.all(np.count_nonzero(found.patterns.gates, axis=0) == 9)
    np.testing.assert_array_equal(found.active(found.X), found.patterns.mask)
