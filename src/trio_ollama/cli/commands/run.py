"""`trio-ollama run MODEL [PROMPT...]`: one question, or a conversation."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import click

from trio_ollama.cli.answer import AnswerPrinter
from trio_ollama.cli.attachments import attach
from trio_ollama.cli.client import Client, ClientError, Json, ResponseError
from trio_ollama.cli.completion import files, models
from trio_ollama.cli.options import ServerCommand
from trio_ollama.cli.ours import NO_ROUTE
from trio_ollama.cli.session import Session
from trio_ollama.cli.statistics import statistics

__all__ = ["command"]

LEVELS = ("low", "medium", "high", "max")


class RunCommand(ServerCommand):
    """Lets `--think` stand alone, as it does for `ollama run`: click would take the prompt for its value."""

    variables = ("OLLAMA_HOST", "OLLAMA_NOHISTORY", "OLLAMA_EDITOR")

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


@click.command(
    name="run",
    cls=RunCommand,
    epilog="What is typed is kept in ~/.ollama/history. The editor is that of Ctrl-G. "
    "NO_COLOR=1 shows thinking in no colour.",
)
@click.argument("model", shell_complete=models)
@click.argument("prompt", nargs=-1, shell_complete=files)
@click.option("--keepalive", default="", metavar="DURATION", help="How long the model stays loaded (5m, 1h30m, -1m).")
@click.option("--verbose", is_flag=True, help="Show counts and times after each answer.")
@click.option("--insecure", is_flag=True, help="Speak plain HTTP with the registry if the model has to be pulled.")
@click.option("--nowordwrap", is_flag=True, help="Do not break long lines between words.")
@click.option("--format", default="", metavar="FORMAT", callback=_format, help="json, or a JSON schema.")
@click.option(
    "--think", metavar="[=LEVEL]", callback=_think, help="true (the bare flag), false, low, medium, high, max."
)
@click.option("--hidethinking", is_flag=True, help="Do not show the thinking.")
@click.option("--truncate/--no-truncate", default=None, help="Embedding models: cut a text that is too long.")
@click.option("--dimensions", type=int, default=0, help="Embedding models: length of the vector.")
def command(
    model: str,
    prompt: tuple[str, ...],
    keepalive: str,
    verbose: bool,
    insecure: bool,
    nowordwrap: bool,
    format: str | Json,
    think: bool | str | None,
    hidethinking: bool,
    truncate: bool | None,
    dimensions: int,
) -> None:
    """Ask MODEL: once, when there is a PROMPT (stdin comes before it) or a pipe; else in a conversation.

    A model that the server does not have is pulled first. Of a model with eyes or ears, a PROMPT may name pictures
    and sounds by their paths.

    Ctrl-C stops the answer: the server hears of it at once. In a conversation it leaves you at the prompt; there, /?
    tells what else can be done.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an answer goes on, whatever the terminal's encoding lacks
    client = Client.from_environment()
    session = Session(
        client=client,
        model=model,
        info=_info(client, model, insecure),
        think=think,
        hide_thinking=hidethinking,
        format=format,
        keep_alive=keepalive,
        verbose=verbose,
        wrap=not nowordwrap,
    )
    piped_in, piped_out = not sys.stdin.isatty(), not sys.stdout.isatty()
    parts = [sys.stdin.buffer.read().decode("utf-8", "replace")] if piped_in else []
    text = " ".join([part for part in parts if part] + list(prompt))
    if "image" in session.capabilities and "completion" not in session.capabilities:
        raise ClientError(f"'{model}' makes images: this command shows text only")
    if "embedding" in session.capabilities and "completion" not in session.capabilities:
        _embed(session, text, truncate, dimensions)
    elif text or piped_in or piped_out:
        _ask(session, text)
    else:
        _talk(session)


def _info(client: Client, model: str, insecure: bool) -> Json:
    """The answer of `/api/show`, after a pull if need be."""
    try:
        return client.call("POST", "/api/show", {"model": model})
    except ResponseError as error:
        if error.status != 404:
            raise
        absent = error
    from trio_ollama.cli.pulling import pull

    try:
        pull(client, model, insecure)
    except ClientError as error:
        if isinstance(error, ResponseError) and error.status in NO_ROUTE:  # this server pulls nothing
            raise absent from None
        if not error.message.startswith("pull model manifest: "):
            raise
        raise ClientError(f"{error.format_message()}{_meant(client, model)}") from None
    return client.call("POST", "/api/show", {"model": model})


def _meant(client: Client, model: str) -> str:
    """What may help whoever mistyped the name of a model that is here."""
    from difflib import get_close_matches

    try:
        names = [
            str(each["name"]).removesuffix(":latest") for each in client.call("GET", "/api/tags").get("models") or ()
        ]
    except (ClientError, LookupError, TypeError):
        return ""
    close = get_close_matches(model, names, n=2)
    return f"; did you mean {' or '.join(repr(each) for each in close)}?" if close else ""


def _ask(session: Session, prompt: str) -> None:
    files: list[str] = []
    if session.takes_attachments:
        prompt, files = attach(prompt)
    body = session.body(prompt=prompt, **({"images": files} if files else {}))
    final: Json = {}
    with (
        AnswerPrinter(hide_thinking=session.hide_thinking, wrap=session.wrap) as printer,
        session.client.stream("/api/generate", body) as objects,
    ):
        for final in objects:
            printer.piece(final.get("thinking") or "", final.get("response") or "")
    if session.verbose:
        click.echo(statistics(final), nl=False, err=True)


def _embed(session: Session, text: str, truncate: bool | None, dimensions: int) -> None:
    if not text:
        raise ClientError(
            f'embedding models require input text. Usage: trio-ollama run {session.model} "your text here"'
        )
    body: Json = {"model": session.model, "input": text}
    if session.keep_alive:
        body["keep_alive"] = session.keep_alive
    if truncate is not None:
        body["truncate"] = truncate
    if dimensions:
        body["dimensions"] = dimensions
    for vector in session.client.call("POST", "/api/embed", body).get("embeddings") or ():
        click.echo(json.dumps(vector))


def _talk(session: Session) -> None:
    # Imported here: the line editor takes longer to import than a short answer takes to come.
    from trio_ollama.cli.chat.conversation import Conversation
    from trio_ollama.cli.chat.editor import Editor
    from trio_ollama.cli.chat.history import HistoryFile
    from trio_ollama.settings import Settings

    settings = Settings.from_environment({"OLLAMA_NOHISTORY": os.environ.get("OLLAMA_NOHISTORY", "")})
    editor = Editor(None if settings.nohistory else HistoryFile(Path.home() / ".ollama" / "history"))
    Conversation(session, editor).run()
