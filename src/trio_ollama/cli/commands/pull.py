"""`trio-ollama pull MODEL`: fetch a model from a registry."""

from __future__ import annotations

import click

from trio_ollama.cli.client import Client
from trio_ollama.cli.completion import models
from trio_ollama.cli.options import ServerCommand
from trio_ollama.cli.pulling import pull

__all__ = ["command"]


@click.command(name="pull", cls=ServerCommand)
@click.argument("model", shell_complete=models)
@click.option("--insecure", is_flag=True, help="Speak plain HTTP with the registry, not HTTPS.")
def command(model: str, insecure: bool) -> None:
    """Fetch MODEL from a registry into the server's store, or what has changed of it there.

    A download that was broken off goes on where it was.
    """
    pull(Client.from_environment(), model, insecure)
