"""The listings as they are printed, to the letter: each equals its file in `golden/`."""

from __future__ import annotations

import difflib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.test_requests import ALL
from trio_ollama.cli.commands import list as list_module
from trio_ollama.cli.commands import ps
from trio_ollama.cli.commands.show import summary

GOLDEN: Final = Path(__file__).parent / "golden"
NOW: Final = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
DIGEST: Final = "0123456789abcdef" * 4


def at(**span: float) -> str:
    return (NOW + timedelta(**span)).isoformat()


def stored(name: str, size: int, **age: float) -> dict[str, Any]:
    return {"name": name, "digest": DIGEST, "size": size, "modified_at": at(**{unit: -n for unit, n in age.items()})}


def loaded(name: str, size: int, size_vram: int, expires_at: str, context_length: int = 4096) -> dict[str, Any]:
    fields = {"size_vram": size_vram, "context_length": context_length, "expires_at": expires_at}
    return {"name": name, "digest": f"sha256:{DIGEST}", "size": size} | fields


STORE = [
    stored("smollm2:latest", 98_362_932, seconds=0.4),
    stored("a:1", 999, seconds=1),
    stored("b:1", 1000, seconds=59),
    stored("c:1", 1500, seconds=61),
    stored("library-of-someone/with-a-long-name:8b-instruct-q4_K_M", 4_661_211_808, minutes=59),
    stored("localhost:5000/me/Mine:latest", 42_520_397_704, hours=1.2),
    stored("d:1", 9_960, hours=47),
    stored("e:1", 5_000_000_000, days=2),
    stored("f:1", 1_300_000_000_000, days=15),
    stored("g:1", 0, days=70),
    stored("h:1", 274_302_450, days=800),
    stored("gpt-oss:120b-cloud", 384, days=20) | {"remote_model": "gpt-oss:120b", "remote_host": "https://ollama.com"},
    stored("i:1", 1, days=0) | {"modified_at": "0001-01-01T00:00:00Z"},
]
LOADED = [
    loaded("smollm2:latest", 261_000_000, 0, at(minutes=4, seconds=59)),
    loaded("for-ever:8b", 6_000_000_000, 6_000_000_000, "2318-08-11T12:00:00Z", 262144),
    loaded("localhost:5000/me/Part:70b", 48_000_000_000, 35_040_000_000, at(hours=1)),
    loaded("half-a-percent:1", 200, 199, at(seconds=30)),
    loaded("leaving:1", 5, 5, at(seconds=-1)),
    loaded("odd:1", 5, 6, at(days=3)),
    loaded("soon:1", 5, 5, at(seconds=0.5)),
]
TEXTS = {
    "system": "You are terse.\n\n   You are kind.\nYou are old.",
    "license": f"\n{'Permission is hereby granted to whom it may concern. ' * 4}\n",
}
MODEL: dict[str, Any] = {
    "details": {"family": "llama", "parameter_size": "134.52M", "quantization_level": "Q4_1"},
    "model_info": {
        "general.architecture": "llama",
        "general.description": "a text\nof two lines " + "that is rather long " * 10,
        "general.languages": ["en"],
        "general.parameter_count": 134_515_008,
        "llama.attention.layer_norm_rms_epsilon": 1.5e-05,
        "llama.context_length": 8192,
        "llama.embedding_length": 576,
        "llama.rope.freq_base": 100000.0,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.scores": None,
        "tokenizer.ggml.token_type": [3, 3, 3, 3, 1],
        "tokenizer.ggml.tokens": ["<|endoftext|>", "<|im_start|>", "a b", "c", "d"],
    },
    "projector_info": {
        "general.architecture": "clip",
        "general.parameter_count": 300_000_000,
        "clip.vision.embedding_length": 1024,
        "clip.vision.projection_dim": 576,
    },
    "tensors": [
        {"name": "output.weight", "type": "Q4_1", "shape": [576, 49152]},
        {"name": "output_norm.weight", "type": "F32", "shape": [576]},
    ],
    "capabilities": ["completion", "tools", "vision"],
    "parameters": 'num_ctx                        2048\nstop                           "<|im_end|>"\n'
    'stop                           "a b"\ntemperature                    0.7',
    "requires": "0.14.0",
    "notes": ["the stored template is not used: the file has one"],
} | TEXTS
REMOTE: dict[str, Any] = {
    "remote_model": "gpt-oss:120b",
    "remote_host": "https://ollama.com:443",
    "details": {"family": "gptoss", "parameter_size": "116.8B", "quantization_level": "MXFP4"},
    "model_info": {"general.architecture": "gptoss", "gptoss.context_length": 131072},
    "capabilities": ["completion", "tools", "thinking"],
}
BARE: dict[str, Any] = {"details": {"family": "llama"}, "model_info": {}, "license": "MIT"}

PRINTED: Final = {
    "list": list_module.table(STORE, NOW),
    "list-empty": list_module.table([], NOW),
    "ps": ps.table(LOADED, NOW),
    "ps-empty": ps.table([], NOW),
    "ps-requests": ps.requests_table(ALL),
    "show": summary(MODEL),
    "show-verbose": summary(MODEL, verbose=True),
    "show-remote": summary(REMOTE),
    "show-bare": summary(BARE, verbose=True),
}


@pytest.mark.parametrize("name", PRINTED)
def test_it_is_printed_so(name: str) -> None:
    file = GOLDEN / f"{name}.txt"
    wanted = file.read_text(encoding="utf-8")
    if PRINTED[name] != wanted:
        lines = (text.splitlines(keepends=True) for text in (wanted, PRINTED[name]))
        pytest.fail("\n" + "".join(difflib.unified_diff(*lines, str(file), "printed")), pytrace=False)


def test_every_file_is_of_a_listing() -> None:
    assert sorted(file.stem for file in GOLDEN.glob("*")) == sorted(PRINTED)
