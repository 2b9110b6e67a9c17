"""Routes of our own that Ollama does not have: POST /api/fit, "would it fit, and where?", and GET /api/devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import trio
from quart import Response

from trio_ollama.scheduler import Fit
from trio_ollama.scheduler.core.values import MODELS, RAM
from trio_ollama.server.demand import demand
from trio_ollama.server.errors import ApiError
from trio_ollama.server.inference.options import merge
from trio_ollama.server.lookup import WORDS, find_target
from trio_ollama.server.replies import json_reply, read
from trio_ollama.server.services import Services, services

__all__ = ["FitRequest", "devices", "fit"]

PATIENCE: Final = 0.1
"""Seconds for fresh figures of the machine; then the last ones will do. A wedged driver must not hold up an answer."""

MOST_SLOTS: Final = 1024


class FitRequest(msgspec.Struct):
    """The body of /api/fit; `parallel` is another number of slots than the daemon's."""

    model: str = ""
    name: str = ""
    options: dict[str, Any] = {}
    parallel: int = 0


async def fit() -> Response:
    """POST /api/fit: where a model would be placed now, and why. Nothing is loaded, and nobody is stopped."""
    at = services()
    body = await read(FitRequest, at.settings.max_body)
    if not 0 <= body.parallel <= MOST_SLOTS:
        raise ApiError(400, f"parallel must be between 1 and {MOST_SLOTS}")
    target = await find_target(at, body.model or body.name, WORDS["fit"])
    wanted = demand(at, target, merge(target.model.params, body.options), keep_alive=None, slot=False)
    await _refresh(at)
    return json_reply(_fit(at.scheduler.fit(wanted, body.parallel or None)))


async def devices() -> Response:
    """GET /api/devices: what models can be placed on, who holds what of it, and what cannot be used, and why."""
    at = services()
    await _refresh(at)
    gpus = {gpu.id: gpu for gpu in at.scheduler.machine().gpus or ()}
    found = []
    for facts in at.scheduler.devices():
        gpu = gpus.pop(facts.id, None)
        name = gpu.name if gpu is not None else "system memory" if facts.id == RAM else ""
        entry = _device(at, facts.id, name, facts.library, facts.total, facts.reported_free)
        found.append(entry | {"usable": True, "trouble": ""})
    for gpu in gpus.values():
        entry = _device(at, gpu.id, gpu.name, gpu.library, gpu.total, gpu.free)
        found.append(entry | {"usable": False, "trouble": gpu.trouble})
    return json_reply({"devices": found})


async def _refresh(at: Services) -> None:
    with trio.move_on_after(PATIENCE):
        await at.scheduler.refresh()


def _device(at: Services, id_: str, name: str, library: str, total: int, free: int | None) -> dict[str, Any]:
    holdings = at.scheduler.holdings(id_)
    return {
        "id": id_,
        "name": name,
        "library": library,
        "total": total,
        "free": free,
        "reserved": sum(each.reserved for each in holdings),
        "runners": [
            {"model": each.name, "state": each.state, "pid": each.pid, "reserved": each.reserved} for each in holdings
        ],
    }


def _fit(found: Fit) -> dict[str, Any]:
    config, placement, before = found.config, found.placement, found.expected.before
    needed, there = found.facts
    answer: dict[str, Any] = {
        "model": found.model.name,
        "verdict": found.verdict.value,
        "launch": {
            "num_ctx": config.num_ctx,
            "num_ctx_auto": config.num_ctx_auto,
            "train_context": config.train_context,
            "parallel": config.parallel,
            "num_batch": config.num_batch,
            "placement": placement.kind,
            "gpus": placement.gpus,
            "num_gpu": config.num_gpu,
            "use_mmap": config.use_mmap,
            "mmap_off_because": found.mmap,
        },
        "memory": {
            "parts": [{"name": part.name, "size": part.size, "on_gpus": part.on_gpus} for part in found.parts],
            "formula": found.formula,
            "estimate": found.expected.parts.total,
            "expected": found.expected.total,
            "expected_on_gpus": found.expected.movable if placement.gpus else 0,
            "measured": None,
        },
        "devices": [
            {
                "id": each.id,
                "library": each.library,
                "total": each.total,
                "free": each.free,
                "reserved": each.reserved,
                "usable": each.usable,
                "returning": each.returning,
                "needed": each.needed,
                "held": each.held,
                "left": each.left,
            }
            for each in found.devices
        ],
        "stops": [{"model": each.name, "busy": each.busy, "held": _bytes(each.held)} for each in found.victims],
        "contexts": [
            {
                "num_ctx": each.num_ctx,
                "expected": each.expected,
                "formula": each.formula,
                "placement": each.kind,
                "gpus": each.gpus,
                "full": each.full,
                "now": each.now,
            }
            for each in found.contexts
        ],
        "largest_full_context": found.largest,
    }
    if before is not None:
        answer["memory"]["measured"] = {
            "on_gpus": before.gpu_measured,
            "in_ram": before.ram_measured,
            "estimated_on_gpus": before.gpu_estimated,
            "estimated_in_ram": before.ram_estimated,
        }
    if needed:
        answer["never_fits"] = {"needed": needed, "there": there}
    return answer


def _bytes(held: Mapping[str, int]) -> dict[str, int]:
    return {id_: amount for id_, amount in held.items() if id_ != MODELS}
