"""A stand-in for a CUDA build of `llama-server` on the simulated GPUs of `fake_nvml`.

It looks for devices as CUDA does, offloads as llama.cpp does, says so in its words, holds the memory in the simulated
machine, and serves with the real engine on the CPU. Where the memory is not there it fails as a CUDA build fails.

Numbers are those of a plain model: equal layers, all tensors in them; each device also holds a compute buffer and a
CUDA context, which the log does not name. Every start leaves one line in FOLDER/starts: what it was given.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import llama_server_double
from tests.support.fake_nvml.machine import MIB, VARIABLE, Machine
from trio_ollama.models.gguf import read_metadata

__all__ = ["COMPUTE", "CONTEXT", "MARGIN", "write_gpu_runner"]

MARGIN = 1024 * MIB
"""What llama.cpp's automatic fit leaves free on each device."""
COMPUTE = 64 * MIB
CONTEXT = 256 * MIB
"""Held by each process on each device it uses; in no log line."""


def write_gpu_runner(folder: Path) -> Path:
    """Make an executable `llama-server` in `folder`."""
    binary = folder / "llama-server"
    root = Path(__file__).parents[2]
    binary.write_text(
        f'#!/bin/sh\nPYTHONPATH="{root}:$PYTHONPATH" exec "{sys.executable}" -P -m tests.support.gpu_runner "$@"\n'
    )
    binary.chmod(0o755)
    return binary


@dataclass(frozen=True)
class Gpu:
    """A device as CUDA numbers it in this process."""

    label: str
    uuid: str
    name: str
    pci: str
    total: int
    free: int


