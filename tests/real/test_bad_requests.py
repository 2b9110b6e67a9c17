"""Requests that are wrong in every way: the documented answer, no model loaded for it, and the daemon lives."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.support.api_client import ask, get
from tests.support.raw_http import Answer, exchange
from tests.support.real_daemon import RealDaemon
from tests.support.store_fixture import OllamaStore
from tests.support.until import until

from .conftest import ONE_THREAD

MAX_BODY = 100_000
HOST = b"Host: localhost\r\n"
MESSAGES = [{"role": "user", "content": "w1"}]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, tiny_models: dict[str, bytes]) -> Iterator[RealDaemon]:
    """One for all of them: it has to live through all."""
    store = OllamaStore(tmp_path_factory.mktemp("bad requests") / "models")
    store.add("tiny:latest", tiny_models["tiny"], params=ONE_THREAD)
    with RealDaemon(store.root, TRIO_OLLAMA_MAX_BODY=str(MAX_BODY), OLLAMA_ORIGINS="http://friend.example") as daemon:
        yield daemon
        log = daemon.log_path.read_text(errors="replace")
    assert "Traceback" not in log, "something happened that nobody foresaw"


@pytest.fixture(autouse=True)
async def _lives(daemon: RealDaemon) -> AsyncIterator[None]:
    """After every request it answers, and has loaded nothing."""
    yield
    assert (await get(daemon.port, "/api/ps"))["models"] == []
    assert not daemon.children()


def request(path: str, body: bytes = b"", *, method: str = "POST", host: bytes = HOST, **headers: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}\r\n".encode() for name, value in headers.items()]
    if method == "POST":
        lines.append(b"Content-Length: %d\r\n" % len(body))
    return b"%s %s HTTP/1.1\r\n" % (method.encode(), path.encode()) + host + b"".join(lines) + b"\r\n" + body


async def post(daemon: RealDaemon, path: str, body: object) -> Answer:
    return await exchange(daemon.port, request(path, body if isinstance(body, bytes) else json.dumps(body).encode()))


# -- bodies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_ctx": "many"}, 'option "num_ctx" must be of type integer'),
        ({"num_ctx": True}, 'option "num_ctx" must be of type integer'),
        ({"seed": [1]}, 'option "seed" must be of type integer'),
        ({"temperature": "hot"}, 'option "temperature" must be of type float32'),
        ({"use_mmap": 1}, 'option "use_mmap" must be of type boolean'),
        ({"stop": "end"}, 'option "stop" must be of type array'),
        ({"stop": [1]}, 'option "stop" must be of an array of strings'),
    ],
)
@pytest.mark.parametrize("path", ["/api/generate", "/api/chat"])
async def test_options_of_a_wrong_type(path: str, options: dict[str, Any], text: str, daemon: RealDaemon) -> None:
    answer = await post(daemon, path, {"model": "tiny", "prompt": "w1", "messages": MESSAGES, "options": options})
    assert (answer.status, answer.json) == (400, {"error": text})


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("/api/generate", {"model": "tiny", "prompt": 1}, "prompt"),
        ("/api/generate", {"model": "tiny", "prompt": "w1", "stream": "yes"}, "stream"),
        ("/api/generate", {"model": "tiny", "prompt": "w1", "options": []}, "options"),
        ("/api/generate", {"model": "tiny", "prompt": "w1", "keep_alive": "10"}, 'time: missing unit in duration "10"'),
        ("/api/generate", {"model": "tiny", "prompt": "w1", "keep_alive": []}, "Unsupported type"),
        ("/api/generate", {"model": "tiny", "prompt": "w1", "format": "xml"}, "invalid format"),
        ("/api/generate", {"model": "tiny", "prompt": "w1", "think": "hard"}, "invalid think value"),
        (
            "/api/generate",
            {"model": "tiny", "prompt": "w1", "top_logprobs": 21},
            "top_logprobs must be between 0 and 20",
        ),
        ("/api/chat", {"model": "tiny", "messages": "w1"}, "messages"),
        ("/api/chat", {"model": "tiny", "messages": [{"role": "user", "content": 1}]}, "content"),
        ("/api/chat", {"model": 1}, "model"),
        ("/api/embed", {"model": "tiny", "input": {"a": 1}}, "invalid input type"),
        ("/api/show", {"model": ["tiny"]}, "model"),
        ("/api/create", {"model": "new", "files": ["a"]}, "files"),
        ("/api/chat", ["tiny"], "the request body must be a JSON object"),
        ("/api/chat", b"", "missing request body"),
        ("/api/chat", b"  \n", "missing request body"),
        ("/api/chat", b"not JSON", "invalid JSON"),
        ("/api/chat", b'{"model": "tiny"', "invalid JSON"),
        ("/api/chat", b'{"model": "\xff"}', "invalid JSON"),
        ("/api/chat", b'{"a":' * 20_000, "invalid JSON"),
    ],
)
async def test_bodies(path: str, body: object, text: str, daemon: RealDaemon) -> None:
    answer = await post(daemon, path, body)
    assert answer.status == 400, answer
    assert set(answer.json) == {"error"}
    assert text in answer.json["error"]


@pytest.mark.parametrize("body", [b"", b"{", b'{"model":"tiny","messages":[]}', b'{"model":"tiny","messages":1}'])
async def test_bodies_in_the_other_dialect(body: bytes, daemon: RealDaemon) -> None:
    answer = await post(daemon, "/v1/chat/completions", body)
    assert answer.status == 400
    assert answer.json["error"]["type"] == "invalid_request_error"
    assert answer.json["error"]["message"]


async def test_a_body_that_is_too_large(daemon: RealDaemon) -> None:
    too_large = (413, {"error": f"request body too large: the limit is {MAX_BODY} bytes"})
    body = json.dumps({"model": "tiny", "prompt": "w" * MAX_BODY}).encode()
    answer = await post(daemon, "/api/generate", body)
    assert (answer.status, answer.json) == too_large
    head = b"POST /api/generate HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + HOST + b"\r\n"
    answer = await exchange(daemon.port, head, b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
    assert (answer.status, answer.json) == too_large
    # It is the limit of what is parsed, not of what is uploaded.
    answer = await post(daemon, f"/api/blobs/sha256:{'0' * 64}", body)
    assert answer.status == 400
    assert answer.json["error"].startswith("digest mismatch")


# -- what is no request at all ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        pytest.param([request("/api/tags", method="GET", X="x" * 20_000)], 431, id="a large head"),
        pytest.param([request("/api/tags", method="GET")[:-2], b"X: " + b"x" * 70_000], 431, id="an endless head"),
        pytest.param([request("/" + "x" * 20_000, method="GET")], 431, id="a long target"),
        pytest.param([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0\0\0\4\0\0\0\0\0"], 505, id="HTTP/2"),
        pytest.param([b"\x16\x03\x01\x02\0\1\0\1\xfc\x03\x03\r\n\r\n"], 400, id="TLS"),
        pytest.param([b"garbage\r\n\r\n"], 400, id="garbage"),
        pytest.param([bytes(range(256)) * 100], 400, id="noise"),
        pytest.param([b"GET / HTTP/1.1\r\n\r\n"], 400, id="no Host"),
        pytest.param([b"POST /api/chat HTTP/1.1\r\nContent-Length: x\r\n" + HOST + b"\r\n"], 400, id="no length"),
        pytest.param(
            [b"POST /api/chat HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + HOST + b"\r\n", b"zz\r\n"],
            400,
            id="a bad chunk",
        ),
    ],
)
async def test_no_requests(pieces: list[bytes], status: int, daemon: RealDaemon) -> None:
    assert (await exchange(daemon.port, *pieces)).status == status


async def test_a_websocket_and_a_stray_byte(daemon: RealDaemon) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    answer = await exchange(daemon.port, request("/", method="GET", **upgrade), b"x")
    assert (answer.status, answer.body) == (200, b"Ollama is running")


# -- from where it must not come --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/api/tags", "/api/delete", "/v1/models", "/nowhere"])
async def test_strange_hosts_and_origins(path: str, daemon: RealDaemon) -> None:
    for host in (b"evil.example", b"evil.example:11434", b"1.2.3.4"):
        answer = await exchange(daemon.port, request(path, method="GET", host=b"Host: %s\r\n" % host))
        assert (answer.status, answer.body) == (403, b""), host
    for origin in ("http://evil.example", "https://localhost.evil.example", "null"):
        answer = await exchange(daemon.port, request(path, method="GET", Origin=origin))
        assert (answer.status, answer.body) == (403, b""), origin
        assert "access-control-allow-origin" not in answer.headers
    for origin in ("http://friend.example", "http://localhost:3000", "app://here"):
        answer = await exchange(daemon.port, request(path, method="GET", Origin=origin))
        assert answer.status in (200, 404, 405)
        assert answer.headers["access-control-allow-origin"] == origin


async def test_a_normal_request_after_all(daemon: RealDaemon) -> None:
    options = {"num_predict": 4}
    status, answer = await ask(
        daemon.port, "/api/chat", within=30, model="tiny", messages=MESSAGES, options=options, keep_alive=0
    )
    assert (status, answer.get("eval_count")) == (200, 4), answer
    await until(lambda: not daemon.children(), 10, lambda: daemon.log)
