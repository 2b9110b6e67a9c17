"""Random scenarios of many kinds: a machine, a policy, models, requests and what goes wrong, all from one number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from trio_ollama.scheduler import Limits
from trio_ollama.scheduler.core.values import FOREVER

from .drawing import Draw
from .scenario import Scenario, What
from .troubles import DEVICE_FAULTS, ENDS, MEMORY, PROCESS_FAULTS, STUBBORN

__all__ = ["KINDS", "draw"]

QUICK: Final = Limits(load_stall=20, drain_progress=15, abort_confirm=4)
"""Bounds within which a workload sees the end of a hang."""


def _hot_and_big(draw: Draw) -> None:
    draw.models = {"hot": 6, "big": 16}
    draw.weights = (9, 1)
    draw.gap = 0.2


def _ping_pong(draw: Draw) -> None:
    draw.models = {"a": 14, "b": 14}
    draw.gap = draw.random.choice((0.1, 1.0))


def _options(draw: Draw) -> None:
    draw.models = {"a": 6, "b": 10}
    draw.contexts = draw.random.choice(((2048, 8192), (None, 65536, 2048)))
    draw.leave = 0.3


def _partial(draw: Draw) -> None:
    draw.models = {"a": 6, "b": 14, "partial": 30}
    draw.layers = (None, 8, 0, 99)


def _smalls_and_big(draw: Draw) -> None:
    draw.small_and_big(small=8)
    draw.gap = 0.3


def _several_devices(draw: Draw) -> None:
    draw.gpus = draw.random.choice(((24, 24), (24, 12), (24, 24, 24), (48, 8)))
    draw.small_and_big(small=5)
    draw.gap = draw.random.choice((0.02, 0.3, 1.0))


def _wide(draw: Draw) -> None:
    draw.gpus = draw.random.choice(((24, 24), (24, 16, 24)))
    draw.models = {"s": 3, "t": 8, "u": 12, "wide": 30, "partial": 60}
    draw.weights = (4, 3, 2, 2, 1)
    draw.policy["spread"] = draw.random.random() < 0.3


def _never_fits(draw: Draw) -> None:
    draw.ram = 32
    draw.overhead = draw.random.choice((0, 2, 30))
    draw.models = {"a": 8, "b": 15, "partial": 30, "huge": 300}


def _cpu_only(draw: Draw) -> None:
    draw.gpus = ()
    draw.ram = 32
    draw.models = {"a": 8, "b": 16, "c": 20, "d": 2}


def _few(draw: Draw) -> None:
    draw.policy["max_models"] = draw.random.choice((1, 2))
    draw.gpus = draw.random.choice(((24,), (24, 24)))


def _bounds(draw: Draw) -> None:
    draw.policy["queue_bound"] = draw.random.choice((0, 1, 2))
    draw.gap = draw.random.choice((0.05, 0.5))


def _cancels(draw: Draw) -> None:
    draw.leave = 0.8
    draw.gap = draw.random.choice((0.05, 0.5))


def _stops(draw: Draw) -> None:
    draw.faults += [(What.STOP, 12), (What.CRASH, 2), (What.FORCE, 3)]
    draw.slow = draw.leave = 0.4


def _bursts(draw: Draw) -> None:
    draw.together = 0.8
    draw.leave = 0.3
    draw.policy["queue_bound"] = draw.random.choice((2, 512))


def _batches(draw: Draw) -> None:
    draw.batches = 0.6
    draw.leave = 0.3
    draw.gap = 0.2
    draw.models = {"a": 6, "b": 14}


def _slow_readers(draw: Draw) -> None:
    draw.slow = 0.6
    draw.leave = 0.3
    draw.models = {"a": 14, "b": 14, "c": 4}


def _equal_instants(draw: Draw) -> None:
    draw.grid = draw.random.choice((0.5, 1.0, 5.0))
    draw.usual = replace(draw.usual, load_time=draw.random.choice((draw.grid, 2 * draw.grid)))
    draw.keep_alives = (0.0, draw.grid, 2 * draw.grid, 5.0)
    draw.look = draw.random.choice((0.0, 0.0, draw.grid))
    draw.gap = draw.grid
    draw.leave = 0.3
    draw.faults += [(What.STOP, 3), (What.FORCE, 6)]


def _crashes(draw: Draw) -> None:
    draw.bad = [name for name in PROCESS_FAULTS if name not in (*MEMORY, *STUBBORN)]
    draw.limits = QUICK
    draw.faults += [(What.CRASH, 3)]


def _crash_loop(draw: Draw) -> None:
    draw.models = {"bad": 6, "good": 10}
    draw.bad = ("dies while it works", "dies idle", "dies loading")
    draw.bad_launches = 0.9
    draw.faults += [(What.CRASH, 6)]


def _memory(draw: Draw) -> None:
    draw.bad = MEMORY
    draw.contexts = draw.random.choice(((None,), (None, 65536, 2048)))
    draw.automatic = draw.random.choice(((4096,), (32768, 262144)))
    draw.slow, draw.leave, draw.patience = 0.4, 0.6, draw.random.choice((1.0, 3.0))
    draw.gap = draw.random.choice((0.1, 0.5))
    draw.faults += [(What.OUT_OF_MEMORY, 2), (What.FOREIGN, 3)]


def _stubborn(draw: Draw) -> None:
    draw.bad = draw.random.choice((STUBBORN, STUBBORN, ("keeps slots", "hangs")))
    draw.limits = draw.random.choice((QUICK, Limits()))
    draw.usual = replace(draw.usual, prompt_time=0.3, token_time=0.4, load_time=draw.random.choice((0.5, 2.0)))
    draw.longest = 8
    draw.gap = draw.random.choice((1.0, 3.0))
    draw.leave, draw.patience = 0.6, 4.0
    draw.faults += [(What.STOP, 3), (What.HANG, 2)]


def _reports(draw: Draw) -> None:
    draw.gpus = draw.random.choice(((24,), (24, 24), (24, 16, 12)))
    draw.gap = draw.random.choice((0.3, 1.0, 3.0))
    draw.leave = 0.3
    draw.overhead = draw.random.choice((0, 1))
    draw.look = draw.random.choice((0.0, 0.3, 2.0))
    draw.faults += [(what, 2) for what in DEVICE_FAULTS]


def _shutdown(draw: Draw) -> None:
    draw.gap = draw.random.choice((0.1, 0.5, 2.0))
    if draw.random.random() < 0.6:
        draw.models = {"a": 14, "b": 14, "c": 4}
    draw.slow = draw.random.choice((0.05, 0.5))
    draw.faults += [(draw.random.choice(ENDS), 1)]
    if draw.random.random() < 0.5:
        draw.bad = list(PROCESS_FAULTS)
        draw.limits = QUICK
    if draw.random.random() < 0.3:
        draw.faults += [(What.LAG, 1)]


def _trouble(draw: Draw) -> None:
    """Everything that can go wrong with processes, drivers and people, all at once."""
    random = draw.random
    draw.gpus = random.choice(((24,), (24, 24), (24, 16, 12)))
    draw.small_and_big(small=4)
    draw.overhead = random.choice((0, 1))
    draw.contexts = (None, None, 8192)
    draw.automatic = random.choice(((4096,), (32768,)))
    draw.leave = 0.3
    draw.limits = QUICK
    draw.policy["queue_bound"] = random.choice((2, 512, 512))
    draw.policy["max_models"] = random.choice((0, 0, 2))
    draw.policy["prompt_cache"] = random.choice((0, 1 << 30))
    draw.policy["keep_alive"] = random.choice((300 * 10**9, 300 * 10**9, FOREVER))
    draw.grid = random.choice((0.0, 0.0, 0.5))
    draw.bad = list(PROCESS_FAULTS)
    draw.bad_launches = 0.4
    people = (What.STOP, What.CRASH, What.HANG, What.OUT_OF_MEMORY, What.FORCE)
    draw.faults += [(what, 1) for what in (*DEVICE_FAULTS, *people)]
    if random.random() < 0.2:
        draw.faults += [(random.choice(ENDS), 1)]


KINDS: Final[dict[str, Callable[[Draw], None]]] = {
    "hot and big": _hot_and_big,
    "ping-pong": _ping_pong,
    "options": _options,
    "partial": _partial,
    "smalls and big": _smalls_and_big,
    "several devices": _several_devices,
    "wide": _wide,
    "never fits": _never_fits,
    "cpu only": _cpu_only,
    "few": _few,
    "bounds": _bounds,
    "cancels": _cancels,
    "stops": _stops,
    "bursts": _bursts,
    "batches": _batches,
    "slow readers": _slow_readers,
    "equal instants": _equal_instants,
    "crashes": _crashes,
    "crash loop": _crash_loop,
    "memory": _memory,
    "stubborn": _stubborn,
    "reports": _reports,
    "shutdown": _shutdown,
    "trouble": _trouble,
}


def draw(seed: int) -> Scenario:
    """The scenario of a seed; kinds take turns."""
    kind = list(KINDS)[seed % len(KINDS)]
    drawn = Draw(seed, kind)
    KINDS[kind](drawn)
    return drawn.scenario()
