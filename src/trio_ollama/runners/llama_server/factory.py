"""Which kind of runner there is, and how one is started."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from trio_ollama.hardware.contract import RunnerBuild
from trio_ollama.runners.contract import LaunchSpec, SpawnError
from trio_ollama.runners.llama_server import child
from trio_ollama.runners.llama_server.devices import Build, Question
from trio_ollama.runners.llama_server.directory import ChildDirectory, sweep
from trio_ollama.runners.llama_server.embedded import Embedded
from trio_ollama.runners.llama_server.endpoint import Endpoint
from trio_ollama.runners.llama_server.environment import child_environment
from trio_ollama.runners.llama_server.external import External
from trio_ollama.runners.llama_server.process import ChildProcess
from trio_ollama.runners.llama_server.runner import LlamaServerRunner

__all__ = ["Kind", "LlamaServerFactory", "choose_kind", "runner_factory"]

logger = logging.getLogger(__name__)


class Kind(Question, Protocol):
    """Embedded or external."""

    def describe(self) -> str: ...

    def launch(self, spec: LaunchSpec, endpoint: Endpoint) -> dict[str, Any]:
        """What `child.py` is told to become, as JSON."""
        ...


class LlamaServerFactory:
    """Implements `contract.RunnerFactory`."""

    def __init__(self, kind: Kind, directory: ChildDirectory) -> None:
        self._kind = kind
        self._directory = directory
        self.build: RunnerBuild = Build(kind)
        """What the children are started from: it knows the devices that they can use."""

    def describe(self) -> str:
        return self._kind.describe()

    def spawn(self, spec: LaunchSpec) -> LlamaServerRunner:
        """See `contract.RunnerFactory.spawn`. To be called in the main thread: the child dies with its thread."""
        try:
            endpoint = self._directory.endpoint()
            launch = json.dumps(self._kind.launch(spec, endpoint))
            process = ChildProcess(
                [*self._kind.interpreter(), child.__file__, str(os.getpid()), launch],
                child_environment(os.environ, spec, endpoint, str(self._directory.path)),
            )
        except OSError as error:
            raise SpawnError(f"error starting llama-server: {error}") from error
        return LlamaServerRunner(spec, endpoint, process, self._directory.record(process.pid))


@contextlib.contextmanager
def runner_factory(
    kind: str = "auto", binary: Path | None = None, root: Path | None = None
) -> Iterator[LlamaServerFactory]:
    """The factory of the wanted kind, with its directory of sockets, which is removed at the end.

    `kind`: `auto`, `embedded` or `external`; `binary`: a `llama-server` set by the user; `root`: where the directory is
    made, the user's run-time directory by default. First ends what an earlier daemon may have left behind (R69).
    Raises `SpawnError` for an external runner without a binary, `OSError` if no directory can be made.
    """
    chosen = choose_kind(kind, binary)
    if ended := sweep(root):
        logger.warning("ended runners that an earlier daemon left behind: %s", ended)
    with ChildDirectory(root) as directory:
        yield LlamaServerFactory(chosen, directory)


def choose_kind(kind: str, binary: Path | None) -> Kind:
    """`auto` takes a binary that is set or on PATH, else the embedded runner."""
    if kind == "embedded":
        return Embedded()
    found = binary if binary is not None else shutil.which("llama-server")
    if found is not None:
        path = Path(os.path.abspath(found))
        if not os.access(path, os.X_OK) or path.is_dir():
            raise SpawnError(f"llama-server binary not found (checked: {path})")
        return External(path)
    if kind == "external":
        raise SpawnError("llama-server binary not found (checked: PATH)")
    return Embedded()
