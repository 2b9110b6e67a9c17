"""Memory figures that are late, or not only ours: the real daemon on simulated GPUs (R31-R37)."""

from __future__ import annotations

import pytest
import trio

from tests.support.fake_nvml import GIB, FakeGpu
from tests.support.gpu_daemon import SOON, A, B, GpuDaemon, two_gpus
from tests.support.until import until

from .conftest import LARGE, StartGpuDaemon

GOES = r"\(generation \d+\) goes"
MIDDLE = 7 * 10**9
"""Fits on a GPU beside a large model."""
LAG = 1.0


def never_in_part(daemon: GpuDaemon) -> None:
    """Every load was planned for one GPU, and every runner had all its layers there."""
    placements = daemon.said.matching(r"placement \w+")
    assert placements
    assert all(entry.text.startswith("placement single") for entry in placements), daemon.log
    offloaded = daemon.said.matching(r"offloaded \d+/\d+ layers")
    assert all(entry.text.startswith("offloaded 8/8") for entry in offloaded), daemon.log


# -- a report that lags -----------------------------------------------------------------------------------------


async def test_a_late_report_of_our_own_loads_gives_nothing_away_twice(start_gpu_daemon: StartGpuDaemon) -> None:
    """The driver shows a GPU as empty that has just been filled (R37)."""
    daemon = start_gpu_daemon(gpus=two_gpus(lag=60))
    for name in ("one", "two"):
        await daemon.served(name)
    assert set(daemon.visible()) == {A, B}
    async with trio.open_nursery() as nursery:
        for name in ("one", "two", "small"):
            nursery.start_soon(daemon.served, name)
    assert await daemon.whole() == {"one", "two", "small"}
    assert not daemon.said.matching(GOES)
    never_in_part(daemon)


async def test_memory_that_comes_back_late_is_waited_for(start_gpu_daemon: StartGpuDaemon) -> None:
    """R35: also when the model before went by itself, and nobody waited then."""
    daemon = start_gpu_daemon(gpus=[FakeGpu(A, keys={"lag": LAG})])
    await daemon.served("one", keep_alive=0)
    await until(lambda: not daemon.children(), SOON, lambda: daemon.log)
    await daemon.served("two")
    assert await daemon.whole() == {"two"}
    never_in_part(daemon)


async def test_late_reports_under_traffic(start_gpu_daemon: StartGpuDaemon) -> None:
    daemon = start_gpu_daemon(gpus=two_gpus(lag=LAG / 4))
    async with trio.open_nursery() as nursery:
        for turn in range(4):
            for name in ("one", "two", "three"):
                nursery.start_soon(lambda name=name: daemon.served(name, within=3 * SOON))  # type: ignore[misc]
            await trio.sleep(0.1 * turn)
    never_in_part(daemon)
    assert len(await daemon.whole()) == 2


async def test_a_gpu_whose_memory_is_not_back_yet_holds_up_no_other(start_gpu_daemon: StartGpuDaemon) -> None:
    """R36: what fits elsewhere does not wait."""
    daemon = start_gpu_daemon()
    await daemon.served("one")
    (first,) = daemon.visible()
    (other,) = {A, B} - {first}
    daemon.machine.change(first, lag=60)
    await daemon.served("one", keep_alive=0)
    await until(lambda: not daemon.children(), SOON, lambda: daemon.log)
    with trio.fail_after(3):
        await daemon.served("two")
    assert daemon.visible() == [first, other]
    assert not daemon.said.matching("memory not seen back")


# -- memory of others -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("foreign", [0, 6 * GIB])
async def test_what_others_take_during_a_load_counts_for_the_next(
    foreign: int, start_gpu_daemon: StartGpuDaemon
) -> None:
    daemon = start_gpu_daemon(gpus=[FakeGpu(A)], models={"one": LARGE, "middle": MIDDLE})
    async with trio.open_nursery() as nursery:
        with daemon.machine.hold():
            nursery.start_soon(daemon.served, "one")
            await daemon.said.wait_for("using device CUDA0", within=SOON)
            daemon.machine.change(A, others=foreign)
    assert await daemon.whole() == {"one"}
    await daemon.served("middle")
    assert await daemon.whole() == ({"middle"} if foreign else {"one", "middle"})
    assert len(daemon.said.matching(GOES)) == bool(foreign)
    never_in_part(daemon)


