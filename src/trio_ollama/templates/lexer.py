"""Cuts a template's text into tokens, with the trimming of `{{-` and `-}}` already done."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from .errors import TemplateError

__all__ = ["KEYWORDS", "Kind", "Token", "tokenize"]

KEYWORDS: Final = frozenset(
    ("block", "break", "continue", "define", "else", "end", "if", "nil", "range", "template", "with")
)

_BLANKS: Final = " \t\r\n"
_LEFT, _RIGHT, _RIGHT_TRIMMING = "{{", "}}", "-}}"
_SPACE: Final = re.compile(f"[{_BLANKS}]+")
_NO_SPACE: Final = re.compile(f"[{_BLANKS}]*")
_WORD: Final = re.compile(r"\w*")


class Kind(enum.Enum):
    """What a token is; the value is how messages call it."""

    TEXT = "text"
    OPEN = "{{"
    CLOSE = "}}"
    SPACE = "a blank"
    PIPE = "|"
    DECLARE = ":="
    ASSIGN = "="
    COMMA = ","
    LEFT_PAREN = "("
    RIGHT_PAREN = ")"
    DOT = "."
    FIELD = "field"
    VARIABLE = "variable"
    WORD = "function"
    KEYWORD = "keyword"
    BOOL = "truth value"
    NUMBER = "number"
    CHARACTER = "character"
    STRING = "string"
    RAW_STRING = "raw string"
    END = "the end of the template"


class Token(NamedTuple):
    """A piece of the template as it was written: quotes, dots and dollars are still there."""

    kind: Kind
    text: str
    line: int


_MARKS: Final = (
    (":=", Kind.DECLARE),
    ("=", Kind.ASSIGN),
    ("|", Kind.PIPE),
    (",", Kind.COMMA),
    ("(", Kind.LEFT_PAREN),
    (")", Kind.RIGHT_PAREN),
)
_QUOTED: Final = (
    ('"', Kind.STRING, re.compile(r'"(?:[^"\\\n]|\\[^\n])*"')),
    ("`", Kind.RAW_STRING, re.compile(r"`[^`]*`")),
    ("'", Kind.CHARACTER, re.compile(r"'(?:[^'\\\n]|\\[^\n])*'")),
)
_NUMBER: Final = re.compile(r"[+-]?\.?[0-9](?:[eEpP][+-]|[\w.])*")
_AFTER_WORD: Final = re.compile(rf"[{_BLANKS}.,|:()]|\}}\}}|$")


def tokenize(text: str) -> Iterator[Token]:
    """The tokens of a template, ended by one of kind END. Raises TemplateError."""
    return _Lexer(text).tokens()


class _Lexer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.counted = 0
        """Up to where line breaks are counted."""
        self.parens = 0

    def token(self, kind: Kind, end: int) -> Token:
        """The text up to `end` becomes a token."""
        start, self.at = self.at, end
        return self.made(kind, start, end)

    def made(self, kind: Kind, start: int, end: int) -> Token:
        self.line += self.text.count("\n", self.counted, start)
        self.counted = start
        return Token(kind, self.text[start:end], self.line)

    def error(self, reason: str) -> TemplateError:
        return TemplateError(reason, self.made(Kind.END, self.at, self.at).line)

    def tokens(self) -> Iterator[Token]:
        text = self.text
        while True:
            left = text.find(_LEFT, self.at)
            end = left if left >= 0 else len(text)
            trims = left >= 0 and text.startswith("-", left + 2) and text[left + 3 : left + 4] in tuple(_BLANKS)
            kept = len(text[self.at : end].rstrip(_BLANKS)) + self.at if trims else end
            if kept > self.at:
                yield self.made(Kind.TEXT, self.at, kept)
            self.at = end
            if left < 0:
                yield self.token(Kind.END, len(text))
                return
            if text.startswith("/*", left + 2 + 2 * trims):
                self.comment(left + 2 + 2 * trims)
                continue
            yield self.token(Kind.OPEN, left + 2)
            self.at += 2 * trims
            yield from self.action()

    def comment(self, start: int) -> None:
        end = self.text.find("*/", start)
        if end < 0:
            raise self.error("a comment is not closed")
        width = self.right(end + 2)
        if not width:
            raise self.error("a comment ends before its }}")
        self.close(end + 2 + width, trims=width > 2)

    def right(self, at: int) -> int:
        """Characters of the `}}` that stands here, with its trimming marker; 0 if there is none."""
        if self.text.startswith(_RIGHT, at):
            return 2
        blank = self.text[at : at + 1]
        return 4 if blank and blank in _BLANKS and self.text.startswith(_RIGHT_TRIMMING, at + 1) else 0

    def close(self, end: int, *, trims: bool) -> None:
        found = _NO_SPACE.match(self.text, end)
        self.at = found.end() if found and trims else end

    def action(self) -> Iterator[Token]:
        """Everything up to and including the `}}`."""
        self.parens = 0
        while True:
            if width := self.right(self.at):
                if self.parens:
                    raise self.error("a ( is not closed")
                yield self.made(Kind.CLOSE, self.at, self.at + width)
                self.close(self.at + width, trims=width > 2)
                return
            if self.at >= len(self.text):
                raise self.error("an action is not closed: }} is missing")
            yield self.inside()

    def inside(self) -> Token:
        text, at = self.text, self.at
        if space := _SPACE.match(text, at):
            # The last blank before `-}}` belongs to that marker.
            marker = text.startswith(_RIGHT_TRIMMING, space.end())
            return self.token(Kind.SPACE, space.end() - marker)
        for mark, kind in _MARKS:
            if text.startswith(mark, at):
                return self.mark(kind, at + len(mark))
        for quote, kind, pattern in _QUOTED:
            if text.startswith(quote, at):
                found = pattern.match(text, at)
                if found is None:
                    raise self.error(f"a {kind.value} is not closed")
                return self.token(kind, found.end())
        if found := _NUMBER.match(text, at):
            return self.token(Kind.NUMBER, found.end())
        if text[at] in ".$":
            return self.named(at + 1)
        if _is_word(text[at]):
            return self.named(at)
        raise self.error(f"unexpected {text[at]!r} in an action")

    def mark(self, kind: Kind, end: int) -> Token:
        self.parens += (kind is Kind.LEFT_PAREN) - (kind is Kind.RIGHT_PAREN)
        if self.parens < 0:
            raise self.error("a ) without its (")
        return self.token(kind, end)

    def named(self, start: int) -> Token:
        """A field, a variable or a word; its name begins at `start`."""
        found = _WORD.match(self.text, start)
        end = found.end() if found else start
        name = self.text[start:end]
        if not _AFTER_WORD.match(self.text, end) or not all(map(_is_word, name)):
            raise self.error(f"unexpected {self.text[end : end + 1] or name!r} after {self.text[self.at : end]}")
        return self.token(self.kind_of(self.text[self.at], name), end)

    def kind_of(self, first: str, name: str) -> Kind:
        if first == "$":
            return Kind.VARIABLE
        if first == ".":
            return Kind.FIELD if name else Kind.DOT
        if name in ("true", "false"):
            return Kind.BOOL
        return Kind.KEYWORD if name in KEYWORDS else Kind.WORD


def _is_word(character: str) -> bool:
    return character == "_" or character.isalpha() or character.isdecimal()
