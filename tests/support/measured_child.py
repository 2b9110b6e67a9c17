"""How much memory a real embedded child takes, against what is expected of it."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import trio

from trio_ollama.models.capabilities import capabilities
from trio_ollama.models.gguf import read_metadata
from trio_ollama.models.manifest import Manifest
from trio_ollama.models.model import Model
from trio_ollama.models.names import ModelName
from trio_ollama.runners.contract import LaunchSpec, RunnerFactory
from trio_ollama.scheduler import Demand, LoadOptions, ModelFacts, Policy
from trio_ollama.scheduler.core.config import wanted
from trio_ollama.scheduler.core.footprint import IDLE_PROCESS, Footprint, footprint
from trio_ollama.scheduler.core.values import LaunchConfig
from trio_ollama.server.facts import model_facts

__all__ = ["Case", "Measurement", "expected_buffers", "expected_growth", "facts_of", "idle_child", "measure"]

STALL = 60.0


@dataclass(frozen=True, slots=True)
class Case:
    """A model file and how it is launched on the CPU. `uncapped`: also beyond the context it was trained for."""

    name: str
    path: Path
    num_ctx: int = 2048
    parallel: int = 1
    num_batch: int = 512
    cache_type: str = ""
    embeddings: bool = False
    uncapped: bool = False

    @property
    def policy(self) -> Policy:
        return Policy(num_parallel=self.parallel, cache_type=self.cache_type)

    @property
    def facts(self) -> ModelFacts:
        facts = facts_of(self.path)
        return replace(facts, train_context=0) if self.uncapped else facts

    @property
    def config(self) -> LaunchConfig:
        options = LoadOptions(
            num_ctx=self.num_ctx,
            num_ctx_auto=False,
            num_batch=self.num_batch,
            num_batch_auto=False,
            embeddings=self.embeddings,
        )
        return wanted(Demand(self.facts, options), self.policy)

    @property
    def footprint(self) -> Footprint:
        return footprint(self.facts, self.config, self.policy)

    @property
    def spec(self) -> LaunchSpec:
        return LaunchSpec(
            str(self.path),
            self.num_ctx,
            self.parallel,
            self.num_batch,
            gpu_layers=0,
            use_mmap=False,
            num_thread=1,  # threads that spin would only disturb others
            flash_attention="on",
            cache_type=self.cache_type,
            embeddings=self.embeddings,
            pooling="mean" if self.embeddings else "",
        )


@dataclass(frozen=True, slots=True)
class Measurement:
    """Bytes. `buffers`: what the child says it has allocated, touched or not."""

    buffers: int
    loaded: int
    """Resident after the load."""
    working: int
    """Resident after a prompt that fills one batch."""


def facts_of(path: Path) -> ModelFacts:
    """Of a file that is in no store."""
    model = Model(ModelName.parse(path.stem), "", Manifest(), datetime.datetime.now().astimezone(), weights_path=path)
    metadata = read_metadata(path)
    return model_facts(model, metadata, capabilities(model, metadata))


def expected_growth(case: Case) -> int:
    """Of resident memory beyond that of an idle child."""
    return case.footprint.total - IDLE_PROCESS


def expected_buffers(case: Case) -> int:
    """What the child will say it has allocated. Logits of a batch of embeddings come later."""
    parts, shape = case.footprint, case.facts.shape
    assert shape is not None
    logits = min(parts.outputs, 4 * shape.vocabulary * case.parallel)
    return parts.weights + parts.cache + parts.state + parts.compute + logits


@cache
def idle_child() -> int:
    """Resident bytes of a child that has loaded the library and no model."""
    code = "import threading, xllamacpp, json, ctypes; xllamacpp.CommonParams(); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        resident = _resident(process.pid)
        process.kill()
    return resident


async def measure(factory: RunnerFactory, case: Case) -> Measurement:
    """Load it, have it work through one batch, and end it."""
    runner = factory.spawn(case.spec)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runner.serve)
        try:
            report = await runner.ready(STALL)
            loaded = _resident(runner.pid)
            room = min(case.num_ctx, report.context) - 8
            prompt = [300 + index % 500 for index in range(min(case.num_batch, room))]
            if case.embeddings:
                await runner.ask("/embeddings", {"content": prompt})
            else:
                await _complete(runner, {"prompt": prompt, "n_predict": 2, "stream": True, "return_progress": True})
            measured = Measurement(report.total_bytes, loaded, _resident(runner.pid))
        finally:
            runner.kill()
            nursery.cancel_scope.cancel()
    return measured


async def _complete(runner: Any, body: Mapping[str, Any]) -> None:
    async with runner.stream("/completion", body) as call:
        while await call.receive():
            pass


def _resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} is gone")
