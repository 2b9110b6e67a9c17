"""A daemon in miniature, to be run as a process: sockets, then start-up work, then signals and serving.

Usage: python -m tests.support.daemon PORT DRAIN. Says on standard output what it does.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from functools import partial

import trio

from tests.support.serving import Visit, probe_app
from trio_ollama.server.limits import Limits
from trio_ollama.server.serve import serve
from trio_ollama.server.signals import watch_signals
from trio_ollama.server.sockets import AddressError, open_listeners


def say(text: str) -> None:
    print(text, flush=True)


class ToldVisit(Visit):
    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        with super().watch():
            say("request")
            try:
                yield
            finally:
                say("request ends")


async def main(port: int, drain: float) -> int:
    try:
        bound = await open_listeners([("127.0.0.1", port)])
    except AddressError as error:
        say(f"Error: {error}")
        return 1
    say("start-up work")
    shutdown = trio.Event()
    async with trio.open_nursery() as root:
        await root.start(partial(watch_signals, shutdown, root.cancel_scope))
        say(f"listening on {bound.addresses[0][1]}")
        await serve(probe_app([ToldVisit()]), bound.listeners, Limits(drain=drain), shutdown=shutdown)
        say("served")
        root.cancel_scope.cancel("served")
    say("cleaned up")
    return 0


if __name__ == "__main__":
    sys.exit(trio.run(main, int(sys.argv[1]), float(sys.argv[2])))
