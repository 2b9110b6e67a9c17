"""From a planned load to the child's launch specification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trio_ollama.runners.contract import LaunchSpec

from .core.flash_attention import flash_attention
from .core.records import Runner
from .core.values import DeviceFacts, Policy

__all__ = ["launch_spec"]

GIB: Final = 1 << 30
"""What an image encoder takes at work, beside its weights."""


def launch_spec(runner: Runner, policy: Policy, devices: Sequence[DeviceFacts]) -> LaunchSpec:
    """What the factory is asked to start for this generation, on some of these `devices`."""
    config, model, placement = runner.config, runner.model, runner.placement
    on_gpus = bool(placement.gpus)
    gpus = [device for device in devices if device.id in placement.gpus]
    # Weights that are mapped would be in memory twice, in the file's pages and on the GPU: it is the same memory.
    shares_ram = any(gpu.integrated and gpu.library.lower() in ("cuda", "rocm") for gpu in gpus)
    projector_on_gpu = _projector_on_gpu(runner, gpus)
    return LaunchSpec(
        model=model.path,
        num_ctx=config.num_ctx,
        parallel=config.parallel,
        num_batch=config.num_batch,
        gpu_layers=config.num_gpu if on_gpus else 0,
        main_gpu=placement.main_gpu if placement.main_gpu is not None else (config.main_gpu if on_gpus else None),
        use_mmap=config.use_mmap,
        num_thread=config.num_thread,
        direct_io=shares_ram and policy.platform == "linux",
        flash_attention=flash_attention(policy.flash_attention, gpus),
        cache_type=policy.cache_type,
        context_shift=config.context_shift,
        embeddings=config.embeddings,
        pooling="mean" if config.embeddings and not model.pooled else "",
        prompt_cache_mib=policy.prompt_cache >> 20,
        projector=config.projectors[0] if config.projectors else None,
        projector_on_gpu=projector_on_gpu,
        image_min_tokens=model.image_min_tokens,
        fit_margin=model.projector_size + GIB if config.projectors and projector_on_gpu and config.num_gpu < 0 else 0,
        adapters=config.adapters,
        chat_template=config.chat_template,
        draft=config.draft,
        draft_kind=model.draft_kind,
        draft_num_predict=config.draft_num_predict,
        visible_devices=placement.gpus,
    )


def _projector_on_gpu(runner: Runner, gpus: Sequence[DeviceFacts]) -> bool:
    """Whether images are encoded on a GPU: where all layers are there too, and each GPU has room for it.

    One image that does not fit ends the whole process: on the CPU it is slow, and nothing worse.
    """
    layers = runner.config.num_gpu
    if runner.config.projector_on_cpu or not gpus or 0 <= layers <= runner.model.layers:
        return False
    return all(min(gpu.reported_free, gpu.total) >= runner.model.projector_size + GIB for gpu in gpus)
