"""The numbers that a user can see are those that decide, and they are true: real daemons and real children."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_client import ask, get
from tests.support.fake_nvml import MIB
from tests.support.gguf_shapes import write_shape
from tests.support.gpu_daemon import A, B
from tests.support.real_daemon import RealDaemon
from tests.support.store_fixture import OllamaStore

from .conftest import LARGE, StartDaemon, StartGpuDaemon

DRIVER = 457 * MIB


async def fit(daemon: RealDaemon, model: str, **body: Any) -> Any:
    status, found = await ask(daemon.port, "/api/fit", model=model, **body)
    assert status == 200, found
    return found


async def load(daemon: RealDaemon, model: str, **body: Any) -> None:
    status, answer = await ask(daemon.port, "/api/generate", within=30, model=model, **body)
    assert status == 200, answer


async def devices(daemon: RealDaemon) -> dict[str, Any]:
    return {device["id"]: device for device in (await get(daemon.port, "/api/devices"))["devices"]}


async def test_a_child_is_reserved_what_it_really_takes(start_daemon: StartDaemon, store: Path) -> None:
    daemon = start_daemon()
    before = await fit(daemon, "tiny")
    assert (before["verdict"], before["memory"]["measured"]) == ("fits", None)
    assert not daemon.children(), "nothing is loaded to find out"
    await load(daemon, "tiny")
    (child,) = daemon.children()
    ram = (await devices(daemon))["cpu"]
    assert [(each["model"], each["pid"]) for each in ram["runners"]] == [("tiny:latest", child.pid)]
    # It has done something since it was measured; a quiet child grows by little.
    assert ram["reserved"] == pytest.approx(child.memory_info().rss, rel=0.1)
    assert ram["reserved"] != before["devices"][0]["held"]

    after = await fit(daemon, "tiny")
    measured = after["memory"]["measured"]
    assert after["verdict"] == "loaded"
    assert (measured["in_ram"], measured["estimated_in_ram"]) == (ram["reserved"], before["memory"]["estimate"])
    assert after["devices"][0]["held"] == ram["reserved"]
    (listed,) = (await get(daemon.port, "/api/ps"))["models"]
    assert listed["size"] == pytest.approx(child.memory_info().rss, rel=0.1)
    assert listed["size_vram"] == 0


async def test_the_next_load_is_planned_with_it_also_after_a_restart(start_daemon: StartDaemon, store: Path) -> None:
    with RealDaemon(store) as first:
        kept = first.cache / "trio-ollama" / "measured.json"
        await load(first, "tiny")
        measured = (await fit(first, "tiny"))["memory"]["measured"]["in_ram"]
    content = json.loads(kept.read_text())
    ((model, (seen,)),) = content["models"].items()
    assert model.startswith("sha256-")
    assert (seen["ram_measured"], seen["num_ctx"], seen["gpus"]) == (measured, 2048, 0)

    seen["ram_measured"] = seen["ram_estimated"] * 3 // 2
    kept.write_text(json.dumps(content))
    daemon = start_daemon()
    found = await fit(daemon, "tiny")
    assert found["memory"]["estimate"] == seen["ram_estimated"]
    assert found["memory"]["expected"] == pytest.approx(seen["ram_measured"], abs=4)
    assert found["devices"][0]["needed"] == found["memory"]["expected"]
    # Another context: only what is more counts, and that it may be.
    other = await fit(daemon, "tiny", options={"num_ctx": 512})
    assert other["memory"]["expected"] == pytest.approx(other["memory"]["estimate"] * 3 / 2, rel=0.001)

    await load(daemon, "tiny")
    again = await fit(daemon, "tiny")
    assert again["memory"]["measured"]["in_ram"] == pytest.approx(measured, rel=0.1)
    assert again["devices"][0]["reserved"] == again["memory"]["measured"]["in_ram"]


async def test_without_a_place_to_keep_it_there_is_one_line_and_no_harm(start_daemon: StartDaemon, store: Path) -> None:
    blocked = store.parent / "a file"
    blocked.touch()
    daemon = start_daemon(XDG_CACHE_HOME=str(blocked))
    await load(daemon, "tiny")
    assert (await fit(daemon, "tiny"))["memory"]["measured"] is not None
    assert daemon.log.count("cannot be kept for the next start") == 1


async def test_fit_is_quick_for_a_large_vocabulary(start_daemon: StartDaemon, store: Path) -> None:
    """150,000 entries: 0.2 s is meant, on a machine that does nothing else."""
    path = write_shape(store / "large.gguf", vocabulary=150_000, merges=True, embedding=64, heads=4, kv_heads=4)
    OllamaStore(store).add("large:latest", path.read_bytes())
    path.unlink()
    daemon = start_daemon()
    took = []
    for _ in range(4):
        started = time.perf_counter()
        await fit(daemon, "large")
        took.append(time.perf_counter() - started)
    print(", ".join(f"{seconds * 1000:.0f} ms" for seconds in took))
    assert took[0] < 1.0, "its header is read"
    assert min(took[1:]) < 0.2, "and known"


# -- with GPUs --------------------------------------------------------------------------------------------------


async def test_on_gpus_the_runners_own_lines_are_reserved(start_gpu_daemon: StartGpuDaemon) -> None:
    daemon = start_gpu_daemon()
    before = await fit(daemon, "one")
    assert (before["verdict"], before["launch"]["placement"]) == ("fits", "single")
    await daemon.served("one")
    (uuid,) = daemon.visible()
    assert before["launch"]["gpus"] == [uuid]
    _, vram = (await daemon.loaded())["one"]
    found = await devices(daemon)
    assert found[uuid]["reserved"] == vram + DRIVER
    assert found[{A: B, B: A}[uuid]]["reserved"] == 0
    (child,) = daemon.children()
    assert found["cpu"]["reserved"] < child.memory_info().rss + 64 * MIB
    measured = (await fit(daemon, "one"))["memory"]["measured"]
    assert (measured["on_gpus"], measured["in_ram"]) == (vram + DRIVER, found["cpu"]["reserved"])


async def test_fit_names_who_goes_and_that_one_goes(start_gpu_daemon: StartGpuDaemon) -> None:
    daemon = start_gpu_daemon()
    await daemon.served("one")
    await daemon.served("two")
    found = await fit(daemon, "three")
    assert found["verdict"] == "evicts"
    (victim,) = found["stops"]
    (gpu,) = found["launch"]["gpus"]
    assert victim["held"][gpu] > LARGE
    await daemon.served("three")
    assert await daemon.whole() == {"one", "two", "three"} - {victim["model"].removesuffix(":latest")}
    assert daemon.visible()[2] == gpu
    reserved = (await devices(daemon))[gpu]["reserved"]
    here = next(device for device in found["devices"] if device["id"] == gpu)
    assert reserved == pytest.approx(here["held"], rel=0.02)
