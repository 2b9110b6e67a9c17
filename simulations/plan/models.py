"""What a description says of models, over what a recording says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from simulations.world.hardware import GIB

from .machine import MachineError
from .rates import ModelRates, Rates
from .trace import Trace

__all__ = ["describe_models"]

_FACTS: Final = ("layers", "kv_heads", "head_dim", "train_context")
_RATES: Final = tuple(item.name for item in fields(ModelRates))


def describe_models(trace: Trace, rates: Rates, described: Mapping[str, Mapping[str, Any]]) -> tuple[Trace, Rates]:
    """The trace and the rates with what `described` says; by model: `size` in GiB, fields of `ModelRates` (`tokens`
    may be said instead of `token`: how many in a second), and what memory is computed from. Raises `MachineError`."""
    models, own = dict(trace.models), dict(rates.models)
    for name, facts in described.items():
        for key, value in facts.items():
            if key not in ("size", "tokens", *_FACTS, *_RATES):
                raise MachineError(f"{name}: nothing is known of {key!r}")
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise MachineError(f"{name}: {key!r} must be a number that is not negative")
        known = trace.facts(name)
        more: dict[str, Any] = {key: int(facts[key]) for key in _FACTS if key in facts}
        if "size" in facts:
            more["file_size"] = round(facts["size"] * GIB)
        models[name] = replace(known, **more)
        speeds = {key: float(facts[key]) for key in _RATES if key in facts}
        if facts.get("tokens"):
            speeds["token"] = 1 / facts["tokens"]
        if speeds.get("prefill") == 0:
            raise MachineError(f"{name}: 'prefill' must be more than 0")
        own[name] = replace(rates.of(name), **speeds)
    return replace(trace, models=models), replace(rates, models=own)
