"""What one streamed token costs the daemon: CPU time of its process alone, with a child that computes nothing.

    python -m tests.benchmarks.tokens [--rounds N] [--only TEXT]

`full speed`: the child writes as fast as the daemon reads. `paced`: each stream gets 100 tokens a second, each at a
moment of its own. `one by one`: the child says the next token when the client has the one before, so that each is read
and written by itself, however busy the machine is; there is no more expensive way to get them. What requests cost by
themselves is measured with short answers and taken off. The lowest of several rounds counts. The table also says how
long a fixed loop of Python takes here, so that figures of two machines can be compared.
"""

from __future__ import annotations

import argparse
import json
import socket
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from tests.support.fast_child import write_fast_child
from tests.support.real_daemon import RealDaemon
from tests.support.store_fixture import OllamaStore
from tests.support.tiny_gguf import write_tiny_gguf

STREAMS: Final = 64
RATE: Final = 100
SHORT: Final = 2
"""Tokens of the answers that tell what a request costs."""


@dataclass(frozen=True, slots=True)
class Route:
    name: str
    path: str
    body: dict[str, Any]
    mark: bytes
    """Once per token."""

    def payload(self, tokens: int, pace: int) -> bytes:
        if self.path.startswith("/api"):
            return json.dumps({**self.body, "options": {"num_predict": tokens, "seed": pace}}).encode()
        return json.dumps({**self.body, "max_tokens": tokens, "seed": pace, "stream": True}).encode()


MESSAGES: Final = [{"role": "user", "content": "w1 w2 w3"}]
ROUTES: Final = (
    Route("/api/generate", "/api/generate", {"model": "tiny", "prompt": "w1", "raw": True}, b'"response":" '),
    Route("/api/chat", "/api/chat", {"model": "tiny", "messages": MESSAGES}, b'"content":" '),
    Route("/v1/chat/completions", "/v1/chat/completions", {"model": "tiny", "messages": MESSAGES}, b'"content":" '),
)


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    streams: int
    tokens: int
    """Of each stream."""
    rate: int = 0
    """Tokens per second of each; 0: as fast as they are taken."""
    stepped: bool = False
    """Each when the one before has come."""


LOADS: Final = (
    Load("1 stream, full speed", 1, 20_000),
    Load("64 streams, full speed", STREAMS, 1000),
    Load("64 streams, paced", STREAMS, 200, RATE),
    Load("1 stream, one by one", 1, 2000, stepped=True),
    Load("64 streams, one by one", STREAMS, 100, stepped=True),
)


def cpu_seconds(pid: int) -> float:
    """Processor time of another process, all its threads; Linux's clock for it."""
    return time.clock_gettime((~pid << 3) | 2)


async def ask(port: int, route: Route, tokens: int, pace: int, steps: Path) -> None:
    """Read one stream to its end. Raises `RuntimeError` unless all its tokens came."""
    payload = route.payload(tokens, pace)
    head = (
        f"POST {route.path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(payload)}\r\nConnection: close\r\n\r\n"
    )
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(head.encode() + payload)
        pieces = []
        while data := await stream.receive_some(1 << 20):
            pieces.append(data)
            if pace < 0:
                for _ in range(data.count(route.mark)):
                    STEPPER.sendto(b"%d" % pace, str(steps))
    found = b"".join(pieces).count(route.mark)
    if found != tokens:
        raise RuntimeError(f"{found} tokens instead of {tokens}: {pieces[:2]}")


STEPPER: Final = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


async def cost(daemon: RealDaemon, route: Route, load: Load, tokens: int) -> tuple[float, float]:
    """Seconds of the daemon's processor time, and of the clock, for one round."""
    steps = daemon.store.parent / "steps"
    began, used = time.perf_counter(), cpu_seconds(daemon.pid)
    async with trio.open_nursery() as nursery:
        for number in range(load.streams):
            nursery.start_soon(ask, daemon.port, route, tokens, -number - 1 if load.stepped else load.rate, steps)
    return cpu_seconds(daemon.pid) - used, time.perf_counter() - began


async def measure(daemon: RealDaemon, rounds: int, only: str) -> None:
    for route in ROUTES:
        await cost(daemon, route, LOADS[0], SHORT)
    loop = min(calibrate() for _ in range(5))
    print(f"microseconds of CPU time per token; a loop of a million additions takes {loop * 1000:.0f} ms here\n")
    print("| load | route | us per token | tokens/s | a request by itself |\n|---|---|--:|--:|--:|")
    for load in LOADS:
        for route in ROUTES:
            if only not in f"{load.name}, {route.name}":
                continue
            short, long = [], []
            for _ in range(rounds):
                short.append(await cost(daemon, route, load, SHORT))
                long.append(await cost(daemon, route, load, load.tokens))
            request, whole = min(short)[0], min(long)[0]
            more = load.streams * (load.tokens - SHORT)
            speed = max(load.streams * load.tokens / seconds for _, seconds in long)
            print(
                f"| {load.name} | {route.name} | {(whole - request) / more * 1e6:.1f} | {speed:.0f} "
                f"| {request / load.streams * 1e3:.2f} ms |",
                flush=True,
            )


def calibrate() -> float:
    """Seconds of processor time for work that is always the same."""
    began, total = time.process_time(), 0
    for number in range(1_000_000):
        total += number
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="rows with this text in them")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        store = OllamaStore(folder / "models")
        store.add("tiny:latest", write_tiny_gguf(folder / "tiny.gguf").read_bytes())
        variables = {"OLLAMA_NUM_PARALLEL": str(STREAMS), "OLLAMA_CONTEXT_LENGTH": "2048", "OLLAMA_DEBUG": "0"}
        variables["TRIO_OLLAMA_LLAMA_SERVER"] = str(write_fast_child(folder))
        with RealDaemon(store.root, **variables) as daemon:
            trio.run(measure, daemon, arguments.rounds, arguments.only)


if __name__ == "__main__":
    main()
