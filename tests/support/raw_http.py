"""Any bytes as a request, and whatever response comes back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import h11
import trio

__all__ = ["Answer", "exchange"]

PATIENCE = 10.0
"""Seconds for an answer."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def exchange(port: int, *pieces: bytes) -> Answer:
    """Send `pieces`, each on its own if there are several; returns the first response, whole."""
    http = h11.Connection(h11.CLIENT)
    with trio.fail_after(PATIENCE):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            for piece in pieces:
                try:
                    await stream.send_all(piece)
                except trio.BrokenResourceError:
                    break  # it was answered, and ended, before it was sent to the end
                await trio.lowlevel.checkpoint()
            head: h11.Response | None = None
            body = b""
            while not isinstance(event := http.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    http.receive_data(await stream.receive_some())
                elif isinstance(event, h11.Response):
                    head = event
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                else:
                    assert isinstance(event, h11.InformationalResponse), event
    assert head is not None
    headers = {name.decode(): value.decode() for name, value in head.headers}
    return Answer(head.status_code, headers, body)
