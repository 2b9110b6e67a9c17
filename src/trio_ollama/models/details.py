"""How a model is described to clients: the answers of `show`, and the lines of `tags`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from trio_ollama.templates import DEFAULT_TEMPLATE, Native

from .capabilities import capabilities
from .errors import ModelsError
from .gguf import read_metadata
from .metadata import Metadata, SkippedArray
from .metadata_cache import MetadataCache
from .model import Entry, Model
from .modelfile import Command, write_commands
from .parameters import parameters_text
from .prompting import ignored, mode_of
from .store import Store

__all__ = ["Listed", "details", "human_count", "listed", "model_info", "modelfile_text", "show", "shown_template"]

logger = logging.getLogger(__name__)


def human_count(number: int) -> str:
    """A parameter count as people write it: `8.0B`, `134.52M`, `7B` when it is exactly that."""
    for unit, suffix, digits in ((10**9, "B", 1), (10**6, "M", 2), (10**3, "K", 0)):
        if number >= unit:
            return f"{number / unit:.{digits if number % unit else 0}f}{suffix}"
    return str(number)


def details(model: Model, metadata: Metadata | None = None) -> dict[str, Any]:
    """The `details` object, six fields; the header fills in what the config leaves open."""
    level = model.config.file_type or "unknown"
    if level == "unknown" and metadata is not None:
        level = metadata.file_type
    return {
        "parent_model": model.parent,
        "format": model.format,
        "family": model.family,
        "families": list(model.families) or None,
        "parameter_size": model.config.model_type or "",
        "quantization_level": level,
    }


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of the model list."""

    entry: Entry
    model: Model | None
    """None if a part of it is missing or damaged: it is listed all the same."""
    details: dict[str, Any]
    """`details` with `context_length` and `embedding_length` where known."""
    capabilities: tuple[str, ...]


def listed(store: Store, cache: MetadataCache, entry: Entry, *, setting: bool | None = None) -> Listed:
    """Describe a model for the list (blocking). Never raises for a damaged model; it is listed with what is known.

    `setting` is OLLAMA_GO_TEMPLATE.
    """
    model = metadata = projector = None
    try:
        model = store.load(entry)
        if model.weights_path is not None and model.weights_digest is not None:
            metadata = cache.get(model.weights_digest, model.weights_path)
        if model.projectors:
            projector = cache.get(model.projector_digests[0], model.projectors[0])
    except ModelsError as error:
        logger.warning("%s is listed without all its details: %s", entry.name.short, error)
    if model is None:
        return Listed(entry, None, {"format": "", "family": "", "families": None}, ())
    described = details(model, metadata)
    if metadata is not None:
        for name in ("context_length", "embedding_length"):
            if value := metadata.integer(metadata.arch_key(name)):
                described[name] = value
    return Listed(entry, model, described, capabilities(model, metadata, projector, setting=setting))


def model_info(metadata: Metadata) -> dict[str, Any]:
    """Keys and values of a header; arrays too long to be read are None."""
    return {key: None if isinstance(value, SkippedArray) else value for key, value in metadata.values.items()}


def shown_template(model: Model, metadata: Metadata | None, setting: bool | None = None) -> str:
    """The template that chats are rendered with: the weights' own, else the stored one, else the default."""
    if metadata is not None and mode_of(model, metadata, setting) == Native():
        return metadata.chat_template
    return model.template or DEFAULT_TEMPLATE


def modelfile_text(model: Model) -> str:
    """A Modelfile that would build this model again."""
    commands = [Command("from", str(model.weights_path or model.name.short))]
    commands += [Command("adapter", str(path)) for path in model.adapters]
    if model.draft is not None:
        commands.append(Command("draft", str(model.draft)))
    commands += [Command("from", str(path)) for path in model.projectors]
    single = {
        "template": model.template,
        "system": model.system,
        "renderer": model.config.renderer,
        "parser": model.config.parser,
        "requires": model.config.requires,
    }
    commands += [Command(instruction, value) for instruction, value in single.items() if value]
    for name, value in sorted(model.params.items()):
        commands += [
            Command("parameter", _plain(item), name) for item in (value if isinstance(value, list) else [value])
        ]
    commands += [Command("license", text) for text in model.licenses]
    commands += [Command("message", message.content, message.role) for message in model.messages]
    heading = (
        '# Modelfile generated by "ollama show"',
        "# To build a new Modelfile based on this, replace FROM with:",
        f"# FROM {model.name.short}",
        "",
    )
    return "\n".join((*heading, write_commands(commands)))


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def show(model: Model, *, verbose: bool = False, setting: bool | None = None) -> dict[str, Any]:
    """The answer of `/api/show`, optional fields left out when empty (blocking); `setting` is OLLAMA_GO_TEMPLATE.

    `notes` is ours: what a reader of the rest might wonder about.

    Reads the header afresh, with tensors, and with long arrays when `verbose`. Raises InvalidGgufError.
    """
    metadata = read_metadata(model.weights_path, long_arrays=verbose) if model.weights_path is not None else None
    projector = read_metadata(model.projectors[0], long_arrays=verbose) if model.projectors else None
    info = {}
    if metadata is not None:
        info = model_info(metadata) | {"general.parameter_count": metadata.parameter_count}
        for hidden in ("general.name", "tokenizer.chat_template"):
            info.pop(hidden, None)
    optional = {
        "license": "\n".join(model.licenses),
        "modelfile": modelfile_text(model),
        "parameters": parameters_text(model.params),
        "template": shown_template(model, metadata, setting),
        "system": model.system,
        "renderer": model.config.renderer,
        "parser": model.config.parser,
        "messages": [{"role": message.role, "content": message.content} for message in model.messages],
        "remote_model": model.config.remote_model,
        "remote_host": model.config.remote_host,
        "projector_info": model_info(projector) if projector is not None else None,
        "tensors": [tensor._asdict() for tensor in metadata.tensors] if metadata is not None else None,
        "capabilities": list(capabilities(model, metadata, projector, setting=setting)),
        "requires": model.config.requires,
        "notes": [unused] if (unused := ignored(model, metadata, setting) if metadata is not None else "") else None,
    }
    return {
        **{name: value for name, value in optional.items() if value},
        "details": details(model, metadata),
        "model_info": info,
        "modified_at": model.modified_at,
    }
