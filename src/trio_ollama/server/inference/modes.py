"""`think` and `format`: how they are checked, and what the runner's two routes want to hear instead."""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

import msgspec

from trio_ollama.server.errors import ApiError

__all__ = ["JSON_GRAMMAR", "Format", "Think", "chat_format", "completion_format", "parse_format", "parse_think"]

Think: TypeAlias = bool | str | None
Format: TypeAlias = str | dict[str, Any] | None
"""None for free text, `json` for any JSON value, else a JSON Schema."""

_LEVELS: Final = ("high", "medium", "low", "max")
_CHOICES: Final = '"high", "medium", "low", "max", true, or false'

JSON_GRAMMAR: Final = r"""
root    ::= object
value   ::= object | array | string | number | ("true" | "false" | "null") ws
object  ::= "{" ws ( member ("," ws member)* )? "}" ws
member  ::= string ":" ws value
array   ::= "[" ws ( value ("," ws value)* )? "]" ws
string  ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt/] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number  ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,3})? ws
ws      ::= | " " | "\n" [ \t]{0,20}
"""
"""A JSON object, for the route that takes grammars only. Blanks are bounded: a model could write them for ever."""


def parse_think(value: object) -> Think:
    """Checked `think` of a native request. Raises `ApiError` 400."""
    match value:
        case None | bool():
            return value
        case str() if value in _LEVELS:
            return value
        case str():
            raise ApiError(400, f'invalid think value: "{value}" (must be {_CHOICES})')
        case _:
            raise ApiError(400, f"think must be a boolean or string ({_CHOICES})")


def parse_format(value: object) -> Format:
    """Checked `format` of a native request. Raises `ApiError` 400, where upstream says 500."""
    match value:
        case None | "":
            return None
        case "json":
            return "json"
        case dict():
            return value
        case _:
            shown = json.dumps(msgspec.json.encode(value).decode())
            raise ApiError(400, f'invalid format: {shown}; expected "json" or a valid JSON Schema object')


def chat_format(wanted: Format) -> dict[str, Any]:
    """Fields for `/v1/chat/completions`."""
    if wanted is None:
        return {}
    if wanted == "json":
        return {"response_format": {"type": "json_object"}}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "schema", "schema": wanted}}}


def completion_format(wanted: Format) -> dict[str, Any]:
    """Fields for `/completion`."""
    if wanted is None:
        return {}
    return {"grammar": JSON_GRAMMAR} if wanted == "json" else {"json_schema": wanted}
