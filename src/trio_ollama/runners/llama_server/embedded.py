"""The embedded kind: a Python child that hosts llama.cpp's server out of the `xllamacpp` package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from trio_ollama.hardware.contract import RunnerDevice
from trio_ollama.runners.contract import LaunchSpec
from trio_ollama.runners.llama_server import probe
from trio_ollama.runners.llama_server.devices import embedded_devices
from trio_ollama.runners.llama_server.endpoint import Endpoint

__all__ = ["LOG_VERBOSITY", "Embedded", "batch", "drafts", "parameters"]

LOG_VERBOSITY = 4
"""The lowest level at which llama.cpp tells of its buffers and slots."""

MAX_DEVICES = 16
"""llama.cpp's, for lists with a number for each device."""

Enum = dict[str, str]


class Embedded:
    """How an embedded child is started."""

    def describe(self) -> str:
        return "embedded llama.cpp (xllamacpp)"

    def launch(self, spec: LaunchSpec, endpoint: Endpoint) -> dict[str, Any]:
        return {"parameters": parameters(spec, endpoint)}

    def interpreter(self) -> list[str]:
        return [sys.executable, "-P"]

    def devices_command(self) -> list[str]:
        return [*self.interpreter(), probe.__file__]

    def parse_devices(self, text: str) -> tuple[RunnerDevice, ...]:
        return embedded_devices(text)

    def files(self) -> Path:
        spec = importlib.util.find_spec("xllamacpp")
        return Path(spec.origin if spec is not None and spec.origin else "xllamacpp").parent


def parameters(spec: LaunchSpec, endpoint: Endpoint) -> dict[str, Any]:
    """Dotted attributes of `CommonParams` and their values, as JSON.

    A member of an enum is `{"enum": "type.MEMBER"}`, an adapter `{"adapter": path}`: strings are refused by the
    library, and its numbers are not promised to stay.
    """
    values: dict[str, Any] = {
        "model.path": spec.model,
        "hostnames": [endpoint.host],
        "port": endpoint.port,
        "n_ctx": spec.num_ctx * spec.parallel,
        "n_parallel": spec.parallel,
        "flash_attn_type": _flash_attention(spec.flash_attention),
        "ctx_shift": spec.context_shift,
        "cache_ram_mib": spec.prompt_cache_mib,
        "fit_params": spec.gpu_layers < 0,  # with a given number of layers there is nothing to fit
        "verbosity": LOG_VERBOSITY,
        "offline": True,
        "ui": False,
        "endpoint_slots": False,  # polling it would blind the server to disconnects
    }
    if size := batch(spec):
        values |= {"n_batch": size, "n_ubatch": size}
    if spec.gpu_layers >= 0:
        values["n_gpu_layers"] = spec.gpu_layers
    if spec.main_gpu is not None:
        values |= {"split_mode": _enum("llama_split_mode", "NONE"), "main_gpu": spec.main_gpu}
    if spec.direct_io:
        values["load_mode"] = _enum("llama_load_mode", "DIRECT_IO")
    elif spec.use_mmap is not None:
        values["load_mode"] = _enum("llama_load_mode", "MMAP" if spec.use_mmap else "NONE")
    if spec.num_thread > 0:
        values["cpuparams.n_threads"] = spec.num_thread
    if spec.cache_type:
        element = {"enum": f"ggml_type.GGML_TYPE_{spec.cache_type.upper()}"}
        values |= {"cache_type_k": element, "cache_type_v": element}
    if spec.embeddings:
        values["embedding"] = True
    if spec.pooling:
        values["pooling_type"] = _enum("llama_pooling_type", spec.pooling.upper())
    if spec.projector:
        values |= {"mmproj.path": spec.projector, "mmproj_use_gpu": spec.projector_on_gpu}
        if spec.image_min_tokens:
            values["image_min_tokens"] = spec.image_min_tokens
    if spec.fit_margin:
        values["fit_params_target"] = [spec.fit_margin] * MAX_DEVICES
    if spec.adapters:
        values["lora_adapters"] = [{"adapter": path} for path in spec.adapters]
    if spec.chat_template:  # names mean something without Jinja only
        values |= {"use_jinja": False, "chat_template": spec.chat_template}
    return values | _draft(spec)


def _draft(spec: LaunchSpec) -> dict[str, Any]:
    if not drafts(spec):
        return {}
    kind = f"common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_{spec.draft_kind.upper()}"
    values: dict[str, Any] = {"speculative.types": [{"enum": kind}], "speculative.draft.n_max": spec.draft_num_predict}
    if spec.draft:
        values["speculative.draft.mparams.path"] = spec.draft
    if spec.draft_kind == "mtp":
        values["speculative.draft.backend_sampling"] = True
    return values


def batch(spec: LaunchSpec) -> int:
    """Tokens of one batch; 0 leaves it to llama.cpp. One input of an embedding has to fit into one batch."""
    return min(spec.num_batch, spec.num_ctx * spec.parallel) if spec.embeddings else spec.num_batch


def drafts(spec: LaunchSpec) -> bool:
    """Whether somebody proposes tokens for the model to check."""
    return bool(spec.draft_kind) and spec.draft_num_predict > 0


def _flash_attention(choice: str) -> Enum:
    return _enum("llama_flash_attn_type", {"on": "ENABLED", "off": "DISABLED"}.get(choice, "AUTO"))


def _enum(kind: str, member: str) -> Enum:
    """llama.cpp prefixes the members of an enum with its name, without the final `_t`."""
    return {"enum": f"{kind}.{kind.upper()}_{member}"}
