"""Characters of several tokens, and stop sequences over several pieces, by every route that streams text."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.api_client import ApiClient
from tests.support.real_daemon import RealDaemon
from tests.support.scripted_gguf import write_scripted_gguf
from tests.support.store_fixture import OllamaStore

from .conftest import ONE_THREAD, StartDaemon

pytestmark = pytest.mark.real

TEXT = "7€ü8😀"
"""No byte comes twice: each is a token of the model `bytewise`, which says nothing else."""
PIECES = ["One", " two", " three", " four"]
"""What the model `speaker` says."""

MESSAGES = [{"role": "user", "content": "w1"}]
ROUTES: dict[str, dict[str, Any]] = {
    "/api/chat": {"messages": MESSAGES},
    "/api/generate": {"prompt": "w1"},
    "/api/generate raw": {"prompt": "w1\n", "raw": True},
    "/v1/chat/completions": {"messages": MESSAGES, "stream": True},
    "/v1/completions": {"prompt": "w1", "stream": True},
    "/v1/messages": {"messages": MESSAGES, "stream": True},
    "/v1/responses": {"input": "w1", "stream": True},
}
WITH_STOPS = [route for route in ROUTES if route != "/v1/responses"]


@pytest.fixture
def daemon(store: Path, start_daemon: StartDaemon) -> RealDaemon:
    made = OllamaStore(store)
    with tempfile.TemporaryDirectory() as folder:
        bytewise = write_scripted_gguf(Path(folder, "bytewise"), [bytes([byte]) for byte in TEXT.encode()])
        speaker = write_scripted_gguf(Path(folder, "speaker"), PIECES)
        for path in (bytewise, speaker):
            made.add(f"{path.name}:latest", path.read_bytes(), params=ONE_THREAD)
    return start_daemon()


def body(route: str, model: str, limit: int, stop: str | None) -> dict[str, Any]:
    """A request by this route; `limit` in tokens."""
    asked = {"model": model, **ROUTES[route]}
    if route.startswith("/api/"):
        return asked | {"options": {"num_predict": limit, **({"stop": [stop]} if stop else {})}}
    name = "max_output_tokens" if route == "/v1/responses" else "max_tokens"
    stops = {"stop_sequences" if route == "/v1/messages" else "stop": [stop]} if stop else {}
    return asked | {name: limit} | stops


def piece(record: dict[str, Any]) -> str:
    """The text in one record of a stream, whatever its dialect."""
    match record:
        case {"message": {"content": str(text)}} | {"response": str(text)}:
            return text
        case {"choices": [{"delta": {"content": str(text)}} | {"text": str(text)}]}:
            return text
        case {"type": "content_block_delta", "delta": {"text": str(text)}}:
            return text
        case {"type": "response.output_text.delta", "delta": str(text)}:
            return text
        case {"error": error}:
            raise AssertionError(error)
        case _:
            return ""


async def said(daemon: RealDaemon, route: str, model: str, limit: int, stop: str | None = None) -> list[str]:
    """The texts of all records of an answer, as they came."""
    pieces: list[str] = []
    with trio.fail_after(60):
        async with ApiClient(daemon.port) as client:
            await client.post(route.partition(" ")[0], **body(route, model, limit, stop))
            assert await client.status() == 200
            while (line := await client.line()) is not None:
                line = line.removeprefix(b"data: ")
                if line.startswith(b"{"):
                    pieces.append(piece(json.loads(line)))
    return list(filter(None, pieces))


async def test_no_character_comes_in_parts(daemon: RealDaemon) -> None:
    """However many tokens there are: what is left of a character at the end is left out."""
    length = len(TEXT.encode())
    for route in ROUTES:
        for limit in range(1, length + 2):
            whole = TEXT.encode()[:limit].decode(errors="ignore")
            assert await said(daemon, route, "bytewise", limit) == list(whole), (route, limit)


@pytest.mark.parametrize(
    ("model", "stop", "expected"),
    [
        ("bytewise", "€", "7"),
        ("bytewise", "ü8", "7€"),
        ("bytewise", "8😀", "7€ü"),
        ("bytewise", "7", ""),
        ("bytewise", "€8", TEXT),  # begins like it, and is another
        ("speaker", "wo thr", "One t"),
        ("speaker", "e two three f", "On"),
        ("speaker", "three", "One two "),
        ("speaker", "two four", "".join(PIECES)),
    ],
)
async def test_text_ends_where_a_stop_sequence_begins(daemon: RealDaemon, model: str, stop: str, expected: str) -> None:
    for route in WITH_STOPS:
        assert "".join(await said(daemon, route, model, 40, stop)) == expected, route
