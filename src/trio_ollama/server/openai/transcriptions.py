"""POST /v1/audio/transcriptions: a sound as text, asked of a model that hears."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from quart import Response, request
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.http import parse_options_header
from werkzeug.sansio.multipart import Data, Epilogue, Field, File, MultipartDecoder, NeedData

from trio_ollama.server.asgi import request_stack
from trio_ollama.server.body import read_body
from trio_ollama.server.errors import ApiError
from trio_ollama.server.inference.attachments import SOUNDS
from trio_ollama.server.inference.chat import open_chat
from trio_ollama.server.inference.events import Token
from trio_ollama.server.inference.generation import Clock
from trio_ollama.server.inference.messages import Message, kind_of
from trio_ollama.server.inference.prepare import chat_wish
from trio_ollama.server.replies import json_reply, text_reply
from trio_ollama.server.services import services

__all__ = ["TranscriptionForm", "parse_form", "transcriptions"]

TASK: Final = "Write down what is said in the recording, word for word, and nothing else."
MOST_PARTS: Final = 64
"""Of a form; the route looks at five."""


class TranscriptionForm(msgspec.Struct):
    """The form; fields that are not here are ignored."""

    file: Any = None
    model: str = ""
    language: str = ""
    prompt: str = ""
    """How the recording begins, or words that are in it."""
    response_format: str = "json"


async def transcriptions() -> Response:
    """Write down a recording."""
    clock, at = Clock(), services()
    body = await read_body(request, at.settings.max_body)
    form = await at.in_thread(parse_form, request.headers.get("Content-Type", ""), body)
    if not form.model.strip():
        raise ApiError(400, "model is required")
    if form.file is None:
        raise ApiError(400, "file is required: no such part in the form")
    if not form.file:
        raise ApiError(400, "audio file is empty")
    if kind_of(form.file) not in SOUNDS:
        raise ApiError(400, "invalid audio input: it is no sound in a WAV or MP3 file")
    task = TASK + (f" It is in this language: {form.language}." if form.language else "")
    wish = await chat_wish(at, form.model, {"temperature": 0.0}, think=False)
    messages = [Message(role="system", content=task), Message(role="user", content=form.prompt, images=[form.file])]
    events, _ = await (await open_chat(at, request_stack(), wish, messages, clock)).collect()
    text = "".join([event.text for event in events if isinstance(event, Token)]).strip()
    return text_reply(text) if form.response_format == "text" else json_reply({"text": text})


def parse_form(content_type: str, body: bytes) -> TranscriptionForm:
    """The parts of a multipart form. Raises `ApiError` 400."""
    kind, options = parse_options_header(content_type)
    if kind != "multipart/form-data" or not options.get("boundary"):
        raise ApiError(400, "failed to parse multipart form: the content type is not multipart/form-data")
    decoder = MultipartDecoder(options["boundary"].encode(), max_parts=MOST_PARTS)
    parts: dict[str, bytearray] = {}
    part = bytearray()
    try:
        decoder.receive_data(body)
        decoder.receive_data(None)
        while not isinstance(event := decoder.next_event(), Epilogue | NeedData):
            match event:
                case Field(name=name) | File(name=name):
                    part = parts[name] = bytearray()
                case Data(data=data):
                    part += data
        texts = {name: parts[name].decode() for name in TranscriptionForm.__struct_fields__[1:] if name in parts}
    except (ValueError, RequestEntityTooLarge) as error:
        raise ApiError(400, f"failed to parse multipart form: {error}") from None
    return TranscriptionForm(bytes(parts["file"]) if "file" in parts else None, **texts)
