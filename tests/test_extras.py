"""Tests without a package are skipped, with a reason, and fail for no other one."""

from types import SimpleNamespace

import numpy as np
import pytest

from extras import Missing, advice, installed, needs, optional, skip_without_packages

ADVICE = "needs torch: pip install 'cvxnn[torch]'"


def test_what_is_installed_is_the_package_itself():
    assert optional("numpy.linalg") is np.linalg
    assert needs("numpy").args == (False,)


def test_what_is_missing_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr("extras.find_spec", lambda name: None)
    assert not installed("torch.nn")
    assert advice("torch.nn") == ADVICE
    assert isinstance(optional("torch.nn"), Missing)
    mark = needs("torch", "cvxpy")
    assert mark.args == (True,)
    assert mark.kwargs["reason"] == f"{ADVICE}; needs cvxpy: pip install 'cvxnn[cvx]'"


@pytest.mark.parametrize("use", [lambda torch: torch.asarray, lambda torch: torch()])
def test_a_test_that_uses_a_stand_in_is_skipped(use):
    with pytest.raises(pytest.skip.Exception, match="needs torch"):
        use(Missing(ADVICE))


def test_parameters_are_made_with_stand_ins_and_skip_their_tests(monkeypatch, request):
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # as while test files are imported
    torch = Missing(ADVICE)
    value = torch.asarray([1.0]).to(torch.float32)
    assert value is torch
    marks = []

    class Test:
        add_marker = marks.append

        def __init__(self, **parameters):
            self.callspec = SimpleNamespace(params=parameters)

    whole, part = Test(number=1, form=value), Test(changes={"y": value})
    skip_without_packages([whole, part, Test(number=1), request.node])
    assert [mark.kwargs["reason"] for mark in marks] == [ADVICE, ADVICE]


def test_what_python_asks_of_its_own_accord_is_no_use():
    assert not hasattr(Missing(ADVICE), "__array__")
    assert repr(Missing(ADVICE)) == "missing"
