"""The real registry, Debian's `docker-registry`, as a child process of the tests, on a free port."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx2

from tests.support.certificates import Certificate
from tests.support.real_daemon import wait_until
from tests.support.store_fixture import OllamaStore

__all__ = ["CACHED", "MANIFEST", "NO_REGISTRY", "PACKAGE", "DockerRegistry", "find_docker_registry"]

PACKAGE: Final = "docker-registry"
"""Of Debian and Ubuntu, and the name of its program."""
CACHED: Final = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trio-ollama-tests" / "docker-registry-2"
)
"""Where `fetch_docker_registry` leaves the program."""
NO_REGISTRY: Final = f"no {PACKAGE} on this machine: `python -m tests.support.fetch_docker_registry` could not get it"

MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
START_LIMIT: Final = 20.0
"""Seconds."""


def find_docker_registry() -> str | None:
    """The program: installed, or fetched."""
    if found := shutil.which(PACKAGE):
        return found
    return str(CACHED) if os.access(CACHED, os.X_OK) else None


class DockerRegistry:
    """`docker-registry serve` with its files in `folder`. A context manager; leaving it ends the process.

    With `realm` it lets nobody in without a token, and says that tokens are to be had at this URL; any token will do.
    With `certificate` it speaks HTTPS and nothing else.
    """

    def __init__(self, folder: Path, *, realm: str | None = None, certificate: Certificate | None = None) -> None:
        program = find_docker_registry()
        assert program is not None, NO_REGISTRY
        self._program = program
        self.files = folder / "files"
        self.port = 0
        self._scheme = "http" if certificate is None else "https"
        self._log = folder / "log"
        self._configuration = folder / "configuration.json"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        # JSON is YAML, too.
        self._configuration.write_text(json.dumps(configuration(self.files, realm, certificate)))
        self._headers = {} if realm is None else {"Authorization": "Bearer any"}

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [self._program, "serve", str(self._configuration)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.defpath, "OTEL_TRACES_EXPORTER": "none"},
            )
        for _ in wait_until(START_LIMIT):
            if found := re.search(rb"listening on 127\.0\.0\.1:(\d+)", self._log.read_bytes()):
                self.port = int(found[1])
                return self
            if self._process.poll() is not None:
                break
        self._end()
        raise AssertionError(f"the registry did not start\n{self._log.read_text()}")

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    # What is in it, by its own API and none of our code

    def upload(self, store: OllamaStore, name: str, repository: str, tag: str = "latest") -> bytes:
        """Bring a model of a store here; returns its manifest's bytes."""
        data = store.manifest_path(name).read_bytes()
        manifest = json.loads(data)
        with self._client() as client:
            for layer in [*manifest["layers"], manifest["config"]]:
                self._upload_blob(client, repository, store.blobs / layer["digest"].replace(":", "-"))
            put(client, f"/v2/{repository}/manifests/{tag}", data, MANIFEST)
        return data

    def _upload_blob(self, client: httpx2.Client, repository: str, path: Path) -> None:
        begun = client.post(f"/v2/{repository}/blobs/uploads/")
        assert begun.status_code == 202, begun.text
        with path.open("rb") as file:
            url = httpx2.URL(begun.headers["location"]).copy_merge_params({"digest": path.name.replace("-", ":")})
            headers = {"Content-Length": str(path.stat().st_size)}
            done = client.put(url, content=pieces(file), headers=headers)
        assert done.status_code == 201, done.text

    def manifest(self, repository: str, tag: str = "latest") -> bytes | None:
        """The bytes of a manifest; None if there is no such one."""
        with self._client() as client:
            answer = client.get(f"/v2/{repository}/manifests/{tag}", headers={"Accept": MANIFEST})
        return answer.content if answer.status_code == 200 else None

    def blob_path(self, digest: str) -> Path:
        """Where the registry has the blob's bytes."""
        hexadecimal = digest.removeprefix("sha256:")
        return self.files / "docker/registry/v2/blobs/sha256" / hexadecimal[:2] / hexadecimal / "data"

    def _client(self) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, headers=self._headers, timeout=60, trust_env=False, verify=False)


def configuration(files: Path, realm: str | None, certificate: Certificate | None) -> Mapping[str, Any]:
    everything: dict[str, Any] = {
        "version": "0.1",
        "log": {"level": "info", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(files)},
            "delete": {"enabled": True},
            "maintenance": {"uploadpurging": {"enabled": False}},
        },
        "http": {"addr": "127.0.0.1:0", "secret": "tests"},
    }
    if realm is not None:
        # The registry's own module for tests of clients: it asks for a token and believes every one.
        everything["auth"] = {"silly": {"realm": realm, "service": "tests"}}
    if certificate is not None:
        everything["http"]["tls"] = {"certificate": str(certificate.certificate), "key": str(certificate.key)}
    return everything


def pieces(file: Any) -> Iterator[bytes]:
    while piece := file.read(1 << 20):
        yield piece


def put(client: httpx2.Client, path: str, data: bytes, media_type: str) -> None:
    answer = client.put(path, content=data, headers={"Content-Type": media_type})
    assert answer.status_code == 201, answer.text
    assert answer.headers["docker-content-digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
