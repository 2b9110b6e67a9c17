"""Conversations as templates see them: the messages, tools and calls of a request, with Go's field names.

Upstream prints tools and arguments as JSON; so does this. Where its template types forget the API's names (a tool
call as JSON), the names that models were trained with are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .values import JsonList, JsonMap, Names, Record, Value

__all__ = ["Message", "ToolCall", "message_values", "tool_values"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model made; `arguments` is an object of JSON, `index` counts from 0 within an answer."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""
    index: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """A turn of a conversation. `images` are the files' bytes."""

    role: str
    content: str = ""
    thinking: str = ""
    images: Sequence[bytes] = ()
    tool_calls: Sequence[ToolCall] = field(default=())
    tool_name: str = ""
    tool_call_id: str = ""


def message_values(messages: Sequence[Message]) -> Value:
    """What `.Messages` is."""
    return tuple(
        Record(
            "message",
            {
                "Role": message.role,
                "Content": message.content,
                "Thinking": message.thinking,
                "Images": tuple(message.images),
                "ToolCalls": tuple(map(_call, message.tool_calls)),
                "ToolName": message.tool_name,
                "ToolCallID": message.tool_call_id,
            },
        )
        for message in messages
    )


def _call(call: ToolCall) -> Record:
    arguments = JsonMap(call.arguments)
    function = Record(
        "function call",
        {"Index": call.index, "Name": call.name, "Arguments": arguments},
        {"name": call.name, "arguments": arguments},
    )
    identity = {"id": call.id} if call.id else {}
    return Record("tool call", {"ID": call.id, "Function": function}, {**identity, "function": function})


def tool_values(tools: Sequence[Mapping[str, Any]]) -> JsonList:
    """What `.Tools` is, from a request's tools. Keys that a tool cannot have are left out; missing ones are empty."""
    return JsonList(map(_tool, tools))


def _tool(tool: Mapping[str, Any]) -> Record:
    return _record(
        "tool",
        {
            "Type": _text(tool.get("type")),
            "Items": tool.get("items"),
            "Function": _function(_mapping(tool.get("function"))),
        },
        optional=("Items",),
    )


def _function(function: Mapping[str, Any]) -> Record:
    return _record(
        "function",
        {
            "Name": _text(function.get("name")),
            "Description": _text(function.get("description")),
            "Parameters": _parameters(_mapping(function.get("parameters"))),
        },
    )


def _parameters(parameters: Mapping[str, Any]) -> Record:
    return _record(
        "parameters",
        {
            "Type": _text(parameters.get("type")),
            "Defs": parameters.get("$defs"),
            "Items": parameters.get("items"),
            "Required": _list(parameters.get("required")),
            "Properties": _properties(parameters.get("properties")),
        },
        optional=("Defs", "Items", "Required"),
    )


def _properties(properties: Any) -> JsonMap:
    return JsonMap({name: _property(_mapping(value)) for name, value in _mapping(properties).items()})


def _property(value: Mapping[str, Any]) -> Record:
    types = value.get("type")
    fields = {
        "AnyOf": tuple(_property(_mapping(choice)) for choice in _list(value.get("anyOf"))),
        "Type": Names((types,) if isinstance(types, str) else filter(None, map(_text, _list(types)))),
        "Items": value.get("items"),
        "Description": _text(value.get("description")),
        "Enum": _list(value.get("enum")),
        "Properties": _properties(value.get("properties")),
        "Required": _list(value.get("required")),
    }
    return _record("property", fields, optional=tuple(fields))


def _record(name: str, fields: Mapping[str, Value], *, optional: Sequence[str] = ()) -> Record:
    """JSON shows all fields in this order, under the API's names, but optional ones only if they are not empty."""
    shown = {
        "$defs" if field == "Defs" else field[:1].lower() + field[1:]: value
        for field, value in fields.items()
        if value or field not in optional
    }
    return Record(name, fields, shown)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else ()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
