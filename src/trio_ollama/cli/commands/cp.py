"""`trio-ollama cp SOURCE DESTINATION`: copy a model."""

from __future__ import annotations

import click

from trio_ollama.cli.client import Client
from trio_ollama.cli.completion import models
from trio_ollama.cli.options import ServerCommand

__all__ = ["command"]


@click.command(name="cp", cls=ServerCommand)
@click.argument("source", shell_complete=models)
@click.argument("destination")
def command(source: str, destination: str) -> None:
    """Give the model SOURCE a second name. Its weights are shared, not copied."""
    Client.from_environment().call("POST", "/api/copy", {"source": source, "destination": destination})
    click.echo(f"copied '{source}' to '{destination}'")
