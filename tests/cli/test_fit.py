"""`fit` and `show --memory`: what they print, to the letter."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.cli.conftest import Invoke
from tests.support.fake_ollama import Answer, FakeOllama
from trio_ollama.cli.commands.fit import report, verdict

GB = 10**9
GPU = "GPU-aaaa1111"

FOUND: dict[str, Any] = {
    "model": "llama:8b",
    "verdict": "evicts_busy",
    "launch": {
        "num_ctx": 8192,
        "num_ctx_auto": False,
        "train_context": 131072,
        "parallel": 2,
        "num_batch": 512,
        "placement": "single",
        "gpus": [GPU],
        "num_gpu": -1,
        "use_mmap": False,
        "mmap_off_because": "host memory pressure",
    },
    "memory": {
        "parts": [
            {"name": "weights", "size": 4_400_000_000, "on_gpus": True},
            {"name": "cache", "size": 2_147_483_648, "on_gpus": True},
            {"name": "token_embeddings", "size": 280_000_000, "on_gpus": False},
        ],
        "formula": 6_700_000_000,
        "estimate": 6_827_483_648,
        "expected": 7_100_000_000,
        "expected_on_gpus": 6_800_000_000,
        "measured": {
            "on_gpus": 6_800_000_000,
            "in_ram": 300_000_000,
            "estimated_on_gpus": 6_547_483_648,
            "estimated_in_ram": 280_000_000,
        },
    },
    "devices": [
        {
            "id": GPU,
            "library": "cuda",
            "total": 25_769_803_776,
            "free": 5 * GB,
            "reserved": 20 * GB,
            "usable": 5 * GB,
            "returning": 20 * GB,
            "needed": 8_500_000_000,
            "held": 6_800_000_000,
            "left": 18_200_000_000,
        },
        {
            "id": "cpu",
            "library": "cpu",
            "total": 64 * GB,
            "free": 60 * GB,
            "reserved": 0,
            "usable": 60 * GB,
            "returning": 0,
            "needed": 300_000_000,
            "held": 300_000_000,
            "left": 59_700_000_000,
        },
    ],
    "stops": [
        {"model": "big:70b", "busy": False, "held": {GPU: 19 * GB, "cpu": 0}},
        {"model": "small:1b", "busy": True, "held": {GPU: GB, "cpu": 200_000_000}},
    ],
    "contexts": [
        {
            "num_ctx": 4096,
            "expected": 6 * GB,
            "formula": 5 * GB,
            "placement": "single",
            "gpus": [GPU],
            "full": True,
            "now": True,
        },
        {
            "num_ctx": 8192,
            "expected": 7_100_000_000,
            "formula": 6_700_000_000,
            "placement": "single",
            "gpus": [GPU],
            "full": True,
            "now": False,
        },
        {
            "num_ctx": 131072,
            "expected": 40 * GB,
            "formula": 39 * GB,
            "placement": "partial",
            "gpus": [GPU],
            "full": False,
            "now": False,
        },
    ],
    "largest_full_context": 60160,
}

REPORT = """\
llama:8b fits after stopping big:70b and small:1b, once small:1b has no requests: it would be loaded on GPU-aaaa1111.

  Launch
    placement       single
    context         8192 tokens x 2 (trained for 131072)
    batch           512 tokens
    file mapping    off (host memory pressure)

  Memory
    weights               4.4 GB             GPU
    keys and values       2.1 GB             GPU
    token embeddings      280 MB             RAM
    estimate              6.8 GB
    last measured         7.1 GB
    expected              7.1 GB (+4.0 %)
    upstream's formula    6.7 GB

  Devices
    DEVICE          LIBRARY    TOTAL    FREE     RESERVED    NEEDED    HELD      LEFT
    GPU-aaaa1111    cuda       25 GB    5 GB     20 GB       8.5 GB    6.8 GB    18 GB
    cpu             cpu        64 GB    60 GB    0 B         300 MB    300 MB    59 GB

  Stops first
    MODEL       STATE    HOLDS
    big:70b     idle     19 GB on GPU-aaaa1111
    small:1b    busy     1 GB on GPU-aaaa1111, 200 MB on cpu

  Contexts
    CONTEXT    EXPECTED    FORMULA    PLACEMENT    FITS IN FULL
    4096       6 GB        5 GB       single       now
    8192       7.1 GB      6.7 GB     single       with nothing else loaded
    131072     40 GB       39 GB      partial      no

  Longest context that fits in full: 60160 tokens
"""

BRIEF = """\
  Memory
    placement             on GPU-aaaa1111
    context               8192 tokens x 2 (trained for 131072)
    estimate              6.8 GB
    last measured         7.1 GB
    expected              7.1 GB (+4.0 %)
    upstream's formula    6.7 GB
    GPU-aaaa1111          6.8 GB of 25 GB
    cpu                   300 MB of 64 GB
    stops first           big:70b
    stops first           small:1b
    verdict               evicts busy
    longest context       60160 tokens

