"""What each kind of placement gives the child (runner-and-memory 1.3, 3.4, 3.6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.policy_facts import GIB, gpu, model
from trio_ollama.runners.contract import LaunchSpec
from trio_ollama.scheduler.core.config import launchable, wanted
from trio_ollama.scheduler.core.placements import placements
from trio_ollama.scheduler.core.records import Runner
from trio_ollama.scheduler.core.values import RAM, Demand, DeviceFacts, LoadOptions, ModelFacts, Policy
from trio_ollama.scheduler.launch import launch_spec

HOST = DeviceFacts(RAM, 64 * GIB, 60 * GIB, library="cpu")
USUAL = Policy()
NEW: dict[str, Any] = {"compute": (9, 0), "driver": (12, 8)}
A, B = gpu("GPU-a", 20 * GIB, **NEW), gpu("GPU-b", 22 * GIB, **NEW)


def spec(
    size: int, *gpus: DeviceFacts, policy: Policy = USUAL, facts: ModelFacts | None = None, **options: Any
) -> LaunchSpec:
    """Of the first placement of a model of `size` GiB on an empty machine."""
    facts = replace(facts or model(), file_size=size * GIB, layers=30)
    devices = [*gpus, HOST]
    want = wanted(Demand(facts, LoadOptions(**options)), policy)
    base = {device.id: device.reported_free for device in devices} | {"models": 3}
    placement = placements(facts, want, devices, base, policy)[0]
    config, _ = launchable(want, facts, placement, devices, [], policy)
    return launch_spec(Runner(1, facts, config, placement, placement.reservation, 0), policy, devices)


def seen(made: LaunchSpec) -> tuple[tuple[str, ...] | None, int, int | None]:
    return made.visible_devices, made.gpu_layers, made.main_gpu


def test_the_best_of_several_gpus_is_number_0_of_what_the_child_sees() -> None:
    assert seen(spec(4, A, B)) in [(("GPU-b",), -1, 0), (("GPU-a",), -1, 0)]


def test_the_only_gpu_needs_no_number() -> None:
    assert seen(spec(4, A)) == (("GPU-a",), -1, None)


def test_what_one_gpu_cannot_hold_is_spread_over_all() -> None:
    assert seen(spec(26, A, B)) == (("GPU-a", "GPU-b"), -1, None)


def test_spread_is_wanted() -> None:
    assert seen(spec(4, A, B, policy=Policy(spread=True))) == (("GPU-a", "GPU-b"), -1, None)


def test_a_main_gpu_is_all_that_the_child_sees() -> None:
    assert seen(spec(4, A, B, main_gpu=1)) == (("GPU-b",), -1, 0)
    assert seen(spec(30, A, B, main_gpu=0)) == (("GPU-a",), -1, 0)  # partial, on this one


def test_part_of_it_in_ram() -> None:
    """The child itself fits layers into what is free (-1), unless the request has counted them."""
    made = spec(50, A, B)
    assert seen(made) == (("GPU-a", "GPU-b"), -1, None)
    assert made.num_batch == 128
    assert seen(spec(4, A, num_gpu=7)) == (("GPU-a",), 7, None)


@pytest.mark.parametrize(("gpus", "options"), [((), {}), ((A, B), {"num_gpu": 0})])
def test_the_cpu_sees_no_gpu(gpus: tuple[DeviceFacts, ...], options: dict[str, Any]) -> None:
    made = spec(4, *gpus, **options)
    assert seen(made) == ((), 0, None)
    assert made.use_mmap is False
    assert made.num_batch == 128
    assert made.flash_attention == "auto"


def test_a_batch_on_the_cpu_is_over_in_about_a_second() -> None:
    """9.7. On GPUs it does not matter how many threads there are."""
    assert spec(4, policy=Policy(threads=4)).num_batch == 8
    assert spec(4, policy=Policy(threads=4), num_thread=32).num_batch == 64
    assert spec(4, policy=Policy(threads=4), num_batch=512, num_batch_auto=False).num_batch == 512
    assert spec(4, A, policy=Policy(threads=4)).num_batch == 512
    assert spec(50, A, B, policy=Policy(threads=4)).num_batch < 128


@pytest.mark.parametrize(
    ("setting", "compute", "expected"),
    [("", (9, 0), "auto"), ("", (5, 2), "off"), ("", (7, 2), "off"), ("on", (5, 2), "on"), ("off", (9, 0), "off")],
)
def test_flash_attention_is_off_where_the_placements_gpus_cannot_do_it(
    setting: str, compute: tuple[int, int], expected: str
) -> None:
    old = replace(A, compute=compute)
    assert spec(4, old, policy=Policy(flash_attention=setting)).flash_attention == expected
    assert spec(4, old, policy=Policy(flash_attention=setting), num_gpu=0).flash_attention == (setting or "auto")


def test_memory_that_is_shared_with_the_gpu_is_read_past_the_page_cache() -> None:
    shared = replace(A, integrated=True)
    assert spec(4, shared).direct_io
    assert not spec(4, A).direct_io
    assert not spec(4, replace(shared, library="vulkan")).direct_io
    assert not spec(4, shared, policy=Policy(platform="win32")).direct_io
    assert not spec(4, shared, num_gpu=0).direct_io


EYES: dict[str, Any] = {"vision": True, "projectors": ("/eyes",), "projector_size": GIB, "image_min_tokens": 1024}


@pytest.mark.parametrize(
    ("gpus", "options", "expected"),
    [
        ((A,), {}, True),
        ((A,), {"num_gpu": 31}, True),
        ((A,), {"num_gpu": 30}, False),  # not all: the last one counts as a layer, too
        ((A,), {"num_gpu": 0}, False),
        ((), {}, False),
        ((gpu("GPU-a", 6 * GIB, total=6 * GIB), gpu("GPU-b", GIB, total=24 * GIB)), {}, False),
    ],
)
def test_images_are_encoded_on_gpus_with_room_for_it(
    gpus: tuple[DeviceFacts, ...], options: dict[str, Any], expected: bool
) -> None:
    made = spec(1, *gpus, facts=model(**EYES), policy=Policy(spread=True), **options)
    assert made.projector == "/eyes"
    assert made.image_min_tokens == 1024
    assert made.projector_on_gpu is expected
    assert made.fit_margin == (2 * GIB if expected and not options else 0)


def test_images_are_encoded_on_the_cpu_where_a_load_has_run_out_of_memory() -> None:
    devices = [A, HOST]
    facts = model(file_size=GIB, layers=30, **EYES)
    want = replace(wanted(Demand(facts), USUAL), projector_on_cpu=True)
    placement = placements(facts, want, devices, {A.id: A.reported_free, RAM: HOST.reported_free, "models": 3}, USUAL)[
        0
    ]
    made = launch_spec(Runner(1, facts, want, placement, placement.reservation, 0), USUAL, devices)
    assert (made.projector_on_gpu, made.fit_margin, made.visible_devices) == (False, 0, ("GPU-a",))


def test_a_model_without_eyes_leaves_the_margin_alone() -> None:
    assert spec(4, A).fit_margin == 0
