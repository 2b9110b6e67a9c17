"""What the commands that speak to a server have in common."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import click

__all__ = ["ENVIRONMENT", "as_json", "moment", "print_json"]

ENVIRONMENT = "Environment: OLLAMA_HOST is the address of the server (default http://127.0.0.1:11434)."
"""Epilogue of the help of every client command."""

as_json = click.option("--json", "as_json", is_flag=True, help="Print the server's own JSON.")
"""Flag of the commands that list something."""


def print_json(value: Any) -> None:
    """The value for programs: indented, one document."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def moment(text: str | None) -> datetime | None:
    """An RFC 3339 time of the API; None for an absent or a zero one."""
    if not text or text.startswith("0001-"):
        return None
    return datetime.fromisoformat(text)
