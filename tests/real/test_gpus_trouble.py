"""GPUs that are lost, and drivers that fail, hang or talk nonsense: the real daemon on simulated GPUs (R65, I19)."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.fake_nvml import GIB, FakeGpu
from tests.support.fake_nvml.build import LIBRARY
from tests.support.gpu_daemon import SOON, A, B, GpuDaemon, two_gpus
from tests.support.until import until

from .conftest import StartGpuDaemon

LOST, UNKNOWN = 15, 999
HANG = 60
QUERY = 3.0
"""Seconds that the daemon waits for the driver at most."""
START = 15.0
STOP = 5.0
FRESH = 0.5
"""Seconds for which the daemon takes its figures for good."""


def stops_in_time(daemon: GpuDaemon) -> None:
    begun = time.monotonic()
    daemon.signal(signal.SIGTERM)
    assert daemon.wait(STOP + 10) == 0
    assert time.monotonic() - begun < STOP, daemon.log


# -- a GPU is lost ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["lost", "not counted"])
async def test_a_gpu_goes_and_comes_back(how: str, start_gpu_daemon: StartGpuDaemon) -> None:
    """Its runner lives as long as its process; new loads go elsewhere until it is back."""
    daemon = start_gpu_daemon()
    machine = daemon.machine
    await daemon.served("one")
    await daemon.served("two")
    keys = machine.sections()[A]
    machine.change(A, error=LOST) if how == "lost" else machine.remove(A)

    await trio.sleep(2 * FRESH)
    await daemon.served("one")
    await daemon.served("two")
    assert len(daemon.starts()) == 2, "both have their process, which answers"
    await daemon.served("small")
    assert daemon.visible()[-1] == B
    (told,) = daemon.said.matching(f"^{A} .* is not used any more")
    assert "lost" in told.text

    machine.change(A, error=None) if how == "lost" else machine.add(A, keys)
    await trio.sleep(2 * FRESH)
    await daemon.served("three")
    assert daemon.said.matching(f"^{A} .* can be used")
    assert "three" in await daemon.whole()


async def test_the_runner_of_a_lost_gpu_dies(start_gpu_daemon: StartGpuDaemon) -> None:
    """Its requests hear it, its model moves, the other GPU's requests notice nothing."""
    daemon = start_gpu_daemon()
    await daemon.served("one")
    await daemon.served("two")
    first, second = daemon.starts()
    answers: list[tuple[int, Any]] = []

    async def long(model: str) -> None:
        answers.append(await daemon.generate(model, options={"num_predict": 1_000}, within=3 * SOON))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(long, "one")
        nursery.start_soon(long, "two")
        await daemon.said.wait_for("init sampler", within=SOON, count=4)
        daemon.machine.change(first["visible"], error=LOST)
        (runner,) = (child for child in daemon.children() if child.pid == first["pid"])
        runner.send_signal(signal.SIGABRT)
    assert sorted(status for status, _ in answers) == [200, 500], answers
    await daemon.served("one")
    assert daemon.visible() == [first["visible"], second["visible"], second["visible"]]
    assert await daemon.whole() == {"one"}


async def test_a_gpu_is_lost_during_a_load(start_gpu_daemon: StartGpuDaemon) -> None:
    daemon = start_gpu_daemon()
    answers: list[tuple[int, Any]] = []

    async def load() -> None:
        answers.append(await daemon.generate("one"))

    async with trio.open_nursery() as nursery:
        with daemon.machine.hold():
            nursery.start_soon(load)
            await daemon.said.wait_for("using device CUDA0", within=SOON)
            (gone,) = daemon.visible()
            daemon.machine.change(gone, error=LOST)
    ((status, answer),) = answers
    assert status == 500
    assert "CUDA error" in answer["error"]
    assert "SIGABRT" in answer["error"]
    await daemon.served("one")
    assert daemon.visible() == [gone, *({A, B} - {gone})]
    assert await daemon.whole() == {"one"}


