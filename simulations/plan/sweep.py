"""Variations of a plan: what can be varied, and all combinations of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Final

from trio_ollama.durations import FOREVER, SECOND, parse_go_duration

from .forecast import Plan

__all__ = ["KNOBS", "SweepError", "combinations", "gpu_sizes", "parse_sweep", "turn"]


class SweepError(Exception):
    """A variation that cannot be understood."""


def _keep_alive(plan: Plan, text: str) -> Plan:
    try:
        keep = round(float(text) * SECOND) if _is_number(text) else parse_go_duration(text)
    except ValueError as error:
        raise SweepError(str(error)) from None
    return replace(plan, policy=replace(plan.policy, keep_alive=FOREVER if keep < 0 else keep))


def _parallel(plan: Plan, text: str) -> Plan:
    return replace(plan, policy=replace(plan.policy, num_parallel=_count(text, least=1)))


def _max_models(plan: Plan, text: str) -> Plan:
    return replace(plan, policy=replace(plan.policy, max_models=_count(text)))


def _max_queue(plan: Plan, text: str) -> Plan:
    return replace(plan, policy=replace(plan.policy, queue_bound=_count(text)))


def _gpus(plan: Plan, text: str) -> Plan:
    return replace(plan, machine=plan.machine.with_gpus(gpu_sizes(text)))


def _ram(plan: Plan, text: str) -> Plan:
    return replace(plan, machine=plan.machine.with_ram(_size(text)))


def _speed(plan: Plan, text: str) -> Plan:
    speed = _size(text)
    if speed <= 0:
        raise SweepError("the speed must be more than 0")
    return replace(plan, rates=replace(plan.rates, speed=speed))


KNOBS: Final[Mapping[str, Callable[[Plan, str], Plan]]] = {
    "keep-alive": _keep_alive,
    "parallel": _parallel,
    "max-models": _max_models,
    "max-queue": _max_queue,
    "gpus": _gpus,
    "ram": _ram,
    "speed": _speed,
}


def turn(plan: Plan, knob: str, text: str) -> Plan:
    """The plan with one thing changed. Raises `SweepError` and `MachineError`."""
    return KNOBS[knob](plan, text)


def parse_sweep(text: str) -> tuple[str, tuple[str, ...]]:
    """`parallel=1,2,4` as a name and its values. Raises `SweepError`."""
    name, _, values = text.partition("=")
    found = tuple(value.strip() for value in values.split(",") if value.strip())
    if name not in KNOBS or not found:
        raise SweepError(f"{text!r} is not NAME=VALUE,VALUE... with a name of {', '.join(KNOBS)}")
    return name, found


def combinations(plan: Plan, sweeps: Sequence[tuple[str, tuple[str, ...]]]) -> list[tuple[str, Plan]]:
    """All of them, the last one changing fastest, each with its values in words."""
    found = []
    for values in product(*(values for _, values in sweeps)):
        varied, words = plan, []
        for (name, _), value in zip(sweeps, values, strict=True):
            varied = turn(varied, name, value)
            words.append(f"{name} {value}")
        found.append((", ".join(words), varied))
    return found


def gpu_sizes(text: str) -> tuple[float, ...]:
    """`24+24`: two GPUs of 24 GiB; `0`: none."""
    return () if text == "0" else tuple(_size(part) for part in text.split("+"))


def _count(text: str, *, least: int = 0) -> int:
    if not text.isdecimal() or int(text) < least:
        raise SweepError(f"{text!r} is not a whole number from {least} on")
    return int(text)


def _size(text: str) -> float:
    if not _is_number(text):
        raise SweepError(f"{text!r} is not a number")
    return float(text)


def _is_number(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdecimal()
