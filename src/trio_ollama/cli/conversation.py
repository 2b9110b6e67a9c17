"""The interactive loop of `trio-ollama run`: read a message, stream the answer, remember both."""

from __future__ import annotations

import contextlib
import sys

import click

from trio_ollama.cli.answer import AnswerPrinter, statistics
from trio_ollama.cli.client import Client, ClientError, Json
from trio_ollama.cli.commands.run import Question
from trio_ollama.cli.commands.show import PARTS, summary
from trio_ollama.cli.progress import spinner

with contextlib.suppress(ImportError):  # not every Python has it
    import readline  # its import alone gives `input` line editing

__all__ = ["Conversation"]

PROMPT, CONTINUED = ">>> ", "... "
QUOTES = '"""'
HELP = """\
Available Commands:
  /show [PART]    Show the model: info, license, modelfile, parameters, system, template
  /clear          Forget the conversation so far
  /bye            Leave (or Ctrl + d)
  /?, /help       This help

Begin and end a message of several lines with \"\"\".
Ctrl + c stops an answer.
"""


class Conversation:
    """Holds the messages so far. Ctrl-C ends an answer, never the conversation."""

    def __init__(self, client: Client, question: Question, info: Json) -> None:
        self._client = client
        self._question = question
        self._info = info
        self._messages: list[Json] = []

    def run(self) -> None:
        """Load the model, show the messages it comes with, then answer until the user leaves."""
        with spinner("loading the model"):
            # Also the check whether the model can think as it is asked to.
            self._client.call("POST", "/api/generate", self._question.body(stream=False))
        for message in self._info.get("messages") or ():
            # Shown only: the server puts them in front of every chat by itself.
            if message["role"] != "system":
                click.echo(f"{PROMPT if message['role'] == 'user' else ''}{message['content']}")
        while True:
            try:
                text = self._read()
                if text is None or not self._take(text):
                    return
            except KeyboardInterrupt:
                click.echo()  # a second one, in the middle of the first one's cleaning up

    def _take(self, text: str) -> bool:
        """Do what a line says or answer it; False to leave."""
        if text.startswith("/"):
            return self._obey(text.split())
        if text.strip():
            self._answer(text)
        return True

    def _read(self) -> str | None:
        """The next message; None when the user leaves."""
        lines: list[str] = []
        while True:
            try:
                line = input(CONTINUED if lines else PROMPT)
            except EOFError:
                click.echo()
                return None
            except KeyboardInterrupt:
                click.echo("" if lines or _typed() else "\nUse Ctrl + d or /bye to exit.")
                lines.clear()
                continue
            lines.append(line)
            text = "\n".join(lines)
            if not text.startswith(QUOTES):
                return text
            if len(text) >= 2 * len(QUOTES) and text.endswith(QUOTES):
                return text.removeprefix(QUOTES).removesuffix(QUOTES).strip("\n")

    def _obey(self, words: list[str]) -> bool:
        """Do what a line that begins with `/` says; False to leave."""
        match words:
            case ["/bye" | "/exit"]:
                return False
            case ["/?" | "/help", *_]:
                click.echo(HELP)
            case ["/clear"]:
                self._messages.clear()
                click.echo("Cleared the conversation")
            case ["/show"] | ["/show", "info"]:
                click.echo(summary(self._info), nl=False)
            case ["/show", part] if part in PARTS:
                click.echo(self._info.get(part) or f"No {part} was specified for this model.")
            case _:
                click.echo(f"Unknown command '{words[0]}'. Type /? for help")
        return True

    def _answer(self, text: str) -> None:
        """One turn. What was shown of a stopped answer counts as said; a turn without an answer is forgotten."""
        printer = AnswerPrinter(hide_thinking=self._question.hide_thinking)
        messages = [*self._messages, {"role": "user", "content": text}]
        final: Json = {}
        try:
            with self._client.stream("/api/chat", self._question.body(messages=messages)) as objects:
                for final in objects:
                    message = final.get("message") or {}
                    printer.piece(message.get("thinking", ""), message.get("content", ""))
        except KeyboardInterrupt:
            pass  # the request is closed by now; the server stops working for it
        except ClientError as error:
            printer.end()
            error.show()
        if printer.text:
            self._messages = [*messages, {"role": "assistant", "content": printer.text}]
        printer.end()
        if self._question.verbose and final.get("done"):
            click.echo(statistics(final), nl=False, err=True)
        click.echo()


def _typed() -> str:
    """What stood in the line that Ctrl-C threw away."""
    return readline.get_line_buffer() if "readline" in sys.modules else ""
