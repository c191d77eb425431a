"""Bounds over all activation patterns, hence over all ReLU networks of any width.

The price of a dual point Theta (n, C) is, for each class k,

    g_k = max_{||u|| <= 1} |Theta_k'(X u)_+|,

what the best pattern could gain that a program does not have. Whatever is known to be above the
price scales Theta into the dual of the non-convex problem, and so proves a lower bound on it. A
search for neurons with a high price (generation/) improves networks and proves nothing.

    base.py           from a price to a bound; what methods hand over
    one_input.py      all cells of one input, exactly
    branching.py      few columns: a tree of cones that covers all directions; growing.py is
                      its twin in NumPy, trees.py the tree as a proof, coordinates.py its rows
    semidefinite.py   any number of columns, large lam
    enumeration.py    tiny problems: every pattern there is
    rotation.py       rows in the coordinates that they span
    evidence.py       what a bound rests on, as plain bytes and numbers; saving.py files of bounds
    choice.py         which of these, and the bound for weights of C-ReLU
"""
