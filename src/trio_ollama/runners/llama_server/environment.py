"""The environment of a child."""

from __future__ import annotations

from collections.abc import Mapping

from trio_ollama.runners.contract import LaunchSpec
from trio_ollama.runners.llama_server.endpoint import Endpoint

__all__ = ["MARK", "child_environment"]

MARK = "TRIO_OLLAMA_CHILD_OF"
"""Names the directory of the daemon that started a child; by it a later daemon knows a leftover for certain (R69)."""


def child_environment(
    environ: Mapping[str, str], spec: LaunchSpec, endpoint: Endpoint, directory: str
) -> dict[str, str]:
    """The daemon's environment without what would act as flags of the child, and with what this launch needs.

    The devices go by UUID: the orders of NVML and CUDA differ.
    """
    child = {name: value for name, value in environ.items() if not _acts_as_a_flag(name)}
    child["GGML_NO_BACKTRACE"] = "1"  # an aborting child would otherwise spend more than a second on it
    child[MARK] = directory
    if endpoint.key is not None:
        child["LLAMA_API_KEY"] = endpoint.key
    if spec.visible_devices is not None:
        child["CUDA_VISIBLE_DEVICES"] = ",".join(spec.visible_devices)
    return child


def _acts_as_a_flag(name: str) -> bool:
    return name.upper().startswith("LLAMA_ARG_") or name.upper() == "LLAMA_API_KEY"
