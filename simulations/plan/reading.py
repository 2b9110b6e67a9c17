"""Reads traces of requests: JSON lines as `trio-ollama serve --record` writes them, or fewer fields written by hand.

A request by hand needs `at` and `model`; a line that does not say what it is is a request.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from trio_ollama.scheduler import LoadOptions, ModelFacts, Policy

from .trace import SIZE, Asked, Header, Load, Seen, Trace

__all__ = ["TraceError", "parse_trace", "read_trace"]

FORMAT: Final = 1
_OUTCOMES: Final = ("answered", "cancelled", "failed", "refused")


class TraceError(Exception):
    """A line that cannot be understood; says which one, and why."""


def read_trace(path: Path) -> Trace:
    """Raises `TraceError` and `OSError`."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        return parse_trace(lines, path.name)


def parse_trace(lines: Iterable[str], name: str = "trace") -> Trace:
    """A trace from its lines. Raises `TraceError` with the number of the first line that is wrong."""
    reader = _Reader()
    torn: TraceError | None = None
    for number, text in enumerate(lines, 1):
        try:
            if not text.strip():
                continue
            line = _object(text)
            if torn is not None and line.get("line") != "header":
                raise torn
            torn = None
            reader.read(line)
        except _Bad as error:
            problem = TraceError(f"{name}:{number}: {error}")
            if torn is not None:
                raise torn from None
            if error.torn:  # a daemon that was killed leaves half a line before the next start, or at the end
                torn = problem
                continue
            raise problem from None
    if torn is not None and text.endswith("\n"):
        raise torn
    if not reader.trace.requests:
        raise TraceError(f"{name}: there is no request in it")
    reader.trace.requests.sort(key=lambda asked: asked.at)
    return reader.trace


class _Bad(Exception):
    def __init__(self, text: str, *, torn: bool = False) -> None:
        super().__init__(text)
        self.torn = torn


