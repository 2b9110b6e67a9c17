"""Images and sounds: what is refused before anything is loaded, and how the rest reaches the runner."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import Any

import pytest
from PIL import Image

from tests.support.pictures import JPEG, PNG, WEBP, picture
from trio_ollama.runners.contract import MEDIA_MARKER

from .conftest import AddModel, Daemon, nothing_started

pytestmark = pytest.mark.usefixtures("seer")

WAV = b"RIFF\0\0\0\0WAVE"
UNKNOWN = "invalid image input: it is neither a PNG, JPEG, WebP, GIF or BMP image, nor a sound in a WAV or MP3 file"
VISION = "registry.ollama.ai/library/tiny:latest does not support vision"


@pytest.fixture
def seer(add_model: AddModel) -> None:
    add_model("seer", capabilities=("vision",))


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def ways(model: str, image: str) -> Mapping[str, dict[str, Any]]:
    """A request with this image (base64) by each route."""
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}
    source = {"type": "base64", "media_type": "image/png", "data": image}
    return {
        "/api/chat": {"messages": [{"role": "user", "content": "see", "images": [image]}]},
        "/api/generate": {"prompt": "see", "images": [image]},
        "/v1/chat/completions": {"messages": [{"role": "user", "content": [part]}]},
        "/v1/messages": {
            "max_tokens": 5,
            "messages": [{"role": "user", "content": [{"type": "image", "source": source}]}],
        },
    }


ROUTES = ways("", "")


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("model", "data", "complaint"),
    [
        ("tiny", PNG, VISION),
        ("seer", b"no image", UNKNOWN),
        ("seer", WAV, "registry.ollama.ai/library/seer:latest does not support audio"),
        ("seer", WEBP[:30], "invalid image input: "),
    ],
)
async def test_what_the_model_cannot_take_loads_nothing(
    daemon: Daemon, route: str, model: str, data: bytes, complaint: str
) -> None:
    with nothing_started(daemon.scheduler):
        answer = await daemon.post(route, {"model": model, "stream": False} | ways(model, text(data))[route])
    assert answer.status == 400
    assert complaint in answer.text


@pytest.mark.parametrize("route", ROUTES)
async def test_what_is_no_base64(daemon: Daemon, route: str) -> None:
    with nothing_started(daemon.scheduler):
        answer = await daemon.post(route, {"model": "seer", "stream": False} | ways("seer", "%%%")[route])
    assert answer.status == 400


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("data", "kind"), [(PNG, "png"), (JPEG, "jpeg")])
async def test_images_go_as_they_are(daemon: Daemon, route: str, data: bytes, kind: str) -> None:
    await daemon.post(route, {"model": "seer", "stream": False} | ways("seer", text(data))[route])
    assert sent(daemon) == f"data:image/{kind};base64,{text(data)}"


async def test_webp_goes_as_png(daemon: Daemon) -> None:
    """llama.cpp decodes it only where there is ffmpeg."""
    await daemon.post("/api/chat", {"model": "seer", "stream": False} | ways("seer", text(WEBP))["/api/chat"])
    prefix, _, data = sent(daemon).partition(",")
    assert prefix == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as image:
        assert (image.format, image.size) == ("PNG", (8, 8))
        red, green, blue = image.convert("RGB").getpixel((4, 4))  # type: ignore[misc]
    assert red > 200 > 50 > max(green, blue)


async def test_webp_that_is_too_large(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_ollama.server.inference.attachments.MOST_PIXELS", 63)
    answer = await daemon.post("/api/chat", {"model": "seer"} | ways("seer", text(WEBP))["/api/chat"])
    assert answer.status == 400
    assert "8 x 8 pixels are too many" in answer.text


def sent(daemon: Daemon) -> str:
    """The URL of the image that the runner got."""
    _, body = daemon.scheduler.calls[0]
    (url,) = [part["image_url"]["url"] for part in body["messages"][-1]["content"] if part["type"] == "image_url"]
    assert isinstance(url, str)
    return url


RAW: dict[str, Any] = {"model": "seer", "raw": True, "stream": False}


async def test_a_raw_prompt_says_where_its_images_belong(daemon: Daemon) -> None:
    other = picture((0, 0, 255))
    images = [text(PNG), text(other)]
    await daemon.post("/api/generate", RAW | {"prompt": "a [img-1] b [img-0] c", "images": images})
    ((path, body),) = daemon.scheduler.calls
    assert path == "/completion"
    assert body["prompt"] == {
        "prompt_string": f"a {MEDIA_MARKER} b {MEDIA_MARKER} c",
        "multimodal_data": [text(other), text(PNG)],
    }


@pytest.mark.parametrize("prompt", ["none", "[img-1] x", "[img-0] [img-1] x", "at the end [img-0]"])
async def test_a_raw_prompt_that_does_not(daemon: Daemon, prompt: str) -> None:
    with nothing_started(daemon.scheduler):
        answer = await daemon.post("/api/generate", RAW | {"prompt": prompt, "images": [text(PNG)]})
    assert answer.status == 400


async def test_a_raw_prompt_without_images_is_left_alone(daemon: Daemon) -> None:
    await daemon.post("/api/generate", RAW | {"prompt": "see [img-0]"})
    assert daemon.scheduler.calls[0][1]["prompt"] == "see [img-0]"
