"""The description of the API: nothing is missing in it, nothing is invented, and it is made of what is in use."""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any, get_type_hints

import msgspec
import pytest

from tests.support.api_description import check_described, described, operation
from tests.support.asgi_client import Answer
from trio_ollama.server.app import ROUTES
from trio_ollama.server.routes import Route

from .conftest import Daemon

METHODS = {"get", "head", "post", "delete", "put", "patch"}
SCHEMAS = described()["components"]["schemas"]


async def test_it_is_served(daemon: Daemon) -> None:
    answer = await daemon.send("GET", "/openapi.json")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json; charset=utf-8")
    assert answer.json == described()
    assert answer.json["openapi"].startswith("3.1.")


async def test_every_route_is_in_it_and_no_other(daemon: Daemon) -> None:
    routed = {
        (re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule), method.lower())
        for rule in daemon.app.url_map.iter_rules()
        for method in rule.methods or ()
    }
    written = {(path, method) for path, operations in described()["paths"].items() for method in operations}
    assert written - routed == set()
    # The router answers HEAD wherever there is GET.
    assert {(path, method) for path, method in routed - written if method != "head"} == set()


def refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for item in value.values():
            yield from refs(item)
    elif isinstance(value, list):
        for item in value:
            yield from refs(item)


def test_it_hangs_together() -> None:
    assert {ref.removeprefix("#/components/schemas/") for ref in refs(dict(described()))} <= set(SCHEMAS)
    operations = [one for path in described()["paths"].values() for one in path.values()]
    ids = [one["operationId"] for one in operations]
    assert len(ids) == len(set(ids))
    for path, methods in described()["paths"].items():
        assert methods.keys() <= METHODS
        for one in methods.values():
            assert one["summary"], path
            assert one["responses"]
            named = {parameter["name"] for parameter in one["parameters"] if parameter["in"] == "path"}
            assert named == set(re.findall(r"\{(\w+)\}", path))


def bodies_read(view: Any) -> Iterator[Any]:
    """The types that a view, or what it calls in its own module, makes of the request's body."""
    module = inspect.getmodule(view)
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(view)))):
        match node:
            case ast.Call(func=ast.Name(id="read"), args=[ast.Name(id=kind), *_]):
                yield getattr(module, kind)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.methods[0]} {route.rule}")
def test_the_types_are_those_that_check_the_requests(route: Route) -> None:
    assert list(bodies_read(route.view)) == ([route.body] if route.body is not None else [])


def loose(kind: type[msgspec.Struct]) -> Iterator[str]:
    hints = get_type_hints(kind)
    yield from (field.encode_name for field in msgspec.structs.fields(kind) if hints[field.name] is Any)


BODIES = sorted({route.body for route in ROUTES if route.body}, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", BODIES, ids=lambda kind: kind.__name__)
def test_a_field_that_takes_several_types_says_which(kind: type[msgspec.Struct]) -> None:
    for field in loose(kind):
        schema = SCHEMAS[kind.__name__]["properties"][field]
        assert schema.keys() & {"anyOf", "enum", "type"}, field


def test_options_are_those_of_the_table() -> None:
    options = SCHEMAS["ChatRequest"]["properties"]["options"]["properties"]
    assert options["temperature"] == {"type": "number", "default": 0.8}
    assert options["num_ctx"] == {"type": "integer"}
    assert SCHEMAS["ChatRequest"]["required"] == ["model"]


def test_requests_for_models_have_ids() -> None:
    for route in ROUTES:
        one = operation(route.methods[0], route.rule) or {}
        responses = one.get("responses", {}).values()
        with_id = [response for response in responses if "X-Request-Id" in response.get("headers", {})]
        assert len(with_id) == (len(responses) if route.inference else 0)
        assert ("499" in one.get("responses", {})) == route.inference


@pytest.mark.parametrize(
    ("method", "path", "answer"),
    [
        ("GET", "/api/nowhere", Answer(200)),
        ("POST", "/api/chat", Answer(418)),
        ("POST", "/api/chat", Answer(200, {"content-type": "text/html"}, [b"a"])),
        ("POST", "/api/chat", Answer(400, {"content-type": "application/json"}, [b'{"error": {"message": ""}}'])),
        ("POST", "/v1/chat/completions", Answer(400, {"content-type": "application/json"}, [b'{"error": ""}'])),
        ("POST", "/v1/messages", Answer(404, {"content-type": "application/json"}, [b'{"error": ""}'])),
    ],
)
def test_an_answer_that_is_not_as_described_is_noticed(method: str, path: str, answer: Answer) -> None:
    """All tests of routes look at each answer in this way."""
    with pytest.raises((AssertionError, msgspec.ValidationError)):
        check_described(method, path, answer)


def test_it_is_plain_json() -> None:
    assert json.loads(json.dumps(described())) == described()