"""


def found(**changes: Any) -> dict[str, Any]:
    made = copy.deepcopy(FOUND)
    made["launch"].update({name: changes.pop(name) for name in list(changes) if name in made["launch"]})
    return {**made, **changes}


def test_the_report() -> None:
    assert report(FOUND) == REPORT


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"verdict": "loaded", "placement": "cpu"}, "llama:8b is loaded, in system memory."),
        ({"verdict": "fits"}, "llama:8b fits: it would be loaded on GPU-aaaa1111."),
        (
            {"verdict": "fits", "placement": "group", "gpus": ["A", "B"]},
            "llama:8b fits: it would be loaded spread over A and B.",
        ),
        (
            {"verdict": "fits", "placement": "partial"},
            "llama:8b fits: it would be loaded in part on GPU-aaaa1111, the rest in system memory.",
        ),
        (
            {"verdict": "fits", "placement": "explicit_partial", "num_gpu": 9},
            "llama:8b fits: it would be loaded with 9 layers on GPU-aaaa1111 and the rest in system memory.",
        ),
        (
            {"verdict": "memory_returning"},
            "llama:8b fits as soon as runners that are ending have ended: it would be loaded on GPU-aaaa1111.",
        ),
        (
            {"verdict": "evicts", "stops": [{"model": "llama:8b"}]},
            "llama:8b is loaded with other settings: it would be stopped and loaded again, on GPU-aaaa1111.",
        ),
        (
            {"verdict": "evicts", "stops": [{"model": "x", "busy": False}]},
            "llama:8b fits after stopping x (idle): it would be loaded on GPU-aaaa1111.",
        ),
        (
            {"verdict": "blocked"},
            "llama:8b has to wait: what is in its way cannot be stopped now. It would be loaded on GPU-aaaa1111.",
        ),
        (
            {"verdict": "never_fits", "never_fits": {"needed": 90 * GB, "there": 64 * GB}},
            "llama:8b does not fit: it needs 90 GB, and there are 64 GB.",
        ),
    ],
)
def test_each_verdict_is_a_sentence(changes: dict[str, Any], text: str) -> None:
    assert verdict(found(**changes)) == text


def test_nothing_measured_and_nothing_to_stop_is_not_spoken_of() -> None:
    fresh = found(stops=[], largest_full_context=0)
    fresh["memory"] |= {"measured": None, "expected": FOUND["memory"]["estimate"]}
    text = report(fresh)
    for absent in ("last measured", "    expected ", "Stops first"):
        assert absent not in text
    assert text.endswith("Longest context that fits in full: none\n")


def test_fit_asks_for_what_was_given_and_for_nothing_else(server: FakeOllama, invoke: Invoke) -> None:
    server.answers = {"POST /api/fit": Answer(FOUND)}
    result = invoke("fit", "llama:8b", "--num-ctx", "8192", "--num-gpu", "-1", "--parallel", "2")
    assert (result.exit_code, result.output) == (0, REPORT)
    assert json.loads(invoke("fit", "llama:8b", "--json").output) == FOUND
    full, plain = (request.json for request in server.requests)
    assert full == {"model": "llama:8b", "options": {"num_ctx": 8192, "num_gpu": -1}, "parallel": 2}
    assert plain == {"model": "llama:8b", "options": {}}


def test_show_memory(server: FakeOllama, invoke: Invoke) -> None:
    server.answers = {"POST /api/fit": Answer(FOUND)}
    assert invoke("show", "llama:8b", "--memory").output == BRIEF
    assert json.loads(invoke("show", "llama:8b", "--memory", "--json").output) == FOUND
    assert invoke("show", "llama:8b", "--memory", "--license").exit_code == 2


@pytest.mark.parametrize(("status", "body"), [(404, "404 page not found"), (405, None), (404, {"error": "path"})])
@pytest.mark.parametrize("command", [("fit", "m"), ("show", "m", "--memory")])
def test_another_server_cannot_tell(
    status: int, body: object, command: tuple[str, ...], server: FakeOllama, invoke: Invoke
) -> None:
    server.answers = {"POST /api/fit": Answer(body, status=status)}
    result = invoke(*command)
    assert result.exit_code == 1
    assert result.output == f"Error: the server at http://{server.address} cannot tell: it is no trio-ollama of today\n"


def test_a_model_that_is_not_there_is_its_own_error(server: FakeOllama, invoke: Invoke) -> None:
    server.answers = {"POST /api/fit": Answer({"error": "model 'm' not found"}, status=404)}
    assert invoke("fit", "m").output == "Error: model 'm' not found (see 'trio-ollama list')\n"


def test_nobody_is_there(monkeypatch: pytest.MonkeyPatch, invoke: Invoke) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    result = invoke("fit", "m")
    assert result.exit_code == 1
    assert result.output.startswith("Error: could not connect to ollama server, run 'trio-ollama serve' to start it")
