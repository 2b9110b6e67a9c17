"""How a launch spec becomes the parameters, flags and environment of a child."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trio_ollama.runners.contract import MEDIA_MARKER, LaunchSpec, SpawnError
from trio_ollama.runners.llama_server.embedded import Embedded, parameters
from trio_ollama.runners.llama_server.endpoint import Endpoint
from trio_ollama.runners.llama_server.environment import MARK, child_environment
from trio_ollama.runners.llama_server.external import External, flags
from trio_ollama.runners.llama_server.factory import choose_kind

SOCKET = Endpoint("/run/1.sock")
BASE: dict[str, Any] = {"model": "/m.gguf", "num_ctx": 4096, "num_batch": 0}

DRAFT = "common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT"

CASES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"num_batch": 512}, {"n_batch": 512, "n_ubatch": 512}, "-b 512 -ub 512"),
    ({"parallel": 3}, {"n_ctx": 12288, "n_parallel": 3}, "-c 12288 -np 3"),
    ({"gpu_layers": 0}, {"n_gpu_layers": 0, "fit_params": False}, "-ngl 0"),
    ({"gpu_layers": 7}, {"n_gpu_layers": 7, "fit_params": False}, "-ngl 7"),
    (
        {"main_gpu": 1},
        {"split_mode": {"enum": "llama_split_mode.LLAMA_SPLIT_MODE_NONE"}, "main_gpu": 1},
        "--split-mode none --main-gpu 1",
    ),
    ({"use_mmap": False}, {"load_mode": {"enum": "llama_load_mode.LLAMA_LOAD_MODE_NONE"}}, "--load-mode none"),
    ({"use_mmap": True}, {"load_mode": {"enum": "llama_load_mode.LLAMA_LOAD_MODE_MMAP"}}, "--load-mode mmap"),
    (
        {"direct_io": True, "use_mmap": False},
        {"load_mode": {"enum": "llama_load_mode.LLAMA_LOAD_MODE_DIRECT_IO"}},
        "--load-mode dio",
    ),
    ({"num_thread": 3}, {"cpuparams.n_threads": 3}, "-t 3"),
    (
        {"flash_attention": "off"},
        {"flash_attn_type": {"enum": "llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED"}},
        "--flash-attn off",
    ),
    (
        {"cache_type": "q8_0"},
        {"cache_type_k": {"enum": "ggml_type.GGML_TYPE_Q8_0"}, "cache_type_v": {"enum": "ggml_type.GGML_TYPE_Q8_0"}},
        "--cache-type-k q8_0 --cache-type-v q8_0",
    ),
    ({"context_shift": True}, {"ctx_shift": True}, "--context-shift"),
    (
        {"embeddings": True, "pooling": "mean", "num_batch": 8192},
        {
            "embedding": True,
            "pooling_type": {"enum": "llama_pooling_type.LLAMA_POOLING_TYPE_MEAN"},
            "n_batch": 4096,
            "n_ubatch": 4096,
        },
        "--embedding --pooling mean -b 4096 -ub 4096",
    ),
    ({"prompt_cache_mib": 64}, {"cache_ram_mib": 64}, "--cache-ram 64"),
    ({"projector": "/p"}, {"mmproj.path": "/p", "mmproj_use_gpu": True}, "--mmproj /p"),
    (
        {"projector": "/p", "projector_on_gpu": False},
        {"mmproj.path": "/p", "mmproj_use_gpu": False},
        "--mmproj /p --no-mmproj-offload",
    ),
    (
        {"projector": "/p", "image_min_tokens": 1024},
        {"mmproj.path": "/p", "mmproj_use_gpu": True, "image_min_tokens": 1024},
        "--mmproj /p --image-min-tokens 1024",
    ),
    ({"fit_margin": (1 << 30) + 1}, {"fit_params_target": [(1 << 30) + 1] * 16}, "--fit-target 1025"),
    ({"adapters": ("/a", "/b")}, {"lora_adapters": [{"adapter": "/a"}, {"adapter": "/b"}]}, "--lora /a --lora /b"),
    (
        {"draft": "/d", "draft_kind": "simple", "draft_num_predict": 4},
        {
            "speculative.draft.mparams.path": "/d",
            "speculative.draft.n_max": 4,
            "speculative.types": [{"enum": f"{DRAFT}_SIMPLE"}],
        },
        "--spec-type draft-simple --spec-draft-n-max 4 --spec-draft-model /d",
    ),
    (
        {"draft": "/d", "draft_kind": "dflash", "draft_num_predict": 4},
        {
            "speculative.draft.mparams.path": "/d",
            "speculative.draft.n_max": 4,
            "speculative.types": [{"enum": f"{DRAFT}_DFLASH"}],
        },
        "--spec-type draft-dflash --spec-draft-n-max 4 --spec-draft-model /d",
    ),
    (
        {"draft_kind": "mtp", "draft_num_predict": 2},
        {
            "speculative.draft.n_max": 2,
            "speculative.types": [{"enum": f"{DRAFT}_MTP"}],
            "speculative.draft.backend_sampling": True,
        },
        "--spec-type draft-mtp --spec-draft-n-max 2 --spec-draft-backend-sampling",
    ),
    ({"draft": "/d", "draft_kind": "simple", "draft_num_predict": 0}, {}, ""),
    (
        {"chat_template": "llama3"},
        {"use_jinja": False, "chat_template": "llama3"},
        "--no-jinja --chat-template llama3",
    ),
]


@pytest.mark.parametrize(("changes", "expected", "_"), CASES)
def test_parameters_of_an_embedded_child(changes: dict[str, Any], expected: dict[str, Any], _: str) -> None:
    values = parameters(LaunchSpec(**BASE | changes), SOCKET)
    assert {name: values.get(name) for name in expected} == expected
    added = set(values) - set(parameters(LaunchSpec(**BASE), SOCKET))
    assert added <= {*expected, "n_gpu_layers"}


@pytest.mark.parametrize(("changes", "_", "expected"), CASES)
def test_flags_of_a_binary(changes: dict[str, Any], _: Any, expected: str) -> None:
    line = " ".join(flags(LaunchSpec(**BASE | changes), SOCKET))
    assert expected in line


def test_what_every_child_gets() -> None:
    line = flags(LaunchSpec(**BASE), SOCKET)
    assert " ".join(line) == (
        "--model /m.gguf --host /run/1.sock --no-webui --offline -c 4096 -np 1 "
        "--log-verbosity 4 --no-log-prefix --no-log-timestamps --flash-attn auto --cache-ram 0"
    )
    values = parameters(LaunchSpec(**BASE), SOCKET)
    assert values["hostnames"] == ["/run/1.sock"]
    assert values["cache_ram_mib"] == 0
    assert values["endpoint_slots"] is False
    assert "n_gpu_layers" not in values
    assert flags(LaunchSpec(**BASE), Endpoint("127.0.0.1", 8123, "k"))[2:6] == ["--host", "127.0.0.1", "--port", "8123"]


@pytest.mark.real
@pytest.mark.parametrize("changes", [changes for changes, _, _ in CASES if "cache_type" not in changes])
def test_the_library_takes_the_parameters(changes: dict[str, Any]) -> None:
    import xllamacpp

    from trio_ollama.runners.llama_server.child import common_params

    params = common_params(xllamacpp, parameters(LaunchSpec(**BASE | changes), SOCKET))
    assert params.model.path == "/m.gguf"
    assert params.n_parallel == changes.get("parallel", 1)


def test_environment() -> None:
    inherited = {"PATH": "/bin", "LLAMA_ARG_FIT": "off", "llama_arg_x": "1", "LLAMA_API_KEY": "theirs"}
    child = child_environment(inherited, LaunchSpec(**BASE), SOCKET, "/run/ours")
    assert child == {"PATH": "/bin", "GGML_NO_BACKTRACE": "1", "LLAMA_MEDIA_MARKER": MEDIA_MARKER, MARK: "/run/ours"}
    keyed = child_environment(inherited, LaunchSpec(**BASE), Endpoint("127.0.0.1", 1, "ours"), "/run/ours")
    assert keyed["LLAMA_API_KEY"] == "ours"


HIDDEN_VULKAN = {"GGML_VK_VISIBLE_DEVICES": "-1"}
HIDDEN_ROCM = {"ROCR_VISIBLE_DEVICES": "-1"}


@pytest.mark.parametrize(
    ("devices", "filters"),
    [
        ((), {"CUDA_VISIBLE_DEVICES": "", **HIDDEN_ROCM, **HIDDEN_VULKAN}),
        (("GPU-a", "GPU-b"), {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b", **HIDDEN_ROCM, **HIDDEN_VULKAN}),
        (("MIG-a",), {"CUDA_VISIBLE_DEVICES": "MIG-a", **HIDDEN_ROCM, **HIDDEN_VULKAN}),
        (("cuda:1",), {"CUDA_VISIBLE_DEVICES": "1", **HIDDEN_ROCM, **HIDDEN_VULKAN}),
        (("vulkan:0",), {"CUDA_VISIBLE_DEVICES": "", **HIDDEN_ROCM, "GGML_VK_VISIBLE_DEVICES": "0"}),
        # ROCm takes CUDA's variable for its own: even an empty one would hide everything.
        (("rocm:0", "rocm:GPU-x"), {"ROCR_VISIBLE_DEVICES": "0,GPU-x", **HIDDEN_VULKAN}),
        (("metal:0",), {"CUDA_VISIBLE_DEVICES": "", **HIDDEN_ROCM, **HIDDEN_VULKAN}),
    ],
)
def test_a_child_sees_its_devices_and_none_of_another_library(
    devices: tuple[str, ...], filters: dict[str, str]
) -> None:
    inherited = {"CUDA_VISIBLE_DEVICES": "7", "HIP_VISIBLE_DEVICES": "7", "ROCR_VISIBLE_DEVICES": "7"}
    child = child_environment(inherited, LaunchSpec(**BASE, visible_devices=devices), SOCKET, "/x")
    names = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES"}
    if filters["ROCR_VISIBLE_DEVICES"] != "-1":
        names.add("HIP_VISIBLE_DEVICES")
    assert {name: child[name] for name in names if name in child} == filters
    assert child["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_no_filter_leaves_the_inherited_one() -> None:
    child = child_environment({"CUDA_VISIBLE_DEVICES": "7"}, LaunchSpec(**BASE), SOCKET, "/x")
    assert child["CUDA_VISIBLE_DEVICES"] == "7"


def test_the_kind_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert isinstance(choose_kind("auto", None), Embedded)
    with pytest.raises(SpawnError, match=r"llama-server binary not found \(checked: PATH\)"):
        choose_kind("external", None)
    with pytest.raises(SpawnError, match="llama-server binary not found"):
        choose_kind("auto", tmp_path / "missing")
    binary = tmp_path / "llama-server"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    assert isinstance(choose_kind("auto", None), External)
    assert isinstance(choose_kind("auto", binary), External)
    assert isinstance(choose_kind("embedded", binary), Embedded)
