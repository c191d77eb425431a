"""stub"""


def present(done):
    return "x"


draw = None
verdicts = None
