"""HTTP as servers and proxies speak it: bodies of all kinds, early answers, silence, TLS."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import trio

from trio_ollama.models.names import ModelName
from trio_ollama.registry import Reference
from trio_ollama.registry.client import Client, redirect
from trio_ollama.registry.connection import Connection
from trio_ollama.registry.errors import ConnectionFailedError, RegistryError
from trio_ollama.registry.keys import Keys
from trio_ollama.registry.response import Response

from .conftest import QUICK, SOON

STALL = 0.3
Handler = Callable[[trio.SocketStream], Awaitable[None]]


@contextlib.asynccontextmanager
async def server(handle: Handler) -> AsyncIterator[str]:
    """Handles each connection so; gives `host:port`."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")

    async def serve(stream: trio.SocketStream) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            async with stream:
                await handle(stream)

    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, serve, [listener])
        yield f"127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel("the test is over")


def saying(*pieces: bytes, hold: bool = False) -> Handler:
    """Answers with these bytes, after the head of a request, and ends the connection or does nothing more."""

    async def handle(stream: trio.SocketStream) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive_some()
        for piece in pieces:
            await stream.send_all(piece)
        if hold:
            await trio.sleep_forever()

    return handle


async def ask(host: str, method: str = "GET", content: bytes = b"") -> tuple[Connection, Response]:
    """To be closed by whoever gets it."""
    connection = await Connection.open(f"http://{host}/x", direct=True, limit=SOON)
    try:
        url = f"http://{host}/x?y=1"
        return connection, await connection.request(method, url, {}, content, stall=STALL, patience=STALL)
    except BaseException:
        connection.close()
        raise


async def read(host: str) -> bytes:
    """All of an answer."""
    connection, response = await ask(host)
    try:
        return await response.read(100)
    finally:
        connection.close()


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("answer", "body", "again"),
    [
        ([OK + b"Content-Length: 5\r\n\r\nabcde"], b"abcde", True),
        ([OK + b"Content-Length: 5\r\n\r\nab", b"cde"], b"abcde", True),
        ([OK + b"Content-Length: 5\r\nConnection: close\r\n\r\nabcde"], b"abcde", False),
        ([b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab"], b"ab", False),
        ([OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"], b"abcde", False),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", OK + b"Content-Length: 0\r\n\r\n"], b"", True),
        ([b"HTTP/1.1 204 None\r\n\r\n"], b"", True),
    ],
)
async def test_bodies(answer: list[bytes], body: bytes, again: bool) -> None:
    async with server(saying(*answer, hold=True)) as host:
        connection, response = await ask(host)
        assert await response.read(100) == body
        assert connection.reusable == again
        connection.close()


async def test_a_body_that_ends_with_its_connection() -> None:
    async with server(saying(OK + b"\r\nabc", b"de")) as host:
        connection, response = await ask(host)
        assert await response.read(100) == b"abcde"
        connection.close()


async def test_the_answer_to_head_has_no_body_whatever_it_says() -> None:
    async with server(saying(OK + b"Content-Length: 1000\r\n\r\n", hold=True)) as host:
        connection, response = await ask(host, "HEAD")
        assert (response.length, await response.read(10)) == (1000, b"")
        assert connection.reusable
        connection.close()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"", "connection to HOST failed: "),
        (b"HTTP/1.1 200", "connection to HOST failed: "),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "connection to HOST failed: "),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "HOST failed: "),
        (OK + b"X: " + b"y" * 1_000_000 + b"\r\n\r\n", "connection to HOST failed: "),
        (OK + b"Content-Length: 5\r\n\r\nab", "ended in the middle"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", "the connection broke"),
    ],
)
async def test_answers_that_are_none_or_end_early(answer: bytes, text: str) -> None:
    async with server(saying(answer)) as host:
        with pytest.raises(ConnectionFailedError, match=text.replace("HOST", host)):
            await read(host)


async def test_silence_has_an_end() -> None:
    async with server(saying(hold=True)) as host:
        with pytest.raises(ConnectionFailedError, match=f"connection to {host} failed: no answer"):
            await ask(host)
    async with server(saying(OK + b"Content-Length: 5\r\n\r\nab", hold=True)) as host:
        connection, response = await ask(host)
        view = memoryview(bytearray(5))
        assert await response.fill(view) == 2, "what came before is handed out"
        with pytest.raises(ConnectionFailedError, match=r"no byte came for 0.3 seconds"):
            await response.fill(view)
        connection.close()


