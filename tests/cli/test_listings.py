"""`list`, `ps` and `show`: what they print, to the letter."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.cli.conftest import Invoke
from tests.support.fake_ollama import Answer, FakeOllama
from trio_ollama.cli.commands import list as list_module
from trio_ollama.cli.commands import ps as ps_module
from trio_ollama.cli.commands.show import summary

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
DIGEST = "0123456789abcdef" * 4

TAGS: list[dict[str, Any]] = [
    {
        "name": "smollm2:latest",
        "digest": DIGEST,
        "size": 98_362_932,
        "modified_at": "2026-05-01T13:57:58.123456789+02:00",
    },
    {"name": "Mine/llama:8b", "digest": "f" * 64, "size": 4_661_211_808, "modified_at": "2026-04-10T12:00:00Z"},
    {"name": "far:cloud", "digest": "a" * 64, "size": 400, "modified_at": "0001-01-01T00:00:00Z", "remote_model": "x"},
]

LOADED: list[dict[str, Any]] = [
    {
        "name": "smollm2:latest",
        "digest": DIGEST,
        "size": 261_000_000,
        "size_vram": 0,
        "context_length": 4096,
        "expires_at": "2026-05-01T12:04:30Z",
    },
    {
        "name": "llama:8b",
        "digest": "f" * 64,
        "size": 6_000_000_000,
        "size_vram": 4_500_000_000,
        "context_length": 32768,
        "expires_at": "2318-08-11T12:00:00Z",
    },
    {
        "name": "gone:latest",
        "digest": "a" * 64,
        "size": 5,
        "size_vram": 5,
        "context_length": 1,
        "expires_at": "2026-05-01T11:59:59Z",
    },
]


def test_list() -> None:
    assert list_module.table(TAGS, NOW) == (
        "NAME              ID              SIZE      MODIFIED\n"
        "smollm2:latest    0123456789ab    98 MB     2 minutes ago\n"
        "Mine/llama:8b     ffffffffffff    4.7 GB    3 weeks ago\n"
        "far:cloud         aaaaaaaaaaaa    -         Never\n"
    )


def test_ps() -> None:
    assert ps_module.table(LOADED, NOW) == (
        "NAME              ID              SIZE      PROCESSOR          CONTEXT    UNTIL\n"
        "smollm2:latest    0123456789ab    261 MB    100% CPU           4096       4 minutes from now\n"
        "llama:8b          ffffffffffff    6 GB      25%/75% CPU/GPU    32768      Forever\n"
        "gone:latest       aaaaaaaaaaaa    5 B       100% GPU           1          Stopping...\n"
    )


def test_empty_listings_are_their_headers(server: FakeOllama, invoke: Invoke) -> None:
    server.answers = {"GET /api/tags": Answer({"models": []}), "GET /api/ps": Answer({"models": None})}
    assert invoke("list").output == "NAME    ID    SIZE    MODIFIED\n"
    assert invoke("ps").output == "NAME    ID    SIZE    PROCESSOR    CONTEXT    UNTIL\n"


@pytest.mark.parametrize(
    ("arguments", "route", "models", "names"),
    [
        (("ls", "mine/"), "GET /api/tags", TAGS, ["Mine/llama:8b"]),
        (("list",), "GET /api/tags", TAGS, ["smollm2:latest", "Mine/llama:8b", "far:cloud"]),
        (("ps", "smol"), "GET /api/ps", LOADED, ["smollm2:latest"]),
        (("ps", "SMOL"), "GET /api/ps", LOADED, []),
    ],
)
def test_prefixes_and_json(
    server: FakeOllama,
    invoke: Invoke,
    arguments: tuple[str, ...],
    route: str,
    models: list[dict[str, Any]],
    names: list[str],
) -> None:
    server.answers[route] = Answer({"models": models})
    wanted = [model for model in models if model["name"] in names]
    assert json.loads(invoke(*arguments, "--json").output) == wanted
    assert [line.split()[0] for line in invoke(*arguments).output.splitlines()[1:]] == names


SHOWN: dict[str, Any] = {
    "details": {"family": "llama", "parameter_size": "134.52M", "quantization_level": "Q4_1"},
    "model_info": {
        "general.architecture": "llama",
        "general.parameter_count": 134_515_008,
        "llama.context_length": 8192,
        "llama.embedding_length": 576,
        "llama.rope.freq_base": 100000.0,
        "tokenizer.ggml.scores": None,
        "tokenizer.ggml.token_type": [3, 3, 3, 3, 1],
        "tokenizer.ggml.tokens": ["a", "b"],
    },
    "projector_info": {
        "general.architecture": "clip",
        "general.parameter_count": 300_000_000,
        "clip.vision.embedding_length": 1024,
        "clip.vision.projection_dim": 576,
    },
    "tensors": [{"name": "output.weight", "type": "Q4_1", "shape": [576, 49152]}],
    "capabilities": ["completion", "vision"],
    "parameters": 'num_ctx                        2048\nstop                           "<|im_end|>"',
    "system": "You are terse.\n\nYou are kind.\nYou are old.",
    "license": "MIT",
    "modelfile": "FROM /blobs/sha256-0\n",
    "template": "{{ .Prompt }}",
}

SUMMARY = """\
  Model
    architecture        llama
    parameters          134.52M
    context length      8192
    embedding length    576
    quantization        Q4_1

  Capabilities
    completion
    vision

  Projector
    architecture        clip
    parameters          300M
    embedding length    1024
    dimensions          576

  Parameters
    num_ctx    2048
    stop       "<|im_end|>"

