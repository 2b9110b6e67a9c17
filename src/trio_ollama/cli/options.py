"""What the commands that speak to a server have in common."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import click

__all__ = ["ServerCommand", "as_json", "moment", "print_json", "write_variables"]

as_json = click.option("--json", "as_json", is_flag=True, help="Print the server's own JSON.")
"""Flag of the commands that list something."""


class ServerCommand(click.Command):
    """A command that speaks to a server. Its help ends with the environment variables that it heeds."""

    variables: tuple[str, ...] = ("OLLAMA_HOST",)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_variables(formatter, self.variables)
        super().format_epilog(ctx, formatter)


def write_variables(formatter: click.HelpFormatter, names: Iterable[str]) -> None:
    """A section of help on these environment variables."""
    from trio_ollama.settings import VARIABLES

    wanted = frozenset(names)
    with formatter.section("Environment Variables"):
        rows = [(each.name, f"{each.help} (default: {each.default})") for each in VARIABLES if each.name in wanted]
        formatter.write_dl(rows)


def print_json(value: Any) -> None:
    """The value for programs: indented, one document."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def moment(text: str | None) -> datetime | None:
    """An RFC 3339 time of the API; None for an absent or a zero one."""
    if not text or text.startswith("0001-"):
        return None
    return datetime.fromisoformat(text)
