"""`trio-ollama show MODEL`: what is known about a model."""

from __future__ import annotations

import textwrap
from typing import Any

import click

from trio_ollama.cli.client import Client, Json
from trio_ollama.cli.commands import fit
from trio_ollama.cli.completion import models
from trio_ollama.cli.format import columns, count
from trio_ollama.cli.options import ServerCommand, as_json, print_json

__all__ = ["command", "summary"]

PARTS = ("license", "modelfile", "parameters", "system", "template")
"""What can be shown alone: fields of the answer of `/api/show` that are text."""
INDENT = "    "
LONGEST = 80
"""Characters of a metadata value."""
SHOWN = 3
"""Elements of a list among the metadata."""
WRAPPED = 100
"""Characters of a line of a system message or a license."""

Rows = list[tuple[str, ...]]


@click.command(name="show", cls=ServerCommand)
@click.argument("model", shell_complete=models)
@click.option("--license", "parts", flag_value="license", multiple=True, help="Only the license.")
@click.option("--modelfile", "parts", flag_value="modelfile", multiple=True, help="Only the Modelfile.")
@click.option("--parameters", "parts", flag_value="parameters", multiple=True, help="Only the parameters.")
@click.option("--system", "parts", flag_value="system", multiple=True, help="Only the system message.")
@click.option("--template", "parts", flag_value="template", multiple=True, help="Only the prompt template.")
@click.option("-v", "--verbose", is_flag=True, help="All metadata and tensors as well.")
@click.option("--memory", is_flag=True, help="Only what it would take of the memory there is; see `fit`.")
@as_json
def command(model: str, parts: tuple[str, ...], verbose: bool, memory: bool, as_json: bool) -> None:
    """Show architecture, capabilities, parameters, system message and license of MODEL."""
    if len(set(parts)) > 1:
        names = ", ".join(f"--{part}" for part in PARTS)
        raise click.UsageError(f"only one of {names} can be given")
    if memory:
        if parts or verbose:
            raise click.UsageError("--memory stands alone")
        found = fit.ask(model, {})
        if as_json:
            print_json(found)
        else:
            click.echo(f"  Memory\n{columns(fit.brief(found), indent=INDENT)}\n", nl=False)
        return
    info = Client.from_environment().call("POST", "/api/show", {"model": model, "verbose": verbose})
    if as_json:
        print_json(info)
    elif parts:
        click.echo(info.get(parts[0], ""))
    else:
        click.echo(summary(info, verbose=verbose), nl=False)


def summary(info: Json, *, verbose: bool = False) -> str:
    """The sections for an answer of `/api/show`, each a title and a table, in a fixed order."""
    sections: list[tuple[str, Rows]] = [
        ("Model", _model(info)),
        ("Capabilities", [(name,) for name in info.get("capabilities") or ()]),
        ("Projector", _projector(info.get("projector_info") or {})),
        ("Parameters", _parameters(info.get("parameters") or "")),
    ]
    if verbose:
        sections.append(("Metadata", _metadata(info.get("model_info") or {})))
        sections.append(("Tensors", _tensors(info.get("tensors") or [])))
    sections.append(("System", _first_lines(info.get("system") or "")))
    sections.append(("License", _first_lines(info.get("license") or "")))
    sections.append(("Notes", [(note,) for note in info.get("notes") or ()]))
    return "".join(f"  {title}\n{columns(rows, indent=INDENT)}\n" for title, rows in sections if rows)


def _model(info: Json) -> Rows:
    details, model_info = info.get("details") or {}, info.get("model_info") or {}
    architecture = model_info.get("general.architecture") or details.get("family")
    parameters = model_info.get("general.parameter_count")
    return _present(
        ("Remote model", info.get("remote_model")),
        ("Remote URL", info.get("remote_host")),
        ("architecture", architecture),
        ("parameters", details.get("parameter_size") or (count(parameters) if parameters else None)),
        ("context length", model_info.get(f"{architecture}.context_length")),
        ("embedding length", model_info.get(f"{architecture}.embedding_length")),
        ("quantization", details.get("quantization_level")),
        ("requires", info.get("requires")),
    )


def _projector(info: Json) -> Rows:
    architecture = info.get("general.architecture")
    parameters = info.get("general.parameter_count")
    return _present(
        ("architecture", architecture),
        ("parameters", count(parameters) if parameters else None),
        ("embedding length", info.get(f"{architecture}.vision.embedding_length")),
        ("dimensions", info.get(f"{architecture}.vision.projection_dim")),
    )


def _present(*rows: tuple[str, Any]) -> Rows:
    return [(name, str(value)) for name, value in rows if value]


def _parameters(text: str) -> Rows:
    # One `name   value` a line; a value may hold blanks.
    pairs = (line.split(None, 1) for line in text.splitlines() if line.strip())
    return [(pair[0], pair[1] if len(pair) > 1 else "") for pair in pairs]


def _metadata(model_info: Json) -> Rows:
    return [(key, _shortened(value)) for key, value in sorted(model_info.items()) if value is not None]


def _shortened(value: Any) -> str:
    if isinstance(value, list):
        more = [f"...+{len(value) - SHOWN} more"] if len(value) > SHOWN else []
        text = f"[{', '.join([*map(_scalar, value[:SHOWN]), *more])}]"
    else:
        text = _scalar(value)
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _scalar(value: Any) -> str:
    """As JSON writes it, but for texts, and for floats that are whole."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _tensors(tensors: list[Json]) -> Rows:
    return [(each["name"], each["type"], str(each["shape"])) for each in tensors]


def _first_lines(text: str) -> Rows:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    shown = [part for line in lines[:2] for part in textwrap.wrap(line, WRAPPED)]
    return [(line,) for line in [*shown, *(["..."] if len(lines) > 2 else [])]]
