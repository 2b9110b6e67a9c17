"""`trio-ollama ps [PREFIX]`: the models that are loaded."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from trio_ollama.cli.client import Client, Json
from trio_ollama.cli.format import columns, processor, short_id, size, until
from trio_ollama.cli.options import ENVIRONMENT, as_json, moment, print_json

__all__ = ["command", "table"]


@click.command(name="ps", epilog=ENVIRONMENT)
@click.argument("prefix", default="")
@as_json
def command(prefix: str, as_json: bool) -> None:
    """List the models that are loaded, those whose name begins with PREFIX, and when each will leave."""
    models = Client.from_environment().call("GET", "/api/ps").get("models") or []
    wanted = [model for model in models if model["name"].startswith(prefix)]
    if as_json:
        print_json(wanted)
    else:
        click.echo(table(wanted, datetime.now(UTC)), nl=False)


def table(models: list[Json], now: datetime) -> str:
    """NAME ID SIZE PROCESSOR CONTEXT UNTIL of the models of `/api/ps`."""
    rows = [("NAME", "ID", "SIZE", "PROCESSOR", "CONTEXT", "UNTIL")]
    for model in models:
        total, on_gpu = model.get("size", 0), model.get("size_vram", 0)
        rows.append(
            (
                model["name"],
                short_id(model.get("digest", "")),
                size(total),
                processor(total, on_gpu),
                str(model.get("context_length", 0)),
                until(moment(model.get("expires_at")), now),
            )
        )
    return columns(rows)