def _object(text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError as error:
        raise _Bad(f"this is not JSON: {error}", torn=True) from None
    if not isinstance(line, dict):
        raise _Bad("a line must be a JSON object")
    return line


class _Reader:
    """Collects lines. Instants of a later start are moved to where they are on the first one's clock."""

    def __init__(self) -> None:
        self.trace = Trace()
        self._first: datetime | None = None
        self._shift = 0.0
        self._start = 0
        """Which start a generation belongs to: each counts them anew."""
        self._going: dict[int, float] = {}

    def read(self, line: dict[str, Any]) -> None:
        match line.get("line", "request"):
            case "header":
                self._header(line)
            case "model":
                facts = self._model(line)
                self.trace.models[facts.name] = facts
            case "load":
                self._load(line)
            case "unload":
                self.trace.unloads.append((_get(line, "model", str), _get(line, "because", str, "")))
                if _get(line, "leases", int, 1) == 0:
                    self._going[_get(line, "gen", int)] = _number(line, "at")
            case "gone":
                began = self._going.pop(_get(line, "gen", int), None)
                if began is not None:
                    self.trace.exit_times.append(_number(line, "at") - began)
            case "request":
                self._request(line)
            case "left_out":
                self.trace.left_out += _get(line, "count", int, 0)
            case other:
                raise _Bad(f"there are no lines of kind {other!r}")

    def _header(self, line: dict[str, Any]) -> None:
        version = _get(line, "format", int, FORMAT)
        if version > FORMAT:
            raise _Bad(f"its format is {version}, this version knows {FORMAT}")
        started = None
        if text := _get(line, "started", str, ""):
            try:
                started = datetime.fromisoformat(text)
            except ValueError:
                raise _Bad(f'"started": {text!r} is not a date') from None
        if self._first is None:
            self._first = started
        elif started is not None:
            self._shift = (started - self._first).total_seconds()
        self._start += 1
        self._going.clear()
        known = {item.name for item in fields(Policy)}
        policy = {name: value for name, value in _get(line, "policy", dict, {}).items() if name in known}
        self.trace.header = Header(
            started=started,
            devices=tuple(_get(line, "devices", list, [])),
            policy=Policy(**policy),
            gpu_overhead=_get(line, "gpu_overhead", int, 0),
        )

    def _model(self, line: dict[str, Any]) -> ModelFacts:
        name = _get(line, "name", str)
        weights = _get(line, "weights", str, name)
        known = {item.name for item in fields(ModelFacts)} - {"key", "name", "path"}
        more = {key: value for key, value in line.items() if key in known}
        more["families"] = tuple(more.get("families", ()))
        more["file_size"] = int(_number(line, "file_size", SIZE))
        return ModelFacts(key=weights, name=name, path=weights, **more)

    def _load(self, line: dict[str, Any]) -> None:
        self.trace.loads.append(
            Load(
                at=_number(line, "at") + self._shift,
                model=_get(line, "model", str),
                gen=self._gen(line) or 0,
                seconds=_number(line, "seconds"),
                reserved={str(id_): int(amount) for id_, amount in _get(line, "reserved", dict, {}).items()},
                placement=_get(line, "placement", str, "single"),
                failed=_get(line, "failed", bool, False),
            )
        )

    def _gen(self, line: dict[str, Any]) -> int | None:
        gen = _get(line, "gen", int, 0)
        return self._start * 1_000_000 + gen if gen else None

    def _request(self, line: dict[str, Any]) -> None:
        model, outcome = _get(line, "model", str), _get(line, "outcome", str, "")
        what = _get(line, "what", str, "generate")
        if what not in ("generate", "embed", "load"):
            raise _Bad(f'"what": {what!r} is none of generate, embed, load')
        seen = None
        if outcome:
            if outcome not in _OUTCOMES:
                raise _Bad(f'"outcome": {outcome!r} is none of {", ".join(_OUTCOMES)}')
            times = {name: _number(line, name) for name in ("queue", "load", "first", "prompt_time") if name in line}
            gen, error = self._gen(line), _get(line, "error", str, "")
            seen = Seen(model=model, outcome=outcome, total=_number(line, "total", 0), gen=gen, error=error, **times)
        given = outcome in ("", "answered")
        tokens = {
            name: _get(line, name, int)
            for name in ("prompt_tokens", "output_tokens")
            # Of an answer that broke off nobody knows how long it would have been, only how far it came.
            if name in line and (given or (line[name] and name == "prompt_tokens"))
        }
        known = {item.name for item in fields(LoadOptions)}
        options = {key: value for key, value in _get(line, "options", dict, {}).items() if key in known}
        if "num_ctx" in options:
            options.setdefault("num_ctx_auto", bool(outcome))  # a recorder writes it where it is not so
        self.trace.requests.append(
            Asked(
                at=_number(line, "at") + self._shift,
                model=model,
                what=what,
                cached_tokens=_get(line, "cached_tokens", int, 0),
                inputs=_get(line, "inputs", int, 1),
                options=LoadOptions(**options),
                keep_alive=_number(line, "keep_alive") if line.get("keep_alive") is not None else None,
                left=_number(line, "left") if line.get("left") is not None else None,
                cut=outcome == "cancelled" and _get(line, "output_tokens", int, 0) > 0,
                seen=seen,
                **tokens,
            )
        )


_NEEDED: Final = object()


def _get(line: Mapping[str, Any], name: str, kind: type[Any], default: Any = _NEEDED) -> Any:
    if name not in line:
        if default is _NEEDED:
            raise _Bad(f'"{name}" is missing')
        return default
    value = line[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        words = {str: "a text", int: "a whole number", bool: "true or false", list: "a list", dict: "an object"}
        raise _Bad(f'"{name}" must be {words[kind]}')
    if isinstance(value, int) and value < 0:
        raise _Bad(f'"{name}" must not be negative')
    return value


def _number(line: Mapping[str, Any], name: str, default: float | None = None) -> float:
    value = line.get(name, default)
    if value is None:
        raise _Bad(f'"{name}" is missing')
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _Bad(f'"{name}" must be a number')
    if value < 0 and name != "keep_alive":
        raise _Bad(f'"{name}" must not be negative')
    return float(value)
