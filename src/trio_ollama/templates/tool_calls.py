"""Finds the tool calls in what a model writes, while it is still writing."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from .chat import ToolCall
from .pieces import BLANKS, overlap

__all__ = ["MAX_CALLS_TEXT", "Found", "ToolCallParser"]

MAX_CALLS_TEXT: Final = 1 << 20
"""Characters held back while a call is not complete; beyond it they are content."""

_BRACKETS: Final = {"{": "}", "[": "]"}


class Found(NamedTuple):
    """Content, then calls; either may be empty."""

    content: str = ""
    calls: tuple[ToolCall, ...] = ()


class _State(enum.Enum):
    BEFORE = "no tag yet"
    CALLING = "after the tag"
    DONE = "only content from here"


class ToolCallParser:
    """Takes the pieces of one answer. How the text is cut into pieces makes no difference to the sums of what is found.

    Text before `tag` is content; after it, each complete JSON object with the name of a tool in it, or before it, is a
    call. If there is none, all of the text is content in the end; if there are some, the rest between and after them
    is dropped. With `{` or `[` as tag, an answer that begins otherwise, or whose JSON calls nothing, is content.
    """

    def __init__(self, tag: str, tools: Sequence[str]) -> None:
        """`tools`: the names that may be called."""
        self.tag = tag
        self.bare = tag in _BRACKETS
        self.tools = frozenset(tools)
        longest_first = sorted(self.tools, key=len, reverse=True)
        self.pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first)) or '(?!)'})(?!\w)")
        self.state = _State.BEFORE
        self.text = ""
        """Not yet told; after the tag, all from the tag on."""
        self.calls = 0
        self.scanned = 0
        self.start = -1
        """Where the object that is open begins."""
        self.unit = 0
        """Where the text begins that the next call's name may stand in."""
        self.braces = 0
        self.brackets = 0
        self.quoted = False
        self.escaped = False

    def feed(self, text: str) -> Found:
        """What is known of the answer by now, and was not told before."""
        self.text += text
        content = ""
        if self.state is _State.BEFORE:
            content = self._before()
        if self.state is _State.CALLING:
            calls = self._scan()
            if self.state is _State.CALLING:
                if len(self.text) <= MAX_CALLS_TEXT:
                    return Found(content, calls)
                self.state = _State.DONE
            return Found(content + self._rest(), calls)
        if self.state is _State.DONE:
            content += self._rest()
        return Found(content)

    def finish(self) -> Found:
        """The answer is over: text in which no call was found is content."""
        self.state = _State.DONE
        return Found(self._rest())

    def _rest(self) -> str:
        text, self.text = self.text, ""
        return "" if self.calls else text

    def _before(self) -> str:
        """The content in front of the tag, as far as it surely is."""
        at = self.text.find(self.tag)
        end = at if at >= 0 else len(self.text) - overlap(self.text, self.tag)
        content, self.text = self.text[:end], self.text[end:]
        if self.bare and content.strip(BLANKS):
            self.state = _State.DONE
        elif at >= 0:
            self.state = _State.CALLING
            if not self.bare:
                self.scanned = self.unit = len(self.tag)
        return content

    def _scan(self) -> tuple[ToolCall, ...]:
        """Go on through the text, one character after the other, and take the objects that are complete."""
        found: list[ToolCall] = []
        for at in range(self.scanned, len(self.text)):
            self.scanned = at + 1
            if not self._closes(self.text[at]):
                if self.start < 0 and self.braces:
                    self.start = at
                continue
            if self.start >= 0 and not self.braces:
                call = self._call(self.text[self.unit : self.start], self.text[self.start : at + 1])
                self.start, self.unit = -1, at + 1
                if call is not None:
                    found.append(call)
                    self.calls += 1
            if self.bare and not self.calls and not (self.braces if self.tag == "{" else self.brackets):
                self.state = _State.DONE
                break
        return tuple(found)

    def _closes(self, character: str) -> bool:
        """Count a character in; whether it closes something. Quotes count only inside of JSON."""
        if self.quoted:
            self.quoted = self.escaped or character != '"'
            self.escaped = character == "\\" and not self.escaped
            return False
        match character:
            case '"' if self.braces or (self.brackets and self.tag == "["):
                self.quoted, self.escaped = True, False
            case "{":
                self.braces += 1
            case "[":
                self.brackets += 1
            case "}" if self.braces:
                self.braces -= 1
                return True
            case "]" if self.brackets:
                self.brackets -= 1
                return True
        return False

    def _call(self, before: str, text: str) -> ToolCall | None:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict):
            return None
        named = next((name for name in _values(value, "name") if name in self.tools), None)
        if named is None:
            found = self.pattern.search(before) or self.pattern.search(text)
            if found is None:
                return None
            named = found[0]
        return ToolCall(named, _arguments(value, named), index=self.calls)


def _objects(value: Any) -> Sequence[dict[str, Any]]:
    """The objects in a JSON value, outer ones first; a few levels down is all that a call has."""
    objects: list[dict[str, Any]] = []
    level = [value]
    for _ in range(4):
        found = [item for item in level if isinstance(item, dict)]
        objects += found
        lists = [item for item in level if isinstance(item, list)]
        level = [inner for item in found for inner in item.values()] + [inner for item in lists for inner in item]
    return objects


def _values(value: Any, key: str) -> Sequence[str]:
    return [item[key] for item in _objects(value) if isinstance(item.get(key), str)]


def _arguments(value: dict[str, Any], name: str) -> Mapping[str, Any]:
    for item in _objects(value):
        for key in ("arguments", "parameters"):
            found = item.get(key)
            if isinstance(found, str):
                try:
                    found = json.loads(found)
                except (ValueError, RecursionError):
                    continue
            if isinstance(found, dict):
                return found
    # A call without arguments names only itself.
    return {} if value.get("name") == name else value
