"""`trio-ollama rm MODEL...`: remove models."""

from __future__ import annotations

from http import HTTPStatus

import click

from trio_ollama.cli.client import Client, ClientError, ResponseError
from trio_ollama.cli.commands.stop import unload
from trio_ollama.cli.completion import models
from trio_ollama.cli.options import ServerCommand

__all__ = ["command"]


@click.command(name="rm", cls=ServerCommand)
@click.argument("models", metavar="MODEL...", nargs=-1, required=True, shell_complete=models)
def command(models: tuple[str, ...]) -> None:
    """Unload each MODEL and remove it from the store. Stops at the first one that cannot be removed."""
    client = Client.from_environment()
    for index, model in enumerate(models):
        try:
            unload(client, model)
        except ResponseError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                click.echo(f"Warning: unable to stop model '{model}'", err=True)
        try:
            client.call("DELETE", "/api/delete", {"model": model})
        except ResponseError as error:
            if left := " ".join(models[index + 1 :]):
                raise ClientError(f"{error.format_message()}; not removed either: {left}") from None
            raise
        click.echo(f"deleted '{model}'")
