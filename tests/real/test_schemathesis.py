"""Requests that a stranger makes of /openapi.json, with real runners: nothing undocumented, no hang, the daemon lives.

What comes back is held against the description by schemathesis; the seed is fixed. Names of models are replaced by
those of the store, and answers are kept short: it is about requests, not about tokens.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from typing import Any, Final

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.support.real_daemon import RealDaemon, wait_until
from tests.support.store_fixture import OllamaStore
from tests.support.tiny_gguf import CHAT_TEMPLATE, write_tiny_gguf

from .conftest import ONE_THREAD

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed: pip install schemathesis")

EXAMPLES: Final = 12
"""For each operation..."""
FEW: Final = {"post_api_create": 6, "post_api_pull": 3, "post_api_push": 3}
"""... but for these: a registry that cannot be reached is tried again for a while."""
BUDGET: Final = 35.0
"""Seconds for all of them, each of which has its share of what is left, and is asked at least once."""
LIMIT: Final = 20.0
"""Seconds for one answer."""

SHORT: Final = {"num_predict": 3, "num_ctx": 256}
MODELS: Final = ("able", "embedder", "nobody")
OFFLINE: Final = {name: "http://127.0.0.1:9" for name in ("HTTPS_PROXY", "https_proxy")}
"""No registry can be reached: what wants one is told so, soon."""
ABLE: Final = CHAT_TEMPLATE + "{# <think> </think> tools #}"
"""Of a model that takes tools, and is asked to think."""
CHANGES: Final = ("post_api_copy", "post_api_create", "post_api_pull", "post_api_push", "delete_api_delete")
"""They change the store that the others work with, so they come after those."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, tiny_models: dict[str, bytes]) -> Iterator[RealDaemon]:
    store = OllamaStore(tmp_path_factory.mktemp("schemathesis") / "models")
    able = write_tiny_gguf(store.root.parent / "able.gguf", name="able", chat_template=ABLE)
    for name, weights in (("able", able.read_bytes()), ("embedder", tiny_models["embedder"])):
        store.add(f"{name}:latest", weights, params={**ONE_THREAD, **SHORT})
    with RealDaemon(store.root, TRIO_OLLAMA_MAX_BODY="1MiB", **OFFLINE) as daemon:
        yield daemon
        log = daemon.log_path.read_text(errors="replace")
    assert "Traceback" not in log, "something happened that nobody foresaw"
    assert "unexpected error" not in log


