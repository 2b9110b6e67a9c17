"""A registry in the test's own process, byte by byte on trio's sockets, that misbehaves as a test tells it to.

    async with fake_registry() as registry:
        digest = registry.add_model("library/big:latest", data)
        registry.react = lambda request: Reaction(cut=1000) if request.is_part else None

Whatever `react` does not answer is answered as a good registry would: ranges, sessions of upload, tokens if wanted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import trio

__all__ = ["MANIFEST", "FakeRegistry", "Reaction", "Request", "digest_of", "fake_registry"]

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
MODEL = "application/vnd.ollama.image.model"
PIECE = 16_384


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass
class Request:
    """What a client asked, with all of its body unless the reaction says otherwise."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.target).query).items()}

    @property
    def range(self) -> tuple[int, int] | None:
        """First and last byte that are asked for."""
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        return (int(found[1]), int(found[2])) if found else None

    @property
    def is_probe(self) -> bool:
        """It wants to know where a blob lies."""
        return self.range == (0, 0)

    @property
    def is_part(self) -> bool:
        """It wants a part of a blob."""
        return self.range is not None and not self.is_probe


@dataclass
class Reaction:
    """How to answer one request; what is not said is as usual."""

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    cut: int | None = None
    """Bytes of the body after which the connection ends."""
    hold: int | None = None
    """Bytes of the body after which nothing comes, until the client leaves."""
    whole: bool = False
    """The range is not looked at."""
    corrupt: bool = False
    """One bit of the body is wrong."""
    unread: int | None = None
    """Bytes of the request's body after which the connection ends, without an answer."""


@dataclass
class _Session:
    data: bytearray = field(default_factory=bytearray)


