"""`trio-ollama create MODEL`: a model from a Modelfile."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from trio_ollama.cli.client import Client, ClientError, Json, ResponseError
from trio_ollama.cli.options import ServerCommand
from trio_ollama.cli.progress import Show, progress
from trio_ollama.cli.uploads import names_of, upload
from trio_ollama.models.errors import ModelsError
from trio_ollama.models.modelfile import Modelfile
from trio_ollama.models.names import ModelName

__all__ = ["command"]

MODELFILE = "Modelfile"
HERE = "FROM ."
"""What stands for a Modelfile where there is none."""
WEIGHTS = (
    "model*.safetensors",
    "consolidated*.safetensors",
    "pytorch_model*.bin",
    "consolidated*.pth",
    "*.gguf",
    "*.bin",
)
"""What counts as the weights of a folder: the files of the first pattern that fits any."""
COMPANIONS = ("*.json", "tokenizer.model", "chat_template.jinja")
UNKNOWN = "unknown type"
"""What a server says of files that are no weights."""
PATH_STARTS = (".", "/", "~")
"""No model name begins so."""


@click.command(name="create", cls=ServerCommand)
@click.argument("model")
@click.option(
    "-f",
    "--file",
    type=click.Path(),
    help="The Modelfile. Without: the file Modelfile, or else the weights in this folder.",
)
@click.option("-q", "--quantize", default="", metavar="TYPE", help="Quantize the weights to this type (q4_K_M, ...).")
@click.option("--draft-quantize", default="", metavar="TYPE", help="Quantize those of the draft model.")
@click.option("--experimental", is_flag=True, help="Passed to the server: it may know ways that are not settled yet.")
def command(model: str, file: str | None, quantize: str, draft_quantize: str, experimental: bool) -> None:
    """Create MODEL from a Modelfile. Files it names are sent to the server, unless that has them already.

    The shortest Modelfile is one line, FROM and a GGUF file, or FROM and the name of another model.
    """
    path = Path(file or MODELFILE).expanduser()
    try:
        ModelName.parse(model)  # before anything is sent
        modelfile = Modelfile.parse(path.read_bytes() if file or path.exists() else HERE)
        body = _settings(modelfile)
        draft = modelfile.draft
    except FileNotFoundError:
        raise ClientError(f"specified Modelfile wasn't found: there is no file '{path}' (-f names another)") from None
    except OSError as error:
        raise ClientError(f"{path}: {error.strerror}") from None
    except ModelsError as error:
        raise ClientError(str(error)) from None
    if draft_quantize and not draft:
        raise ClientError("--draft-quantize requires a DRAFT model")
    sources: list[Path] = []
    for source in modelfile.sources:
        if (local := _local(path.parent, source)) is None:
            body["from"] = source
        else:
            sources += local
    client = Client.from_environment()
    body |= {"model": model, "quantize": quantize, "draft_quantize": draft_quantize, "experimental": experimental}
    with progress() as show:
        body |= {"files": _sent(client, sources, show)}
        body |= {"adapters": _sent(client, _all_local(path.parent, modelfile.adapters), show)}
        body |= {"draft_files": _sent(client, _all_local(path.parent, [draft] if draft else []), show)}
        try:
            with client.stream("/api/create", {name: value for name, value in body.items() if value}) as objects:
                for each in objects:
                    show(each)
        except ResponseError as error:
            raise _explained(error, body.get("from", ""), sources) from None


def _explained(error: ResponseError, source: str, files: Iterable[Path]) -> ClientError:
    """With what the server cannot know."""
    if str(error) == UNKNOWN:
        return ClientError(f"{error}: {' '.join(map(str, files))} is no GGUF file")
    if source and str(error).startswith("pull model manifest: "):
        return ClientError(f"{error} ('{source}' is neither a file nor a model of this server's)")
    return error


def _settings(modelfile: Modelfile) -> Json:
    return {
        "template": modelfile.template,
        "system": modelfile.system,
        "license": list(modelfile.licenses),
        "parameters": modelfile.parameters,
        "messages": [{"role": each.role, "content": each.content} for each in modelfile.messages],
        "renderer": modelfile.renderer,
        "parser": modelfile.parser,
        "requires": modelfile.requires,
    }


def _local(folder: Path, source: str) -> list[Path] | None:
    """The files behind a FROM; None when it is the name of a model."""
    path = folder / Path(source).expanduser()
    if not path.exists():
        if source.startswith(PATH_STARTS):
            raise ClientError(f"{source}: no such file")
        return None
    if not path.is_dir():
        return [path]
    for pattern in WEIGHTS:
        if found := sorted(path.glob(pattern)):
            return found + sorted(file for companion in COMPANIONS for file in path.glob(companion))
    raise ClientError(
        f"no Modelfile or safetensors files found in {path.absolute()}, nor GGUF files (FROM names one in a Modelfile)"
    )


def _all_local(folder: Path, sources: Iterable[str]) -> list[Path]:
    files: list[Path] = []
    for source in sources:
        if (local := _local(folder, source)) is None:
            raise ClientError(f"{source}: no such file")
        files += local
    return files


def _sent(client: Client, files: list[Path], show: Show) -> dict[str, str]:
    return {name: upload(client, file, show) for name, file in names_of(files).items()}
