"""Who gets which GPU: the real daemon and real children on simulated GPUs of 24 GiB."""

from __future__ import annotations

import pytest
import trio

from tests.support.fake_nvml import GIB, FakeGpu
from tests.support.gpu_daemon import SOON, A, B
from tests.support.until import until

from .conftest import LARGE, StartGpuDaemon

GOES = r"\(generation \d+\) goes"


# -- room for two of three --------------------------------------------------------------------------------------


async def test_the_third_takes_the_place_of_one(start_gpu_daemon: StartGpuDaemon) -> None:
    daemon = start_gpu_daemon()
    await daemon.served("one")
    await daemon.served("two")
    first, second = daemon.starts()
    assert {first["visible"], second["visible"]} == {A, B}
    assert await daemon.whole() == {"one", "two"}
    assert not daemon.said.matching(GOES)

    await daemon.served("three")
    assert len(await daemon.whole()) == 2
    assert "three" in await daemon.loaded()
    (gone,) = daemon.said.matching(GOES)
    assert "its memory is needed for another model" in gone.text
    *_, third = daemon.starts()
    assert third["visible"] in (A, B)
    (kept,) = {A, B} - {third["visible"]}
    assert daemon.on(third["visible"]) == {third["pid"]}
    assert daemon.on(kept) & {first["pid"], second["pid"]}
    assert len(daemon.said.matching("placement single")) == 3
    assert len(daemon.said.matching("offloaded 8/8 layers")) == 3


async def test_two_at_once_get_a_gpu_each_and_load_side_by_side(start_gpu_daemon: StartGpuDaemon) -> None:
    daemon = start_gpu_daemon()
    async with trio.open_nursery() as nursery:
        with daemon.machine.hold():
            nursery.start_soon(daemon.served, "one")
            nursery.start_soon(daemon.served, "two")
            await until(lambda: len(daemon.said.matching("using device CUDA0")) == 2, SOON, lambda: daemon.log)
    assert set(daemon.visible()) == {A, B}
    assert await daemon.whole() == {"one", "two"}


async def test_a_busy_one_is_not_the_one_that_goes(start_gpu_daemon: StartGpuDaemon) -> None:
    """And its answer is whole."""
    daemon = start_gpu_daemon()
    await daemon.served("one")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: daemon.served("two", within=3 * SOON, options={"num_predict": 1_000}))
        await daemon.said.wait_for("init sampler", within=SOON, count=2)
        await daemon.served("three")
        assert daemon.visible()[2] == daemon.visible()[0]
    assert await daemon.whole() == {"two", "three"}


async def test_eight_gpus(start_gpu_daemon: StartGpuDaemon) -> None:
    gpus = [FakeGpu(f"GPU-{number}") for number in range(8)]
    models = {f"m{number}": LARGE for number in range(9)}
    daemon = start_gpu_daemon(gpus=gpus, models=models)
    async with trio.open_nursery() as nursery:
        for name in list(models)[:8]:
            nursery.start_soon(lambda name=name: daemon.served(name, within=2 * SOON))  # type: ignore[misc]
    assert sorted(daemon.visible()) == [gpu.uuid for gpu in gpus]
    await daemon.served("m8")
    assert len(await daemon.whole()) == 8
    assert len(daemon.said.matching(GOES)) == 1


async def test_parts_of_a_gpu(start_gpu_daemon: StartGpuDaemon) -> None:
    """MIG: each is a GPU of its own, and no load is spread over two."""
    parts = [f"MIG-{number}" for number in range(2)]
    keys = [{"parent": A, "gpu_instance": number} for number in range(2)]
    gpus = [FakeGpu(uuid, total=20 * GIB, keys=key) for uuid, key in zip(parts, keys, strict=True)]
    daemon = start_gpu_daemon(gpus=[FakeGpu(A, total=48 * GIB, keys={"mig": 1}), *gpus], OLLAMA_SCHED_SPREAD="1")
    await daemon.served("one")
    await daemon.served("two")
    assert sorted(daemon.visible()) == parts
    assert await daemon.whole() == {"one", "two"}
    await daemon.served("three")
    assert len(await daemon.whole()) == 2


# -- memory and its end -----------------------------------------------------------------------------------------


async def test_the_memory_goes_with_keep_alive(start_gpu_daemon: StartGpuDaemon) -> None:
    daemon = start_gpu_daemon()
    await daemon.served("one", keep_alive="500ms")
    (uuid,) = daemon.visible()
    await until(lambda: not daemon.on(uuid), SOON, lambda: daemon.log)
    await daemon.empty()
    assert await daemon.loaded() == {}
    assert daemon.machine.free(uuid) == 24 * GIB
    await daemon.said.wait_for("memory back after", within=SOON)


