"""Projectors, adapters and draft models with real runners, from the Modelfile to the answer."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ollama
import openai
import pytest
import trio

from tests.support.api_client import ApiClient, ask
from tests.support.daemon_log import DaemonLog
from tests.support.pictures import JPEG, PNG, WEBP, picture
from tests.support.real_daemon import RealDaemon
from tests.support.tiny_gguf import words, write_tiny_gguf
from tests.support.tiny_lora import write_tiny_lora
from tests.support.tiny_projector import TOKENS, write_tiny_projector
from tests.support.until import until

from .conftest import StartDaemon

pytestmark = pytest.mark.real

BLUE = picture((0, 0, 255))
FIXED = {"temperature": 0, "num_predict": 12}
SOON = 10.0
ENDLESS = {"num_predict": 30_000, "num_ctx": 32_768}


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> RealDaemon:
    return start_daemon()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files to make models of."""
    made = tmp_path / "parts"
    made.mkdir()
    write_tiny_gguf(made / "tiny.gguf", seed=1, context=32_768)
    write_tiny_gguf(made / "draft.gguf", seed=1, name="draft")
    write_tiny_projector(made / "eyes.gguf")
    write_tiny_lora(made / "lora.gguf")
    return made


@pytest.fixture
def create(daemon: RealDaemon, folder: Path) -> Callable[..., None]:
    """Creates a model by our own command line, of the lines of a Modelfile."""

    def make(name: str, *lines: str) -> None:
        file = folder / "Modelfile"
        file.write_text("\n".join([*lines, "PARAMETER num_thread 1", ""]))
        subprocess.run(
            [sys.executable, "-m", "trio_ollama.cli", "create", name, "-f", str(file)],
            env=os.environ | {"OLLAMA_HOST": daemon.url},
            check=True,
            timeout=60,
        )

    return make


@pytest.fixture
def seer(create: Callable[..., None]) -> str:
    create("seer", "FROM ./tiny.gguf", "FROM ./eyes.gguf")
    return "seer"


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_images_by_every_native_route(client: ollama.Client, seer: str) -> None:
    shown = client.show(seer)
    assert shown.capabilities == ["completion", "vision"]

    def said(*images: bytes) -> tuple[str | None, int | None]:
        question = {"role": "user", "content": "w1", "images": images}
        answer = client.chat(seer, [question], options=FIXED)
        return answer.message.content, answer.prompt_eval_count

    plain, short = said()
    red, longer = said(PNG)
    assert len({plain, red, said(BLUE)[0]}) == 3
    assert short is not None
    assert longer is not None
    assert longer - short > TOKENS
    assert said(PNG) == (red, longer)
    assert said(WEBP)[0] == red
    assert said(JPEG)[0]
    assert said(PNG, BLUE)[0] not in (None, "", red)
    parts = list(client.generate(seer, "w1", images=[PNG], options=FIXED, stream=True))
    assert "".join(part.response or "" for part in parts) == red
    # The engine's own words for where an image begins and ends are in the counts, so they are compared alone.
    raw = client.generate(seer, "w1 [img-0] w2", images=[PNG], options=FIXED, raw=True)
    assert raw.prompt_eval_count is not None
    assert raw.prompt_eval_count > TOKENS + 2
    assert raw.response != client.generate(seer, "w1 [img-0] w2", images=[BLUE], options=FIXED, raw=True).response


@pytest.mark.parametrize("stream", [False, True])
def test_an_image_in_a_data_url(client: ollama.Client, openai_client: openai.OpenAI, seer: str, stream: bool) -> None:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{text(PNG)}"}}
    asked: dict[str, Any] = {"model": seer, "temperature": 0, "max_tokens": 12}
    asked["messages"] = [{"role": "user", "content": [{"type": "text", "text": "w1"}, image]}]
    if stream:
        chunks = list(openai_client.chat.completions.create(**asked, stream=True))
        answer: str | None = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    else:
        answer = openai_client.chat.completions.create(**asked).choices[0].message.content
    # Each part is a message of its own, as with Ollama.
    same: list[dict[str, Any]] = [{"role": "user", "content": "w1"}, {"role": "user", "content": "", "images": [PNG]}]
    assert answer == client.chat(seer, same, options=FIXED | {"top_p": 1.0}).message.content


async def test_what_no_model_could_read(daemon: RealDaemon, seer: str) -> None:
    """A refused request loads nothing; what only the runner can find wrong is refused by it, and harms nobody."""

    async def refused(model: str, data: str, complaint: str) -> None:
        messages = [{"role": "user", "content": "w1", "images": [data]}]
        status, answer = await ask(daemon.port, "/api/chat", within=60, model=model, messages=messages)
        assert status == 400, answer
        assert complaint in answer["error"]

    await refused("tiny", text(PNG), "registry.ollama.ai/library/tiny:latest does not support vision")
    await refused(seer, "no base64", "images[0]")
    await refused(seer, text(b"no image"), "invalid image input")
    assert daemon.children() == []
    await refused(seer, text(PNG[:40]), "Failed to load image")
    (runner,) = daemon.children()
    status, answer = await ask(
        daemon.port, "/api/generate", within=60, model=seer, prompt="w1", images=[text(PNG)], options=FIXED
    )
    assert (status, answer["eval_count"]) == (200, 12)
    assert daemon.children() == [runner]


async def test_an_image_request_that_is_left_in_the_middle(daemon: RealDaemon, seer: str) -> None:
    log = DaemonLog(daemon.log_path)
    async with ApiClient(daemon.port) as client:
        messages = [{"role": "user", "content": "w1", "images": [text(PNG)]}]
        await client.post("/api/chat", model=seer, messages=messages, options=ENDLESS)
        with trio.fail_after(60):
            assert await client.status() == 200
            assert await client.record()
        log.mark()
    await log.wait_for(r"slot\s+release", within=SOON)
    await until(lambda: not log.open_requests(), SOON, lambda: log.text[-5_000:])
    (runner,) = daemon.children()
    status, _ = await ask(daemon.port, "/api/chat", within=60, model=seer, messages=messages, options=FIXED)
    assert (status, daemon.children()) == (200, [runner])


def test_an_adapter_changes_what_is_said(
    daemon: RealDaemon, client: ollama.Client, create: Callable[..., None]
) -> None:
    create("plain", "FROM ./tiny.gguf")
    create("adapted", "FROM ./tiny.gguf", "ADAPTER ./lora.gguf")

    def said(model: str) -> str | None:
        return client.chat(model, [{"role": "user", "content": words(20)}], options=FIXED).message.content

    plain, adapted = said("plain"), said("adapted")
    assert plain != adapted
    # They have the weights in common, and yet no runner.
    assert (said("plain"), said("adapted")) == (plain, adapted)


async def test_a_draft_model_changes_nothing_but_the_speed(
    daemon: RealDaemon, client: ollama.Client, create: Callable[..., None]
) -> None:
    create("plain", "FROM ./tiny.gguf")
    create("drafted", "FROM ./tiny.gguf", "DRAFT ./draft.gguf")

    async def said(model: str, **options: int) -> str | None:
        question = [{"role": "user", "content": words(20)}]
        chat = partial(client.chat, model, question, options={**FIXED, "num_predict": 40, **options})
        return (await trio.to_thread.run_sync(chat)).message.content

    plain = await said("plain")
    log = DaemonLog(daemon.log_path)
    assert await said("drafted") == plain
    await log.wait_for("draft acceptance", within=10)
    log.mark()
    assert await said("drafted", draft_num_predict=0) == plain
    assert not log.matching(r"draft acceptance")
