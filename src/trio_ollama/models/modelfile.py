"""Modelfiles: `INSTRUCTION arguments`, one to a line, values over several lines in quotes."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from .errors import ModelfileError
from .manifest import Message
from .parameters import parse_parameters

__all__ = ["Command", "Modelfile", "write_commands"]

_INSTRUCTIONS: Final = (
    "from",
    "license",
    "template",
    "system",
    "adapter",
    "draft",
    "renderer",
    "parser",
    "parameter",
    "message",
    "requires",
)
_ROLES: Final = ("system", "user", "assistant")
_MAY_BE_EMPTY: Final = frozenset(("license", "template", "system", "message"))
_VERSION: Final = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)(\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?)?)?")


@dataclass(frozen=True, slots=True)
class Command:
    """One instruction, its name in lower case."""

    instruction: str
    value: str
    key: str = ""
    """The parameter's name or the message's role."""


@dataclass(frozen=True, slots=True)
class Modelfile:
    """A parsed Modelfile; the properties gather what `create` needs, in the file's order."""

    commands: tuple[Command, ...]

    @classmethod
    def parse(cls, data: bytes | str) -> Modelfile:
        """Read a file's bytes (UTF-8, or UTF-16 with a byte order mark) or its text. Raises ModelfileError."""
        commands = tuple(_commands(data if isinstance(data, str) else _decode(data)))
        if not any(command.instruction == "from" for command in commands):
            raise ModelfileError("no FROM line")
        return cls(commands)

    def _values(self, instruction: str) -> tuple[str, ...]:
        return tuple(command.value for command in self.commands if command.instruction == instruction)

    def _last(self, instruction: str) -> str:
        return next(reversed(self._values(instruction)), "")

    @property
    def sources(self) -> tuple[str, ...]:
        """FROM: model names, or paths as written."""
        return self._values("from")

    @property
    def adapters(self) -> tuple[str, ...]:
        """ADAPTER: paths as written."""
        return self._values("adapter")

    @property
    def draft(self) -> str:
        """DRAFT: a path as written; empty if none. Raises ModelfileError if it is FROM's."""
        draft = self._last("draft")
        if draft and draft in self.sources:
            raise ModelfileError("DRAFT must not be the same path as FROM")
        return draft

    @property
    def template(self) -> str:
        """TEMPLATE; the last one wins."""
        return self._last("template")

    @property
    def system(self) -> str:
        """SYSTEM; the last one wins."""
        return self._last("system")

    @property
    def licenses(self) -> tuple[str, ...]:
        """LICENSE, all of them."""
        return self._values("license")

    @property
    def renderer(self) -> str:
        """RENDERER."""
        return self._last("renderer")

    @property
    def parser(self) -> str:
        """PARSER."""
        return self._last("parser")

    @property
    def requires(self) -> str:
        """REQUIRES. Raises ModelfileError unless it is a version."""
        version = self._last("requires")
        if version and not _VERSION.fullmatch(version.removeprefix("v")):
            raise ModelfileError("requires must be a valid semver (e.g. 0.14.0)")
        return version

    @property
    def messages(self) -> tuple[Message, ...]:
        """MESSAGE, all of them."""
        return tuple(Message(item.key, item.value) for item in self.commands if item.instruction == "message")

    @property
    def parameters(self) -> dict[str, Any]:
        """PARAMETER, with typed values. Raises ModelfileError."""
        return parse_parameters((item.key, item.value) for item in self.commands if item.instruction == "parameter")


def write_commands(commands: Iterable[Command]) -> str:
    """The text that parses to these commands, one to a line."""
    lines = []
    for command in commands:
        words = (command.instruction.upper(), command.key, _quote(command.value))
        lines.append(" ".join(word for word in words if word))
    return "".join(f"{line}\n" for line in lines)


def _decode(data: bytes) -> str:
    for mark, encoding in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace")
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")


def _commands(text: str) -> Iterable[Command]:
    lines = enumerate(text.replace("\r\n", "\n").split("\n"), start=1)
    for number, line in lines:
        word, rest = _first_word(line)
        if not word or word.startswith("#"):
            continue
        instruction, key = word.lower(), ""
        if instruction not in _INSTRUCTIONS:
            raise ModelfileError(f"(line {number}): command must be one of {_listed(_INSTRUCTIONS)}")
        if instruction in ("parameter", "message"):
            key, rest = _first_word(rest)
            if instruction == "message" and key not in _ROLES:
                raise ModelfileError(f"(line {number}): message role must be one of {_listed(_ROLES)}")
        value, parts = _unquote(rest.strip()), [rest]
        while value is None:
            _, more = next(lines, (0, None))
            if more is None:
                raise ModelfileError("unexpected EOF")
            parts.append(more)
            if more.rstrip().endswith('"'):
                value = _unquote("\n".join(parts).strip())
        if not value and instruction not in _MAY_BE_EMPTY:
            raise ModelfileError("unexpected EOF")
        yield Command(instruction, value, key)


def _first_word(text: str) -> tuple[str, str]:
    word, *rest = text.lstrip().split(None, 1) or [""]
    return word, rest[0] if rest else ""


def _listed(words: tuple[str, ...]) -> str:
    quoted = [f'"{word}"' for word in words]
    return f"{', '.join(quoted[:-1])}, or {quoted[-1]}"


def _unquote(text: str) -> str | None:
    """The value that is written so; None if a quote is still open."""
    for quote in ('"""', '"'):
        if text.startswith(quote):
            closed = len(text) >= 2 * len(quote) and text.endswith(quote)
            return text[len(quote) : -len(quote)] if closed else None
    return text


def _quote(value: str) -> str:
    if "\n" in value or value != value.strip() or value.startswith('"') or not value:
        quote = '"""' if '"' in value else '"'
        return f"{quote}{value}{quote}"
    return value
