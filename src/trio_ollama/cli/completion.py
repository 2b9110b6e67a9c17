"""Completion of what is typed in a shell: click's own means, with the names of the server's models.

Whatever goes wrong, nothing is offered: a line that is being typed is no place for errors.
"""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Callable
from typing import Any, Final

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
)

from trio_ollama.cli.client import Client

__all__ = ["Completer", "files", "loaded_models", "models", "requests", "script"]

PROGRAM: Final = "trio-ollama"
VARIABLE: Final = "_TRIO_OLLAMA_COMPLETE"
"""How a shell's script asks; the name is click's choice."""
PATIENCE: Final = 1.0
"""Seconds for the server to name its models; for all of it, the look for the host's address too."""

Completer = Callable[[click.Context, click.Parameter, str], list[str] | list[CompletionItem[str]]]


def models(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of the store's models that begin so, but for those that the line has already."""
    given = context.params.get(parameter.name or "")
    named = {_whole(name) for name in given} if isinstance(given, tuple) else set()
    return [name for name in _names("/api/tags", incomplete) if _whole(name) not in named]


def loaded_models(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Those of the models that are loaded."""
    return _names("/api/ps", incomplete)


def requests(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """IDs of the requests that are being served."""
    return [id for id in _asked("/api/requests", "requests", "id") if id.startswith(incomplete)]


def files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Whatever the shell offers where a file is meant."""
    return [CompletionItem(incomplete, type="file")]


def _names(path: str, incomplete: str) -> list[str]:
    found = _asked(path, "models", "name")
    if ":" not in incomplete:  # then the shorter form will do
        found = [name.removesuffix(":latest") for name in found]
    return [name for name in found if name.startswith(incomplete)]


def _asked(path: str, listing: str, field: str) -> list[str]:
    """A field of all in a listing of the server's; nothing if that cannot be had soon."""
    values: list[str] = []

    def ask() -> None:
        with contextlib.suppress(Exception):
            answer: Any = Client.from_environment(patience=PATIENCE).call("GET", path)
            values.extend([str(each[field]) for each in answer[listing]])

    with contextlib.redirect_stderr(io.StringIO()):  # a warning about OLLAMA_HOST
        # The system's look for a host's address takes as long as it likes, and cannot be ended.
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(PATIENCE)
    return list(values)


def _whole(name: str) -> str:
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


class ColonBash(BashComplete):
    """Bash takes a colon for the end of a word, and so would make three words of `smollm2:latest`."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, typed = super().get_completion_args()
        joined: list[str] = []
        for word in [*args, typed]:
            if joined and (word.startswith(":") or joined[-1].endswith(":")):
                joined[-1] += word
            else:
                joined.append(word)
        *args, incomplete = joined
        # Within quotes it does not, nor where COMP_WORDBREAKS has no colon.
        self._typed = incomplete.rpartition(":")[0] + ":" if ":" in incomplete.removesuffix(typed.lstrip(":")) else ""
        return args, incomplete

    def format_completion(self, item: CompletionItem[str]) -> str:
        # Bash puts it in place of what stands behind the colon.
        return f"{item.type},{item.value.removeprefix(self._typed)}"


class ReadyZsh(ZshComplete):
    """Nothing completes in a zsh that has not been told to: a fresh one knows no `compdef`."""

    source_template = ZshComplete.source_template.replace(
        "    compdef ", "    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }\n    compdef "
    )


class PlainFish(FishComplete):
    """Click's script cuts what describes a command at its first comma, and knows no `~`."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split -m 1 ","').replace(
        "__fish_complete_path $metadata[2]", "complete --do-complete \"'' \"(commandline --current-token)"
    )


for each in (ColonBash, ReadyZsh, PlainFish):
    add_completion_class(each)


def script(shell: str) -> str:
    """What the shell (bash, zsh or fish) has to read to complete the commands."""
    from trio_ollama.cli import main

    kind = get_completion_class(shell)
    assert kind is not None
    return kind(main, {}, PROGRAM, VARIABLE).source()
