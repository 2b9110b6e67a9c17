"""POST /v1/audio/transcriptions: a form with a recording, and a chat with a model that hears."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.fake_scheduler import chat_end, chat_events

from .conftest import AddModel, Daemon, nothing_started

PATH = "/v1/audio/transcriptions"
WAV = b"RIFF\x24\0\0\0WAVEfmt " + bytes(24)
BOUNDARY = "a-line-between"
FORM = [("content-type", f'multipart/form-data; boundary="{BOUNDARY}"')]


def form(fields: Mapping[str, bytes | str]) -> bytes:
    """As clients write it: the recording has a file's name."""
    lines = []
    for name, value in fields.items():
        file = '; filename="said.wav"\r\nContent-Type: audio/wav' if name == "file" else ""
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
        lines.append(head.encode() + (value if isinstance(value, bytes) else value.encode()) + b"\r\n")
    return b"".join([*lines, f"--{BOUNDARY}--\r\n".encode()])


@pytest.fixture
def hearing(daemon: Daemon, add_model: AddModel) -> Daemon:
    add_model("ears", capabilities=("audio",))
    daemon.scheduler.script = lambda path, body: [[*chat_events(" Hello", " there. "), chat_end()]]
    return daemon


@pytest.mark.parametrize(("wanted", "kind"), [("", "json"), ("json", "json"), ("text", "text")])
async def test_what_was_said(hearing: Daemon, wanted: str, kind: str) -> None:
    fields = {"file": WAV, "model": "ears", "prompt": "Hel", "language": "en", "temperature": "0.2"}
    answer = await hearing.post(PATH, form(fields | ({"response_format": wanted} if wanted else {})), headers=FORM)
    assert answer.status == 200
    assert (answer.text if kind == "text" else answer.json) == (
        "Hello there." if kind == "text" else {"text": "Hello there."}
    )
    (_, asked) = hearing.scheduler.calls[0]
    assert asked["temperature"] == 0
    system, user = asked["messages"]
    assert "language: en" in system["content"]
    sound = {"type": "input_audio", "input_audio": {"data": base64.b64encode(WAV).decode(), "format": "wav"}}
    assert user["content"] == [{"type": "text", "text": "Hel"}, sound]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (form({"file": WAV}), "model is required"),
        (form({"model": "ears"}), "file is required: no such part in the form"),
        (form({"model": "ears", "file": b""}), "audio file is empty"),
        (form({"model": "ears", "file": b"noise"}), "invalid audio input: "),
        (form({"model": "ears", "file": b"\x89PNG\r\n"}), "invalid audio input: "),
        (form({"model": "tiny", "file": WAV}), "registry.ollama.ai/library/tiny:latest does not support audio"),
        (form({"model": b"\xff", "file": WAV}), "failed to parse multipart form: "),
        (form({"model": "ears", "file": WAV})[:-8], "failed to parse multipart form: "),
        (b"", "failed to parse multipart form: "),
        (form({f"field{number}": "x" for number in range(100)}), "failed to parse multipart form: "),
    ],
)
async def test_refused(hearing: Daemon, body: bytes, text: str) -> None:
    with nothing_started(hearing.scheduler):
        answer = await hearing.post(PATH, body, headers=FORM)
    assert answer.status == 400
    assert answer.json["error"]["message"].startswith(text)


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data", ""])
async def test_what_is_no_form(hearing: Daemon, kind: str) -> None:
    headers: list[Any] = [("content-type", kind)]
    answer = await hearing.post(PATH, form({"model": "ears", "file": WAV}), headers=headers)
    assert answer.status == 400
    assert answer.json["error"]["message"].startswith("failed to parse multipart form: ")


async def test_a_model_that_is_not_there(hearing: Daemon) -> None:
    answer = await hearing.post(PATH, form({"model": "nobody", "file": WAV}), headers=FORM)
    assert (answer.status, answer.json["error"]["message"]) == (404, "model 'nobody' not found")