async def test_ps_tells_what_the_runner_has(start_gpu_daemon: StartGpuDaemon) -> None:
    daemon = start_gpu_daemon()
    await daemon.served("one")
    size, vram = (await daemon.loaded())["one"]
    (held,) = daemon.machine.held(daemon.visible()[0]).values()
    assert size == vram
    assert LARGE < vram < held


# -- what a user may ask for ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", ["1", B, "GPU-bb", f"1,9,{A}"])
async def test_the_users_filter(wanted: str, start_gpu_daemon: StartGpuDaemon) -> None:
    """By number, UUID, or its beginning; what comes after a wrong one is hidden, too."""
    daemon = start_gpu_daemon(CUDA_VISIBLE_DEVICES=wanted)
    await daemon.served("one")
    await daemon.served("two")
    assert daemon.visible() == [B, B]
    assert await daemon.whole() == {"two"}
    assert not daemon.said.matching(f"loading .* on {A}")


@pytest.mark.parametrize("hidden", ["", "-1", "GPU-cc"])
async def test_a_filter_that_leaves_nothing(hidden: str, start_gpu_daemon: StartGpuDaemon) -> None:
    daemon = start_gpu_daemon(CUDA_VISIBLE_DEVICES=hidden)
    await daemon.served("small")
    assert daemon.visible() == [""]
    assert (await daemon.loaded())["small"][1] == 0


async def test_no_gpu_for_a_request_that_wants_none(start_gpu_daemon: StartGpuDaemon) -> None:
    daemon = start_gpu_daemon()
    await daemon.served("small", options={"num_gpu": 0})
    assert daemon.visible() == [""]
    assert (await daemon.loaded())["small"][1] == 0
    assert not daemon.on(A) | daemon.on(B)


async def test_spread(start_gpu_daemon: StartGpuDaemon) -> None:
    daemon = start_gpu_daemon(OLLAMA_SCHED_SPREAD="1")
    await daemon.served("one")
    (start,) = daemon.starts()
    assert set(start["gpus"]) == {A, B}
    assert daemon.on(A) == daemon.on(B) == {start["pid"]}
    assert await daemon.whole() == {"one"}


@pytest.mark.parametrize(("index", "uuid"), [(0, A), (1, B)])
async def test_the_main_gpu_is_counted_as_the_driver_counts(
    index: int, uuid: str, start_gpu_daemon: StartGpuDaemon
) -> None:
    """CUDA's own order is another one: there the larger card comes first."""
    daemon = start_gpu_daemon(gpus=[FakeGpu(A), FakeGpu(B, total=48 * GIB)])
    await daemon.served("one", options={"main_gpu": index})
    assert daemon.on(uuid) == {daemon.starts()[0]["pid"]}
    assert not daemon.on({A, B}.difference({uuid}).pop())
    assert await daemon.whole() == {"one"}


async def test_the_users_overhead_stays_free(start_gpu_daemon: StartGpuDaemon) -> None:
    daemon = start_gpu_daemon(OLLAMA_GPU_OVERHEAD=str(16 * GIB))
    await daemon.served("one")
    (start,) = daemon.starts()
    assert set(start["gpus"]) == {A, B}, "8 GiB of each: it takes two"


# -- larger than a GPU ------------------------------------------------------------------------------------------


async def test_larger_than_one_gpu(start_gpu_daemon: StartGpuDaemon) -> None:
    daemon = start_gpu_daemon(models={"large": 30 * 10**9})
    await daemon.served("large")
    (start,) = daemon.starts()
    assert set(start["gpus"]) == {A, B}
    assert daemon.on(A) == daemon.on(B) == {start["pid"]}
    assert await daemon.whole() == {"large"}


async def test_larger_than_all_gpus(start_gpu_daemon: StartGpuDaemon) -> None:
    daemon = start_gpu_daemon(gpus=[FakeGpu(A, total=8 * GIB)], models={"large": LARGE})
    await daemon.served("large")
    size, vram = (await daemon.loaded())["large"]
    assert 0 < vram < 8 * GIB < LARGE < size
    assert daemon.said.matching("placement partial")


async def test_a_part_because_the_request_says_so(start_gpu_daemon: StartGpuDaemon) -> None:
    daemon = start_gpu_daemon()
    await daemon.served("one", options={"num_gpu": 4})
    size, vram = (await daemon.loaded())["one"]
    assert LARGE * 4 // 8 <= vram < size
    assert daemon.said.matching(r"offloaded 4/8 layers")
