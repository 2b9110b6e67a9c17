"""Small things that routes of both dialects share: JSON answers, time stamps, and reading a body into a struct."""

from __future__ import annotations

import functools
import json
import typing
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from quart import Response, request

from trio_ollama.server.body import EmptyBodyError, read_json
from trio_ollama.server.errors import ApiError

__all__ = ["JSON", "convert", "decode", "encode", "json_reply", "local_stamp", "read", "text_reply", "utc_now"]

JSON = "application/json; charset=utf-8"
PLAIN = "text/plain; charset=utf-8"

T = TypeVar("T", bound=msgspec.Struct)

encode = msgspec.json.Encoder().encode


def json_reply(value: object, status: int = 200) -> Response:
    """`value` (anything msgspec encodes) as a JSON response."""
    return Response(encode(value), status=status, content_type=JSON)


def text_reply(text: str, status: int = 200) -> Response:
    """A plain text response."""
    return Response(text, status=status, content_type=PLAIN)


def utc_now() -> datetime:
    """Now, for `created_at`; msgspec writes it as clients expect it."""
    return datetime.now(UTC)


def local_stamp(moment: datetime) -> str:
    """An instant in the server's own zone, for `modified_at` and `expires_at`."""
    return moment.astimezone().isoformat()


async def read(kind: type[T], limit: int) -> T:
    """The current request's body as a struct. Raises `ApiError` 400 and `BodyError`."""
    return decode(await read_json(request, limit), kind)


def decode(body: bytes, kind: type[T]) -> T:
    """A JSON body as a struct: names match whatever their case, null is as good as absent, what is unknown or stands
    behind the first value is ignored. Raises `ApiError` 400; a wrong type is told with the name of its field.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if not body.strip():
            raise EmptyBodyError from None
        value = _first_value(body, error)
    if not isinstance(value, dict):
        raise ApiError(400, "the request body must be a JSON object")
    return convert(value, kind)


def convert(value: Mapping[str, Any], kind: type[T]) -> T:
    """A JSON object as a struct, by the same rules. Raises `ApiError` 400 with the name of the field."""
    try:
        return msgspec.convert(_fold(value, kind), kind)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        field = path.rstrip("`").lstrip(".")
        raise ApiError(400, f'field "{field}": {reason}' if field else reason) from None


def _first_value(body: bytes, error: Exception) -> Any:
    try:
        return json.JSONDecoder().raw_decode(body.decode().lstrip())[0]
    except (ValueError, RecursionError):
        raise ApiError(400, f"invalid JSON: {error}") from None


def _fold(value: Mapping[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """`value` with the names that `kind` knows spelled as it spells them, and without nulls; all levels of structs."""
    fields = _fields(kind)
    folded = {}
    for name, item in value.items():
        known = fields.get(name.lower())
        if known is not None and item is not None:
            spelled, nested = known
            if nested is not None:
                if isinstance(item, dict):
                    item = _fold(item, nested)
                elif isinstance(item, list):
                    item = [_fold(each, nested) if isinstance(each, dict) else each for each in item]
            folded[spelled] = item
    return folded


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, tuple[str, type[msgspec.Struct] | None]]:
    return {
        field.encode_name.lower(): (field.encode_name, _nested(field.type)) for field in msgspec.structs.fields(kind)
    }


def _nested(annotation: Any) -> type[msgspec.Struct] | None:
    """The struct in an annotation, be it alone, in a list or beside None."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    return next(filter(None, map(_nested, typing.get_args(annotation))), None)
