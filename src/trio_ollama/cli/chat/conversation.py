"""The interactive loop of `trio-ollama run`: read a message, stream the answer, remember both."""

from __future__ import annotations

import contextlib
from typing import Protocol

import click

from trio_ollama.cli.answer import AnswerPrinter
from trio_ollama.cli.attachments import attach
from trio_ollama.cli.client import ClientError, Json
from trio_ollama.cli.session import Session
from trio_ollama.cli.statistics import statistics

from .interrupts import interrupts
from .loading import load, replay
from .multiline import plain
from .slash import NAMES, Remembers, SlashCommands
from .terminal import without_echo

__all__ = ["Conversation", "LineEditor"]


class LineEditor(Remembers, Protocol):
    """Where messages come from."""

    def read(self) -> str:
        """The next message. Raises EOFError when the user leaves, KeyboardInterrupt for Ctrl-C on an empty line."""
        ...


class Conversation:
    """Turns between user and model. Ctrl-C ends an answer, never the conversation."""

    def __init__(self, session: Session, editor: LineEditor) -> None:
        self._session = session
        self._editor = editor
        self._commands = SlashCommands(session, editor)

    def run(self) -> None:
        """Load the model, show the messages it comes with, then answer until the user leaves."""
        with without_echo():
            load(self._session)
        replay(self._session)
        while True:
            # A Ctrl-C that comes here is a second one, in the middle of the first one's cleaning up.
            with contextlib.suppress(KeyboardInterrupt):
                if not self._turn():
                    return

    def _turn(self) -> bool:
        """One message; False to leave."""
        try:
            text = plain(self._editor.read())
        except EOFError:
            return False
        except KeyboardInterrupt:
            click.echo("Use Ctrl + d or /bye to exit.")
            return True
        try:
            with without_echo():
                return self._take(text)
        except ClientError as error:
            error.show()
            click.echo()
        except KeyboardInterrupt:
            click.echo()
        return True

    def _take(self, text: str) -> bool:
        """Do what a message says or answer it; False to leave."""
        if text.startswith("/") and text.split()[0] in NAMES:
            return self._commands.obey(text)
        files: list[str] = []
        if self._session.takes_attachments:
            text, files = attach(text)
        if text.startswith("/") and not files:
            return self._commands.obey(text)
        if text.strip() or files:
            self._answer({"role": "user", "content": text, **({"images": files} if files else {})})
        return True

    def _answer(self, question: Json) -> None:
        """One turn. What was shown of a stopped answer counts as said; a turn without an answer is forgotten."""
        session = self._session
        printer = AnswerPrinter(hide_thinking=session.hide_thinking, wrap=session.wrap)
        body = session.body(messages=[*session.conversation(), question])
        final: Json = {}
        with interrupts() as interrupt:
            try:
                with printer, interrupt.allowed(), session.client.stream("/api/chat", body) as objects:
                    for final in objects:
                        message = final.get("message") or {}
                        printer.piece(message.get("thinking") or "", message.get("content") or "")
            except KeyboardInterrupt:
                pass  # the request is closed by now; the server stops working for it
            finally:
                if printer.text:
                    answer = {"role": "assistant", "content": printer.text}
                    if printer.thoughts:
                        answer["thinking"] = printer.thoughts
                    session.messages += [question, answer]
        if session.verbose and final.get("done"):
            click.echo(statistics(final), nl=False, err=True)
        click.echo()
