"""`trio-ollama push MODEL`: send a model to a registry."""

from __future__ import annotations

import click

from trio_ollama.cli.client import Client, ClientError, Json, ResponseError
from trio_ollama.cli.completion import models
from trio_ollama.cli.options import ServerCommand
from trio_ollama.cli.progress import progress
from trio_ollama.models.names import ModelName

__all__ = ["command", "place"]

REFUSALS = ("access denied", "unauthorized")
OLLAMA_COM = (".ollama.ai", ".ollama.com")
"""Ends of the hosts whose models ollama.com shows."""


@click.command(name="push", cls=ServerCommand)
@click.argument("model", shell_complete=models)
@click.option("--insecure", is_flag=True, help="Speak plain HTTP with the registry, not HTTPS.")
def command(model: str, insecure: bool) -> None:
    """Send MODEL from the server's store to the registry that its name says: [HOST/]NAMESPACE/MODEL[:TAG].

    To another place than that of its name: give it a second name first, with `trio-ollama cp`.
    """
    body: Json = {"model": model}
    if insecure:
        body["insecure"] = True
    client = Client.from_environment()
    status = ""
    try:
        with progress() as show, client.stream("/api/push", body) as objects:
            for each in objects:
                show(each)
                status = each.get("status", status)
    except ResponseError as error:
        if any(word in str(error).lower() for word in REFUSALS):
            raise ClientError(
                "you are not authorized to push to this namespace, create the model under a namespace you own"
            ) from None
        raise
    except KeyboardInterrupt:
        click.echo(f"Stopped. 'trio-ollama push {model}' sends what is missing.", err=True)
        raise
    if status != "success":
        raise ClientError(f"the server ended before all was sent: push '{model}' again to go on")
    click.echo(f"\nYou can find your model at:\n\n\t{place(ModelName.parse(model))}")


def place(name: ModelName) -> str:
    """Where people find a model: its page at ollama.com, or the name to pull it by."""
    if name.host.lower().endswith(OLLAMA_COM):
        return f"https://ollama.com/{name.short.removeprefix(f'{name.host}/').removesuffix(':latest')}"
    return name.full
