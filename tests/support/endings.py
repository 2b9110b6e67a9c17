"""How the stream of each dialect ends: with exactly one last record, of that dialect's own shape."""

from __future__ import annotations

from typing import Any, Final

from tests.support.asgi_client import Answer

__all__ = ["NATIVE", "ending", "requests"]

NATIVE: Final = ("chat", "generate", "raw")
"""Kinds of requests in Ollama's own dialect."""


def requests(model: str, limit: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """For each route that streams, by a short name: its path, and a request for an answer of at most `limit` tokens."""
    messages = [{"role": "user", "content": "w1"}]
    streamed = {"model": model, "stream": True}
    native = {"model": model, "options": {"num_predict": limit}}
    return {
        "chat": ("/api/chat", {**native, "messages": messages}),
        "generate": ("/api/generate", {**native, "prompt": "w1"}),
        "openai": ("/v1/chat/completions", {**streamed, "messages": messages, "max_tokens": limit}),
        "completions": ("/v1/completions", {**streamed, "prompt": "w1", "max_tokens": limit}),
        "responses": ("/v1/responses", {**streamed, "input": "w1", "max_output_tokens": limit}),
        "anthropic": ("/v1/messages", {**streamed, "messages": messages, "max_tokens": limit}),
    }


def ending(kind: str, answer: Answer) -> tuple[str, str]:
    """How the stream ended - `done` or `error` - and with which reason or text.

    Raises AssertionError unless its last record says so, and no other does.
    """
    if kind in ("responses", "anthropic"):
        *before, last = answer.named_events
        assert not {"response.completed", "response.failed", "message_stop", "error"} & {e["type"] for e in before}
        match last:
            case {"type": "response.completed", "response": {"incomplete_details": cut}}:
                return "done", "length" if cut else "stop"
            case {"type": "message_stop"}:
                return "done", {"end_turn": "stop", "max_tokens": "length"}[before[-1]["delta"]["stop_reason"]]
            case {"type": "response.failed", "response": {"error": error}} | {"type": "error", "error": error}:
                return "error", error["message"]
        raise AssertionError(f"not the end: {last}")
    if kind in ("openai", "completions"):
        events = answer.events
        errors = [event["error"]["message"] for event in events if event != "[DONE]" and "error" in event]
        assert events.count("[DONE]") + len(errors) == 1
        if errors:
            assert "error" in events[-1]
            return "error", errors[0]
        assert events[-1] == "[DONE]"
        reasons = [event["choices"][0]["finish_reason"] for event in events[:-1]]
        assert [reason for reason in reasons if reason] == reasons[-1:]
        return "done", reasons[-1]
    lines = answer.lines
    assert sum(line.get("done", False) or "error" in line for line in lines) == 1
    last = lines[-1]
    return ("error", last["error"]) if "error" in last else ("done", last["done_reason"])
