"""`_debug_render_only`: the prompt that a request would become, without an answer to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quart import Response

from trio_ollama.server.inference.messages import Message
from trio_ollama.server.replies import json_reply, utc_now

__all__ = ["rendered"]


def rendered(model: str, body: dict[str, Any], prompt: str, messages: Sequence[Message] = ()) -> Response:
    """`body` is what the route's answers hold beside it, empty."""
    info: dict[str, Any] = {"rendered_template": prompt}
    if images := sum(len(message.images) for message in messages):
        info["image_count"] = images
    return json_reply({"model": model, "created_at": utc_now(), **body, "done": False, "_debug_info": info})
