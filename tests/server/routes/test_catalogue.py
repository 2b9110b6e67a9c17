"""Every option with its type, default and effect, and the texts that clients match: one row each."""

from __future__ import annotations

from typing import Any

import pytest

from trio_ollama.runners.contract import (
    LoadFailedError,
    LoadStalledError,
    RunnerDiedError,
    RunnerError,
    RunnerRefusedError,
)
from trio_ollama.scheduler.core.decisions import Because
from trio_ollama.scheduler.errors import ForcedStopError, QueueFullError, ShuttingDownError, refusal
from trio_ollama.server.inference.options import KINDS

from .conftest import AddModel, Daemon, nothing_started

USER = {"role": "user", "content": "hi"}
CHAT: dict[str, Any] = {"model": "tiny", "messages": [USER], "stream": False}
GENERATE: dict[str, Any] = {"model": "tiny", "prompt": "hi", "stream": False}
ROUTES: list[tuple[str, dict[str, Any]]] = [("/api/chat", CHAT), ("/api/generate", GENERATE)]

SAMPLING: list[tuple[str, str, Any, Any, Any]] = [
    # option, the runner's name for it, default, given, sent
    ("num_keep", "n_keep", 4, 9, 9),
    ("seed", "seed", -1, 7, 7),
    ("num_predict", "n_predict", 40_960, 5, 5),
    ("top_k", "top_k", 40, 3.9, 3),
    ("top_p", "top_p", 0.9, 1, 1.0),
    ("min_p", "min_p", 0.0, 0.1, 0.1),
    ("typical_p", "typical_p", 1.0, 0.5, 0.5),
    ("repeat_last_n", "repeat_last_n", 64, 8, 8),
    ("temperature", "temperature", 0.8, 0, 0.0),
    ("repeat_penalty", "repeat_penalty", 1.0, 1.1, 1.1),
    ("presence_penalty", "presence_penalty", 0.0, 0.5, 0.5),
    ("frequency_penalty", "frequency_penalty", 0.0, 0.5, 0.5),
    ("stop", "stop", None, ["#"], ["#"]),
]

LAUNCH: list[tuple[str, Any, Any, Any]] = [
    # option, default, given, wanted of the scheduler
    ("num_ctx", 4096, 1024, 1024),
    ("num_batch", 512, 64, 64),
    ("num_gpu", -1, 3, 3),
    ("main_gpu", None, 1, 1),
    ("use_mmap", None, False, False),
    ("num_thread", 0, 2, 2),
    ("draft_num_predict", 0, 8, 8),
]

WRONG = {
    "integer": ("x", True, [1], {}),
    "float32": ("x", True, [1.0], {}),
    "boolean": (1, "true", [True], {}),
    "array": ("x", 1, {"a": "b"}, True),
}


def test_no_option_is_without_its_row() -> None:
    assert {row[0] for row in (*SAMPLING, *LAUNCH)} == set(KINDS)


@pytest.mark.parametrize(("option", "name", "default", "given", "sent"), SAMPLING)
async def test_options_of_an_answer(
    daemon: Daemon, add_model: AddModel, option: str, name: str, default: Any, given: Any, sent: Any
) -> None:
    """The request's, else the model's, else the default."""
    add_model("own", params={option: given})
    other = ["##"] if option == "stop" else 2
    bodies: list[dict[str, Any]] = [
        {},
        {"options": {option: given}},
        {"model": "own"},
        {"model": "own", "options": {option: other}},
    ]
    for body in bodies:
        await daemon.post("/api/chat", CHAT | body)
    seen = [body.get(name) for _, body in daemon.scheduler.calls]
    assert seen == [default, sent, sent, other]
    assert [type(value) for value in seen[1:3]] == [type(sent)] * 2


@pytest.mark.parametrize(("option", "default", "given", "wanted"), LAUNCH)
async def test_options_of_a_launch(
    daemon: Daemon, add_model: AddModel, option: str, default: Any, given: Any, wanted: Any
) -> None:
    add_model("own", params={option: given})
    for body in ({}, {"options": {option: given}}, {"model": "own"}, {"model": "own", "options": {option: None}}):
        await daemon.post("/api/chat", CHAT | body)
    seen = [getattr(demand.options, option) for demand in daemon.scheduler.demands]
    assert seen == [default, wanted, wanted, wanted]


@pytest.mark.parametrize("option", KINDS)
async def test_options_of_a_wrong_type(daemon: Daemon, option: str) -> None:
    kind = KINDS[option]
    for value in WRONG[kind]:
        with nothing_started(daemon.scheduler):
            answer = await daemon.post("/api/generate", GENERATE | {"options": {option: value}})
        assert (answer.status, answer.json) == (400, {"error": f'option "{option}" must be of type {kind}'})


@pytest.mark.parametrize("option", ["mirostat", "mirostat_eta", "mirostat_tau", "tfs_z", "numa", "low_vram", "f16_kv"])
async def test_options_of_earlier_days_are_ignored(
    daemon: Daemon, caplog: pytest.LogCaptureFixture, option: str
) -> None:
    answer = await daemon.post("/api/chat", CHAT | {"options": {option: "anything"}})
    assert answer.status == 200
    assert f"ignoring unknown option '{option}'" in caplog.text


TOOLS = {"tools": [{"type": "function", "function": {"name": "f"}}]}
PNG = "iVBORw0KGgoAAAAA"
FULL = "registry.ollama.ai/library/tiny:latest"
RAW = "raw mode does not support template, system, or context"
PULL_AGAIN = ". Pull the model again to get the latest version with full thinking support"

