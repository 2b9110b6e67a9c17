"""`trio-ollama fit MODEL`: where a model would be placed, what it takes and who has to go, before it is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import click

from trio_ollama.cli.client import Client, Json
from trio_ollama.cli.completion import models
from trio_ollama.cli.format import columns, size
from trio_ollama.cli.options import ServerCommand, as_json, print_json
from trio_ollama.cli.ours import only_ours

__all__ = ["ask", "brief", "command", "report"]

INDENT: Final = "    "

WORDS: Final[Mapping[str, str]] = MappingProxyType({"cache": "keys and values", "state": "recurrent state"})
"""Parts whose names in the API are not words enough; the others only lose their underscores."""

Rows = list[tuple[str, ...]]


@click.command(name="fit", cls=ServerCommand)
@click.argument("model", shell_complete=models)
@click.option("--num-ctx", type=click.IntRange(min=1), help="Tokens of context, for each of the slots.")
@click.option("--num-gpu", type=click.IntRange(min=-1), help="Layers on GPUs; -1 for as many as fit.")
@click.option("--parallel", type=click.IntRange(min=1), help="Slots, if not as many as the server is set to.")
@as_json
def command(model: str, num_ctx: int | None, num_gpu: int | None, parallel: int | None, as_json: bool) -> None:
    """Show where MODEL would be placed now, and the numbers that decide it. Nothing is loaded."""
    options = {"num_ctx": num_ctx, "num_gpu": num_gpu}
    found = ask(model, {name: value for name, value in options.items() if value is not None}, parallel)
    if as_json:
        print_json(found)
    else:
        click.echo(report(found), nl=False)


def ask(model: str, options: Mapping[str, int], parallel: int | None = None) -> Json:
    """The answer of `/api/fit`. Raises ClientError, with a line of its own for a server that has no such route."""
    client = Client.from_environment()
    body: Json = {"model": model, "options": dict(options)}
    if parallel is not None:
        body["parallel"] = parallel
    with only_ours(client, "cannot tell"):
        return client.call("POST", "/api/fit", body)


def report(found: Json) -> str:
    """Everything: the verdict, then launch, memory, devices, who has to go, and other contexts."""
    sections = [("Launch", _launch(found)), ("Memory", _memory(found)), ("Devices", _devices(found))]
    if found["stops"]:
        sections.append(("Stops first", _stops(found)))
    sections.append(("Contexts", _contexts(found)))
    tables = "".join(f"\n  {title}\n{columns(rows, indent=INDENT)}" for title, rows in sections)
    return f"{verdict(found)}\n{tables}\n  {_longest(found)}\n"


def brief(found: Json) -> Rows:
    """The same numbers in a few rows."""
    rows: Rows = [
        ("placement", _where(found["launch"])),
        ("context", _context(found["launch"])),
        *_sums(found["memory"]),
    ]
    rows += [
        (each["id"], f"{size(each['held'])} of {size(each['total'])}") for each in found["devices"] if each["held"]
    ]
    rows += [("stops first", each["model"]) for each in found["stops"]]
    return [*rows, ("verdict", found["verdict"].replace("_", " ")), ("longest context", _number(found))]


def verdict(found: Json) -> str:
    """One sentence."""
    model, where = found["model"], _where(found["launch"])
    stops = [each["model"] for each in found["stops"]]
    others = " and ".join(stops)
    match found["verdict"]:
        case "loaded":
            return f"{model} is loaded, {where}."
        case "fits":
            return f"{model} fits: it would be loaded {where}."
        case "memory_returning":
            return f"{model} fits as soon as runners that are ending have ended: it would be loaded {where}."
        case "evicts" if stops == [model]:
            return f"{model} is loaded with other settings: it would be stopped and loaded again, {where}."
        case "evicts":
            return f"{model} fits after stopping {others} (idle): it would be loaded {where}."
        case "evicts_busy":
            busy = " and ".join(each["model"] for each in found["stops"] if each["busy"])
            return f"{model} fits after stopping {others}, once {busy} has no requests: it would be loaded {where}."
        case "never_fits":
            never = found["never_fits"]
            return f"{model} does not fit: it needs {size(never['needed'])}, and there are {size(never['there'])}."
        case _:
            return f"{model} has to wait: what is in its way cannot be stopped now. It would be loaded {where}."


def _where(launch: Json) -> str:
    gpus = " and ".join(launch["gpus"])
    match launch["placement"]:
        case "cpu":
            return "in system memory"
        case "single":
            return f"on {gpus}"
        case "group":
            return f"spread over {gpus}"
        case "explicit_partial":
            return f"with {launch['num_gpu']} layers on {gpus} and the rest in system memory"
        case _:
            return f"in part on {gpus}, the rest in system memory"


def _context(launch: Json) -> str:
    slots = f" x {launch['parallel']}" if launch["parallel"] > 1 else ""
    notes = ["automatic"] if launch["num_ctx_auto"] else []
    notes += [f"trained for {launch['train_context']}"] if launch["train_context"] else []
    return f"{launch['num_ctx']} tokens{slots}" + (f" ({', '.join(notes)})" if notes else "")


def _launch(found: Json) -> Rows:
    launch = found["launch"]
    rows: Rows = [("placement", launch["placement"].replace("_", " ")), ("context", _context(launch))]
    rows.append(("batch", f"{launch['num_batch']} tokens"))
    if launch["mmap_off_because"]:
        rows.append(("file mapping", f"off ({launch['mmap_off_because']})"))
    return rows


def _memory(found: Json) -> Rows:
    memory: Json = found["memory"]
    rows: Rows = []
    for part in memory["parts"]:
        name = WORDS.get(part["name"], part["name"].replace("_", " "))
        rows.append((name, size(part["size"]), "GPU" if part["on_gpus"] else "RAM"))
    return [*rows, *((name, amount, "") for name, amount in _sums(memory))]


def _sums(memory: Json) -> list[tuple[str, str]]:
    rows = [("estimate", size(memory["estimate"]))]
    measured = memory["measured"]
    if measured is not None:
        rows.append(("last measured", size(measured["on_gpus"] + measured["in_ram"])))
    percent = 100 * memory["expected"] / max(memory["estimate"], 1) - 100
    if abs(percent) >= 0.05:
        rows.append(("expected", f"{size(memory['expected'])} ({percent:+.1f} %)"))
    return [*rows, ("upstream's formula", size(memory["formula"]))]


def _devices(found: Json) -> Rows:
    rows: Rows = [("DEVICE", "LIBRARY", "TOTAL", "FREE", "RESERVED", "NEEDED", "HELD", "LEFT")]
    for each in found["devices"]:
        amounts = (each[name] for name in ("total", "free", "reserved", "needed", "held", "left"))
        rows.append((each["id"], each["library"], *map(size, amounts)))
    return rows


def _stops(found: Json) -> Rows:
    rows: Rows = [("MODEL", "STATE", "HOLDS")]
    for each in found["stops"]:
        held = ", ".join(f"{size(amount)} on {id_}" for id_, amount in each["held"].items() if amount)
        rows.append((each["model"], "busy" if each["busy"] else "idle", held))
    return rows


def _contexts(found: Json) -> Rows:
    rows: Rows = [("CONTEXT", "EXPECTED", "FORMULA", "PLACEMENT", "FITS IN FULL")]
    for each in found["contexts"]:
        fits = "now" if each["now"] else "with nothing else loaded" if each["full"] else "no"
        kind = each["placement"].replace("_", " ")
        rows.append((str(each["num_ctx"]), size(each["expected"]), size(each["formula"]), kind, fits))
    return rows


def _longest(found: Json) -> str:
    return f"Longest context that fits in full: {_number(found)}"


def _number(found: Json) -> str:
    longest: Any = found["largest_full_context"]
    return f"{longest} tokens" if longest else "none"
