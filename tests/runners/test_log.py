"""The child's log: what is read out of it, whatever pieces it comes in."""

from __future__ import annotations

import pytest

from trio_ollama.runners.contract import HOST, LoadReport
from trio_ollama.runners.llama_server.log import CAPTURED, LONGEST_LINE, BufferSizes, ChildLog, ErrorLines, SlotEvent

MIB = 1024 * 1024

PREFIXED = b"0.00.423.082 I slot launch_slot_: id  1 | task 0 | processing task, is_child = 0\n"
PLAIN = b"slot      release: id 12 | task 1458 | stop processing: n_tokens = 303, truncated = 0\n"


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (PREFIXED, SlotEvent(1, busy=True)),
        (PLAIN, SlotEvent(12, busy=False)),
        (b"0.1 I slot get_availabl: id  1 | task 127 |  - skipping, is_processing = 1\n", None),
        (b"0.1 I slot launch_slot_: id  1 | task -1 | sampler chain: logits -> dist\n", None),
        (b"0.1 W srv          stop: cancel task, id_task = 12\n", None),
    ],
)
def test_slot_lines(line: bytes, event: SlotEvent | None) -> None:
    assert ChildLog().feed(line) == ([] if event is None else [event])


def test_lines_may_come_in_any_pieces() -> None:
    log = ChildLog()
    events = [event for byte in PREFIXED + PLAIN for event in log.feed(bytes([byte]))]
    assert events == [SlotEvent(1, busy=True), SlotEvent(12, busy=False)]
    assert log.bytes == len(PREFIXED + PLAIN)


def test_memory_is_bounded_without_newlines() -> None:
    log = ChildLog()
    for _ in range(100):
        assert log.feed(b"x" * 60_000) == []
        assert len(log._carry) <= LONGEST_LINE
    assert log.feed(b"tail of the long line\n" + PREFIXED) == [SlotEvent(1, busy=True)]


def test_tells_when_the_server_listens() -> None:
    log = ChildLog()
    log.feed(b"0.00.015.780 I srv          init: listen")
    assert not log.listening
    log.feed(b"ing on unix:///x.sock\n")
    assert log.listening


@pytest.mark.parametrize(
    ("line", "captured"),
    [
        (
            "0.1 E llama_model_load: error loading model: unknown model architecture: 'x'",
            "error loading model: unknown",
        ),
        (
            "0.1 E gguf_init_from_file: failed to open GGUF file 'x' (No such file",
            "gguf_init_from_file: failed to open",
        ),
        ("ggml.c:1: GGML_ASSERT(a == b) failed", "GGML_ASSERT(a == b) failed"),
        ("0.1 E x: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 1", "couldn't bind HTTP server socket"),
        ("0.1 E cmn: ggml_aligned_malloc: insufficient memory (attempted", "0.1 E cmn: ggml_aligned_malloc"),
        ("0.1 E srv    send_error: task id = 12, error: request (5001 tokens) exceeds", None),
        ("0.1 I print_info: n_layer = 2", None),
    ],
)
def test_error_lines(line: str, captured: str | None) -> None:
    errors = ErrorLines()
    errors.read(line)
    assert bool(errors.lines) is (captured is not None)
    if captured is not None:
        assert errors.lines[0].startswith(captured)


def test_error_lines_are_kept_once_and_bounded() -> None:
    errors = ErrorLines()
    errors.read("0.1 error: the same")
    errors.read("0.2 error: the same")
    assert errors.lines == ("error: the same",)
    for number in range(1000):
        errors.read(f"error: {number} " + "x" * 100)
    assert sum(map(len, errors.lines)) <= CAPTURED
    assert errors.lines[-1].startswith("error: 999 ")
    errors.read("error: " + "y" * 100_000)
    assert sum(map(len, errors.lines)) <= CAPTURED
    errors.clear()
    assert errors.lines == ()


def test_a_failed_allocation_that_is_tried_again_is_recoverable() -> None:
    """R52: only as the last word."""
    errors = ErrorLines()
    assert not errors.recoverable
    errors.read("llama_context: failed to allocate compute buffers, retrying without pipeline parallelism")
    assert errors.recoverable
    errors.read("cudaMalloc failed: out of memory")
    assert not errors.recoverable


GPU = """\
load_tensors:        CUDA0 model buffer size =   100.00 MiB
load_tensors:   CPU_Mapped model buffer size =    10.00 MiB
llama_kv_cache:      CUDA0 KV buffer size =     1.00 MiB
load_tensors: offloaded 20/31 layers to GPU
load_tensors:        CUDA0 model buffer size =   200.50 MiB
load_tensors:        CUDA1 model buffer size =    50.00 MiB
sched_reserve:       CUDA0 compute buffer size =     4.00 MiB
sched_reserve:   CUDA_Host compute buffer size =     2.00 MiB
"""