OTHERS: Final = {"enum": ["made", "nobody", "a:b:c/"]}
"""Names that models get, and lose."""
TAME: Final[dict[str, Any]] = {
    "model": {"enum": list(MODELS)},
    "source": {"enum": list(MODELS)},
    "destination": OTHERS,
    "from": {"enum": list(MODELS)},
    "max_tokens": {"enum": [1, 2, 3]},
    "max_completion_tokens": {"enum": [1, 2, 3]},
    "max_output_tokens": {"enum": [1, 2, 3]},
    "arguments": {"enum": ["{}", '{"a": 1}', "[]", "{"]},
    "role": {"enum": ["user", "assistant", "system", "tool", "strange"]},
    "keep_alive": {"enum": [0, 60, 0.5, "1m", -1, "soon"]},
    "images": {"type": "array", "maxItems": 0},
    "reasoning_effort": {"enum": ["", "low", "none", "hardly"]},
    "effort": {"enum": ["", "low", "none", "hardly"]},
}
"""Fields that would otherwise be refused nearly always."""
PART: Final = {
    "type": "object",
    "properties": {
        "type": {"enum": ["text", "input_text", "message", "thinking", "image", "image_url", "tool_result", "strange"]},
        **{name: {"type": "string"} for name in ("text", "thinking", "image_url", "tool_use_id", "role", "content")},
    },
    "required": ["type", "text", "content"],
}
"""A part of a content, an item of an input."""
PARTS: Final = {"anyOf": [{"type": "string"}, {"type": "array", "items": PART, "minItems": 1}]}
WANTED: Final = frozenset({"max_tokens", "max_output_tokens", "options", "role", "content"})
"""Fields that are always given, where there are any."""
RELOADS: Final = ("num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "use_mmap", "draft_num_predict")
"""Options that make another runner of it each time."""


def tamed(document: dict[str, Any]) -> dict[str, Any]:
    """The description, so narrowed that many requests are answered, and soon; strange ones remain."""
    document = copy.deepcopy(document)
    for path in document["paths"].values():
        for operation in path.values():
            for parameter in operation["parameters"]:
                if parameter["in"] == "path":  # one with a line's end in it is no path that there is
                    parameter["schema"]["pattern"] = "^[ -~]+$"
    for schema in document["components"]["schemas"].values():
        fields = schema.get("properties", {})
        if "model" in fields and "name" in fields:  # the old word for it
            fields["name"] = OTHERS
        given = TAME | ({"model": OTHERS} if schema["title"] in ("CreateBody", "NameRequest") else {})
        fields |= {
            name: tame for name, tame in given.items() if name in fields and fields[name].get("type") != "object"
        }
        required = {*schema.get("required", []), *(WANTED & fields.keys())}
        schema |= {"required": sorted(required), "additionalProperties": False}
        for name in ("content", "input", "system"):
            if "items" in str(fields.get(name)) and "Embed" not in schema["title"]:
                fields[name] = PARTS
        if "options" in fields:
            options = fields["options"]
            options["properties"] = {
                name: described for name, described in options["properties"].items() if name not in RELOADS
            }
            options["properties"]["num_predict"] = {"enum": [0, 1, 3]}
            options |= {"required": ["num_predict"], "additionalProperties": False}
    return document


def operations(document: dict[str, Any]) -> dict[str, Any]:
    """By their ids, those that change the store last."""
    found = [found.ok() for found in schemathesis.openapi.from_dict(document).get_all_operations()]
    named = {operation.definition.raw["operationId"]: operation for operation in found}
    last = {name: named.pop(name) for name in CHANGES}
    return {**named, **last}


def test_what_a_stranger_asks(daemon: RealDaemon, record_property: Any) -> None:
    """Each operation gets its share of the time; no answer is undocumented, and nobody waits in vain."""
    with httpx2.Client(base_url=daemon.url, timeout=LIMIT) as client:
        document = tamed(client.get("/openapi.json").json())
        end, asked, wanted = time.monotonic() + BUDGET, dict[str, int](), operations(document)
        for name, operation in wanted.items():
            share = (end - time.monotonic()) / (len(wanted) - len(asked))
            asked[name] = ask(operation, client, time.monotonic() + share, FEW.get(name, EXAMPLES))
        record_property("asked", asked)
        assert all(asked.values())
        assert client.get("/api/version").status_code == 200
        assert client.get("/api/requests").json() == {"requests": []}
        chat = {"model": "able", "messages": [{"role": "user", "content": "w1"}], "stream": False, "keep_alive": 0}
        assert client.post("/api/chat", json=chat).json()["done"] is True
        client.post("/api/stop", json={"model": "embedder", "mode": "force"})
    for _ in wait_until(10):
        if not daemon.children():
            break
    else:
        raise AssertionError(f"runners are left\n{daemon.log}")


def ask(operation: Any, client: httpx2.Client, end: float, most: int) -> int:
    """How many requests were made of one operation: one, and then until `end` or as many as `most`."""
    count = 0

    @seed(4711)
    @settings(
        max_examples=most,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def one(case: Any) -> None:
        nonlocal count
        if count and time.monotonic() > end:
            return  # making requests takes time as well, but few are left of this operation
        count += 1
        check(case, client)

    one()
    return count


def check(case: Any, client: httpx2.Client) -> None:
    request = case.as_transport_kwargs(base_url=str(client.base_url).rstrip("/"))
    request.pop("cookies", None)
    if "data" in request:  # as another client library calls it
        request["content"] = request.pop("data")
    answer = client.request(**request)
    described = case.operation.definition.raw["responses"]
    sent = f"{request['method']} {request['url']} {request.get('json', '')!r:.900}"
    what = f"{sent}: {answer.status_code} {answer.text:.300}"
    assert str(answer.status_code) in described, what
    if answer.status_code >= 500:
        assert "internal server error" not in answer.text, what
    kind = answer.headers.get("content-type", "").partition(";")[0]
    content = described[str(answer.status_code)].get("content")
    if content and answer.content:
        assert kind in content, what
