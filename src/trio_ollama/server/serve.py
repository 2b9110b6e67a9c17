"""Accept connections until shutdown, then let the requests finish within a bound."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

import trio
from hypercorn.trio.worker_context import WorkerContext

from .connection import Connection
from .exchange import Application
from .limits import Limits
from .protocol import make_config

__all__ = ["serve"]

logger = logging.getLogger(__name__)


async def serve(
    app: Application,
    listeners: Iterable[trio.SocketListener],
    limits: Limits,
    *,
    shutdown: trio.Event,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the ASGI application `app` on `listeners`, which are closed when it ends.

    After `shutdown`: new connections are refused and idle ones closed at once; requests may go on for `limits.drain`
    seconds and have `limits.last_words` more to say that they end, then they are cancelled and their connections
    closed. Returns when no connection is left. Cancelling does the last step at once.
    """
    config = make_config(limits)
    context = WorkerContext(None)
    connections: set[Connection] = set()

    async def handle(stream: trio.SocketStream) -> None:
        connection = Connection(app, config, limits, context, stream)
        connections.add(connection)
        try:
            await connection.run()
        finally:
            connections.discard(connection)

    async with trio.open_nursery() as connection_nursery:
        async with trio.open_nursery() as accept_nursery:
            accept = partial(trio.serve_listeners, handle, list(listeners), handler_nursery=connection_nursery)
            accept_nursery.start_soon(accept, name="accept")
            task_status.started()
            await shutdown.wait()
            accept_nursery.cancel_scope.cancel("shutting down")
        await context.terminated.set()
        for connection in list(connections):
            connection.wind_down()
        if connections:
            logger.info("shutting down: %d connections have up to %gs to finish", len(connections), limits.drain)
        connection_nursery.cancel_scope.deadline = trio.current_time() + limits.drain + limits.last_words
