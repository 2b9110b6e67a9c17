"""From llama.cpp's stream events to ours: one translator for each of its two generating routes.

A translator is fed one parsed event at a time and appends what it means to a list; it is `finished` after the
terminal event. It holds the state that spans events: fragments of tool calls, the last progress, repeated tokens.
"""

from __future__ import annotations

import secrets
import string
from typing import Any, Final, Protocol

import msgspec

from trio_ollama.server.inference.events import Done, Event, Failure, Token, ToolCall

__all__ = ["REPEAT_LIMIT", "ChatTranslator", "CompletionTranslator", "Translator", "new_call_id"]

REPEAT_LIMIT: Final = 30
"""A model that says the same token more often than this in a row will never say anything else (R75)."""

_ALPHANUMERIC: Final = string.ascii_lowercase + string.digits


class Translator(Protocol):
    """What the generation loop knows of a translator."""

    finished: bool

    @property
    def prompt_tokens(self) -> int:
        """As far as the runner has told; 0 before that."""

    @property
    def prompt_done(self) -> int:
        """Of those, as many as it has read or had in its cache."""

    @property
    def tokens(self) -> int:
        """Of the answer, so far."""

    def feed(self, raw: dict[str, Any], out: list[Event]) -> None: ...


class _Common:
    """Counting, the repeat guard, and the switches that both routes share.

    `mute`: the client wants no tokens (num_predict 0, where the runner cannot be kept from making one).
    `guard_repeats`: end the answer when a token is repeated too often.
    `top_logprobs`: how many alternatives the client asked for; None when it wants no probabilities at all.
    """

    def __init__(self, *, mute: bool = False, guard_repeats: bool = False, top_logprobs: int | None = None) -> None:
        self.finished = False
        self._mute = mute
        self._guard_repeats = guard_repeats
        self._top_logprobs = top_logprobs
        self.tokens = 0
        self.prompt_tokens = 0
        self.prompt_done = 0
        self._repeated = ""
        self._repeats = 0

    def _progress(self, raw: dict[str, Any]) -> None:
        progress = raw.get("prompt_progress")
        if progress:
            self.prompt_tokens, self.prompt_done = progress.get("total", 0), progress.get("processed", 0)

    def _token(self, text: str, thinking: str, logprobs: list[dict[str, Any]] | None, out: list[Event]) -> None:
        if self._mute:
            return
        self.tokens += 1
        out.append(Token(text, thinking, logprobs))
        if self._guard_repeats:
            stripped = (text or thinking).strip()
            self._repeats = self._repeats + 1 if stripped == self._repeated else 0
            self._repeated = stripped
            if self._repeats > REPEAT_LIMIT:
                # R75: upstream just stops here; a client must still see the end.
                self.finished = True
                out.append(Done("length", prompt_tokens=self.prompt_tokens, output_tokens=self.tokens))

    def _done(self, reason: str, raw: dict[str, Any], tool_calls: tuple[ToolCall, ...] = ()) -> Done:
        self.finished = True
        timings = raw.get("timings") or {}
        done = Done(
            reason,
            prompt_tokens=timings.get("cache_n", 0) + timings.get("prompt_n", 0),
            cached_tokens=timings.get("cache_n", 0),
            prompt_ns=_nanoseconds(timings.get("prompt_ms", 0)),
            output_tokens=timings.get("predicted_n", 0),
            output_ns=_nanoseconds(timings.get("predicted_ms", 0)),
            tool_calls=tool_calls,
        )
        if self._mute:
            done.reason, done.output_tokens, done.output_ns, done.tool_calls = "length", 0, 0, ()
        return done

    def _logprobs(self, entries: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        if not entries or self._top_logprobs is None:
            return None
        result = []
        for entry in entries:
            fields = _logprob(entry)
            if self._top_logprobs:
                fields["top_logprobs"] = [_logprob(top) for top in entry.get("top_logprobs") or ()]
            result.append(fields)
        return result


class CompletionTranslator(_Common):
    """Events of `/completion`: `content` pieces, then one with `stop: true`."""

    def feed(self, raw: dict[str, Any], out: list[Event]) -> None:
        text = raw.get("content")
        if text:
            self._token(text, "", self._logprobs(raw.get("completion_probabilities")), out)
            if self.finished:
                return
        if raw.get("stop"):
            out.append(self._done("length" if raw.get("stop_type") == "limit" else "stop", raw))
        elif not text:
            self._progress(raw)


class ChatTranslator(_Common):
    """Events of `/v1/chat/completions`: deltas, then one with a `finish_reason`.

    Tool calls arrive in fragments; they are put together here and come with the `Done`.
    """

    def __init__(self, **switches: Any) -> None:
        super().__init__(**switches)
        self._calls: dict[int, dict[str, str]] = {}

    def feed(self, raw: dict[str, Any], out: list[Event]) -> None:
        choices = raw.get("choices")
        if not choices:
            return
        choice = choices[0]
        delta = choice.get("delta") or {}
        text, thinking = delta.get("content") or "", delta.get("reasoning_content") or ""
        if text or thinking:
            logprobs = choice.get("logprobs")
            self._token(text, thinking, self._logprobs(logprobs.get("content")) if logprobs else None, out)
            if self.finished:
                return
        for fragment in delta.get("tool_calls") or ():
            self._collect(fragment)
        reason = choice.get("finish_reason")
        if reason is not None:
            self._finish(reason, raw, out)
        else:
            self._progress(raw)

    def _collect(self, fragment: dict[str, Any]) -> None:
        call = self._calls.setdefault(fragment.get("index", 0), {"id": "", "name": "", "arguments": ""})
        function = fragment.get("function") or {}
        call["id"] = fragment.get("id") or call["id"]
        call["name"] += function.get("name") or ""
        call["arguments"] += function.get("arguments") or ""

    def _finish(self, reason: str, raw: dict[str, Any], out: list[Event]) -> None:
        calls = []
        for index, key in enumerate(sorted(self._calls)):
            call = self._calls[key]
            try:
                arguments = msgspec.json.decode(call["arguments"] or "{}", type=dict[str, Any])
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                self.finished = True
                text = f'llama-server returned invalid tool call arguments for "{call["name"]}": {error}'
                out.append(Failure(500, text))
                return
            calls.append(ToolCall(call["id"] or new_call_id(), index, call["name"], arguments))
        out.append(self._done("length" if reason == "length" else "stop", raw, tuple(calls)))


def new_call_id() -> str:
    """An id for a tool call that has none."""
    return "call_" + "".join(secrets.choice(_ALPHANUMERIC) for _ in range(8))


def _logprob(entry: dict[str, Any]) -> dict[str, Any]:
    fields = {"token": entry.get("token", ""), "logprob": entry.get("logprob", 0.0)}
    if entry.get("bytes"):
        fields["bytes"] = entry["bytes"]
    return fields


def _nanoseconds(milliseconds: float) -> int:
    return int(milliseconds * 1e6)
