"""`trio-ollama stop MODEL`: unload a model."""

from __future__ import annotations

from http import HTTPStatus

import click

from trio_ollama.cli.client import Client, ClientError, ResponseError
from trio_ollama.cli.completion import loaded_models
from trio_ollama.cli.options import ServerCommand
from trio_ollama.cli.ours import only_ours

__all__ = ["command", "unload"]


@click.command(name="stop", cls=ServerCommand)
@click.argument("model", shell_complete=loaded_models)
@click.option("--force", is_flag=True, help="End it now; its requests get an error.")
def command(model: str, force: bool) -> None:
    """Unload MODEL once its current requests are done. Says nothing when it went well, unless forced."""
    client = Client.from_environment()
    try:
        if force:
            with only_ours(client):
                click.echo(client.call("POST", "/api/stop", {"model": model, "mode": "force"})["message"])
        else:
            unload(client, model)
    except ResponseError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            raise ClientError(f"couldn't find model \"{model}\" to stop (see 'trio-ollama ps')") from None
        raise


def unload(client: Client, model: str) -> None:
    """Ask for the model to leave: an empty prompt that keeps it for no time at all."""
    client.call("POST", "/api/generate", {"model": model, "keep_alive": 0, "stream": False})
