"""The external kind: a `llama-server` binary of the user's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from trio_ollama.hardware.contract import RunnerDevice
from trio_ollama.runners.contract import LaunchSpec
from trio_ollama.runners.llama_server.devices import listed_devices
from trio_ollama.runners.llama_server.embedded import LOG_VERBOSITY, batch, drafts
from trio_ollama.runners.llama_server.endpoint import Endpoint

__all__ = ["External", "flags"]


class External:
    """How a child that runs the binary is started.

    A small interpreter first asks for the parent-death signal, which survives `exec`, and then becomes the binary.
    That costs the child some 20 ms; a `preexec_fn` would cost the daemon a blocking fork of its whole memory.
    """

    def __init__(self, binary: Path) -> None:
        self._binary = binary

    def describe(self) -> str:
        return f"external llama-server ({self._binary})"

    def launch(self, spec: LaunchSpec, endpoint: Endpoint) -> dict[str, Any]:
        return {"exec": [str(self._binary), *flags(spec, endpoint)]}

    def interpreter(self) -> list[str]:
        return [sys.executable, "-P", "-E", "-S"]

    def devices_command(self) -> list[str]:
        return [str(self._binary), "--list-devices"]

    def parse_devices(self, text: str) -> tuple[RunnerDevice, ...]:
        return listed_devices(text)

    def files(self) -> Path:
        return self._binary


def flags(spec: LaunchSpec, endpoint: Endpoint) -> list[str]:
    """The binary's command line, in the order of the reference (runner flags of upstream, plus the prompt cache)."""
    line = ["--model", spec.model, "--host", endpoint.host]
    if endpoint.port:
        line += ["--port", str(endpoint.port)]
    line += ["--no-webui", "--offline", "-c", str(spec.num_ctx * spec.parallel), "-np", str(spec.parallel)]
    line += ["--log-verbosity", str(LOG_VERBOSITY), "--no-log-prefix", "--no-log-timestamps"]
    if spec.projector:
        line += ["--mmproj", spec.projector]
        if not spec.projector_on_gpu:
            line.append("--no-mmproj-offload")
    if drafts(spec):
        line += ["--spec-type", f"draft-{spec.draft_kind}", "--spec-draft-n-max", str(spec.draft_num_predict)]
        if spec.draft_kind == "mtp":
            line.append("--spec-draft-backend-sampling")
        if spec.draft:
            line += ["--spec-draft-model", spec.draft]
    if spec.projector and spec.image_min_tokens:
        line += ["--image-min-tokens", str(spec.image_min_tokens)]
    for path in spec.adapters:
        line += ["--lora", path]
    if spec.chat_template:
        line += ["--no-jinja", "--chat-template", spec.chat_template]
    if spec.direct_io:
        line += ["--load-mode", "dio"]
    elif spec.use_mmap is not None:
        line += ["--load-mode", "mmap" if spec.use_mmap else "none"]
    if spec.cache_type:
        line += ["--cache-type-k", spec.cache_type, "--cache-type-v", spec.cache_type]
    line += ["--flash-attn", spec.flash_attention]
    if spec.embeddings:
        line.append("--embedding")
    if spec.pooling:
        line += ["--pooling", spec.pooling]
    if size := batch(spec):
        line += ["-b", str(size), "-ub", str(size)]
    if spec.gpu_layers >= 0:
        line += ["-ngl", str(spec.gpu_layers)]
    if spec.fit_margin:
        line += ["--fit-target", str(-(-spec.fit_margin >> 20))]
    if spec.num_thread > 0:
        line += ["-t", str(spec.num_thread)]
    if spec.main_gpu is not None:
        line += ["--split-mode", "none", "--main-gpu", str(spec.main_gpu)]
    if spec.context_shift:
        line.append("--context-shift")
    return [*line, "--cache-ram", str(spec.prompt_cache_mib)]
