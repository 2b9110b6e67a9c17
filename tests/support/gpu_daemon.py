"""The real daemon on a machine with simulated GPUs: its models, its runners, and where they are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.api_client import ask, get
from tests.support.daemon_log import DaemonLog
from tests.support.fake_nvml import FakeGpu, FakeMachine
from tests.support.gpu_runner import write_gpu_runner
from tests.support.store_fixture import OllamaStore
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.until import until
from tests.support.watched_daemon import WatchedDaemon

__all__ = ["SOON", "A", "B", "GpuDaemon", "two_gpus"]

A, B = "GPU-aaaa1111", "GPU-bbbb2222"

SOON = 20.0
"""Seconds for a load, an answer or a stop; tenths on an idle machine."""


def two_gpus(**keys: object) -> list[FakeGpu]:
    """Two cards of 24 GiB."""
    return [FakeGpu(A, keys=keys), FakeGpu(B, name="NVIDIA GeForce RTX 4090", compute="8.9", keys=keys)]


class GpuDaemon(WatchedDaemon):
    """`models`: bytes by name; each is the tiny model and a sparse tail. `driver`: keys of its own. `variables` are the
    daemon's environment."""

    def __init__(
        self,
        folder: Path,
        library: Path,
        gpus: Sequence[FakeGpu] | None = None,
        models: Mapping[str, int] | None = None,
        driver: Mapping[str, object] | None = None,
        **variables: str,
    ) -> None:
        self.machine = FakeMachine(folder / "gpus", library, two_gpus() if gpus is None else gpus, **(driver or {}))
        store = OllamaStore(folder / "models")
        for seed, (name, size) in enumerate((models or {}).items()):
            add_model(store, folder / f"{name}.gguf", name, size, seed)
        binary = write_gpu_runner(folder)
        runner = {"TRIO_OLLAMA_RUNNER": "external", "TRIO_OLLAMA_LLAMA_SERVER": str(binary)}
        super().__init__(store.root, **{**runner, **self.machine.variables, **variables})
        self.log_path.touch()
        self.said = DaemonLog(self.log_path)
        """Its log from the beginning."""

    async def generate(self, model: str, *, within: float = SOON, **body: Any) -> tuple[int, Any]:
        """A short answer, or an error."""
        body = {"prompt": "w1", "raw": True, **body, "options": {"num_predict": 2, **body.get("options", {})}}
        return await ask(self.port, "/api/generate", within=within, model=model, **body)

    async def served(self, model: str, *, within: float = SOON, **body: Any) -> None:
        status, answer = await self.generate(model, within=within, **body)
        assert status == 200, f"{answer}\n{self.log}"

    async def loaded(self) -> dict[str, tuple[int, int]]:
        """What `ps` says: bytes in all and on GPUs, by model."""
        models = (await get(self.port, "/api/ps"))["models"]
        return {model["name"].removesuffix(":latest"): (model["size"], model["size_vram"]) for model in models}

    async def whole(self) -> set[str]:
        """The models that `ps` lists, all of which are on GPUs entirely."""
        loaded = await self.loaded()
        assert all(size == vram > 0 for size, vram in loaded.values()), f"{loaded}\n{self.log}"
        return set(loaded)

    def starts(self) -> list[dict[str, Any]]:
        """What each runner that was started was given: `pid`, `visible` (CUDA_VISIBLE_DEVICES), `arguments`."""
        path = self.machine.folder / "starts"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def visible(self) -> list[str]:
        """CUDA_VISIBLE_DEVICES of each runner, in the order of their starts."""
        return [start["visible"] for start in self.starts()]

    def on(self, uuid: str) -> set[int]:
        """The pids of the processes that hold memory on a GPU."""
        return set(self.machine.held(uuid))

    async def empty(self) -> None:
        """Wait until no runner is left, and nothing of their memory."""
        await until(lambda: not self.children(), SOON, lambda: f"{self.children()}\n{self.log}")
        for uuid in self.machine.devices():
            assert not self.on(uuid)


def add_model(store: OllamaStore, path: Path, name: str, size: int, seed: int) -> None:
    """A model whose file is `size` bytes long and occupies half a megabyte."""
    layer = store.layer("model", write_tiny_gguf(path, name=name, seed=seed, layers=7).read_bytes())
    path.unlink()
    blob = store.blobs / layer["digest"].replace(":", "-")
    with blob.open("r+b") as file:
        file.truncate(max(size, layer["size"]))
    layer["size"] = blob.stat().st_size
    store.add(f"{name}:latest", None, layers=[layer], params={"num_thread": 1})
