"""What it takes to reproduce the model."""

from __future__ import annotations

from cvxnn.reports.contents import Contents
from cvxnn.reports.markup import Markup, clean, element, join, shorten
from cvxnn.reports.sections.parts import and_more, facts_list

MAX_FACTS, MAX_FACT = 50, 1000  # the number of facts, and the characters of each


def reproduce(contents: Contents) -> Markup:
    facts = [
        (shorten(label, 60), shorten(value, MAX_FACT))
        for label, value in contents.facts[:MAX_FACTS]
    ]
    changed = [(name, value) for name, value, default in contents.parameters if not default]
    rest = [
        f"{name}={shorten(value, 60)}" for name, value, default in contents.parameters if default
    ]
    versions = ", ".join(f"{name} {value}" for name, value in contents.versions)
    parts = [
        facts_list(facts),
        and_more(len(contents.facts) - len(facts), "fact"),
        element("h3", "Settings"),
        facts_list(
            [("estimator", contents.estimator)]
            + [(name, shorten(value, 300)) for name, value in changed]
            + ([("defaults", ", ".join(rest))] if rest else [])
            + [("alpha of the fit", repr(contents.alpha)), ("versions", versions)]
        ),
        *_command(contents.command),
        element("h3", "In Python"),
        element("pre", element("code", contents.snippet), tabindex="0"),
    ]
    return join(*parts)


def _command(command: str | None) -> list[Markup]:
    if command is None:
        return []
    code = element("code", clean(command))
    return [element("h3", "On the command line"), element("pre", code, tabindex="0")]