async def test_others_make_a_load_run_out_of_memory(start_gpu_daemon: StartGpuDaemon) -> None:
    """It is tried once more with the GPU to itself (R48)."""
    daemon = start_gpu_daemon(gpus=[FakeGpu(A)], models={"one": LARGE, "middle": MIDDLE})
    await daemon.served("middle")
    async with trio.open_nursery() as nursery:
        with daemon.machine.hold():
            nursery.start_soon(daemon.served, "one")
            await daemon.said.wait_for("using device CUDA0", within=SOON, count=2)
            daemon.machine.change(A, others=8 * GIB)
    assert await daemon.whole() == {"one"}
    assert daemon.said.matching("loading one.* ran out of memory, trying once more after stopping everything else")
    never_in_part(daemon)


async def test_others_leave_no_room_for_a_load_that_is_alone(start_gpu_daemon: StartGpuDaemon) -> None:
    """Its request hears why; the next one is placed by the figures of then."""
    daemon = start_gpu_daemon()
    outcome: list[tuple[int, str]] = []

    async def first() -> None:
        status, answer = await daemon.generate("one")
        outcome.append((status, answer["error"]))

    async with trio.open_nursery() as nursery:
        with daemon.machine.hold():
            nursery.start_soon(first)
            await daemon.said.wait_for("using device CUDA0", within=SOON)
            (uuid,) = daemon.visible()
            daemon.machine.change(uuid, others=14 * GIB)
    ((status, error),) = outcome
    assert status == 500
    assert "cudaMalloc failed: out of memory" in error
    await daemon.served("one")
    assert daemon.visible() == [uuid, *({A, B} - {uuid})]
    assert await daemon.whole() == {"one"}


@pytest.mark.parametrize(
    "listed", [{}, {"processes": "none"}, {"prompt": 1}], ids=["with the list", "without a list", "before the list"]
)
async def test_memory_that_others_gave_back_is_not_taken_for_that_of_a_runner(
    listed: dict[str, object], start_gpu_daemon: StartGpuDaemon
) -> None:
    """R35: also if the driver lists no processes, or strikes one off before its memory is back."""
    keys = {"others": 12 * GIB, "lag": LAG, "lag.taken": 0, **listed}
    daemon = start_gpu_daemon(gpus=[FakeGpu(A, keys=keys)], models={"middle": MIDDLE, "largest": 18 * 10**9})
    await daemon.served("middle")
    daemon.machine.change(A, others=0)
    await daemon.served("middle", keep_alive=0)
    await until(lambda: not daemon.children(), SOON, lambda: daemon.log)
    await daemon.served("largest")
    assert await daemon.whole() == {"largest"}
    never_in_part(daemon)


async def test_others_leave_room_for_a_part_only(start_gpu_daemon: StartGpuDaemon) -> None:
    """What came too late for the plan is seen by the runner, which offloads less: that is said."""
    daemon = start_gpu_daemon(gpus=[FakeGpu(A, keys={"unseen": 16 * GIB})])
    await daemon.served("one")
    size, vram = (await daemon.loaded())["one"]
    assert 0 < vram < size
    assert daemon.said.matching(f"one:latest .* was to be on {A}")


# -- the end of a process ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag", [0, LAG])
async def test_memory_of_a_killed_runner(lag: float, start_gpu_daemon: StartGpuDaemon) -> None:
    """It is waited for where the driver is late (R35), and only there (R34)."""
    daemon = start_gpu_daemon(gpus=[FakeGpu(A, keys={"lag": lag, "lag.taken": 0})])
    await daemon.served("one")
    (runner,) = daemon.children()
    runner.kill()
    await until(lambda: not daemon.children(), SOON, lambda: daemon.log)
    with trio.fail_after(4):
        await daemon.served("two")
    assert await daemon.whole() == {"two"}
    never_in_part(daemon)