REFUSED: list[tuple[str, Any, int, str]] = [
    ("/api/chat", b"", 400, "missing request body"),
    ("/api/chat", {"messages": [USER]}, 400, "model is required"),
    ("/api/generate", {"model": "a:b:c/", "prompt": "hi"}, 400, "invalid model name"),
    ("/api/embed", {"model": "tiny", "input": [1]}, 400, "invalid input type"),
    ("/api/chat", CHAT | {"top_logprobs": 21}, 400, "top_logprobs must be between 0 and 20"),
    ("/api/chat", CHAT | {"think": True}, 400, '"tiny" does not support thinking'),
    ("/api/chat", CHAT | {"model": "qwen", "think": True}, 400, f'"qwen" does not support thinking{PULL_AGAIN}'),
    (
        "/api/generate",
        GENERATE | {"model": "deepseek-r1", "think": "low"},
        400,
        f'"deepseek-r1" does not support thinking{PULL_AGAIN}',
    ),
    ("/api/chat", CHAT | {"model": "vectors"}, 400, '"vectors" does not support chat'),
    ("/api/generate", GENERATE | {"model": "vectors"}, 400, '"vectors" does not support generate'),
    ("/api/chat", CHAT | TOOLS, 400, f"{FULL} does not support tools"),
    ("/api/generate", GENERATE | {"suffix": "x"}, 400, f"{FULL} does not support insert"),
    ("/api/generate", GENERATE | {"images": [PNG]}, 400, f"{FULL} does not support vision"),
    ("/api/chat", CHAT | {"messages": [USER | {"images": [PNG]}]}, 400, f"{FULL} does not support vision"),
    *(
        (
            "/api/generate",
            GENERATE | {"raw": True} | more,
            400,
            "raw mode does not support template, system, or context",
        )
        for more in ({"system": "x"}, {"template": "x"}, {"context": [1]})
    ),
    ("/api/generate", GENERATE | {"model": "drawer"}, 400, "image generation models are not currently supported"),
    ("/api/chat", CHAT | {"model": "x:cloud"}, 403, "ollama cloud is disabled: remote model is unavailable"),
    ("/api/chat", CHAT | {"model": "nobody"}, 404, "model 'nobody' not found"),
    ("/api/embed", {"model": "nobody", "input": "x"}, 404, 'model "nobody" not found, try pulling it first'),
    (
        "/api/chat",
        CHAT | {"format": 7},
        400,
        'invalid format: "7"; expected "json" or a valid JSON Schema object',
    ),
]


@pytest.mark.parametrize(("path", "body", "status", "text"), REFUSED)
async def test_refused_before_anything_is_loaded(
    daemon: Daemon, add_model: AddModel, path: str, body: Any, status: int, text: str
) -> None:
    add_model("qwen", model_family="qwen3")
    add_model("deepseek-r1")
    add_model("drawer", capabilities=("image",))
    before = daemon.store.list()
    with nothing_started(daemon.scheduler):
        answer = await daemon.post(path, body)
    assert (answer.status, answer.json) == (status, {"error": text})
    assert not daemon.scheduler.stopped
    assert daemon.store.list() == before


UNREACHABLE = (
    "model runner has unexpectedly stopped, this may be due to resource limitations or an internal error, check ollama "
    "server logs for details"
)
TERMINATED = "llama-server process has terminated: exit status 1: "
UNKNOWN = f"{TERMINATED}unknown model architecture: 'strange'"
FAILURES: list[tuple[Exception, int, str]] = [
    (QueueFullError(), 503, "server busy, please try again.  maximum pending requests exceeded"),
    (LoadFailedError(f"{TERMINATED}no"), 500, f"{TERMINATED}no"),
    (LoadStalledError("timed out waiting for llama-server to start - loading"), 500, "timed out waiting for llama-s"),
    (
        refusal(Because.LOAD_FAILED, UNKNOWN, "tiny"),
        500,
        f"{UNKNOWN}: this model may be incompatible with your version of trio-ollama",
    ),
    (ForcedStopError("the model was stopped"), 503, "the model was stopped"),
    (ShuttingDownError(), 503, "server is shutting down"),
    (
        refusal(Because.NEVER_FITS, f"{3 << 30} {1 << 30}", "tiny"),
        500,
        "model requires more system memory (3.0 GiB) than is available (1.0 GiB)",
    ),
    (
        refusal(Because.PREDECESSOR_STUCK, "pid 7", "tiny"),
        503,
        'model "tiny" is unavailable: its previous runner (pid 7) has not exited',
    ),
]


@pytest.mark.parametrize(("path", "body"), ROUTES)
@pytest.mark.parametrize(("error", "status", "text"), FAILURES)
async def test_no_runner_is_had(daemon: Daemon, path: str, body: Any, error: Exception, status: int, text: str) -> None:
    daemon.scheduler.refusal = error
    answer = await daemon.post(path, body | {"stream": True})
    assert (answer.status, list(answer.json)) == (status, ["error"])
    assert answer.json["error"].startswith(text)


@pytest.mark.parametrize(("path", "body"), ROUTES)
@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (RunnerRefusedError(400, "the runner's own words"), 400, "the runner's own words"),
        (RunnerRefusedError(503, "Loading model"), 503, "Loading model"),
        (RunnerError("something"), 500, "something"),
        (RunnerDiedError(UNREACHABLE), 500, UNREACHABLE),
    ],
)
async def test_the_runner_refuses(
    daemon: Daemon, path: str, body: Any, error: Exception, status: int, text: str
) -> None:
    """Its status and its words, not the JSON around them."""
    daemon.scheduler.script = lambda path, body: error
    answer = await daemon.post(path, body | {"stream": True})
    assert (answer.status, answer.json) == (status, {"error": text})
