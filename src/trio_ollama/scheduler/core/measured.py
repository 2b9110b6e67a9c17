"""What a runner really holds once it has loaded: its own word and the system's, in place of the estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from .expected import Expected, expected
from .footprint import Footprint
from .records import Runner
from .values import MODELS, RAM, DeviceFacts, Observation, Placement, Policy

__all__ = ["Taken", "Verdict", "measured", "verdict_on"]

TOO_LOW: Final = 110
"""Percent of what was expected; more is worth a warning."""
NOISE: Final = 64 << 20
"""Bytes; a smaller difference is worth none: it decides nothing."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Bytes of a child that is ready, from those who should know. None, and what is missing, is unknown (I19)."""

    gpus: Mapping[str, int] | None
    """Its buffers by GPU id, an entry for each of its GPUs."""
    host: int | None
    """Its buffers in RAM."""
    resident: int | None = None
    private: int | None = None
    """The part of `resident` that is in no file and shared with nobody."""


def measured(
    taken: Taken, placement: Placement, parts: Footprint, reserved: Mapping[str, int], devices: Sequence[DeviceFacts]
) -> dict[str, int]:
    """Bytes by device that the runner is known to hold or to grow to; what was `reserved` where nobody knows.

    Buffers count in full, touched or not. What no buffer line tells of is taken from the estimate's `parts`: what the
    driver keeps, the projector, and, as the process has not touched all of its buffers yet, the process beside them.
    Never more than a device has.
    """
    held = dict(reserved)
    if taken.gpus is not None:
        for index, id_ in enumerate(placement.gpus):
            held[id_] = taken.gpus.get(id_, 0)
            if held[id_]:
                held[id_] += parts.driver // len(placement.gpus)
                held[id_] += 0 if index else parts.projector  # which is on the first one
    # Pages of files that were only read on their way to a GPU can be dropped; in RAM they are the weights.
    seen = taken.private if placement.gpus else taken.resident
    if taken.host is not None:
        grown = taken.host + parts.process + parts.vocabulary + (0 if placement.gpus else parts.projector)
        held[RAM] = max(grown, seen or 0) + parts.prompt_cache
    elif seen is not None:
        held[RAM] = max(reserved.get(RAM, 0), seen + parts.prompt_cache)
    shared = sum(held[device.id] for device in devices if device.integrated and device.id in placement.gpus)
    if shared and (taken.host is not None or seen is not None):
        held[RAM] += shared  # R64
    totals = {device.id: device.total for device in devices}
    return {id_: min(amount, totals.get(id_, amount)) for id_, amount in held.items()}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of an estimate once the truth is known."""

    reservation: Mapping[str, int]
    observation: Observation | None
    """None where nothing can be learnt: the split of a model between GPUs and RAM is llama.cpp's own."""
    too_low: tuple[tuple[str, int, int], ...]
    """(where, expected, measured) of each part that was clearly underestimated, if this is news."""


def verdict_on(runner: Runner, taken: Taken, devices: Sequence[DeviceFacts], policy: Policy) -> Verdict:
    """Judge the estimate that `runner` was started with."""
    placement = runner.placement
    gpus = [device for device in devices if device.id in placement.gpus]
    wish = expected(runner.model, runner.config, policy, gpus, batch=runner.config.num_batch)
    held = measured(taken, placement, wish.parts, runner.reservation, devices)
    on_gpus = sum(amount for id_, amount in held.items() if id_ not in (RAM, MODELS))
    in_ram = max(0, held.get(RAM, 0) - sum(held[gpu.id] for gpu in gpus if gpu.integrated))
    known_gpus, known_ram = taken.gpus is not None, taken.host is not None
    if placement.kind not in ("single", "group", "cpu"):
        pairs = [("in all", wish.total, on_gpus + in_ram)] if known_gpus and known_ram else []
        return Verdict(held, None, _too_low(pairs))
    expected_ram = wish.host if gpus else wish.total
    pairs = [("on GPUs", wish.movable, on_gpus)] if known_gpus and gpus else []
    pairs += [("in RAM", expected_ram, in_ram)] if known_ram else []
    if not known_ram or not (known_gpus or not gpus):
        return Verdict(held, None, _too_low(pairs))
    return Verdict(
        held, _observation(runner, wish, on_gpus, in_ram, policy), () if wish.before is not None else _too_low(pairs)
    )


def _observation(runner: Runner, wish: Expected, on_gpus: int, in_ram: int, policy: Policy) -> Observation:
    parts, config, many = wish.parts, runner.config, len(runner.placement.gpus)
    return Observation(
        config.num_ctx,
        config.parallel,
        config.num_batch,
        policy.cache_type,
        many,
        gpu_estimated=parts.movable if many else 0,
        gpu_measured=on_gpus,
        ram_estimated=(parts.host if many else parts.total) - parts.prompt_cache,
        ram_measured=max(0, in_ram - parts.prompt_cache),
    )


def _too_low(pairs: Sequence[tuple[str, int, int]]) -> tuple[tuple[str, int, int], ...]:
    return tuple(pair for pair in pairs if pair[2] * 100 > pair[1] * TOO_LOW and pair[2] - pair[1] > NOISE)
