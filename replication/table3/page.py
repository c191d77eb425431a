"""The page of Tables 3, 7 and 8."""


def present(done):
    return "x"


draw = None
verdicts = None
