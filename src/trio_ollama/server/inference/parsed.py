"""Answers to prompts that this server made: thoughts and tool calls are still in the text, and are taken out here."""

from __future__ import annotations

from typing import Any, Final

from trio_ollama.server.inference.events import Done, Event, Token, ToolCall
from trio_ollama.server.inference.translate import CompletionTranslator, Translator, new_call_id
from trio_ollama.server.inference.wish import Wish
from trio_ollama.templates import GoTemplate, Native, Tags, ThinkingSplitter, ToolCallParser, opens_thinking
from trio_ollama.templates import ToolCall as FoundCall

__all__ = ["ParsedTranslator", "answer_to"]

_THINK: Final = Tags("<think>", "</think>")
"""What models write whose own chat template says that they think, but not how."""


def answer_to(wish: Wish, prompt: str) -> Translator:
    """The translator for what follows a rendered prompt."""
    plain = CompletionTranslator(**{**wish.switches, "guard_repeats": True})
    mode = wish.target.mode
    tags, parser = None, None
    if isinstance(mode, GoTemplate):
        tags = mode.tags
        if wish.tools:
            parser = ToolCallParser(mode.tool_tag, [_name(tool) for tool in wish.tools])
    elif isinstance(mode, Native) and "thinking" in wish.target.capabilities:
        tags = _THINK
    # A constrained answer has no place for thoughts, even where the prompt has begun with them.
    splitter = ThinkingSplitter(tags, inside=opens_thinking(prompt, tags)) if tags and wish.format is None else None
    return ParsedTranslator(plain, splitter, parser) if splitter or parser else plain


def _name(tool: Any) -> str:
    function = tool.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else ""


class ParsedTranslator:
    """Events of another translator, with its text taken apart. Tool calls come with the `Done`, as from the runner."""

    def __init__(self, inner: Translator, splitter: ThinkingSplitter | None, parser: ToolCallParser | None) -> None:
        self._inner = inner
        self._splitter = splitter
        self._parser = parser
        self._calls: list[FoundCall] = []
        self._logprobs: list[dict[str, Any]] = []
        """Of tokens whose text is held back: they go with the next text."""

    @property
    def finished(self) -> bool:
        return self._inner.finished

    @finished.setter
    def finished(self, value: bool) -> None:
        self._inner.finished = value

    @property
    def prompt_tokens(self) -> int:
        return self._inner.prompt_tokens

    @property
    def prompt_done(self) -> int:
        return self._inner.prompt_done

    @property
    def tokens(self) -> int:
        return self._inner.tokens

    def feed(self, raw: dict[str, Any], out: list[Event]) -> None:
        events: list[Event] = []
        self._inner.feed(raw, events)
        for event in events:
            match event:
                case Token():
                    self._logprobs += event.logprobs or ()
                    self._tell(*self._take(event.text), out)
                case Done():
                    self._tell(*self._rest(), out, last=True)
                    event.tool_calls = tuple(map(_call, self._calls))
                    out.append(event)
                case _:
                    out.append(event)

    def _take(self, text: str) -> tuple[str, str]:
        thinking = ""
        if self._splitter is not None:
            thinking, text = self._splitter.feed(text)
        return thinking, self._without_calls(text)

    def _rest(self) -> tuple[str, str]:
        thinking = content = ""
        if self._splitter is not None:
            thinking, content = self._splitter.finish()
        content = self._without_calls(content)
        if self._parser is not None:
            rest, calls = self._parser.finish()
            content += rest
            self._calls += calls
        return thinking, content

    def _without_calls(self, text: str) -> str:
        if self._parser is None or not text:
            return text
        text, calls = self._parser.feed(text)
        self._calls += calls
        return text

    def _tell(self, thinking: str, text: str, out: list[Event], *, last: bool = False) -> None:
        if thinking or text or (last and self._logprobs):
            out.append(Token(text, thinking, self._logprobs or None))
            self._logprobs = []


def _call(found: FoundCall) -> ToolCall:
    return ToolCall(found.id or new_call_id(), found.index, found.name, dict(found.arguments))
