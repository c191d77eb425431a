"""The page of Figures 1 and 6."""


def present(done):
    return "x"


draw = None
verdicts = None
