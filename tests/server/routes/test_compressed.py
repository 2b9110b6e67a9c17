"""Bodies that come compressed with zstd: the same answers, the same limits, and no memory for those who cheat."""

from __future__ import annotations

import sys
import tracemalloc

import msgspec
import pytest

from tests.support.asgi_client import Answer, send
from trio_ollama.models.metadata_cache import MetadataCache
from trio_ollama.server.app import create_app
from trio_ollama.settings import Settings

from .conftest import Daemon, nothing_started

zstd = pytest.importorskip(
    "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd", reason="backports.zstd is not installed"
)

PATHS = ("/v1/chat/completions", "/v1/messages", "/api/chat")
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "stream": False}
PACKED = [("content-encoding", "zstd")]


def pack(body: object, **more: int) -> bytes:
    packed: bytes = zstd.compress(msgspec.json.encode(body), **more)
    return packed


async def post(daemon: Daemon, path: str, body: bytes) -> Answer:
    return await daemon.post(path, body, headers=PACKED)


@pytest.mark.parametrize("path", PATHS)
async def test_it_is_as_if_it_came_plain(daemon: Daemon, path: str) -> None:
    assert (await post(daemon, path, pack(CHAT))).status == 200
    assert daemon.scheduler.calls[0][1]["messages"] == [{"role": "user", "content": "hi"}]


async def test_of_several_frames(daemon: Daemon) -> None:
    body = msgspec.json.encode(CHAT)
    frames = [zstd.compress(part) for part in (body[:20], b"", body[20:])]
    assert (await post(daemon, PATHS[0], b"".join(frames))).status == 200


async def test_of_several_pieces(daemon: Daemon) -> None:
    """More than is unpacked at once."""
    messages = [{"role": "user", "content": "word " * 1_000_000}]
    assert (await post(daemon, PATHS[0], pack(CHAT | {"messages": messages}))).status == 200
    assert daemon.scheduler.calls[0][1]["messages"] == messages


@pytest.mark.parametrize(
    "body", [b"{}", pack(CHAT)[:-3], pack(CHAT) + b"more", pack(CHAT)[:9] + b"????" + pack(CHAT)[13:]]
)
async def test_what_is_none(daemon: Daemon, body: bytes) -> None:
    with nothing_started(daemon.scheduler):
        answer = await post(daemon, PATHS[0], body)
    assert (answer.status, answer.json["error"]["message"]) == (400, "failed to decompress request body")


async def test_of_nothing(daemon: Daemon) -> None:
    for body in (b"", zstd.compress(b"")):
        answer = await post(daemon, PATHS[2], body)
        assert (answer.status, answer.json["error"]) == (400, "missing request body")


async def test_one_that_wants_much_memory_to_be_unpacked(daemon: Daemon) -> None:
    """Upstream's limit: 8 MiB."""
    options = {zstd.CompressionParameter.window_log: 27, zstd.CompressionParameter.content_size_flag: 0}
    compressor = zstd.ZstdCompressor(options=options)
    body = compressor.compress(msgspec.json.encode(CHAT)) + compressor.flush()
    assert (await post(daemon, PATHS[0], body)).status == 400


async def test_little_that_becomes_much(daemon: Daemon) -> None:
    """The limit for plain bodies holds, and not more than that is ever there."""
    limit, becomes = 2 << 20, 1 << 27
    app = create_app(
        settings=Settings(max_body=limit),
        scheduler=daemon.scheduler,  # type: ignore[arg-type]
        store=daemon.store,
        metadata_cache=MetadataCache(),
    )
    compressor = zstd.ZstdCompressor()
    bomb = b"".join([compressor.compress(bytes(1 << 20)) for _ in range(becomes >> 20)]) + compressor.flush()
    assert len(bomb) < limit
    tracemalloc.start()
    try:
        answer = await send(app, "POST", PATHS[0], bomb, headers=PACKED)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert answer.status == 413
    assert most < 8 * limit


@pytest.mark.parametrize("encoding", ["identity", "UTF-8", "gzip"])
async def test_other_encodings_mean_nothing(daemon: Daemon, encoding: str) -> None:
    answer = await daemon.post(PATHS[0], CHAT, headers=[("content-encoding", encoding)])
    assert answer.status == 200
