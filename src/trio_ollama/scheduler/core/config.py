"""From a demand to the configuration a runner is launched with, in two steps: what is wanted, then what is started.

What is wanted is known at arrival and compared with loaded runners (R58); batch and mapping of an automatic demand are
settled when the placement is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from .batch import batch_for
from .context import clamp, floor_context, resolve_shift
from .memory import available, predict_vram, usable
from .mmap import default_mmap
from .parallel import single_slot_family, slots
from .placement import group_by_library
from .records import Runner
from .values import RAM, Demand, DeviceFacts, LaunchConfig, ModelFacts, Placement, Policy

__all__ = ["launchable", "notes", "wanted"]


def wanted(demand: Demand, policy: Policy) -> LaunchConfig:
    """The launch configuration a demand asks for, with its automatic parts still open."""
    model, options = demand.model, demand.options
    return LaunchConfig(
        num_ctx=clamp(floor_context(options.num_ctx, model.vision), model.train_context),
        num_ctx_auto=options.num_ctx_auto,
        num_batch=options.num_batch,
        num_batch_auto=options.num_batch_auto,
        num_gpu=options.num_gpu,
        main_gpu=options.main_gpu,
        use_mmap=options.use_mmap,
        use_mmap_auto=False,
        num_thread=options.num_thread,
        draft_num_predict=options.draft_num_predict,
        context_shift=resolve_shift(options.shift, model),
        embeddings=options.embeddings or model.pooled,
        parallel=slots(model, policy.num_parallel),
        train_context=model.train_context,
        projectors=model.projectors,
        adapters=model.adapters,
        draft=model.draft,
        chat_template=model.chat_template,
    )


def launchable(
    want: LaunchConfig,
    model: ModelFacts,
    placement: Placement,
    devices: Sequence[DeviceFacts],
    loaded: Iterable[Runner],
    policy: Policy,
) -> tuple[LaunchConfig, str]:
    """`want` with batch and mapping settled for `placement`, and why mapping was switched off, if it was.

    `loaded`: the runners that are there already; their mapped files count against the page cache (G18).
    """
    loaded = list(loaded)
    devices = [
        replace(device, reported_free=usable(device.total, device.reported_free, _reserved(device.id, loaded)))
        for device in devices
    ]
    ram = next((device for device in devices if device.id == RAM), DeviceFacts(RAM, 0, 0, library="cpu"))
    chosen = [device for device in devices if device.id in placement.gpus]
    predicted = predict_vram(model, want.num_ctx, want.parallel)
    room = available(chosen, ram.reported_free)
    on_cpu = placement.kind not in ("single", "group")
    # On the CPU are the weights that have room in RAM only; a reservation that saturates may say too little (R42).
    slow = min(model.file_size, placement.reservation.get(RAM, 0)) if chosen else model.file_size
    batch = batch_for(model, want, policy, chosen, predicted=predicted, available=room, layers_on_cpu=on_cpu, slow=slow)
    mapping, why_not = default_mmap(
        want.use_mmap,
        platform=policy.platform,
        num_gpu=want.num_gpu if chosen else 0,
        main_gpu=placement.main_gpu,
        layers=model.layers,
        file_size=model.file_size,
        gpus=chosen,
        predicted=predicted,
        available=room,
        system_total=ram.total,
        system_free=ram.reported_free,
        mapped=sum(runner.model.file_size for runner in loaded if runner.config.use_mmap is not False),
    )
    return replace(want, num_batch=batch, use_mmap=mapping, use_mmap_auto=want.use_mmap is None), why_not


def _reserved(device: str, loaded: Iterable[Runner]) -> int:
    return sum(runner.holds(device) for runner in loaded)


def notes(demand: Demand, devices: Sequence[DeviceFacts], policy: Policy) -> tuple[str, ...]:
    """What was asked for and cannot be had, for the log of a load (A62, A108)."""
    found = []
    if policy.num_parallel > 1 and single_slot_family(demand.model):
        found.append(f"its architecture {demand.model.architecture} answers one request at a time only")
    main_gpu = demand.options.main_gpu
    groups = group_by_library([device for device in devices if device.gpu])
    if main_gpu is not None and groups and not any(0 <= main_gpu < len(group) for group in groups):
        found.append(f"there is no GPU {main_gpu}, so main_gpu is not heeded")
    return tuple(found)
