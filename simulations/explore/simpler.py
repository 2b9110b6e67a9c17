"""Ways to make a scenario a little simpler: less in it, rounder numbers, more of what is usual."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from string import ascii_lowercase
from typing import Any, Final, TypeVar

from simulations.scenarios import Request, Scenario
from simulations.scenarios.scenario import spell
from simulations.world.behaviour import Behaviour
from trio_ollama.scheduler import Limits, Policy

__all__ = ["Edit", "edits", "size", "weight"]

Edit = Callable[[Scenario], Scenario]
"""Leaves the scenario as it is where it does not apply."""

Item = TypeVar("Item")

_USUAL: Final[Mapping[str, Any]] = {"usual": Behaviour(), "policy": Policy(), "limits": Limits()}
_PLAIN: Final = Request()


def weight(scenario: Scenario) -> tuple[int, int, float]:
    """Less is simpler: what there is in it, then how much there is to be said of it, then when it happens."""
    launches = sum(map(len, scenario.launches.values()))
    parts = len(scenario.requests) + len(scenario.faults) + launches + len(_models(scenario))
    instants = sum(request.at for request in scenario.requests) + sum(fault.at for fault in scenario.faults)
    return parts, len(spell(scenario)), instants


def size(scenario: Scenario) -> str:
    """What is in it, in words."""
    counts = {
        "client": len(scenario.requests),
        "fault": len(scenario.faults),
        "model": len(_models(scenario)),
        "GPU": len(scenario.gpus),
    }
    return ", ".join(f"{count} {what}{'' if count == 1 else 's'}" for what, count in counts.items())


def edits(scenario: Scenario) -> Iterator[Edit]:
    """All that may be tried with this one, the more effective first. Those that apply may follow one another."""
    yield _change(name="")
    yield _without_unused
    yield _all_earlier
    for number in range(1, len(scenario.requests)):
        yield _gap_closed(number)
    for gone in reversed(_models(scenario)):
        for kept in _models(scenario):
            if kept != gone:
                yield _merged(gone, kept)
    yield _plain_names
    for name, usual in _USUAL.items():
        yield _change(**{name: usual})
        for item in fields(usual):
            yield _change_within(name, item.name, getattr(usual, item.name))
            for value in _rounder_seconds(getattr(getattr(scenario, name), item.name)):
                yield _change_within(name, item.name, value)
    yield _change(gpus=(24,))
    yield _change(overhead=0)
    yield _change(ram=64)
    for model in scenario.models:
        yield _size_of(model, None)
        for amount in _rounder(scenario.models[model]):
            yield _size_of(model, amount)
    for model, launches in scenario.launches.items():
        for number, behaviour in enumerate(launches):
            for item in fields(behaviour):
                yield _of_launch(model, number, item.name, getattr(_USUAL["usual"], item.name))
                for value in _rounder_seconds(getattr(behaviour, item.name)):
                    yield _of_launch(model, number, item.name, value)
    for number, request in enumerate(scenario.requests):
        yield from _plainer_request(number, request)
    for number, fault in enumerate(scenario.faults):
        yield _of_fault(number, amount=1.0)
        for name in ("at", "amount"):
            for value in _rounder(getattr(fault, name)):
                yield _of_fault(number, **{name: value})


def _models(scenario: Scenario) -> list[str]:
    """Those that anybody asks for, in order of appearance."""
    return list(dict.fromkeys(request.model for request in scenario.requests))


# -- the whole ----------------------------------------------------------------------------------------------------


def _change(**changes: Any) -> Edit:
    return lambda now: replace(now, **changes)


def _change_within(name: str, field: str, value: Any) -> Edit:
    return lambda now: replace(now, **{name: replace(getattr(now, name), **{field: value})})


def _without_unused(now: Scenario) -> Scenario:
    names = set(_models(now))
    return replace(
        now,
        models={name: size for name, size in now.models.items() if name in names},
        launches={name: several for name, several in now.launches.items() if name in names},
    )


def _merged(gone: str, kept: str) -> Edit:
    """Everybody who asks for one model asks for the other."""
    return lambda now: _renamed(now, {gone: kept})


def _plain_names(now: Scenario) -> Scenario:
    return _renamed(_without_unused(now), dict(zip(_models(now), ascii_lowercase, strict=False)))


def _renamed(now: Scenario, names: Mapping[str, str]) -> Scenario:
    return replace(
        now,
        models={names.get(name, name): size for name, size in now.models.items()},
        launches={names.get(name, name): several for name, several in now.launches.items()},
        requests=tuple(replace(item, model=names.get(item.model, item.model)) for item in now.requests),
        faults=tuple(replace(item, target=names.get(item.target, item.target)) for item in now.faults),
    )


def _all_earlier(now: Scenario) -> Scenario:
    """The first thing happens at once."""
    starts = [request.at for request in now.requests] + [fault.at for fault in now.faults]
    return _moved(now, min(starts, default=0.0), 0.0)


def _gap_closed(number: int) -> Edit:
    """Whatever happens from this request on happens when the one before comes."""

    def edit(now: Scenario) -> Scenario:
        return _moved(now, now.requests[number].at, now.requests[number - 1].at)

    return edit


def _moved(now: Scenario, since: float, to: float) -> Scenario:
    """Everything from `since` on happens earlier, from `to` on."""

    def moved(at: float) -> float:
        return round(to + at - since, 6) if at >= since > to else at

    return replace(
        now,
        requests=tuple(
            replace(item, at=moved(item.at), leaves=None if item.leaves is None else moved(item.leaves))
            for item in now.requests
        ),
        faults=tuple(replace(item, at=moved(item.at)) for item in now.faults),
    )


# -- parts --------------------------------------------------------------------------------------------------------


def _size_of(model: str, amount: float | None) -> Edit:
    """None: as large as models are that have not been given a size."""

    def edit(now: Scenario) -> Scenario:
        if model not in now.models:
            return now
        if amount is None:
            return replace(now, models={name: size for name, size in now.models.items() if name != model})
        return replace(now, models={**now.models, model: amount})

    return edit


def _of_launch(model: str, number: int, field: str, value: Any) -> Edit:
    def edit(now: Scenario) -> Scenario:
        launches = now.launches.get(model, ())
        if number >= len(launches):
            return now
        plain = replace(launches[number], **{field: value})
        return replace(now, launches={**now.launches, model: _with(launches, number, plain)})

    return edit


def _plainer_request(number: int, request: Request) -> Iterator[Edit]:
    for item in fields(request):
        if item.name != "model":
            yield _of_request(number, **{item.name: getattr(_PLAIN, item.name)})
    if number:
        yield lambda now: _of_request(number, at=now.requests[number - 1].at)(now)
    for name in ("at", "leaves", "hold", "pause", "keep_alive"):
        for value in _rounder(getattr(request, name) or 0):
            yield _of_request(number, **{name: value})
    for name in ("tokens", "inputs"):
        for least in (1, 2):
            yield _of_request(number, **{name: least})


def _of_request(number: int, **changes: Any) -> Edit:
    return lambda now: replace(now, requests=_with(now.requests, number, replace(now.requests[number], **changes)))


def _of_fault(number: int, **changes: Any) -> Edit:
    return lambda now: replace(now, faults=_with(now.faults, number, replace(now.faults[number], **changes)))


def _rounder(value: float) -> Iterator[float]:
    """Numbers near `value` with fewer digits, the shortest first; whole ones as ints, which are written shorter."""
    for digits in (-1, 0, 1, 2, 3):
        near = round(value, digits)
        for candidate in (near, round(near + 10.0**-digits, max(0, digits))):
            plain: float = int(candidate) if candidate == int(candidate) else candidate
            if len(repr(plain)) < len(repr(value)):
                yield plain


def _rounder_seconds(value: object) -> Iterator[float]:
    """The same for a field that may hold anything."""
    return _rounder(value) if isinstance(value, float) else iter(())


def _with(items: Sequence[Item], number: int, item: Item) -> tuple[Item, ...]:
    return (*items[:number], item, *items[number + 1 :])
