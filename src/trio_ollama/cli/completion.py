"""Completion of what is typed in a shell: click's own means, with the names of the server's models.

Whatever goes wrong, nothing is offered: a line that is being typed is no place for errors.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Final

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class

from trio_ollama.cli.client import Client, ClientError

__all__ = ["Completer", "loaded_models", "models", "script"]

PROGRAM: Final = "trio-ollama"
VARIABLE: Final = "_TRIO_OLLAMA_COMPLETE"
"""How a shell's script asks; the name is click's choice."""
PATIENCE: Final = 1.0
"""Seconds for the server to name its models."""

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def models(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of the store's models that begin so."""
    return _names("/api/tags", incomplete)


def loaded_models(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Those of the models that are loaded."""
    return _names("/api/ps", incomplete)


def _names(path: str, incomplete: str) -> list[str]:
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # a warning about OLLAMA_HOST
            found = Client.from_environment(patience=PATIENCE).call("GET", path)["models"] or ()
        names = [str(each["name"]) for each in found]
    except (ClientError, LookupError, TypeError):
        return []
    if ":" not in incomplete:  # then the shorter form will do
        names = [name.removesuffix(":latest") for name in names]
    return [name for name in names if name.startswith(incomplete)]


class ColonBash(BashComplete):
    """Bash takes a colon for the end of a word, and so would make three words of `smollm2:latest`."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        joined: list[str] = []
        for word in [*args, incomplete]:
            if joined and (word.startswith(":") or joined[-1].endswith(":")):
                joined[-1] += word
            else:
                joined.append(word)
        *args, incomplete = joined
        self._typed = incomplete.rpartition(":")[0] + ":" if ":" in incomplete else ""
        return args, incomplete

    def format_completion(self, item: CompletionItem[str]) -> str:
        # Bash puts it in place of what stands behind the colon.
        return f"{item.type},{item.value.removeprefix(self._typed)}"


add_completion_class(ColonBash)


def script(shell: str) -> str:
    """What the shell (bash, zsh or fish) has to read to complete the commands."""
    from click.shell_completion import get_completion_class

    from trio_ollama.cli import main

    kind = get_completion_class(shell)
    assert kind is not None
    return kind(main, {}, PROGRAM, VARIABLE).source()
