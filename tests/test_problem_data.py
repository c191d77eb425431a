"""Problems with the same data share them: at every strength, and with the gated relaxation."""

import dataclasses

import numpy as np
import pytest

import cvxnn
from conftest import make_data, make_problem
from cvxnn.problems.data import ProblemData


def make_relu(dtype=np.float64, **settings):
    X, y = make_data(40, 3)
    patterns = cvxnn.sample_patterns(X, 6, random_state=0)
    return cvxnn.CReLU(X.astype(dtype), y, patterns, 0.1, **settings)


def test_a_cone_problem_and_its_relaxation_have_the_same_data():
    relu = make_relu(bias=True, output_bias=True, normalize=True, loss="huber")
    assert relu.gated.data is relu.data
    names = {field.name for field in dataclasses.fields(ProblemData)} - {"operator", "penalty"}
    for name in names:
        assert getattr(relu, name) is getattr(relu.gated, name) is getattr(relu.data, name)
    assert relu.operator.base is relu.gated.operator
    assert cvxnn.CReLU.from_gated(relu.gated).data is relu.data


@pytest.mark.parametrize("make", [make_problem, make_relu], ids=["gated", "relu"])
def test_strengths_share_the_data_and_what_comes_from_them(make):
    problem = make()
    other = problem.with_lam(0.7)
    assert (other.lam, other.penalty.lam) == (0.7, 0.7)
    assert problem.penalty.lam == problem.lam != 0.7  # the first one is as it was
    assert other.data is problem.data
    assert other.kernel_factor is problem.kernel_factor  # made once, by whoever asks first
    if make is make_relu:
        assert other.gated.lam == 0.7
        assert other.cones is problem.cones
        assert other.gated.kernel_factor is problem.kernel_factor


def test_single_precision_data_are_converted_once():
    relu = make_relu(np.float32)
    assert relu.operator.rows().dtype == np.float32
    assert relu.operator_double.base is relu.gated.operator_double
    assert relu.operator_double.rows().dtype == np.float64


def test_other_patterns_keep_loss_and_columns():
    data = make_relu(bias=True, normalize=True).data
    few = data.with_patterns(data.patterns.select(slice(2)))
    assert few.loss is data.loss
    assert few.operator.rows() is data.operator.rows()
    assert (few.operator.p, len(few.patterns), data.operator.p) == (2, 2, 6)


def test_data_do_not_change():
    data = make_relu().data
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.bias = True
    with pytest.raises(AttributeError):
        make_relu().loss = None
