"""The environment of a child."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trio_ollama.runners.contract import MEDIA_MARKER, LaunchSpec
from trio_ollama.runners.llama_server.endpoint import Endpoint

__all__ = ["MARK", "child_environment", "scrubbed"]

MARK = "TRIO_OLLAMA_CHILD_OF"
"""Names the directory of the daemon that started a child; by it a later daemon knows a leftover for certain (R69)."""


def child_environment(
    environ: Mapping[str, str], spec: LaunchSpec, endpoint: Endpoint, directory: str
) -> dict[str, str]:
    """The daemon's environment without what would act as flags of the child, and with what this launch needs."""
    child = scrubbed(environ)
    child["GGML_NO_BACKTRACE"] = "1"  # an aborting child would otherwise spend more than a second on it
    child[MARK] = directory
    child["LLAMA_MEDIA_MARKER"] = MEDIA_MARKER
    if endpoint.key is not None:
        child["LLAMA_API_KEY"] = endpoint.key
    if spec.visible_devices is not None:
        _show(child, spec.visible_devices)
    return child


def scrubbed(environ: Mapping[str, str]) -> dict[str, str]:
    """Without the variables that llama.cpp takes for flags."""
    return {name: value for name, value in environ.items() if not _acts_as_a_flag(name)}


def _show(child: dict[str, str], devices: Sequence[str]) -> None:
    """Let the child see these GPUs, all of one library, and none of any other: builds may have several libraries.

    NVIDIA's go by UUID: the orders of NVML and CUDA differ. Others go by `library:token` (`DeviceReport.id`).
    """
    tokens: dict[str, list[str]] = {}
    for device in devices:
        library, separator, token = device.partition(":")
        tokens.setdefault(library if separator else "cuda", []).append(token if separator else device)
    child["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # the order in which our numbers count, where there is no UUID
    child["CUDA_VISIBLE_DEVICES"] = ",".join(tokens.get("cuda", ()))
    child["ROCR_VISIBLE_DEVICES"] = ",".join(tokens.get("rocm", ("-1",)))
    child["GGML_VK_VISIBLE_DEVICES"] = ",".join(tokens.get("vulkan", ("-1",)))
    if "rocm" in tokens:
        # ROCm obeys all of these, one within the other.
        for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"):
            child.pop(name, None)


def _acts_as_a_flag(name: str) -> bool:
    return name.upper().startswith("LLAMA_ARG_") or name.upper() == "LLAMA_API_KEY"
