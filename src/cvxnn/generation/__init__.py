"""Training over all patterns: the patterns that pay are generated, not sampled.

    pricing.py    a search for neurons with a high price, from many starts at once
    kinks.py      the last steps of that search, along kinks
    sliding.py    a network of few neurons, whose neurons move through patterns
    cells.py      from neurons to patterns and weights of the convex program, and back
    rounds.py     one round, and what comes out
    proving.py    what is proven over all patterns, and what a proof found instead
    method.py     `generate`: the rounds
    training.py   `cvxnn.train`
    programs.py   the same for programs of either kind, from one penalty strength to the next
    one_input.py  one input, exactly; exact.py has its result as a `Training`

`generate(problem)` takes a C-ReLU problem, which holds everything but the patterns that are worth
having; those it has are where generation starts. It gives a `Training`, whose `solution` is that
of the same problem over the generated patterns. To go on at another penalty strength, or after
more time:

    first = generate(problem)
    again = generate(first.problem.with_lam(lam), warm_start=first.solution)

`programs.py` does that for paths and cross-validation; for other rows, `first.patterns.gates` make
patterns (`Patterns.from_gates`) to start from. `train` poses the problem from X and y.
"""