async def test_a_body_that_nobody_takes_has_an_end() -> None:
    async def handle(_: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with server(handle) as host:
        with pytest.raises(ConnectionFailedError, match=f"{host} took no byte for 0.3 seconds"):
            await ask(host, "PUT", bytes(50_000_000))


async def test_an_answer_that_comes_before_all_is_sent_is_heard() -> None:
    async with server(saying(b"HTTP/1.1 413 Too much\r\nContent-Length: 0\r\n\r\n", hold=True)) as host:
        connection, response = await ask(host, "PUT", bytes(50_000_000))
        assert response.status == 413
        assert not connection.reusable
        connection.close()


def client_of(host: str) -> Client:
    return Client(Reference(ModelName.parse(f"{host}/library/x")), Keys(trio.Path("none")), QUICK)  # type: ignore[arg-type]


async def test_a_connection_serves_again_unless_the_server_has_ended_it() -> None:
    connections = 0

    async def handle(stream: trio.SocketStream) -> None:
        nonlocal connections
        connections += 1
        for _ in range(2):
            if await stream.receive_some():
                await stream.send_all(OK + b"Content-Length: 2\r\n\r\nok")

    async with server(handle) as host, client_of(host) as client:
        for expected in (1, 1, 2):
            async with client.open("GET", f"http://{host}/") as response:
                assert await response.read(10) == b"ok"
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert connections == expected


async def test_an_address_that_is_none() -> None:
    async with server(saying(OK)) as host, client_of(host) as client:
        with pytest.raises(RegistryError, match="no request can be made"):
            async with client.open("GET", f"http://{host}/a b\r\nc"):
                pass


async def test_a_proxy_is_told_the_whole_address(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = []

    async def handle(stream: trio.SocketStream) -> None:
        heard.append((await stream.receive_some()).decode("ascii"))
        await stream.send_all(OK + b"Content-Length: 0\r\n\r\n")

    async with server(handle) as host:
        monkeypatch.setenv("http_proxy", f"http://user:pass%20word@{host}")
        monkeypatch.setenv("https_proxy", f"http://{host}")
        monkeypatch.delenv("no_proxy", raising=False)
        url = "http://registry.example:81/v2/x?y=1"
        connection = await Connection.open(url, direct=False, limit=SOON)
        await connection.request("GET", url, {}, b"", stall=1, patience=1)
        connection.close()
        assert heard[0].startswith(f"GET {url} HTTP/1.1\r\nHost: registry.example:81\r\n")
        assert "Proxy-Authorization: Basic dXNlcjpwYXNzIHdvcmQ=" in heard[0]
        with pytest.raises(ConnectionFailedError, match=r"connection to registry\.example failed: "):  # no TLS
            await Connection.open("https://registry.example/", direct=False, limit=SOON)
        assert heard[1].startswith("CONNECT registry.example:443 HTTP/1.1\r\n")


async def test_a_proxy_that_refuses_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(saying(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")) as host:
        monkeypatch.setenv("https_proxy", f"http://user:secret@{host}")
        with pytest.raises(ConnectionFailedError, match=f"failed: the proxy {host} answers 407$"):
            await Connection.open("https://registry.example/", direct=False, limit=SOON)


async def test_a_certificate_that_nobody_vouches_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handle(stream: trio.SocketStream) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers("aNULL:@SECLEVEL=0")
        with contextlib.suppress(trio.BrokenResourceError):
            await trio.SSLStream(stream, context, server_side=True).do_handshake()

    async with server(handle) as host:
        with pytest.raises(ConnectionFailedError, match=f"connection to {host} failed: "):
            await Connection.open(f"https://{host}/", direct=True, limit=SOON)


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/there", "https://host:1/there"),
        ("https://other/x?y", "https://other/x?y"),
        ("//other/x", "https://other/x"),
        ("", ""),
    ],
)
def test_where_a_redirect_leads(location: str, target: str) -> None:
    response = Response(None, 307, {"location": location}, b"", None, 0, 1)  # type: ignore[arg-type]
    assert redirect(response, "https://host:1/here") == target


def test_a_redirect_to_a_file_is_none() -> None:
    response = Response(None, 307, {"location": "file:///etc/passwd"}, b"", None, 0, 1)  # type: ignore[arg-type]
    with pytest.raises(RegistryError, match="redirects to"):
        redirect(response, "https://host/here")


@pytest.mark.parametrize(
    ("name", "insecure", "base"),
    [
        ("tiny", False, "https://registry.ollama.ai"),
        ("tiny", True, "http://registry.ollama.ai"),
        ("127.0.0.1:5000/a/b", False, "http://127.0.0.1:5000"),
        ("localhost:5000/a/b", False, "http://localhost:5000"),
        ("hf.co/a/b:q4", False, "https://hf.co"),
        ("192.168.1.2:5000/a/b", False, "https://192.168.1.2:5000"),
    ],
)
def test_registries_on_this_machine_are_spoken_to_in_the_clear(name: str, insecure: bool, base: str) -> None:
    reference = Reference(ModelName.parse(name), insecure)
    assert reference.base == base
    assert reference.owns(f"{base}/v2/x?y")
    assert not reference.owns("https://elsewhere.example/")
    assert not reference.owns(base.replace("://", "://x."))