def visible(machine: Machine, environ: Mapping[str, str]) -> list[Gpu]:
    """The devices of a CUDA process: the biggest first unless told to keep PCI order, filtered by index or UUID."""
    devices = machine.devices()
    usable = [
        uuid
        for uuid, keys in devices.items()
        if keys.keys().isdisjoint({"error", "unusable"}) and devices_of(devices, uuid) == 0
    ]
    if environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        usable.sort(key=lambda uuid: -int(devices[uuid]["total"]))
    if (wanted := environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        usable = chosen(usable, wanted)
    if any("parent" in devices[uuid] for uuid in usable):
        usable = [uuid for uuid in usable if "parent" in devices[uuid]][:1]  # one process, one part of a GPU
    gpus = []
    for number, uuid in enumerate(usable):
        keys = devices[uuid]
        domain, _, place = devices.get(keys.get("parent", uuid), keys).get("pci", "").lower().partition(":")
        total = int(keys["total"])
        total -= total >> 6  # CUDA tells a little less than NVML
        free = min(total, machine.free(uuid))
        gpus.append(Gpu(f"CUDA{number}", uuid, keys.get("name", ""), f"{domain[-4:]}:{place}", total, free))
    return gpus


def devices_of(devices: Mapping[str, Mapping[str, str]], uuid: str) -> int:
    """How many MIG devices a GPU is cut into: then it cannot be used as a whole."""
    return sum(keys.get("parent") == uuid for keys in devices.values())


def chosen(usable: Sequence[str], wanted: str) -> list[str]:
    """What CUDA_VISIBLE_DEVICES leaves: a token that names nothing hides all after it."""
    found: list[str] = []
    for token in map(str.strip, wanted.split(",")):
        if token.isdigit():
            named = [uuid for index, uuid in enumerate(usable) if index == int(token)]
        else:
            named = [uuid for uuid in usable if token and uuid.startswith(token)]
        if len(named) != 1 or named[0] in found:
            break
        found += named
    return found


@dataclass(frozen=True)
class Model:
    """Sizes in bytes."""

    layers: int
    """With the output layer."""
    weights: int
    cache: int


def model_of(path: str, tokens: int) -> Model:
    header = read_metadata(path)
    blocks = header.integer(header.arch_key("block_count"))
    width = header.integer(header.arch_key("embedding_length"))
    heads = header.integer(header.arch_key("attention.head_count"), 1)
    kv_heads = header.integer(header.arch_key("attention.head_count_kv"), heads)
    return Model(blocks + 1, header.file_size, 2 * blocks * kv_heads * (width // heads) * 2 * tokens)


def split(model: Model, gpus: Sequence[Gpu], layers: int) -> dict[Gpu, int]:
    """Layers for each GPU: in proportion to free memory, or, if -1, as many as fit below the margin."""
    each = -(-(model.weights + model.cache) // model.layers)
    room = {gpu: max(0, gpu.free - MARGIN - COMPUTE - CONTEXT) for gpu in gpus}
    if layers < 0:
        given = {gpu: min(room[gpu] // each, model.layers) for gpu in gpus}
        layers = min(model.layers, sum(given.values()))
    else:
        layers = min(layers, model.layers)
    shares, left, together = {}, layers, sum(room.values())
    for gpu in gpus:
        share = -(-layers * room[gpu] // together) if together else left
        shares[gpu] = min(left, share)
        left -= shares[gpu]
    return {gpu: share for gpu, share in shares.items() if share}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def mib(amount: int) -> str:
    return f"{amount / MIB:.2f}"


def load(machine: Machine, model: Model, gpus: Sequence[Gpu], layers: int) -> None:
    """Take the memory of the simulated devices. Exits with status 1 where it is not there."""
    for gpu in gpus:
        say(
            f"llama_model_load_from_file_impl: using device {gpu.label} ({gpu.name}) ({gpu.pci}) - "
            f"{gpu.free // MIB} MiB free"
        )
    shares = split(model, gpus, layers)
    while machine.on_hold:
        threading.Event().wait(0.01)
    devices = machine.devices()
    for gpu in shares:
        if gpu.uuid not in devices or "error" in devices[gpu.uuid]:
            say(f"CUDA error: unspecified launch failure\n  current device: {gpu.label.removeprefix('CUDA')}")
            os.abort()
    weights = {gpu: model.weights * share // model.layers for gpu, share in shares.items()}
    cache = {gpu: model.cache * share // model.layers for gpu, share in shares.items()}
    taken = {gpu.uuid: weights[gpu] + cache[gpu] + COMPUTE + CONTEXT for gpu in shares}
    if (short := machine.allocate(taken)) is not None:
        gpu = next(gpu for gpu in shares if gpu.uuid == short)
        number = gpu.label.removeprefix("CUDA")
        say(
            f"ggml_backend_cuda_buffer_type_alloc_buffer: allocating {mib(weights[gpu])} MiB on device {number}: "
            "cudaMalloc failed: out of memory"
        )
        say(f"alloc_tensor_range: failed to allocate {gpu.label} buffer of size {weights[gpu]}")
        say(f"llama_model_load: error loading model: unable to allocate {gpu.label} buffer")
        sys.exit(1)
    offloaded = sum(shares.values())
    say(f"load_tensors: offloaded {offloaded}/{model.layers} layers to GPU")
    if offloaded < model.layers:
        say(f"load_tensors:    CUDA_Host model buffer size = {mib(model.weights - sum(weights.values()))} MiB")
    for gpu in shares:
        say(f"load_tensors:        {gpu.label} model buffer size = {mib(weights[gpu])} MiB")
        say(f"llama_kv_cache:      {gpu.label} KV buffer size = {mib(cache[gpu])} MiB")
        say(f"sched_reserve:      {gpu.label} compute buffer size = {mib(COMPUTE)} MiB")


def main(arguments: Sequence[str]) -> None:
    """Serve until killed; exits with status 1 when the model cannot be loaded."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="surrogateescape")  # a driver may give names that are no text
    machine = Machine(Path(os.environ[VARIABLE]))
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--list-devices", action="store_true")
    parser.add_argument("--split-mode", default="layer")
    parser.add_argument("--main-gpu", type=int, default=0)
    ours, rest = parser.parse_known_args(arguments)
    gpus = visible(machine, os.environ)
    if ours.list_devices:
        print("Available devices:")
        for gpu in gpus:
            print(f"  {gpu.label}: {gpu.name} ({gpu.total // MIB} MiB, {gpu.free // MIB} MiB free)")
        if not gpus:
            print("  (none)")
        return
    flags = llama_server_double.parse(rest)
    with (machine.folder / "starts").open("a") as starts:
        shown = os.environ.get("CUDA_VISIBLE_DEVICES")
        record = {"pid": os.getpid(), "visible": shown, "arguments": list(arguments), "gpus": [g.uuid for g in gpus]}
        starts.write(json.dumps(record) + "\n")
    if ours.split_mode == "none":
        gpus = gpus[ours.main_gpu : ours.main_gpu + 1]
    if gpus and flags.ngl != 0:
        load(machine, model_of(flags.model, flags.c), gpus, flags.ngl)
    if "--load-mode" in rest:
        at = rest.index("--load-mode")
        del rest[at : at + 2]
    # Mapping a large sparse file takes the engine half a minute; a GPU build would not touch what it offloads.
    llama_server_double.main([*rest, "--load-mode", "none"])


if __name__ == "__main__":
    main(sys.argv[1:])
