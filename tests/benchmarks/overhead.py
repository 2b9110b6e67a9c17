"""What the daemon adds to the bare runner: time to the first token, and tokens per second.

    python -m tests.benchmarks.overhead [--rounds N] [--tokens N]

Both are the same child with the same tiny model and the same launch parameters: once asked directly over its socket,
once through the daemon's /api/chat. Rounds alternate, so that a change of the machine's speed hits both; the table
shows medians, and the ratio of the medians. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from tests.support.real_daemon import RealDaemon
from tests.support.store_fixture import OllamaStore
from tests.support.tiny_gguf import words, write_tiny_gguf
from trio_ollama.runners.contract import LaunchSpec, Runner
from trio_ollama.runners.llama_server.factory import runner_factory

SLOTS = 32
CONTEXT = 2048
PROMPT = words(20)

Connect = Callable[[], Awaitable[trio.abc.Stream]]


@dataclass
class Result:
    """Of one stream: seconds from the request to the first token, and to the end; tokens received."""

    first: float
    total: float
    tokens: int


async def ask(connect: Connect, path: str, body: dict[str, Any], mark: bytes) -> Result:
    """Send one request and read its stream to the end; `mark` occurs once per token."""
    payload = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(payload)}\r\nConnection: close\r\n\r\n"
    started = time.perf_counter()
    async with await connect() as stream:
        await stream.send_all(head.encode() + payload)
        first, tokens, tail = 0.0, 0, b""
        while data := await stream.receive_some(65536):
            data = tail + data
            found = data.count(mark)
            if found and not tokens:
                first = time.perf_counter() - started
            tokens += found
            # What is behind the last whole mark may be the beginning of the next one.
            tail = data[data.rfind(mark) + len(mark) if found else 0 :][-len(mark) + 1 :]
    if tokens < body_tokens(body):
        raise RuntimeError(f"{tokens} tokens instead of {body_tokens(body)}")
    return Result(first, time.perf_counter() - started, body_tokens(body))


def body_tokens(body: dict[str, Any]) -> int:
    """How many tokens a request asks for; with the muted weights of the tiny model it gets them all."""
    count = body.get("n_predict") or body["options"]["num_predict"]
    return int(count)


async def streams(count: int, request: Callable[[], Awaitable[Result]]) -> tuple[float, float]:
    """(median seconds to the first token, tokens per second of all together) for `count` streams at once."""
    results: list[Result] = []

    async def one() -> None:
        results.append(await request())

    started = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(one)
    took = time.perf_counter() - started
    return statistics.median(result.first for result in results), sum(result.tokens for result in results) / took


async def bare_child(weights: Path, work: Callable[[Connect], Awaitable[None]]) -> None:
    """Run `work` with a connection to a child that is launched as the daemon launches it."""
    spec = LaunchSpec(
        model=str(weights), num_ctx=CONTEXT, parallel=SLOTS, num_batch=128, gpu_layers=0, use_mmap=False, num_thread=1
    )
    with runner_factory("embedded") as factory:
        runner: Runner = factory.spawn(spec)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runner.serve)
            await runner.ready(60)

            async def connect() -> trio.abc.Stream:
                return await runner._calls.endpoint.connect()  # type: ignore[attr-defined]

            await work(connect)
            runner.kill()


async def measure(rounds: int, tokens: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        weights = write_tiny_gguf(Path(folder) / "tiny.gguf", context=CONTEXT)
        store = OllamaStore(Path(folder) / "models")
        store.add("tiny:latest", weights.read_bytes(), params={"num_thread": 1})
        options = {"OLLAMA_NUM_PARALLEL": str(SLOTS), "OLLAMA_CONTEXT_LENGTH": str(CONTEXT), "OLLAMA_DEBUG": "0"}
        with RealDaemon(store.root, **options) as daemon:
            await bare_child(weights, lambda bare: compare(bare, daemon.port, rounds, tokens))


async def compare(bare: Connect, port: int, rounds: int, tokens: int) -> None:
    messages = [{"role": "user", "content": PROMPT}]
    child_body: dict[str, Any] = {
        "messages": messages,
        "stream": True,
        "return_progress": True,
        "cache_prompt": True,
        "n_predict": tokens,
        "temperature": 0.8,
    }
    our_body: dict[str, Any] = {"model": "tiny", "messages": messages, "options": {"num_predict": tokens}}

    async def directly() -> Result:
        return await ask(bare, "/v1/chat/completions", child_body, b'"content":"')

    async def daemon() -> trio.abc.Stream:
        return await trio.open_tcp_stream("127.0.0.1", port)

    async def through_us() -> Result:
        return await ask(daemon, "/api/chat", our_body, b'"content":"')

    for warm_up in (directly, through_us):
        await streams(2, warm_up)
    print(f"{tokens} tokens a stream, medians of {rounds} rounds\n")
    print("| streams | first token, bare | through us | added | tokens/s, bare | through us | ratio |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    for count in (1, 8, 32):
        rows: dict[str, list[tuple[float, float]]] = {"bare": [], "us": []}
        for _ in range(rounds):
            rows["bare"].append(await streams(count, directly))
            rows["us"].append(await streams(count, through_us))
        first = {name: statistics.median(row[0] for row in of) * 1000 for name, of in rows.items()}
        speed = {name: statistics.median(row[1] for row in of) for name, of in rows.items()}
        ratio = statistics.median(us[1] / bare[1] for us, bare in zip(rows["us"], rows["bare"], strict=True))
        print(
            f"| {count} | {first['bare']:.1f} ms | {first['us']:.1f} ms | {first['us'] - first['bare']:.1f} ms "
            f"| {speed['bare']:.0f} | {speed['us']:.0f} | {ratio:.0%} |"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=400)
    arguments = parser.parse_args()
    with suppress(KeyboardInterrupt):
        trio.run(measure, arguments.rounds, arguments.tokens)
