"""GET /openapi.json: all routes, described by the table that makes them and the types that check their bodies."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from trio_ollama import OLLAMA_API_VERSION, __version__
from trio_ollama.server.demand import ABANDONED_LOAD
from trio_ollama.server.inference.options import DEFAULTS, KINDS
from trio_ollama.server.live import HEADER, dialect
from trio_ollama.server.native.fit import MOST_SLOTS
from trio_ollama.server.replies import encode
from trio_ollama.server.routes import Route

__all__ = ["ERRORS", "AnthropicError", "NativeError", "OpenAIError", "document"]

Schema = dict[str, Any]

REF: Final = "#/components/schemas/{name}"

ABOUT: Final = (
    "Ollama's API, the OpenAI-style and the Anthropic-style routes beside it, and a few of our own. In bodies, null is "
    "as good as absent, names of fields match whatever their case, and unknown fields are ignored. A stream that fails "
    "after its first record keeps status 200 and ends with a record that says so."
)


class NativeError(msgspec.Struct, forbid_unknown_fields=True):
    """An error, as Ollama writes it."""

    error: str


class OpenAIErrorBody(msgspec.Struct, forbid_unknown_fields=True):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(msgspec.Struct, forbid_unknown_fields=True):
    """An error, as OpenAI writes it."""

    error: OpenAIErrorBody


class AnthropicErrorBody(msgspec.Struct, forbid_unknown_fields=True):
    """What went wrong."""

    type: str
    message: str


class AnthropicError(msgspec.Struct, forbid_unknown_fields=True):
    """An error, as Anthropic writes it."""

    type: str
    error: AnthropicErrorBody
    request_id: str


ERRORS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "ollama": NativeError,
    "openai": OpenAIError,
    "anthropic": AnthropicError,
}
"""By dialect."""

STATUSES: Final[Mapping[int, str]] = {
    200: "Done.",
    201: "Made.",
    400: "The request cannot be used; the text says why. Nothing was loaded or changed.",
    403: "From a web origin or under a host name that is not allowed (an empty body), or the model is in the cloud.",
    404: "There is no such thing.",
    413: "The body is too large.",
    499: "Somebody has cancelled the request by its id.",
    500: "The runner failed, the model cannot be loaded, or something happened that nobody foresaw.",
    501: "The runner cannot do this.",
    503: "Too many wait, the model was stopped by force, or the server is shutting down. Try again later.",
}
ANYWHERE: Final = (403, 500)
"""Statuses that each route may have."""

_TEXTS: Final[Schema] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
_PART: Final[Schema] = {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]}
_PARTS: Final[Schema] = {"anyOf": [{"type": "string"}, {"type": "array", "items": _PART}]}
_TYPES: Final[Mapping[str, Schema]] = {
    "integer": {"type": "integer"},
    "float32": {"type": "number"},
    "boolean": {"type": "boolean"},
    "array": {"type": "array", "items": {"type": "string"}},
}

LOOSE: Final[Mapping[str, Schema]] = {
    "TranscriptionForm.file": {"type": "string", "format": "binary"},
    "keep_alive": {
        "anyOf": [{"type": "number"}, {"type": "string"}],
        "description": "Seconds, or a duration such as 10m; 0: unload when idle; negative: never.",
    },
    "think": {"enum": [True, False, "low", "medium", "high", "max"]},
    "format": {"anyOf": [{"enum": ["", "json"]}, {"type": "object", "description": "A JSON schema."}]},
    "options": {
        "type": "object",
        "properties": {
            name: {**_TYPES[kind], **({"default": DEFAULTS[name]} if name in DEFAULTS else {})}
            for name, kind in KINDS.items()
        },
        "description": "Unknown options are ignored.",
    },
    "input": _TEXTS,
    "content": _PARTS,
    "system": _PARTS,
    "ResponsesRequest.input": _PARTS,
    "ResponsesRequest.previous_response_id": {"type": "null", "description": "Nothing is kept here."},
    "ResponsesRequest.conversation": {"type": "null", "description": "Nothing is kept here."},
}
"""Fields that take several types, or names of which only some mean something, and are checked by hand: by the name of
the field, alone or behind that of its struct. They have no type of their own that could be described."""

BOUNDS: Final[Mapping[str, Schema]] = {
    "top_logprobs": {"minimum": 0, "maximum": 20},
    "CompletionRequest.logprobs": {"minimum": 0, "maximum": 20},
    "MessagesRequest.max_tokens": {"minimum": 1},
    "ResponsesRequest.background": {"enum": [False]},
    **{f"{kind}.messages": {"minItems": 1} for kind in ("ChatCompletionRequest", "MessagesRequest", "CountRequest")},
    "FitRequest.parallel": {"minimum": 0, "maximum": MOST_SLOTS},
    "ResponsesRequest.truncation": {"enum": ["auto", "disabled"]},
    "OpenAIEmbeddingRequest.encoding_format": {"enum": ["float", "base64"]},
}
"""What else a value must be, where its type allows more."""

REQUIRED: Final[Mapping[str, Sequence[str]]] = {
    "ChatCompletionRequest": ("model", "messages"),
    "MessagesRequest": ("model", "messages", "max_tokens"),
    "CountRequest": ("model", "messages"),
    "OpenAIEmbeddingRequest": ("model", "input"),
    "TranscriptionForm": ("file", "model"),
    "CopyRequest": ("source", "destination"),
    **dict.fromkeys(("GenerateRequest", "ChatRequest", "EmbedRequest", "EmbeddingsRequest"), ("model",)),
    "CompletionRequest": ("model",),
    "ResponsesRequest": ("model", "input"),
    "AnthropicMessage": ("role", "content"),
    "AnthropicTool": ("name",),
}
"""Fields that a request is refused without. Those of other bodies have two names, either of which will do."""

_PARAMETER: Final = re.compile(r"<(?:\w+:)?(\w+)>")


@functools.cache
def document(routes: tuple[Route, ...]) -> bytes:
    """The OpenAPI 3.1 document of `routes`, as JSON."""
    kinds = list(
        dict.fromkeys(
            [*(kind for route in routes for kind in (route.body, route.form, route.answer) if kind), *_errors()]
        )
    )
    references, schemas = msgspec.json.schema_components(kinds, ref_template=REF)
    where = dict(zip(kinds, references, strict=True))
    for name, schema in schemas.items():
        _complete(name, schema)
    paths: dict[str, Schema] = {}
    for route in routes:
        for method in route.methods:
            paths.setdefault(_path(route.rule), {})[method.lower()] = _operation(route, method, where)
    return encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "trio-ollama",
                "version": __version__,
                "description": f"{ABOUT} The level of Ollama's API is that of {OLLAMA_API_VERSION}.",
                "license": {"name": "MIT", "identifier": "MIT"},
            },
            "paths": paths,
            "components": {"schemas": schemas},
        }
    )


def _errors() -> Iterable[type[msgspec.Struct]]:
    return ERRORS.values()


def _complete(name: str, schema: Schema) -> None:
    """Say what the types cannot."""
    for field, described in schema.get("properties", {}).items():
        more = LOOSE.get(f"{name}.{field}") or LOOSE.get(field)
        described |= BOUNDS.get(f"{name}.{field}") or BOUNDS.get(field) or {}
        if more is not None and not described.keys() & {"anyOf", "$ref"} and described.get("type") in (None, "object"):
            described |= more
    if name in REQUIRED:
        schema["required"] = list(REQUIRED[name])


def _path(rule: str) -> str:
    return _PARAMETER.sub(r"{\1}", rule)


def _operation(route: Route, method: str, where: Mapping[type, Schema]) -> Schema:
    shapes = dialect(route.rule)
    name = re.sub(r"\W+", "_", _path(route.rule)).strip("_")
    operation: Schema = {
        "operationId": f"{method.lower()}_{name or 'root'}",
        "tags": [shapes],
        "summary": (route.view.__doc__ or "").strip().splitlines()[0],
        "parameters": list(_parameters(route)),
        "responses": {},
    }
    if route.upload:
        operation["requestBody"] = {"content": {"application/octet-stream": {}}}
    elif route.form is not None:
        operation["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": where[route.form]}}}
    elif route.body is not None:
        operation["requestBody"] = {"required": True, "content": _json(where[route.body])}
    for status in route.success:
        operation["responses"][str(status)] = _success(route, method, status, where)
    for status in sorted({*route.errors, *ANYWHERE}):
        answer: Schema = {"description": STATUSES[status]}
        if method != "HEAD":
            answer["content"] = _json(where[ERRORS[shapes]])
        operation["responses"][str(status)] = answer | _headers(route)
    return operation


def _success(route: Route, method: str, status: int, where: Mapping[type, Schema]) -> Schema:
    answer: Schema = {"description": STATUSES[status]}
    if method != "HEAD" and route.media:
        schema = where[route.answer] if route.answer is not None else {}
        answer["content"] = {media: {"schema": schema} if schema else {} for media in route.media}
    return answer | _headers(route)


def _headers(route: Route) -> Schema:
    return {"headers": {HEADER: {"schema": {"type": "string"}}}} if route.inference else {}


def _parameters(route: Route) -> Iterable[Schema]:
    for name in _PARAMETER.findall(route.rule):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    if route.inference:
        about = "The id that the request is to have; visible ASCII."
        yield {"name": HEADER, "in": "header", "description": about, "schema": {"type": "string", "maxLength": 128}}
        about = "What becomes of a load that this request is the last to leave."
        schema = {"enum": ["abort", "finish"]}
        yield {"name": ABANDONED_LOAD, "in": "header", "description": about, "schema": schema}


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}
