"""Convex training problems: operator + loss + penalty (+ cones).

`CGReLU` is the paper's C-GReLU (section 2.2), the gated ReLU network as a group lasso,

    min_U  f(sum_i D_i X U_i) + lam sum_{i,k} ||U_i^k||_2,

and `CReLU` its C-ReLU (section 2.1), the ReLU network, with cone constraints:

    min_{V,W}  f(sum_i D_i X (V_i - W_i)) + lam sum_{i,k} ||V_i^k|| + ||W_i^k||
               with V_i^k, W_i^k in K_i.
"""

from __future__ import annotations

from cvxnn.problems.base import ConvexProblem
from cvxnn.problems.gated import CGReLU
from cvxnn.problems.relu import CReLU
from cvxnn.problems.sizes import check_weights_fit
from cvxnn.problems.strengths import has_lambda_max, lambda_max

__all__ = [
    "CGReLU",
    "CReLU",
    "ConvexProblem",
    "check_weights_fit",
    "has_lambda_max",
    "lambda_max",
]
