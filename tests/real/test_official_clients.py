"""Everything that the official clients do, against the real daemon with real children."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import ollama
import openai
import pytest

from tests.support.real_daemon import RealDaemon
from tests.support.tiny_gguf import words

from .conftest import StartDaemon

pytestmark = pytest.mark.real

QUESTION = [{"role": "user", "content": words(5)}]
SHORT = {"num_predict": 6, "seed": 1}


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> RealDaemon:
    return start_daemon()


def test_list_and_show(client: ollama.Client) -> None:
    models = {model.model: model for model in client.list().models}
    assert set(models) == {"tiny:latest", "other:latest", "embedder:latest"}
    shown = client.show("tiny")
    assert shown.modelinfo is not None
    assert shown.modelinfo["llama.context_length"] == 2048
    assert shown.capabilities == ["completion"]
    assert shown.details is not None
    assert shown.details.family == "llama"


def test_generate(client: ollama.Client) -> None:
    whole = client.generate("tiny", words(5), options=SHORT)
    assert (whole.done, whole.done_reason, whole.eval_count) == (True, "length", 6)
    assert whole.prompt_eval_count is not None
    assert whole.prompt_eval_count > 5
    assert whole.total_duration is not None
    assert whole.load_duration is not None
    assert whole.total_duration > whole.load_duration > 0
    parts = list(client.generate("tiny", words(5), options=SHORT, stream=True))
    assert "".join(part.response for part in parts) == whole.response
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]


def test_generate_raw(client: ollama.Client) -> None:
    whole = client.generate("tiny", words(5), raw=True, options=SHORT)
    assert whole.response
    # The begin token is the runner's.
    assert whole.prompt_eval_count == 6


def test_chat(client: ollama.Client) -> None:
    whole = client.chat("tiny", QUESTION, options=SHORT)
    parts = list(client.chat("tiny", QUESTION, options=SHORT, stream=True))
    assert "".join(part.message.content or "" for part in parts) == whole.message.content
    assert (parts[-1].done, parts[-1].eval_count) == (True, 6)
    assert len({part.created_at for part in parts}) > 1


def test_formats_and_logprobs(client: ollama.Client) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    options = {"num_predict": 60, "seed": 1}
    assert set(json.loads(client.chat("tiny", QUESTION, format=schema, options=options).message.content or "")) == {"a"}
    # The tiny vocabulary is too odd for the engine's schemas on raw prompts; its grammars work.
    answer = client.generate("tiny", words(3), raw=True, format="json", options=options)
    assert answer.response.startswith("{")
    answer = client.generate("tiny", words(3), logprobs=True, top_logprobs=2, options=SHORT)
    assert answer.logprobs is not None
    assert len(answer.logprobs) == 6
    assert all(len(entry.top_logprobs or ()) == 2 for entry in answer.logprobs)


def test_no_tokens_and_too_many(client: ollama.Client) -> None:
    answer = client.chat("tiny", QUESTION, options={"num_predict": 0})
    assert (answer.message.content, answer.done_reason, answer.eval_count) == ("", "length", None)
    narrow = {"num_ctx": 256} | SHORT
    with pytest.raises(ollama.ResponseError, match="exceeds the available context size") as caught:
        client.chat("tiny", [{"role": "user", "content": words(600)}], options=narrow)
    assert caught.value.status_code == 400
    for raw in (True, False):
        cut = client.generate("tiny", words(600), raw=raw, options=narrow)
        assert cut.prompt_eval_count is not None
        assert 64 < cut.prompt_eval_count < 256
    history = [{"role": "user", "content": words(60)} for _ in range(10)]
    answer = client.chat("tiny", history, options=narrow)
    assert answer.message.content


def test_load_ps_unload(client: ollama.Client) -> None:
    assert client.ps().models == []
    assert client.generate("tiny", keep_alive="10m").done_reason == "load"
    (loaded,) = client.ps().models
    assert (loaded.model, loaded.size_vram, loaded.context_length) == ("tiny:latest", 0, 2048)
    assert loaded.size is not None
    assert loaded.size > 0
    assert loaded.digest == client.list().models[[m.model for m in client.list().models].index("tiny:latest")].digest
    assert client.generate("tiny", keep_alive=0).done_reason == "unload"
    assert client.chat("tiny", QUESTION, options=SHORT, keep_alive=-1).message.content
    (loaded,) = client.ps().models
    assert loaded.expires_at is not None
    assert loaded.expires_at.year > 2300


def test_embed(client: ollama.Client) -> None:
    answer = client.embed("embedder", ["w1 w2", "w3", "w1 w2"])
    first, second, third = answer.embeddings
    assert first == pytest.approx(third)
    assert first != pytest.approx(second)
    assert math.hypot(*first) == pytest.approx(1)
    assert answer.prompt_eval_count == 3 + 2 + 3
    (short,) = client.embed("embedder", "w1 w2", dimensions=8).embeddings
    assert (len(short), math.hypot(*short)) == (8, pytest.approx(1))
    assert len(client.embeddings("embedder", "w1").embedding) == len(first)


def test_embed_with_a_completion_model(client: ollama.Client) -> None:
    (vector,) = client.embed("tiny", "w1 w2").embeddings
    assert math.hypot(*vector) == pytest.approx(1)
    assert client.generate("tiny", words(3), options=SHORT).response


def test_embed_too_long(client: ollama.Client) -> None:
    options = {"num_ctx": 64}
    answer = client.embed("embedder", words(500), options=options)
    assert answer.prompt_eval_count is not None
    assert 60 <= answer.prompt_eval_count <= 64
    with pytest.raises(ollama.ResponseError, match="the input length exceeds the context length") as caught:
        client.embed("embedder", words(500), truncate=False, options=options)
    assert caught.value.status_code == 400


def test_create_copy_delete(client: ollama.Client, tmp_path: Path, tiny_models: dict[str, bytes]) -> None:
    path = tmp_path / "new.gguf"
    path.write_bytes(tiny_models["tiny"] + bytes(64))
    digest = client.create_blob(path)
    assert digest == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    steps = client.create("made", files={"new.gguf": digest}, system="w9", parameters={"num_predict": 3}, stream=True)
    assert [step.status for step in steps][-1] == "success"
    assert client.create("child", from_="made", system="w8").status == "success"
    assert client.show("child").parameters == "num_predict                    3"
    assert client.chat("child", QUESTION).eval_count == 3
    client.copy("child", "copy")
    assert client.generate("copy", words(3)).eval_count == 3
    assert [model.model for model in client.ps().models] == ["child:latest"]
    for name in ("made", "child"):
        client.delete(name)
    assert [model.model for model in client.ps().models] == ["child:latest"]
    client.delete("copy")
    assert {model.model for model in client.list().models} == {"tiny:latest", "other:latest", "embedder:latest"}


def test_errors(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError) as caught:
        client.chat("nobody", QUESTION)
    assert (caught.value.status_code, caught.value.error) == (404, "model 'nobody' not found")
    with pytest.raises(ollama.ResponseError) as caught:
        next(iter(client.generate("tiny", "hi", options={"seed": "one"}, stream=True)))
    assert (caught.value.status_code, caught.value.error) == (400, 'option "seed" must be of type integer')


def test_openai_chat(openai_client: openai.OpenAI) -> None:
    create = openai_client.chat.completions.create
    whole = create(model="tiny", messages=QUESTION, max_tokens=6, seed=1)  # type: ignore[arg-type]
    (choice,) = whole.choices
    assert choice.finish_reason == "length"
    assert choice.message.content
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 6
    stream = create(
        model="tiny",
        messages=QUESTION,  # type: ignore[arg-type]
        max_tokens=6,
        seed=1,
        stream=True,
        stream_options={"include_usage": True},
    )
    *chunks, finish, usage = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == choice.message.content
    assert finish.choices[0].finish_reason == "length"
    assert usage.usage == whole.usage
    logprobs = create(model="tiny", messages=QUESTION, max_tokens=2, logprobs=True)  # type: ignore[arg-type]
    assert logprobs.choices[0].logprobs is not None
    assert len(logprobs.choices[0].logprobs.content or ()) == 2


def test_openai_models_and_errors(openai_client: openai.OpenAI) -> None:
    assert {model.id for model in openai_client.models.list()} == {"tiny:latest", "other:latest", "embedder:latest"}
    assert openai_client.models.retrieve("tiny").owned_by == "library"
    with pytest.raises(openai.NotFoundError, match="model 'nobody' not found"):
        openai_client.chat.completions.create(model="nobody", messages=QUESTION)  # type: ignore[arg-type]
    with pytest.raises(openai.BadRequestError, match="too short"):
        openai_client.chat.completions.create(model="tiny", messages=[])
    with pytest.raises(openai.BadRequestError, match="tiny:latest does not support audio"):
        openai_client.audio.transcriptions.create(model="tiny", file=("said.wav", b"RIFF\x24\0\0\0WAVEfmt "))