def sizes(log: str) -> BufferSizes:
    buffers = BufferSizes()
    for line in log.splitlines():
        buffers.read(line)
    return buffers


def test_buffers_are_summed_and_a_repeated_one_replaces_the_earlier() -> None:
    report = sizes(GPU).report(4096, 1000 * MIB)
    assert report.context == 4096
    assert report.bytes_by_device == {"CUDA0": int(205.5 * MIB), "CUDA1": 50 * MIB, HOST: 12 * MIB}
    assert report.buffers["CUDA0", "compute"] == 4 * MIB
    assert report.buffers[HOST, "model"] == 10 * MIB
    assert report.gpu_bytes == int(255.5 * MIB)
    assert report.total_bytes == int(267.5 * MIB)


@pytest.mark.parametrize(
    ("more", "whole"),
    [
        ("offloaded 31/31 layers to GPU", True),
        ("offloaded 30/31 layers to GPU", False),
        (
            "offloaded 31/31 layers to GPU\ncommon_params_fit_impl:   - CUDA0 (x): 20 layers ( 3 overflowing), 1 MiB",
            False,
        ),
    ],
)
def test_a_model_wholly_on_gpus_counts_nothing_in_memory(more: str, whole: bool) -> None:
    report = sizes(GPU + more).report(4096, 1000 * MIB)
    assert (report.total_bytes == report.gpu_bytes) is whole


def test_mapped_weights_beyond_the_file_are_not_counted_twice() -> None:
    report = sizes(GPU).report(4096, 255 * MIB)  # 260.5 MiB of weights, 10 of them mapped
    assert report.total_bytes == int(267.5 * MIB) - int(5.5 * MIB)
    assert report.buffers[HOST, "model"] == int(4.5 * MIB)


def test_two_caches_of_a_model_with_sliding_windows() -> None:
    report = sizes(
        "llama_kv_cache_iswa: creating non-SWA KV cache, size = 4096 cells\n"
        "llama_kv_cache:        CPU KV buffer size =    32.00 MiB\n"
        "llama_kv_cache_iswa: creating     SWA KV cache, size = 1024 cells\n"
        "llama_kv_cache:        CPU KV buffer size =     8.00 MiB\n"
    ).report(4096, 0)
    assert report.total_bytes == 40 * MIB


def test_the_caches_of_a_probe_are_not_counted_beside_those_of_the_load() -> None:
    load = (
        "load_tensors:   CPU_Mapped model buffer size =    10.00 MiB\n"
        "llama_kv_cache_iswa: creating non-SWA KV cache, size = 4096 cells\n"
        "llama_kv_cache:        CPU KV buffer size =    32.00 MiB\n"
        "llama_kv_cache_iswa: creating     SWA KV cache, size = 1024 cells\n"
        "llama_kv_cache:        CPU KV buffer size =     8.00 MiB\n"
        "sched_reserve:        CPU compute buffer size =     4.00 MiB\n"
    )
    assert sizes(load + load).report(4096, 0).total_bytes == 54 * MIB


def test_a_draft_model_lies_beside_the_model() -> None:
    """It logs the same lines, later."""
    model = (
        "load_tensors: offloaded 31/31 layers to GPU\n"
        "load_tensors:        CUDA0 model buffer size =   100.00 MiB\n"
        "llama_kv_cache:      CUDA0 KV buffer size =    10.00 MiB\n"
    )
    draft = (
        "0.1 I common_speculative_init_result: loading draft model '/d.gguf'\n"
        "load_tensors: offloaded 1/3 layers to GPU\n"
        "load_tensors:        CUDA0 model buffer size =     5.00 MiB\n"
        "load_tensors:   CPU_Mapped model buffer size =     2.00 MiB\n"
    )
    report = sizes(model + model + draft).report(4096, 100 * MIB)
    assert report.buffers == {
        ("CUDA0", "model"): 105 * MIB,
        ("CUDA0", "KV"): 10 * MIB,
        (HOST, "model"): 2 * MIB,
    }
    assert report.gpu_bytes == report.total_bytes == 115 * MIB


def test_adapters_count() -> None:
    report = sizes("llama_adapter_lora_init_impl:        CPU LoRA buffer size =     1.50 MiB").report(4096, 0)
    assert report.buffers == {(HOST, "LoRA"): int(1.5 * MIB)}


def test_without_any_line_nothing_is_known_and_no_gpu_is_said_to_be_full() -> None:
    assert BufferSizes().report(2048, 7) == LoadReport(2048, 0, 0)
