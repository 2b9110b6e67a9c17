"""POST /api/generate: through the chat route, or raw."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.fake_scheduler import chat_end, chat_events, completion_events
from trio_ollama.runners.contract import RunnerRefusedError

from .conftest import AddModel, Daemon

GENERATE: dict[str, Any] = {"model": "tiny", "prompt": "hi"}
RAW = GENERATE | {"raw": True}


async def test_a_stream_with_thoughts_apart(daemon: Daemon) -> None:
    script = [chat_events("hm", thinking=True), [*chat_events("yes"), chat_end()]]
    daemon.scheduler.script = lambda path, body: script
    first, second, last = (await daemon.post("/api/generate", GENERATE | {"model": "thinker"})).lines
    assert (first["response"], first["thinking"], first["done"]) == ("", "hm", False)
    assert second["response"] == "yes"
    assert "thinking" not in second
    assert (last["response"], last["done"], last["done_reason"], last["eval_count"]) == ("", True, "stop", 3)


async def test_one_object(daemon: Daemon) -> None:
    answer = await daemon.post("/api/generate", GENERATE | {"stream": False})
    assert (answer.json["response"], answer.json["done"]) == ("Hello", True)


async def test_the_prompt_is_a_chat_of_one_turn(daemon: Daemon, add_model: AddModel) -> None:
    stored = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    add_model("own", system="Be kind.", messages=stored)
    turn = {"role": "user", "content": "hi"}
    await daemon.post("/api/generate", GENERATE | {"model": "own"})
    await daemon.post("/api/generate", GENERATE | {"model": "own", "system": "Be brief."})
    systems = ["Be kind.", "Be brief."]
    asked = [body for path, body in daemon.scheduler.calls if path == "/v1/chat/completions"]
    for system, body in zip(systems, asked, strict=True):
        assert body["messages"] == [{"role": "system", "content": system}, *stored, turn]


@pytest.mark.parametrize("model", ["tiny", "bare"])
async def test_raw(daemon: Daemon, model: str) -> None:
    daemon.scheduler.script = lambda path, body: [completion_events("a", "b", stop_type="limit")]
    answer = await daemon.post("/api/generate", RAW | {"model": model, "options": {"num_predict": 2}})
    assert [line["response"] for line in answer.lines] == ["a", "b", ""]
    assert answer.lines[-1]["done_reason"] == "length"
    ((path, body),) = daemon.scheduler.calls
    assert path == "/completion"
    assert (body["prompt"], body["n_predict"], body["stream"], body["return_progress"]) == ("hi", 2, True, True)


@pytest.mark.parametrize(("wanted", "name"), [("json", "grammar"), ({"type": "object"}, "json_schema")])
async def test_raw_with_a_format(daemon: Daemon, wanted: Any, name: str) -> None:
    daemon.scheduler.script = lambda path, body: [completion_events("a")]
    await daemon.post("/api/generate", RAW | {"format": wanted})
    assert daemon.scheduler.calls[0][1][name]


async def test_raw_with_logprobs(daemon: Daemon) -> None:
    events = completion_events("a")
    events[0]["completion_probabilities"] = [{"id": 1, "token": "a", "bytes": [97], "logprob": -1.0}]
    daemon.scheduler.script = lambda path, body: [events]
    answer = await daemon.post("/api/generate", RAW | {"logprobs": True})
    assert answer.lines[0]["logprobs"] == [{"token": "a", "logprob": -1.0, "bytes": [97]}]
    assert daemon.scheduler.calls[0][1]["n_probs"] == 1


@pytest.mark.parametrize(("keep_alive", "reason"), [(0, "unload"), (None, "load"), ("5m", "load")])
async def test_an_empty_prompt(daemon: Daemon, keep_alive: Any, reason: str) -> None:
    answer = await daemon.post("/api/generate", {"model": "tiny", "keep_alive": keep_alive})
    (line,) = answer.lines
    line.pop("created_at")
    assert line == {"model": "tiny", "response": "", "done": True, "done_reason": reason}
    assert (len(daemon.scheduler.demands), len(daemon.scheduler.stopped)) == ((0, 1) if reason == "unload" else (1, 0))
    assert not daemon.scheduler.calls


def too_long(path: str, body: dict[str, Any]) -> Any:
    if isinstance(body["prompt"], str):
        return RunnerRefusedError(400, "request exceeds the available context size", kind="exceed_context_size_error")
    return [completion_events("ok")]


async def test_a_raw_prompt_is_cut_in_the_middle(daemon: Daemon) -> None:
    daemon.scheduler.context, daemon.scheduler.script = 20, too_long
    daemon.scheduler.answers["/tokenize"] = lambda body: {"tokens": list(range(100))}
    answer = await daemon.post("/api/generate", RAW | {"options": {"num_keep": 3}})
    assert answer.status == 200
    # Four are kept in front (three and the begin token), half of the other sixteen go to the newest.
    assert daemon.scheduler.calls[-1][1]["prompt"] == [0, 1, 2, 3, *range(92, 100)]


async def test_without_context_shift_a_raw_prompt_is_refused(daemon: Daemon) -> None:
    daemon.scheduler.script = too_long
    answer = await daemon.post("/api/generate", RAW | {"shift": False})
    assert answer.status == 400
    assert answer.json["error"].startswith("the prompt is longer than the context length currently available")


async def test_a_prompt_is_cut_in_the_middle_after_its_template(daemon: Daemon) -> None:
    def script(path: str, body: dict[str, Any]) -> Any:
        if path == "/completion":
            return [completion_events("ok")]
        return RunnerRefusedError(400, "too long", kind="exceed_context_size_error")

    daemon.scheduler.context, daemon.scheduler.script = 20, script
    daemon.scheduler.answers = {
        "/apply-template": lambda body: {"prompt": f"<{body['messages'][-1]['content']}>"},
        "/tokenize": lambda body: {"tokens": list(map(ord, body["content"]))},
    }
    answer = await daemon.post("/api/generate", GENERATE | {"prompt": "x" * 100, "options": {"num_keep": 3}})
    assert [line["response"] for line in answer.lines] == ["ok", ""]
    (body,) = [body for path, body in daemon.scheduler.calls if path == "/completion"]
    sent = "".join(map(chr, body["prompt"]))
    assert sent == "<" + "x" * 10 + ">"
    whole = await daemon.post("/api/generate", GENERATE | {"prompt": "x" * 100, "truncate": False})
    assert whole.status == 400


@pytest.mark.parametrize(("header", "wish"), [(None, None), ("finish", True), ("Abort", False)])
async def test_a_request_may_say_what_becomes_of_a_load_it_leaves(
    daemon: Daemon, header: str | None, wish: bool | None
) -> None:
    """R03."""
    await daemon.post("/api/generate", GENERATE, headers=[("X-Abandoned-Load", header)] if header else [])
    assert daemon.scheduler.demands[0].finish_load is wish


async def test_and_says_so_clearly(daemon: Daemon) -> None:
    answer = await daemon.post("/api/generate", GENERATE, headers=[("X-Abandoned-Load", "later")])
    assert (answer.status, answer.json["error"]) == (400, 'X-Abandoned-Load must be "abort" or "finish"')
    assert not daemon.scheduler.demands
