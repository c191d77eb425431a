"""The directive `commands`: the help of every command, as the program itself prints it."""

from __future__ import annotations

from typing import Any

import click
from docutils import nodes
from docutils.parsers.rst import Directive

from cvxnn.cli import main
from cvxnn.cli.outcomes import EXIT_CODES

WIDTH = 92


def help_of(command: click.Command, name: str) -> str:
    context = click.Context(command, info_name=name, terminal_width=WIDTH, max_content_width=WIDTH)
    return command.get_help(context)


class Commands(Directive):
    """One section a command, with an anchor, and a table of exit codes at the end."""

    def run(self) -> list[nodes.Node]:
        found: list[nodes.Node] = []
        for name, command in sorted(main.commands.items()):
            section = nodes.section(ids=[f"cvxnn-{name}"])
            section += nodes.title(text=f"cvxnn {name}")
            text = help_of(command, f"cvxnn {name}")
            section += nodes.literal_block(text, text, language="text")
            found.append(section)
        return found


class ExitCodes(Directive):
    def run(self) -> list[nodes.Node]:
        items = nodes.bullet_list()
        for code, meaning in EXIT_CODES.items():
            paragraph = nodes.paragraph()
            paragraph += nodes.literal(text=str(code))
            paragraph += nodes.Text(f": {meaning}")
            items += nodes.list_item("", paragraph)
        return [items]


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("commands", Commands)
    app.add_directive("exit-codes", ExitCodes)
    return {"parallel_read_safe": True}
