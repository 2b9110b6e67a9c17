"""Getting a model ready for a conversation."""

from __future__ import annotations

import click

from trio_ollama.cli.printable import printable
from trio_ollama.cli.progress import spinner
from trio_ollama.cli.session import Session

from .words import PROMPT

__all__ = ["load", "replay"]


def load(session: Session) -> None:
    """Have the model loaded, which is also the check whether it can think as it is asked to. Raises ClientError."""
    with spinner("loading the model"):
        session.client.call("POST", "/api/generate", session.body(stream=False))


def replay(session: Session) -> None:
    """Show the messages that the model comes with. Only that: the server puts them in front of every chat by itself."""
    for message in session.info.get("messages") or ():
        if message["role"] != "system":
            prompt = PROMPT if message["role"] == "user" else ""
            click.echo(f"{prompt}{printable(message.get('content', ''))}" + ("" if prompt else "\n"))
