"""What /openapi.json says of an answer, and whether it is true."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from tests.support.asgi_client import Answer
from trio_ollama.server.app import ROUTES
from trio_ollama.server.live import dialect
from trio_ollama.server.openapi import ERRORS, document

__all__ = ["check_described", "described", "operation"]


@cache
def described() -> Mapping[str, Any]:
    """The document."""
    whole: dict[str, Any] = json.loads(document(ROUTES))
    return whole


def operation(method: str, path: str) -> Mapping[str, Any] | None:
    """The description of a method of a concrete path; None if there is no such route."""
    for template, operations in described()["paths"].items():
        pattern = re.sub(r"\\\{\w+\\\}", "[^/].*", re.escape(template))
        if re.fullmatch(pattern, path) and method.lower() in operations:
            found: Mapping[str, Any] = operations[method.lower()]
            return found
    return None


def check_described(method: str, path: str, answer: Answer) -> None:
    """Raises AssertionError unless status, content type and the shape of an error are as described."""
    found = operation(method, path.partition("?")[0])
    if found is None:
        assert answer.status in (301, 307, 404, 405), f"{method} {path} is not described"
        return
    responses = found["responses"]
    assert str(answer.status) in responses, f"{method} {path} answers {answer.status}: {answer.text[:200]}"
    content = responses[str(answer.status)].get("content", {})
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if method != "HEAD" and answer.body:
        assert kind in content, f"{method} {path} answers {kind}"
    if answer.status >= 400 and answer.body and method != "HEAD":
        msgspec.json.decode(answer.body, type=ERRORS[dialect(path)])
