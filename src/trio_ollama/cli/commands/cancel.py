"""`trio-ollama cancel ID`: end a request that somebody waits for."""

from __future__ import annotations

from urllib.parse import quote

import click

from trio_ollama.cli.client import Client
from trio_ollama.cli.completion import requests
from trio_ollama.cli.options import ServerCommand
from trio_ollama.cli.ours import only_ours

__all__ = ["command"]


@click.command(name="cancel", cls=ServerCommand)
@click.argument("id", metavar="ID", shell_complete=requests)
def command(id: str) -> None:
    """End the request ID, as `ps --requests` lists it; its client gets an error that says so."""
    client = Client.from_environment()
    with only_ours(client):
        answer = client.call("DELETE", f"/api/requests/{quote(id, safe='')}")
    for request in answer["canceled"]:
        click.echo(f"canceled '{request['id']}' ({request['path']} of {request['client']}, {request['stage']})")
