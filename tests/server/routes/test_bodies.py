"""Bodies that cannot be used: a 400 with the reason, before anything is looked up, loaded or changed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.asgi_client import send
from trio_ollama.models.metadata_cache import MetadataCache
from trio_ollama.server.app import create_app
from trio_ollama.settings import Settings

from .conftest import Daemon, nothing_started

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}


async def refused(daemon: Daemon, path: str, body: object) -> str:
    with nothing_started(daemon.scheduler):
        answer = await daemon.post(path, body)
    assert answer.status == 400
    assert list(answer.json) == ["error"]
    text: str = answer.json["error"]
    return text


@pytest.mark.parametrize("path", ["/api/generate", "/api/chat", "/api/embed", "/api/show", "/api/copy"])
@pytest.mark.parametrize("body", [b"", b"  \n"])
async def test_empty(daemon: Daemon, path: str, body: bytes) -> None:
    assert await refused(daemon, path, body) == "missing request body"


@pytest.mark.parametrize("body", [b"{", b"[1]", b'"x"', b'{"model": "\xff"}', b"nothing"])
async def test_malformed(daemon: Daemon, body: bytes) -> None:
    assert await refused(daemon, "/api/chat", body)


async def test_deeply_nested(daemon: Daemon) -> None:
    assert await refused(daemon, "/api/chat", b"[" * 100_000)


async def test_what_stands_behind_the_first_value_is_ignored(daemon: Daemon) -> None:
    body = json.dumps({"model": "tiny", "prompt": "hi", "stream": False}).encode() + b"\n} rubbish"
    assert (await daemon.post("/api/generate", body)).status == 200


async def test_names_match_in_any_case_and_null_is_absent(daemon: Daemon) -> None:
    body = {
        "MODEL": "tiny",
        "Messages": [{"Role": "USER", "CONTENT": "hi", "images": None}],
        "stream": False,
        "options": None,
        "keep_alive": None,
        "unheard_of": {"of": 1},
    }
    assert (await daemon.post("/api/chat", body)).status == 200
    assert daemon.scheduler.calls[0][1]["messages"] == [{"role": "user", "content": "hi"}]
    assert daemon.scheduler.demands[0].keep_alive is None


@pytest.mark.parametrize(
    ("path", "change", "field"),
    [
        ("/api/chat", {"stream": "yes"}, "stream"),
        ("/api/chat", {"model": 7}, "model"),
        ("/api/chat", {"messages": "hi"}, "messages"),
        ("/api/chat", {"messages": [{"role": "user", "content": ["hi"]}]}, "messages[0].content"),
        ("/api/chat", {"options": [1]}, "options"),
        (
            "/api/chat",
            {"messages": [{"tool_calls": [{"function": {"arguments": "{}"}}]}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        ("/api/generate", {"prompt": 1}, "prompt"),
        ("/api/generate", {"images": ["not base64!"]}, "images[0]"),
        ("/api/embed", {"truncate": 1}, "truncate"),
    ],
)
async def test_a_wrong_type_is_told_with_its_field(daemon: Daemon, path: str, change: Any, field: str) -> None:
    assert f'field "{field}": ' in await refused(daemon, path, {"model": "tiny"} | change)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_ctx": "8k"}, 'option "num_ctx" must be of type integer'),
        ({"seed": True}, 'option "seed" must be of type integer'),
        ({"num_gpu": []}, 'option "num_gpu" must be of type integer'),
        ({"main_gpu": {}}, 'option "main_gpu" must be of type integer'),
        ({"use_mmap": 1}, 'option "use_mmap" must be of type boolean'),
        ({"temperature": "hot"}, 'option "temperature" must be of type float32'),
        ({"top_p": False}, 'option "top_p" must be of type float32'),
        ({"stop": "###"}, 'option "stop" must be of type array'),
        ({"stop": ["###", 1]}, 'option "stop" must be of an array of strings'),
    ],
)
@pytest.mark.parametrize("path", ["/api/generate", "/api/chat", "/api/embed", "/api/embeddings"])
async def test_wrong_options(daemon: Daemon, path: str, options: Any, text: str) -> None:
    body = CHAT | {"prompt": "hi", "input": "hi", "options": options}
    assert await refused(daemon, path, body) == text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"keep_alive": "10"}, 'time: missing unit in duration "10"'),
        ({"keep_alive": [1]}, "Unsupported type: '[]interface {}'"),
        ({"keep_alive": True}, "Unsupported type: 'bool'"),
        ({"top_logprobs": 21}, "top_logprobs must be between 0 and 20"),
        ({"top_logprobs": -1}, "top_logprobs must be between 0 and 20"),
        (
            {"think": "a lot"},
            'invalid think value: "a lot" (must be "high", "medium", "low", "max", true, or false)',
        ),
        ({"think": 1}, 'think must be a boolean or string ("high", "medium", "low", "max", true, or false)'),
        ({"think": True}, '"tiny" does not support thinking'),
        ({"think": "low"}, '"tiny" does not support thinking'),
        ({"format": "xml"}, r'invalid format: "\"xml\""; expected "json" or a valid JSON Schema object'),
        ({"format": [1]}, 'invalid format: "[1]"; expected "json" or a valid JSON Schema object'),
    ],
)
@pytest.mark.parametrize("path", ["/api/generate", "/api/chat"])
async def test_wrong_values(daemon: Daemon, path: str, change: Any, text: str) -> None:
    assert await refused(daemon, path, CHAT | {"prompt": "hi"} | change) == text


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("/api/chat", CHAT | {"model": "vectors"}, '"vectors" does not support chat'),
        ("/api/generate", {"model": "vectors", "prompt": "hi"}, '"vectors" does not support generate'),
        (
            "/api/chat",
            CHAT | {"tools": [{"type": "function", "function": {"name": "f"}}]},
            "registry.ollama.ai/library/tiny:latest does not support tools",
        ),
        (
            "/api/generate",
            {"model": "tiny", "prompt": "hi", "suffix": "!"},
            "registry.ollama.ai/library/tiny:latest does not support insert",
        ),
        (
            "/api/generate",
            {"model": "tiny", "prompt": "hi", "raw": True, "system": "x"},
            "raw mode does not support template, system, or context",
        ),
        ("/api/chat", CHAT | {"model": "bare"}, 'model "bare" has no chat template, and none is stored with it'),
        (
            "/api/generate",
            {"model": "bare", "prompt": "hi"},
            'model "bare" has no chat template, and none is stored with it',
        ),
        ("/api/embed", {"model": "tiny", "input": [1, 2]}, "invalid input type"),
        ("/api/embed", {"model": "nobody", "input": {"a": 1}}, "invalid input type"),
    ],
)
async def test_what_a_model_cannot_do(daemon: Daemon, path: str, body: Any, text: str) -> None:
    assert await refused(daemon, path, body) == text


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"model_format": "safetensors"}, "this model requires MLX support, but the MLX runtime is not available"),
        ({"capabilities": ["image"]}, "image generation models are not currently supported"),
        (
            {"kind": "bare", "renderer": "qwen3-coder"},
            'model "odd" needs the built-in renderer "qwen3-coder", which this server does not have, '
            "or a chat template",
        ),
    ],
)
async def test_kinds_of_models_that_are_not_run(daemon: Daemon, add_model: Any, config: Any, text: str) -> None:
    add_model("odd", **config)
    assert await refused(daemon, "/api/generate", {"model": "odd", "prompt": "hi"}) == text


async def test_unknown_options_and_nulls_are_ignored(daemon: Daemon) -> None:
    options = {"mirostat": 2, "num_ctx": None, "top_k": 7.9, "temperature": 1}
    answer = await daemon.post("/api/chat", CHAT | {"options": options, "stream": False})
    assert answer.status == 200
    body = daemon.scheduler.calls[0][1]
    assert (body["top_k"], body["temperature"]) == (7, 1.0)
    assert daemon.scheduler.demands[0].options.num_ctx_auto


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
async def test_a_body_beyond_the_limit(daemon: Daemon, path: str) -> None:
    app = create_app(
        settings=Settings(max_body=100),
        scheduler=daemon.scheduler,  # type: ignore[arg-type]
        store=daemon.store,
        metadata_cache=MetadataCache(),
    )
    answer = await send(app, "POST", path, {"model": "x" * 100})
    error = answer.json["error"]
    text = "request body too large: the limit is 100 bytes"
    assert (answer.status, error["message"] if path.startswith("/v1") else error) == (413, text)
