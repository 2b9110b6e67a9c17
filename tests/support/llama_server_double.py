"""A stand-in for the `llama-server` binary: takes its flags and serves with the same engine, out of `xllamacpp`.

So the external kind of runner is exercised on machines that have no such binary. An unknown flag is an error, as with
the real one. It watches neither its stdin nor its parent.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

__all__ = ["write_double"]


def write_double(folder: Path, *, before: str = "") -> Path:
    """Make an executable `llama-server` in `folder`; `before` are lines of shell that run first."""
    binary = folder / "llama-server"
    binary.write_text(f'#!/bin/sh\n{before}\nexec "{sys.executable}" -P "{__file__}" "$@"\n')
    binary.chmod(0o755)
    return binary


def main(arguments: list[str]) -> None:
    """Serve until killed; exit 1 when the model cannot be loaded."""
    import xllamacpp as engine

    flags = parse(arguments)
    params = engine.CommonParams()
    params.model.path = flags.model
    params.hostnames = [flags.host]
    params.port = flags.port
    params.n_ctx = flags.c
    params.n_parallel = flags.np
    params.verbosity = flags.log_verbosity
    params.use_jinja = not flags.no_jinja
    if flags.chat_template:
        params.chat_template = flags.chat_template
    params.n_batch = flags.b
    params.n_ubatch = flags.ub
    params.n_gpu_layers = flags.ngl
    params.ctx_shift = flags.context_shift
    params.cache_ram_mib = flags.cache_ram
    params.embedding = flags.embedding
    if flags.t:
        params.cpuparams.n_threads = flags.t
    if flags.load_mode:
        params.load_mode = getattr(engine.llama_load_mode, f"LLAMA_LOAD_MODE_{flags.load_mode.upper()}")
    if flags.pooling:
        params.pooling_type = getattr(engine.llama_pooling_type, f"LLAMA_POOLING_TYPE_{flags.pooling.upper()}")
    if flags.cache_type_k:
        params.cache_type_k = getattr(engine.ggml_type, f"GGML_TYPE_{flags.cache_type_k.upper()}")
        params.cache_type_v = getattr(engine.ggml_type, f"GGML_TYPE_{flags.cache_type_v.upper()}")
    if key := os.environ.get("LLAMA_API_KEY"):
        params.api_keys = [key]
    try:
        server = engine.Server(params)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        threading.Event().wait(0.1)  # the reason is in the log, which a thread of the library writes
        sys.exit(1)
    while True:
        signal.pause()
        del server


def parse(arguments: list[str]) -> argparse.Namespace:
    """The flags that we use; exits with status 1 for any other."""
    parser = argparse.ArgumentParser(prog="llama-server", allow_abbrev=False, exit_on_error=False)
    for name in ("--model", "--host"):
        parser.add_argument(name, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("-c", type=int, default=0)
    for name, default in (("-np", 1), ("-b", 2048), ("-ub", 512), ("-ngl", -1), ("-t", 0)):
        parser.add_argument(name, type=int, default=default)
    for name, default in (("--log-verbosity", 3), ("--cache-ram", 8192)):
        parser.add_argument(name, type=int, default=default)
    for name in (
        "--no-webui",
        "--offline",
        "--no-log-prefix",
        "--no-log-timestamps",
        "--context-shift",
        "--embedding",
        "--no-jinja",
    ):
        parser.add_argument(name, action="store_true")
    for name in ("--chat-template", "--load-mode", "--pooling", "--cache-type-k", "--cache-type-v"):
        parser.add_argument(name, default="")
    parser.add_argument("--flash-attn", choices=["on", "off", "auto"], default="auto")
    flags, unknown = parser.parse_known_args(arguments)
    if unknown:
        print(f"error: invalid argument: {unknown[0]}", file=sys.stderr, flush=True)
        sys.exit(1)
    return flags


if __name__ == "__main__":
    main(sys.argv[1:])