async def test_all_gpus_are_lost(start_gpu_daemon: StartGpuDaemon) -> None:
    """What is loaded goes on; a new model is served all the same."""
    daemon = start_gpu_daemon()
    await daemon.served("one")
    for uuid in (A, B):
        daemon.machine.change(uuid, error=LOST)
    await trio.sleep(2 * FRESH)
    await daemon.served("one")
    await daemon.served("small")
    assert set(await daemon.loaded()) == {"one", "small"}
    assert (await daemon.loaded())["small"][1] == 0
    for uuid in (A, B):
        daemon.machine.change(uuid, error=None)
    await trio.sleep(2 * FRESH)
    await daemon.served("two")
    assert (await daemon.loaded())["two"][1] > 0
    assert daemon.visible()[-1] in (A, B)


async def test_a_gpu_that_the_runner_does_not_find(start_gpu_daemon: StartGpuDaemon) -> None:
    """No model is on the CPU without a word."""
    daemon = start_gpu_daemon(gpus=[FakeGpu(A)])
    daemon.machine.change(A, unusable=1)
    await daemon.served("one")
    assert (await daemon.loaded())["one"][1] == 0
    (told,) = daemon.said.matching(f"one:latest .* was to be on {A}")
    assert "has put 0 B of" in told.text


# -- no driver, or one that does not answer ---------------------------------------------------------------------


@pytest.mark.parametrize("what", ["no library", "no driver", "another version"])
async def test_without_a_driver(what: str, tmp_path: Path, start_gpu_daemon: StartGpuDaemon) -> None:
    variables = {}
    if what == "no library":  # nor any of this machine
        empty = tmp_path / "empty"
        empty.mkdir()
        (empty / LIBRARY).write_text("no library")
        variables["LD_LIBRARY_PATH"] = str(empty)
    driver = {"driver": {"error__nvmlInit": {"no driver": 9, "another version": 18}.get(what)}}
    daemon = start_gpu_daemon(**variables, **({} if what == "no library" else driver))
    await daemon.served("small")
    assert daemon.visible() == [""]
    assert (await daemon.loaded())["small"][1] == 0
    stops_in_time(daemon)


async def test_a_driver_that_hangs_from_the_start(start_gpu_daemon: StartGpuDaemon) -> None:
    begun = trio.current_time()
    daemon = start_gpu_daemon(driver={"hang": HANG})
    assert trio.current_time() - begun < START
    await daemon.served("small")
    assert (await daemon.loaded())["small"][1] == 0
    assert "the GPU driver does not answer" in daemon.said.text
    daemon.machine.change("driver", hang=None)
    await trio.sleep(2 * FRESH)  # a look that found nothing is believed for as long as any other
    await daemon.served("one")
    await until(lambda: daemon.on(A) | daemon.on(B), SOON, lambda: daemon.log)


async def test_a_stop_while_the_driver_hangs(start_gpu_daemon: StartGpuDaemon) -> None:
    daemon = start_gpu_daemon(driver={"hang": HANG})
    stops_in_time(daemon)


async def test_a_driver_that_hangs_later(start_gpu_daemon: StartGpuDaemon) -> None:
    """The last figures are used: the loaded model answers at once, another is loaded on the other GPU."""
    daemon = start_gpu_daemon()
    await daemon.served("one")
    daemon.machine.change("driver", hang=HANG)
    with trio.fail_after(QUERY - 1):
        await daemon.served("one")
    await daemon.served("two")
    assert set(daemon.visible()) == {A, B}
    assert await daemon.whole() == {"one", "two"}
    await daemon.served("one", keep_alive=0)
    await until(lambda: len(daemon.children()) == 1, SOON, lambda: daemon.log)
    stops_in_time(daemon)


