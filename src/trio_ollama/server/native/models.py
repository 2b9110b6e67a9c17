"""The store's routes: /api/tags, /api/show, /api/copy, /api/delete."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from quart import Response, request

from trio_ollama.models.details import Listed, listed
from trio_ollama.models.details import show as show_model
from trio_ollama.models.errors import BrokenModelError, InvalidNameError, ModelNotFoundError
from trio_ollama.models.names import ModelName
from trio_ollama.models.parameters import parameters_text
from trio_ollama.scheduler import Because
from trio_ollama.server.asgi import empty_response
from trio_ollama.server.errors import ApiError
from trio_ollama.server.lookup import WORDS, find, parse_name
from trio_ollama.server.replies import json_reply, local_stamp, read
from trio_ollama.server.services import Services, services

__all__ = ["CopyRequest", "NameRequest", "ShowRequest", "copy", "delete", "show", "tags"]


class NameRequest(msgspec.Struct):
    """A body with nothing but a model's name; `name` is the old word for it."""

    model: str = ""
    name: str = ""

    @property
    def given(self) -> str:
        return self.model or self.name


class ShowRequest(NameRequest):
    """The body of /api/show."""

    verbose: bool = False
    system: str = ""
    options: dict[str, Any] = {}


class CopyRequest(msgspec.Struct):
    """The body of /api/copy."""

    source: str = ""
    destination: str = ""


async def tags() -> Response:
    """GET /api/tags: what is in the store, newest first."""
    at = services()
    return json_reply({"models": await at.in_thread(_tags, at)})


def _tags(at: Services) -> list[dict[str, Any]]:
    return [_tag(listed(at.store, at.metadata, entry, setting=at.settings.go_template)) for entry in at.store.list()]


def _tag(line: Listed) -> dict[str, Any]:
    name = line.entry.name.short
    tag = {
        "name": name,
        "model": name,
        "modified_at": local_stamp(line.entry.modified_at),
        "size": line.entry.size,
        "digest": line.entry.digest,
        "details": line.details,
        "capabilities": line.capabilities,
    }
    if line.model is not None and line.model.config.remote_host:
        tag |= {"remote_model": line.model.config.remote_model, "remote_host": line.model.config.remote_host}
    return tag


async def show() -> Response:
    """POST /api/show: everything there is to know of a model."""
    at = services()
    body = await read(ShowRequest, at.settings.max_body)
    model = await find(at, body.given, WORDS["show"])
    answer = await at.in_thread(partial(show_model, model, verbose=body.verbose, setting=at.settings.go_template))
    answer["modified_at"] = local_stamp(model.modified_at)
    if body.system:
        answer["system"] = body.system
    if body.options:
        answer["parameters"] = parameters_text({**model.params, **body.options})
    if request.headers.get("User-Agent", "").startswith("GitHubCopilotChat/"):
        answer["model_info"]["general.basename"] = body.given
    return json_reply(answer)


async def copy() -> Response:
    """POST /api/copy: a second name for a model."""
    at = services()
    body = await read(CopyRequest, at.settings.max_body)
    names = [_copy_name(role, text) for role, text in (("source", body.source), ("destination", body.destination))]
    try:
        await at.in_thread(at.store.copy, *names)
    except ModelNotFoundError:
        raise ApiError(404, f'model "{body.source}" not found') from None
    return empty_response(200)


def _copy_name(role: str, text: str) -> ModelName:
    try:
        return ModelName.parse(text.strip())
    except InvalidNameError:
        raise ApiError(400, f'{role} "{text}" is invalid') from None


async def delete() -> Response:
    """DELETE /api/delete: remove a name; its runner goes, too, unless another name uses the same weights."""
    at = services()
    body = await read(NameRequest, at.settings.max_body)
    words = WORDS["delete"]
    name = parse_name(body.given, words)
    try:
        key = await at.in_thread(_delete, at, name)
    except ModelNotFoundError:
        status, form = words.absent
        raise ApiError(status, form.format(given=body.given)) from None
    if key:
        at.scheduler.stop(key, Because.DELETED)
    return empty_response(200)


def _delete(at: Services, name: ModelName) -> str:
    """Remove the manifest; returns the key of the runner to drain, or nothing (R30, G08)."""
    try:
        model = at.store.resolve(name)
    except BrokenModelError:
        model = None  # what is damaged can still be deleted
    unused = at.store.delete(name).unused
    return str(model.weights_path) if model is not None and model.weights_digest in unused else ""