"""

VERBOSE = """\
  Metadata
    general.architecture         llama
    general.parameter_count      134515008
    llama.context_length         8192
    llama.embedding_length       576
    llama.rope.freq_base         100000.0
    tokenizer.ggml.token_type    [3, 3, 3, ...+2 more]
    tokenizer.ggml.tokens        ['a', 'b']

  Tensors
    output.weight    Q4_1    [576, 49152]

"""

TEXTS = """\
  System
    You are terse.
    You are kind.
    ...

  License
    MIT

"""


def test_show_has_its_sections_in_order() -> None:
    assert summary(SHOWN) == SUMMARY + TEXTS
    assert summary(SHOWN, verbose=True) == SUMMARY + VERBOSE + TEXTS
    assert summary(SHOWN | {"notes": ["one", "two"]}) == SUMMARY + TEXTS + "  Notes\n    one\n    two\n\n"


def test_show_falls_back_to_the_details_and_leaves_out_what_is_empty() -> None:
    assert summary({"details": SHOWN["details"], "model_info": {}}) == (
        "  Model\n    architecture    llama\n    parameters      134.52M\n    quantization    Q4_1\n\n"
    )


def test_show_asks_for_what_it_prints(server: FakeOllama, invoke: Invoke) -> None:
    server.answers["POST /api/show"] = Answer(SHOWN)
    assert invoke("show", "smollm2").output == SUMMARY + TEXTS
    assert invoke("show", "smollm2", "-v").output == SUMMARY + VERBOSE + TEXTS
    assert json.loads(invoke("show", "smollm2", "--json").output) == SHOWN
    assert [request.json["verbose"] for request in server.requests] == [False, True, False]


@pytest.mark.parametrize("part", ["license", "modelfile", "parameters", "system", "template"])
def test_show_one_part(server: FakeOllama, invoke: Invoke, part: str) -> None:
    server.answers["POST /api/show"] = Answer(SHOWN)
    assert invoke("show", "smollm2", f"--{part}").output == SHOWN[part] + "\n"


def test_show_refuses_two_parts(server: FakeOllama, invoke: Invoke) -> None:
    result = invoke("show", "smollm2", "--license", "--system")
    assert result.exit_code == 2
    assert "only one of --license, --modelfile, --parameters, --system, --template" in result.stderr
    assert server.requests == []


def test_now_is_the_real_now(server: FakeOllama, invoke: Invoke) -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=150)).isoformat()
    server.answers["GET /api/ps"] = Answer({"models": [LOADED[0] | {"expires_at": soon}]})
    assert "2 minutes from now" in invoke("ps").output