async def test_a_driver_that_fails_now_and_then(start_gpu_daemon: StartGpuDaemon) -> None:
    """Nothing moves to the CPU for it, and nothing is lost."""
    daemon = start_gpu_daemon(gpus=two_gpus(lag=0.1))
    chance = random.Random(5)
    names = ["one", "two", "three", "small"]
    calls = ["nvmlDeviceGetCount", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetHandleByIndex", "nvmlInit"]

    async def client() -> None:
        for name in chance.choices(names, k=4):
            await daemon.served(name, within=4 * SOON)

    async with trio.open_nursery() as trouble:

        @trouble.start_soon
        async def _() -> None:
            while True:
                call = f"error__{chance.choice(calls)}"
                where = chance.choice(["driver", A, B])
                daemon.machine.change(where, **{call: UNKNOWN})
                await trio.sleep(chance.uniform(0.05, 0.3))
                daemon.machine.change(where, **{call: None})
                await trio.sleep(chance.uniform(0, 0.2))

        async with trio.open_nursery() as clients:
            for _number in range(4):
                clients.start_soon(client)
        trouble.cancel_scope.cancel()
    assert all(entry.text.startswith("placement single") for entry in daemon.said.matching(r"placement \w+"))
    assert all(visible in (A, B) for visible in daemon.visible())
    assert not daemon.said.matching("Traceback")


SENSE = {"name": "NVIDIA A", "pci": "00000000:01:00.0", "compute": "8.6"}
NONSENSE: dict[str, dict[str, object]] = {
    "more free than there is": {"raw__free": 2**64 - 1},
    "no memory at all": {"raw__total": 0, "raw__free": 0, "raw__used": 0},
    "far too much memory": {"raw__total": 2**63, "raw__free": 2**63},
    "a name that is no text": {"name": "\udcff\udcfe\udc80"},
    "no place": {"pci": ""},
    "a strange place": {"pci": "zz:::\u2026"},
    "no compute capability": {"compute": "x"},
    "no answer to anything": {"error": UNKNOWN},
}


@pytest.mark.parametrize("half", [0, 1])
async def test_a_start_with_gpus_that_talk_nonsense(half: int, start_gpu_daemon: StartGpuDaemon) -> None:
    """Each in its own way. The one that makes sense is used at once."""
    nonsense = list(NONSENSE.values())[half::2]
    gpus = [FakeGpu(f"GPU-{number}", total=16 * GIB, keys=keys) for number, keys in enumerate(nonsense)]
    daemon = start_gpu_daemon(gpus=[*gpus, FakeGpu(B, total=20 * GIB)])
    await daemon.served("one")
    assert daemon.visible() == [B]
    assert await daemon.whole() == {"one"}
    assert not daemon.said.matching("Traceback")
    stops_in_time(daemon)


async def test_a_gpu_that_begins_to_talk_nonsense(start_gpu_daemon: StartGpuDaemon) -> None:
    """No load goes to the CPU for it, and nothing of it is believed."""
    daemon = start_gpu_daemon(gpus=[FakeGpu(A), FakeGpu(B, total=16 * GIB)])
    await daemon.served("one")
    for number, keys in enumerate(NONSENSE.values()):
        daemon.machine.change(A, **keys)
        await trio.sleep(2 * FRESH)
        await daemon.served(("two", "three")[number % 2])
        assert (await daemon.loaded())[("two", "three")[number % 2]][1] > 0, f"{keys}\n{daemon.log}"
        daemon.machine.change(A, **{**dict.fromkeys(keys), **SENSE})
    assert not daemon.said.matching("Traceback")
    assert "" not in daemon.visible()
    stops_in_time(daemon)


@pytest.mark.parametrize(
    "driver", [{"count": 4_000_000_000}, {"cuda": -7}, {"version": "\udcff" * 40}, {"error": UNKNOWN}]
)
async def test_a_driver_that_talks_nonsense(driver: dict[str, object], start_gpu_daemon: StartGpuDaemon) -> None:
    daemon = start_gpu_daemon(driver=driver)
    await daemon.served("small")
    assert not daemon.said.matching("Traceback")
    stops_in_time(daemon)


# -- what the runner cannot use ---------------------------------------------------------------------------------


async def test_a_runner_without_gpus_says_so_at_the_start(start_gpu_daemon: StartGpuDaemon) -> None:
    daemon = start_gpu_daemon(TRIO_OLLAMA_RUNNER="embedded")
    for uuid in (A, B):
        (told,) = [line for line in daemon.said.text.splitlines() if f"{uuid}: " in line and " is not used: " in line]
        assert "pip install xllamacpp" in told
        assert "TRIO_OLLAMA_LLAMA_SERVER" in told
    await daemon.served("small", options={"use_mmap": False})
    assert (await daemon.loaded())["small"][1] == 0
    assert not daemon.said.matching("loading small.* GPU-")
