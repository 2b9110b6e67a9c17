"""`trio-ollama run MODEL [PROMPT...]`: one question, or a conversation."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

import click

from trio_ollama.cli.answer import AnswerPrinter, statistics
from trio_ollama.cli.client import Client, ClientError, Json
from trio_ollama.cli.options import ENVIRONMENT

__all__ = ["Question", "command"]

LEVELS = ("low", "medium", "high", "max")


@dataclass(frozen=True)
class Question:
    """What every request of one `run` has in common."""

    model: str
    think: bool | str | None
    hide_thinking: bool
    format: str | Json
    keep_alive: str
    verbose: bool

    def body(self, **fields: Any) -> Json:
        """A request body: `fields`, and of the common ones those that were given."""
        common = {"think": self.think, "format": self.format or None, "keep_alive": self.keep_alive or None}
        return {"model": self.model, **{name: value for name, value in common.items() if value is not None}, **fields}


class RunCommand(click.Command):
    """Lets `--think` stand alone, as it does for `ollama run`: click would take the prompt for its value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, ["--think=true" if arg == "--think" else arg for arg in args[:end]] + args[end:])


def _think(ctx: click.Context, param: click.Parameter, value: str | None) -> bool | str | None:
    if value is None or value in LEVELS:
        return value
    if value not in ("true", "false"):
        raise click.BadParameter(f"must be true, false, {', '.join(LEVELS[:-1])} or {LEVELS[-1]}, not {value}")
    return value == "true"


def _format(ctx: click.Context, param: click.Parameter, value: str) -> str | Json:
    if not value.lstrip().startswith("{"):
        return value  # "json", or what the server will refuse with its own text
    try:
        schema: Json = json.loads(value)
    except ValueError as error:
        raise click.BadParameter(f"not a JSON schema: {error}") from None
    return schema


@click.command(name="run", cls=RunCommand, epilog=ENVIRONMENT)
@click.argument("model")
@click.argument("prompt", nargs=-1)
@click.option("--keepalive", default="", metavar="DURATION", help="How long the model stays loaded (5m, 1h30m, -1m).")
@click.option("--verbose", is_flag=True, help="Show counts and times after each answer.")
@click.option("--format", default="", metavar="FORMAT", callback=_format, help="json, or a JSON schema.")
@click.option(
    "--think", metavar="[=LEVEL]", callback=_think, help="true (the bare flag), false, low, medium, high, max."
)
@click.option("--hidethinking", is_flag=True, help="Do not show the thinking.")
@click.option("--truncate/--no-truncate", default=None, help="Embedding models: cut a text that is too long.")
@click.option("--dimensions", type=int, default=0, help="Embedding models: length of the vector.")
@click.option("--nowordwrap", is_flag=True, hidden=True, help="Accepted; the terminal wraps lines.")
def command(
    model: str,
    prompt: tuple[str, ...],
    keepalive: str,
    verbose: bool,
    format: str | Json,
    think: bool | str | None,
    hidethinking: bool,
    truncate: bool | None,
    dimensions: int,
    nowordwrap: bool,
) -> None:
    """Ask MODEL: once, when there is a PROMPT (stdin comes before it) or a pipe; else in a conversation.

    Ctrl-C stops the answer: the server hears of it at once. In a conversation it leaves you at the prompt.
    """
    client = Client.from_environment()
    info = client.call("POST", "/api/show", {"model": model})
    capabilities = info.get("capabilities") or ()
    if think is None and "thinking" in capabilities:
        think = True
    question = Question(model, think, hidethinking, format, keepalive, verbose)
    piped_in, piped_out = not sys.stdin.isatty(), not sys.stdout.isatty()
    parts = [sys.stdin.buffer.read().decode("utf-8", "replace")] if piped_in else []
    text = " ".join([part for part in parts if part] + list(prompt))
    if "embedding" in capabilities and "completion" not in capabilities:
        _embed(client, question, text, truncate, dimensions)
    elif text or piped_in or piped_out:
        _ask(client, question, text)
    else:
        from trio_ollama.cli.conversation import Conversation

        Conversation(client, question, info).run()


def _ask(client: Client, question: Question, prompt: str) -> None:
    printer = AnswerPrinter(hide_thinking=question.hide_thinking)
    final: Json = {}
    try:
        with client.stream("/api/generate", question.body(prompt=prompt)) as objects:
            for final in objects:
                printer.piece(final.get("thinking", ""), final.get("response", ""))
    finally:
        printer.end()
    if question.verbose:
        click.echo(statistics(final), nl=False, err=True)


def _embed(client: Client, question: Question, text: str, truncate: bool | None, dimensions: int) -> None:
    if not text:
        raise ClientError(
            f'embedding models require input text. Usage: trio-ollama run {question.model} "your text here"'
        )
    body: Json = {"model": question.model, "input": text}
    if question.keep_alive:
        body["keep_alive"] = question.keep_alive
    if truncate is not None:
        body["truncate"] = truncate
    if dimensions:
        body["dimensions"] = dimensions
    for vector in client.call("POST", "/api/embed", body).get("embeddings") or ():
        click.echo(json.dumps(vector))
