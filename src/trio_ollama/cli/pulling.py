"""Fetching a model, as `pull` does it, and `run` for a model that is not there yet."""

from __future__ import annotations

import click

from trio_ollama.cli.client import Client, ClientError, Json
from trio_ollama.cli.progress import progress

__all__ = ["pull"]

ABSENT = "pull model manifest: file does not exist"
"""How a server says that the registry has no such model."""
DENIED = "pull model manifest: unauthorized: access denied"


def pull(client: Client, name: str, insecure: bool = False) -> None:
    """Let the server fetch the model, with its progress on stderr.

    Leaving it, by Ctrl-C too, ends the download unless others wait for it as well; what has come is kept.
    Raises ClientError.
    """
    body: Json = {"model": name}
    if insecure:
        body["insecure"] = True
    status, begun = "", False
    again = f"'trio-ollama pull {name}' goes on where it was"
    try:
        with progress() as show, client.stream("/api/pull", body) as objects:
            for each in objects:
                show(each)
                status = each.get("status", status)
                begun = begun or "digest" in each
        if status != "success":
            raise ClientError("the server ended the download before it was whole")
    except KeyboardInterrupt:
        click.echo(f"Stopped. {again}.", err=True)
        raise
    except ClientError as error:
        if str(error) == ABSENT:
            raise ClientError(f"{ABSENT} (the registry has no '{name}': check its name and tag)") from None
        if str(error) == DENIED:
            key = "the registry has to know the server's key, ~/.ollama/id_ed25519.pub, to let it have a private model"
            raise ClientError(f"{DENIED} (check the name; {key})") from None
        if begun:
            raise ClientError(f"{error}; {again}") from None
        raise
