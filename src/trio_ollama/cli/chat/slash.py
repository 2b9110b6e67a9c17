"""The slash commands of the conversation: they look at the session and change it."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import click

from trio_ollama.cli.client import ClientError, Json, ResponseError
from trio_ollama.cli.commands.list import table
from trio_ollama.cli.commands.show import summary
from trio_ollama.cli.printable import printable
from trio_ollama.cli.progress import spinner
from trio_ollama.cli.session import Session
from trio_ollama.models.errors import ModelfileError
from trio_ollama.models.parameters import parse_parameters

from .loading import load, replay
from .words import PARTS, help_text

__all__ = ["NAMES", "Remembers", "SlashCommands"]

NAMES: Final = frozenset(("/set", "/show", "/load", "/save", "/list", "/ls", "/clear", "/?", "/help", "/bye", "/exit"))
"""The commands there are. Other lines that begin with `/` may name a file."""
LEVELS: Final = ("low", "medium", "high", "max")
EMPTY: Final = {
    "parameters": "No parameters were specified for this model.",
    "modelfile": "The server does not tell the Modelfile.",
}

_VALUE: Final = re.compile(r'"([^"]*)"|(\S+)')


class Remembers(Protocol):
    """What keeps a history, or does not."""

    remembers: bool


class SlashCommands:
    """Acts on one session. `editor` is asked to keep a history, or not."""

    def __init__(self, session: Session, editor: Remembers) -> None:
        self._session = session
        self._editor = editor

    def obey(self, line: str) -> bool:
        """Do what the line says; False to leave. Raises ClientError for what did not work."""
        name, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        match name:
            case "/bye" | "/exit":
                return False
            case "/?" | "/help":
                self._help(rest)
            case "/set":
                self._set(rest)
            case "/show":
                self._show(rest or "info")
            case "/load" if rest:
                self._load(rest)
            case "/save" if rest:
                self._save(rest)
            case "/load" | "/save":
                click.echo(f"Usage: {name} {'MODEL' if name == '/load' else 'NAME'}")
            case "/list" | "/ls":
                models = self._session.client.call("GET", "/api/tags").get("models") or []
                click.echo(printable(table(models, datetime.now(UTC))), nl=False)
            case "/clear":
                self._session.messages.clear()
                click.echo("Cleared the conversation")
            case _:
                _unknown(name)
        return True

    def _help(self, topic: str) -> None:
        text = help_text(topic, attachments=self._session.takes_attachments)
        if text is None:
            _unknown(topic)
        else:
            click.echo(text)

    def _set(self, line: str) -> None:
        session = self._session
        what, _, rest = line.partition(" ")
        rest = rest.strip()
        match what:
            case "":
                click.echo(help_text("set"))
            case "parameter":
                self._set_parameter(rest)
            case "system":
                session.system = rest
                click.echo("Set system message." if rest else "The system message is the model's own again.")
            case "history" | "nohistory":
                self._editor.remembers = what == "history"
                click.echo(f"What you type is {'' if self._editor.remembers else 'not '}kept in the history.")
            case "wordwrap" | "nowordwrap":
                session.wrap = what == "wordwrap"
                click.echo(f"Long lines are {'broken between words' if session.wrap else 'left as they are'}.")
            case "format" if rest:
                session.format = _format(rest)
                click.echo("Set format to JSON." if rest == "json" else "Set format to a JSON schema.")
            case "format":
                click.echo("Usage: /set format json")
            case "noformat":
                session.format = ""
                click.echo("Answers may have any form.")
            case "verbose" | "quiet":
                session.verbose = what == "verbose"
                click.echo(f"{'Counts' if session.verbose else 'No counts'} and times are shown after each answer.")
            case "think":
                self._set_think(rest)
            case "nothink":
                session.think = False
                click.echo("The model does not think before it answers.")
            case _:
                _unknown(f"/set {what}")

    def _set_parameter(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        values = [found[1] or found[2] or "" for found in _VALUE.finditer(rest)]
        if not values:
            click.echo("Usage: /set parameter NAME VALUE")
            return
        if name != "stop" and len(values) > 1:
            raise ClientError(f"'{name}' takes one value")
        try:
            typed: dict[str, Any] = parse_parameters((name, value) for value in values)
        except ModelfileError as error:
            raise ClientError(str(error)) from None
        if not typed:
            click.echo(f"'{name}' has no effect any more.")
            return
        self._session.options |= typed
        click.echo(f"Set parameter '{name}' to {', '.join(repr(value) for value in values)}")

    def _set_think(self, level: str) -> None:
        session = self._session
        if level not in ("", *LEVELS):
            raise ClientError(f"'{level}' is no level of thinking: {', '.join(LEVELS[:-1])} or {LEVELS[-1]}")
        if "thinking" not in session.capabilities:
            raise ClientError(f"'{session.model}' does not think")
        session.think = level or True
        click.echo("The model thinks before it answers" + (f" ({level})." if level else "."))

    def _show(self, part: str) -> None:
        if part not in PARTS:
            _unknown(f"/show {part}")
            return
        session = self._session
        given = {"model": session.model, "system": session.system, "options": session.options}
        info = session.client.call("POST", "/api/show", {name: value for name, value in given.items() if value})
        if part == "info":
            click.echo(printable(summary(info)), nl=False)
            return
        text = info.get(part) or EMPTY.get(part) or f"No {_named(part)} was specified for this model."
        click.echo(printable(text.rstrip("\n")) + "\n")

    def _load(self, model: str) -> None:
        session = self._session
        try:
            info = session.client.call("POST", "/api/show", {"model": model})
        except ResponseError as error:
            if error.status != 404:
                raise
            raise ClientError(f"{error}; 'trio-ollama pull {model}' fetches it") from None
        before = session.model, session.info
        session.model, session.info = model, info
        try:
            load(session)
        except BaseException:  # Ctrl-C as well: what could not be loaded is not what is talked to
            session.model, session.info = before
            raise
        session.messages.clear()
        click.echo(f"Loaded model '{model}'")
        replay(session)

    def _save(self, name: str) -> None:
        session = self._session
        stored = [*(session.info.get("messages") or ()), *session.messages]
        body: Json = {
            "model": name,
            "from": session.model,
            "system": session.system,
            "parameters": session.options,
            # Pictures and thoughts have no place in a model.
            "messages": [{"role": each["role"], "content": each.get("content", "")} for each in stored],
        }
        with (
            spinner("saving"),
            session.client.stream("/api/create", {key: value for key, value in body.items() if value}) as steps,
        ):
            for _ in steps:
                pass
        click.echo(f"Created new model '{name}'")


def _format(text: str) -> str | Json:
    if text == "json":
        return text
    try:
        schema = json.loads(text)
    except ValueError:
        schema = None
    if not isinstance(schema, dict):
        raise ClientError("a format is `json` or a JSON schema")
    return schema


def _named(part: str) -> str:
    return "system message" if part == "system" else part


def _unknown(text: str) -> None:
    click.echo(f"Unknown command '{printable(text)}'. Type /? for help")