class FakeRegistry:
    """What is there, what was asked, and how to react."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        """By `namespace/model:tag`."""
        self.requests: list[Request] = []
        self.react: Callable[[Request], Reaction | None] = lambda _: None
        self.token = ""
        """Without it nothing is told, if it is set."""
        self.redirects_to = ""
        """Base URL that parts of uploads are redirected to."""
        self.reads_redirected = True
        """Bodies that are redirected are read before."""
        self.connections = 0
        """That are open now."""
        self.asked = trio.Event()
        """A request has come; to be replaced by whoever waits for the next."""
        self._sessions: dict[str, _Session] = {}

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def add_blob(self, data: bytes) -> str:
        digest = digest_of(data)
        self.blobs[digest] = data
        return digest

    def add_model(self, name: str, *layers: bytes) -> list[str]:
        """A model of these layers and a config; their digests."""
        described = [{"mediaType": MODEL, "digest": self.add_blob(data), "size": len(data)} for data in layers]
        config = b'{"model_format":"gguf","model_family":"tiny"}'
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": self.add_blob(config), "size": len(config)},
            "layers": described,
        }
        self.manifests[name] = json.dumps(manifest, indent=1).encode()
        return [str(layer["digest"]) for layer in described]

    def of(self, method: str, part: str) -> list[Request]:
        """The requests of this method whose path has `part` in it."""
        return [request for request in self.requests if request.method == method and part in request.path]

    def parts(self) -> list[tuple[int, int]]:
        """The ranges that were asked for, without those that only asked where it lies."""
        return [request.range for request in self.requests if request.is_part and request.range is not None]

    async def serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        try:
            async with stream:
                connection = _Connection(stream)
                while await self._exchange(connection):
                    pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.connections -= 1

    async def _exchange(self, connection: _Connection) -> bool:
        request = await connection.head()
        if request is None:
            return False
        reaction = self.react(request) or Reaction()
        length = int(request.headers.get("content-length", "0"))
        if request.method == "PATCH" and self.redirects_to and not self.reads_redirected:
            length = 0
        request.body = await connection.body(length if reaction.unread is None else min(length, reaction.unread))
        self.requests.append(request)
        self.asked.set()
        if reaction.unread is not None:
            self._keep(request)
            return False
        status, headers, body = self._answer(request, reaction)
        return await connection.answer(request, reaction, status, headers, body)

    def _keep(self, request: Request) -> None:
        if request.method == "PATCH" and (session := self._sessions.get(request.path)) is not None:
            session.data += request.body

    def _answer(self, request: Request, reaction: Reaction) -> tuple[int, dict[str, str], bytes]:
        if reaction.status:
            return reaction.status, dict(reaction.headers), reaction.body or b""
        if request.path == "/token":
            return 200, {}, json.dumps({"token": self.token}).encode()
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            challenge = f'Bearer realm="{self.url}/token",service="fake",scope="repository:a:pull repository:a:push"'
            return 401, {"WWW-Authenticate": challenge}, b"{}"
        if (found := re.fullmatch(r"/v2/(.+)/manifests/(.+)", request.path)) is not None:
            return self._manifest(request, f"{found[1]}:{found[2]}")
        if (found := re.fullmatch(r"(?:/v2/.+/blobs|/elsewhere)/(sha256:[0-9a-f]{64})", request.path)) is not None:
            return self._blob(request, found[1], reaction)
        return self._upload(request)

    def _manifest(self, request: Request, name: str) -> tuple[int, dict[str, str], bytes]:
        if request.method == "PUT":
            self.manifests[name] = request.body
            return 201, {}, b""
        if name not in self.manifests:
            return 404, {}, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}'
        data = self.manifests[name]
        return 200, {"Content-Type": MANIFEST, "Docker-Content-Digest": digest_of(data)}, data

    def _blob(self, request: Request, digest: str, reaction: Reaction) -> tuple[int, dict[str, str], bytes]:
        data = self.blobs.get(digest)
        if data is None:
            return 404, {}, b"blob unknown"
        if reaction.corrupt:
            data = bytes([data[0] ^ 1]) + data[1:]
        if request.range is None or reaction.whole:
            return 200, {}, data
        first, last = request.range
        return 206, {"Content-Range": f"bytes {first}-{last}/{len(data)}"}, data[first : last + 1]

    def _upload(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        if request.method == "POST":
            if request.query.get("mount") in self.blobs and request.query.get("from") == "library/base":
                return 201, {}, b""
            path = f"/uploads/{len(self._sessions)}"
            self._sessions[path] = _Session()
            return 202, {"Location": f"{path}?state=0"}, b""
        if request.path.startswith("/direct/"):
            session = self._sessions["/uploads/0"]
            first = int(request.path.removeprefix("/direct/"))
            session.data.extend(bytes(max(0, first + len(request.body) - len(session.data))))
            session.data[first : first + len(request.body)] = request.body
            return 200, {}, b""
        session = self._sessions[request.path]
        if request.method == "GET":
            return 204, {"Range": f"0-{max(0, len(session.data) - 1)}", "Location": request.target}, b""
        if request.method == "PATCH":
            first = int(request.headers["content-range"].partition("-")[0])
            if self.redirects_to:
                return 307, {"Location": f"{self.redirects_to}/direct/{first}"}, b""
            if first != len(session.data):
                return 416, {}, b""
            session.data += request.body
            return 202, {"Location": f"{request.path}?state={len(session.data)}"}, b""
        if digest_of(bytes(session.data)) != request.query["digest"]:
            return 400, {}, b'{"errors":[{"code":"DIGEST_INVALID"}]}'
        self.blobs[request.query["digest"]] = bytes(session.data)
        return 201, {}, b""


class _Connection:
    """One connection of a client."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def head(self) -> Request | None:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if not await self._more():
                return None
        line, *fields = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        method, target, _ = line.split(" ")
        pairs = (item.partition(":") for item in fields)
        return Request(method, target, {name.lower(): value.strip() for name, _, value in pairs})

    async def body(self, length: int) -> bytes:
        while len(self._buffer) < length:
            if not await self._more():
                break
        data = bytes(self._buffer[:length])
        del self._buffer[:length]
        return data

    async def _more(self) -> bool:
        data = await self._stream.receive_some(1 << 18)
        self._buffer += data
        return bool(data)

    async def answer(
        self, request: Request, reaction: Reaction, status: int, headers: Mapping[str, str], body: bytes
    ) -> bool:
        """Send it; whether the connection goes on."""
        lines = [f"HTTP/1.1 {status} Fine", *(f"{name}: {value}" for name, value in headers.items())]
        if status != 204:
            lines.append(f"Content-Length: {len(body)}")
        await self._stream.send_all("\r\n".join([*lines, "", ""]).encode("latin-1"))
        if request.method == "HEAD":
            return True
        limits = [limit for limit in (reaction.cut, reaction.hold) if limit is not None]
        for start in range(0, min([len(body), *limits]), PIECE):
            await self._stream.send_all(body[start : min([start + PIECE, len(body), *limits])])
        if reaction.hold is not None:
            await self._more()  # the end of the connection, or nothing ever
        return not limits


@contextlib.asynccontextmanager
async def fake_registry() -> AsyncIterator[FakeRegistry]:
    """A registry on a free port of the loopback interface, until the end of the context."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    registry = FakeRegistry(f"127.0.0.1:{listener.socket.getsockname()[1]}")
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, registry.serve, [listener])
        yield registry
        nursery.cancel_scope.cancel("the test is over")
