"""A client of the API that shows and decides what happens on its one connection: when it reads, how it leaves."""

from __future__ import annotations

import json
import math
import socket
import struct
from typing import Any

import h11
import trio

__all__ = ["ApiClient", "ask", "get"]

RESET = struct.pack("ii", 1, 0)


class ApiClient:
    """One connection with one request on it. An async context manager; leaving it closes the socket.

    Nothing is read unless asked for. `receive_buffer` is the kernel's, in bytes: small, it makes a client that does
    not read stop the daemon early.
    """

    def __init__(self, port: int, *, receive_buffer: int | None = None) -> None:
        self._port = port
        self._socket = trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        self._rest = b""

    async def __aenter__(self) -> ApiClient:
        try:
            await self._socket.connect(("127.0.0.1", self._port))
        except BaseException:
            self._socket.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._socket.close()

    async def send(self, method: str, path: str, body: object = None, **headers: str) -> None:
        """Send a whole request; `body` becomes JSON, names of headers are written with `_` for `-`."""
        data = b"" if body is None else json.dumps(body).encode()
        lines = [("Host", "localhost"), ("Content-Length", str(len(data)))]
        lines += [(name.replace("_", "-"), value) for name, value in headers.items()]
        message = self._http.send(h11.Request(method=method, target=path, headers=lines)) or b""
        if data:
            message += self._http.send(h11.Data(data=data)) or b""
        message += self._http.send(h11.EndOfMessage()) or b""
        await self.send_raw(message)

    async def send_raw(self, data: bytes) -> None:
        """Send these bytes as they are."""
        while data:
            data = data[await self._socket.send(data) :]

    async def post(self, path: str, **body: object) -> None:
        await self.send("POST", path, body)

    async def status(self) -> int:
        """The status of the response, as soon as its head has arrived."""
        event = await self._next()
        assert isinstance(event, h11.Response), event
        return event.status_code

    async def line(self) -> bytes | None:
        """The next line of the body, without its end; None after the proper end of the response."""
        while b"\n" not in self._rest:
            event = await self._next()
            if isinstance(event, h11.EndOfMessage):
                assert not self._rest, f"half a line: {self._rest!r}"
                return None
            if isinstance(event, h11.Data):
                self._rest += bytes(event.data)
        line, self._rest = self._rest.split(b"\n", 1)
        return line

    async def record(self) -> dict[str, Any] | None:
        """The next record of a stream of JSON lines; None after its proper end."""
        if (line := await self.line()) is None:
            return None
        record = json.loads(line)
        assert isinstance(record, dict), record
        return record

    async def records(self) -> list[dict[str, Any]]:
        """All records to come."""
        found = []
        while (record := await self.record()) is not None:
            found.append(record)
        return found

    async def data(self) -> bytes | None:
        """More of the body, as it comes; None after the proper end of the response.

        Raises `h11.RemoteProtocolError` or `ConnectionError` if it is cut off.
        """
        while not isinstance(event := await self._next(), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                return bytes(event.data)
        return None

    async def whole(self) -> Any:
        """The rest of the response, as JSON."""
        while not isinstance(event := await self._next(), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                self._rest += bytes(event.data)
        data, self._rest = self._rest, b""
        return json.loads(data)

    def close(self) -> None:
        """FIN, or what the kernel makes of it: a reset if something has arrived that was not read."""
        self._socket.close()

    def reset(self) -> None:
        """RST."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._socket.close()

    async def ended(self) -> None:
        """Wait until the daemon ends the connection, whatever it sends before."""
        try:
            while await self._socket.recv(65536):
                pass
        except ConnectionError:
            pass

    async def _next(self) -> h11.Event:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._socket.recv(65536))
        assert not isinstance(event, type), f"{event} instead of more of the response"
        return event


async def ask(port: int, path: str, *, within: float = math.inf, **body: object) -> tuple[int, Any]:
    """Status and JSON answer of a POST that is not streamed."""
    with trio.fail_after(within):
        async with ApiClient(port) as client:
            await client.post(path, **{"stream": False, **body})
            return await client.status(), await client.whole()


async def get(port: int, path: str) -> Any:
    """The JSON answer of a GET."""
    async with ApiClient(port) as client:
        await client.send("GET", path)
        assert await client.status() == 200
        return await client.whole()
