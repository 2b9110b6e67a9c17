"""Where a model may go on this machine: the planner's ordered list of placements.

Order: single GPUs that hold it in full, else the best group in full, else partial offload on the best group with the
rest in RAM; a machine without GPUs, or `num_gpu` 0, has RAM only. What fits is judged by *base*, the bytes there are
when all our runners are gone; when to start is the planner's question (docs/scheduler.md).

Two estimates are at work. Upstream's formula asks for free bytes on GPUs, with its headroom, as clients expect. What is
reserved is the footprint; it is also asked for where it is more, so that no load starts on bytes that it then exceeds
(I07). In RAM, where upstream asks for nothing, the footprint alone counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .batch import batch_for
from .expected import Expected, expected
from .memory import batch_surcharge, predict_vram, saturating_sub
from .placement import group_by_library
from .values import MODELS, RAM, DeviceFacts, LaunchConfig, ModelFacts, Placement, Policy

__all__ = ["explicit_partial", "never_fits", "placements"]

CPU_ONLY = frozenset({RAM})


def explicit_partial(model: ModelFacts, config: LaunchConfig) -> bool:
    """The request itself asked for part of the layers on GPUs: 0 < num_gpu < layers + 1 (R46)."""
    return 0 < config.num_gpu < model.layers + 1


def placements(
    model: ModelFacts, config: LaunchConfig, devices: Sequence[DeviceFacts], base: Mapping[str, int], policy: Policy
) -> tuple[Placement, ...]:
    """All placements to try, best first; never empty, and the last one always fits in `base`."""
    gpus = _candidates(config, devices, base)
    if not gpus:
        return (_in_ram(expected(model, config, policy).total, base),)
    size = predict_vram(model, config.num_ctx, config.parallel)
    base = _shared_once(gpus, base)
    # One of several GPUs is launched as number 0 of a list of one.
    main_gpu = 0 if len(gpus) < sum(device.gpu for device in devices) else None
    group = _best_group(gpus, base)
    if explicit_partial(model, config):
        return (_explicit(model, config, expected(model, config, policy, group), group, base, main_gpu),)
    spread = policy.spread and len(group) > 1  # where the best group is one GPU, any other may be as good
    first = 0 if len(gpus) > 1 else main_gpu
    wanted = [] if spread else [(gpu, *_wanted(model, config, size, [gpu], base, policy)) for gpu in gpus]
    singles = [(gpu, need, print_) for gpu, need, print_ in wanted if need <= base[gpu.id]]
    if singles:
        return tuple(_single(need, print_, gpu, base, first) for gpu, need, print_ in singles)
    together = sum(base[gpu.id] for gpu in group)
    need, whole = _wanted(model, config, size, group, base, policy)
    if need <= together:
        return (_group(need, whole, group, base, together),)
    return (_partial(expected(model, config, policy, group), group, base, main_gpu),)


def never_fits(
    model: ModelFacts, config: LaunchConfig, devices: Sequence[DeviceFacts], policy: Policy
) -> tuple[int, int] | None:
    """(needed, available) bytes if the model cannot be loaded even on the empty machine, else None (R42).

    File-backed weights may exceed RAM: with mapping asked for, only the rest has to fit. Both estimates must say so:
    the formula overstates quantized caches, and upstream would load what the footprint alone forbids.
    """
    needed = min(
        predict_vram(model, config.num_ctx, config.parallel) + policy.prompt_cache,
        expected(model, config, policy).total,
    )
    ram = next((device.total for device in devices if not device.gpu), 0)
    totals = {device.id: saturating_sub(device.total, device.overhead) for device in devices}
    vram = sum(
        totals[gpu.id] * gpu.fit_percent // 100 for gpu in _candidates(config, devices, totals) if not gpu.integrated
    )
    if config.use_mmap and not config.use_mmap_auto:
        needed = saturating_sub(needed, model.file_size)
    return (needed, vram + ram) if needed > vram + ram else None


def _candidates(config: LaunchConfig, devices: Sequence[DeviceFacts], free: Mapping[str, int]) -> list[DeviceFacts]:
    """The GPUs a request allows: none for `num_gpu` 0, one for a `main_gpu` that exists, else all."""
    gpus = [device for device in devices if device.gpu]
    if config.num_gpu == 0:
        return []
    if config.main_gpu is not None and config.main_gpu >= 0:
        # An index within each library group (G10); the best of the devices at that index.
        at_index = [group[config.main_gpu] for group in group_by_library(gpus) if config.main_gpu < len(group)]
        if at_index:
            return [min(at_index, key=lambda gpu: (gpu.integrated, -free[gpu.id], gpu.id))]
    return gpus


def _shared_once(gpus: Sequence[DeviceFacts], base: Mapping[str, int]) -> Mapping[str, int]:
    """`base` with what integrated GPUs offer cut to the RAM there is: it is the same memory (R64)."""
    shared = {gpu.id: base[gpu.id] for gpu in gpus if gpu.integrated}
    together = sum(shared.values())
    if together <= base[RAM]:
        return base
    return {**base, **{id_: amount * base[RAM] // together for id_, amount in shared.items()}}


def _wanted(
    model: ModelFacts,
    config: LaunchConfig,
    size: int,
    gpus: Sequence[DeviceFacts],
    base: Mapping[str, int],
    policy: Policy,
) -> tuple[int, Expected]:
    """Free bytes to ask these GPUs for, so that all layers go there, and what will be held.

    The batch takes bytes beside upstream's prediction (G28). An automatic batch is one that fits with them.
    """
    room = sum(base[gpu.id] for gpu in gpus)
    batch = batch_for(model, config, policy, gpus, predicted=size, available=room, layers_on_cpu=False)
    held = expected(model, config, policy, gpus, batch=batch)
    surcharge = batch_surcharge(batch, model.completion and not model.pooled)
    return max(_need(size + surcharge, gpus[0]), held.movable), held


def _need(size: int, device: DeviceFacts) -> int:
    """Free bytes that must be there so that `size` fills at most the device's fit percentage of them."""
    return -(-size * 100 // device.fit_percent)


def _best_group(gpus: Sequence[DeviceFacts], base: Mapping[str, int]) -> list[DeviceFacts]:
    groups = group_by_library(gpus)
    return list(
        min(groups, key=lambda group: (all(gpu.integrated for gpu in group), -sum(base[gpu.id] for gpu in group)))
    )


def _in_ram(size: int, base: Mapping[str, int]) -> Placement:
    # Saturates at what there is: with nothing of ours loaded it must start, whatever foreign programs hold.
    held = min(size, base[RAM])
    return Placement("cpu", (), {RAM: held, MODELS: 1}, {RAM: held, MODELS: 1}, CPU_ONLY)


def _with_host(
    on_gpus: dict[str, int], gpus: Sequence[DeviceFacts], host: int, base: Mapping[str, int]
) -> dict[str, int]:
    """Add the RAM part: the host's own bytes, and all that integrated GPUs draw from RAM (R64).

    It saturates at what there is: with nothing of ours loaded a load must start, whatever foreign programs hold.
    """
    shared = sum(on_gpus[gpu.id] for gpu in gpus if gpu.integrated)
    return {**on_gpus, RAM: min(host + shared, base[RAM]), MODELS: 1}


def _single(need: int, held: Expected, gpu: DeviceFacts, base: Mapping[str, int], main_gpu: int | None) -> Placement:
    return Placement(
        "single",
        (gpu.id,),
        _with_host({gpu.id: need}, [gpu], held.host, base),
        _with_host({gpu.id: held.movable}, [gpu], held.host, base),
        frozenset({gpu.id}),
        main_gpu=main_gpu,
    )


def _split(amount: int, group: Sequence[DeviceFacts], base: Mapping[str, int], together: int) -> dict[str, int]:
    """`amount`, at most `together`, in proportion to `base`: whole bytes that add up, no GPU gets more than it has."""
    shares: dict[str, int] = {}
    before = passed = 0
    for gpu in group:
        passed += base[gpu.id]
        # Each share is the difference of two rounded sums: no remainder is left over for one of them.
        until = amount * passed // together if together else 0
        shares[gpu.id] = until - before
        before = until
    return shares


def _group(
    need: int, held: Expected, group: Sequence[DeviceFacts], base: Mapping[str, int], together: int
) -> Placement:
    return Placement(
        "group",
        tuple(gpu.id for gpu in group),
        _with_host(_split(need, group, base, together), group, held.host, base),
        _with_host(_split(held.movable, group, base, together), group, held.host, base),
        frozenset(gpu.id for gpu in group),
    )


def _partial(held: Expected, group: Sequence[DeviceFacts], base: Mapping[str, int], main_gpu: int | None) -> Placement:
    together = sum(base[gpu.id] for gpu in group)
    on_gpus = _split(min(held.movable, together * group[0].fit_percent // 100), group, base, together)
    rest = saturating_sub(held.movable, sum(on_gpus.values())) + held.host
    reservation = _with_host(on_gpus, group, rest, base)
    need = {**{gpu.id: base[gpu.id] for gpu in group}, RAM: reservation[RAM], MODELS: 1}
    return Placement(
        "partial",
        tuple(gpu.id for gpu in group),
        need,
        reservation,
        frozenset(gpu.id for gpu in group) | CPU_ONLY,
        main_gpu=main_gpu,
    )


def _explicit(
    model: ModelFacts,
    config: LaunchConfig,
    held: Expected,
    group: Sequence[DeviceFacts],
    base: Mapping[str, int],
    main_gpu: int | None,
) -> Placement:
    """Needs a model unit only, so it never evicts for bytes (R46); what it wants is reserved as far as it is there."""
    offloaded = held.movable * config.num_gpu // (model.layers + 1)
    together = sum(base[gpu.id] for gpu in group)
    shares = _split(min(offloaded, together), group, base, together)
    reservation = _with_host(shares, group, saturating_sub(held.movable, offloaded) + held.host, base)
    return Placement(
        "explicit_partial",
        tuple(gpu.id for gpu in group),
        {MODELS: 1},
        reservation,
        frozenset(gpu.id for gpu in group) | CPU_ONLY,
        layers=config.num_gpu,
        main_gpu=main_gpu,
    )
