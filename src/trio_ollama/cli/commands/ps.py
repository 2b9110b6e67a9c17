"""`trio-ollama ps [PREFIX]`: the models that are loaded, or the requests that are being served."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from trio_ollama.cli.client import Client, Json
from trio_ollama.cli.format import columns, processor, short_id, size, until
from trio_ollama.cli.options import ServerCommand, as_json, moment, print_json
from trio_ollama.cli.ours import only_ours

__all__ = ["command", "requests_table", "table"]


@click.command(name="ps", cls=ServerCommand)
@click.argument("prefix", default="")
@click.option("--requests", is_flag=True, help="List the requests that are being served, and what each waits for.")
@as_json
def command(prefix: str, requests: bool, as_json: bool) -> None:
    """List the models that are loaded, those whose name begins with PREFIX, and when each will leave."""
    client = Client.from_environment()
    if requests:
        with only_ours(client):
            found = client.call("GET", "/api/requests")["requests"]
        wanted = [request for request in found if request["model"].startswith(prefix)]
        text = requests_table(wanted)
    else:
        models = client.call("GET", "/api/ps").get("models") or []
        wanted = [model for model in models if model["name"].startswith(prefix)]
        text = table(wanted, datetime.now(UTC))
    if as_json:
        print_json(wanted)
    else:
        click.echo(text, nl=False)


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


def requests_table(requests: list[Json]) -> str:
    """ID MODEL ROUTE CLIENT STAGE SECONDS TOKENS WAITS of the requests of `/api/requests`."""
    rows = [("ID", "MODEL", "ROUTE", "CLIENT", "STAGE", "SECONDS", "TOKENS", "WAITS")]
    for request in requests:
        rows.append(
            (
                request["id"],
                request["model"] or "-",
                request["path"],
                request["client"],
                request["stage"],
                f"{request['seconds']:.1f}",
                _tokens(request),
                _waits(request["waiting"]) if request["waiting"] else "",
            )
        )
    return columns(rows)


def _tokens(request: Json) -> str:
    """Those of the answer; before there are any, how far the prompt has been read."""
    prompt = request["prompt"]
    if prompt and not request["tokens"]:
        return f"{prompt['processed']}/{prompt['total']}"
    return str(request["tokens"])


def _waits(waiting: Json) -> str:
    place = f"place {waiting['position']}: " if waiting["position"] else ""
    whom = f" ({_whom(waiting)})" if waiting["request"] or waiting["model"] else ""
    short = f", {_short(waiting)} short" if waiting["short"] else ""
    return f"{place}{waiting['because']}{whom}{short}"


def _whom(waiting: Json) -> str:
    return str(waiting["request"] or f"{waiting['model']}, generation {waiting['generation']}")


def _short(waiting: Json) -> str:
    if waiting["resource"] == "models":
        return f"{waiting['short']} place among the loaded models"
    return f"{size(waiting['short'])} on {waiting['resource']}"
