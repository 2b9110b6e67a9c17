"""`trio-ollama list [PREFIX]`: the models of the store."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from trio_ollama.cli.client import Client, Json
from trio_ollama.cli.format import columns, relative_time, short_id, size
from trio_ollama.cli.options import ServerCommand, as_json, moment, print_json

__all__ = ["command", "table"]


@click.command(name="list", cls=ServerCommand)
@click.argument("prefix", default="")
@as_json
def command(prefix: str, as_json: bool) -> None:
    """List the models of the store, those whose name begins with PREFIX, newest first."""
    models = Client.from_environment().call("GET", "/api/tags").get("models") or []
    wanted = [model for model in models if model["name"].lower().startswith(prefix.lower())]
    if as_json:
        print_json(wanted)
    else:
        click.echo(table(wanted, datetime.now(UTC)), nl=False)


def table(models: list[Json], now: datetime) -> str:
    """NAME ID SIZE MODIFIED of the models of `/api/tags`; a model that lives elsewhere has no size."""
    rows = [("NAME", "ID", "SIZE", "MODIFIED")]
    for model in models:
        amount = "-" if model.get("remote_model") else size(model.get("size", 0))
        modified = relative_time(moment(model.get("modified_at")), now)
        rows.append((model["name"], short_id(model.get("digest", "")), amount, modified))
    return columns(rows)
