"""The parts of the docs that follow from code: `python -m tests.support.living_docs` writes them anew."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trio_ollama.scheduler.core.lifecycle import TRANSITIONS, Event, State, Transition

__all__ = ["DOCS", "ROOT", "lifecycle_diagram", "main", "with_diagram", "with_tests"]

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"

_DIAGRAM: Final = re.compile(r"```mermaid\nstateDiagram-v2\n.*?```\n", re.DOTALL)
_CONSEQUENCES: Final = re.compile(r"\| state \| event \| then \|.*\n(?:\|.*\n)+")
_ROW: Final = re.compile(r"^\| ([RI][0-9]{2}) \| (.*) \| ([^|]*) \|$", re.MULTILINE)
_FILES: Final = re.compile(r"`([\w/]+\.py): (\w+)`")


def lifecycle_diagram(transitions: Mapping[tuple[State, Event], Transition] = TRANSITIONS) -> str:
    """The table of transitions as a state diagram: one arrow for each pair of states, labelled with the events."""
    arrows: dict[tuple[State, State], list[Event]] = {}
    for (state, event), transition in transitions.items():
        arrows.setdefault((state, transition.to), []).append(event)
    lines = [f"    {state} --> {to}: {' / '.join(events)}" for (state, to), events in arrows.items()]
    first, last = next(iter(State)), next(reversed(State))
    lines = [f"    [*] --> {first}", *lines, f"    {last} --> [*]"]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```", ""])


def consequences_table(transitions: Mapping[tuple[State, Event], Transition] = TRANSITIONS) -> str:
    """The same table in words: what follows from each transition, in order."""
    lines = [
        f"| {state} | {event} | {transition.to} | {'; '.join(transition.then) or '-'} |"
        for (state, event), transition in transitions.items()
    ]
    return "\n".join(["| state | event | then | what follows, in the same step |", "|---|---|---|---|", *lines, ""])


def with_diagram(text: str) -> str:
    """`text` with the state diagram and the table of consequences of today."""
    text = _DIAGRAM.sub(lambda _: lifecycle_diagram(), text, count=1)
    return _CONSEQUENCES.sub(lambda _: consequences_table(), text, count=1)


def with_tests(text: str) -> str:
    """The table of races with its last column filled anew: the files that name an entry; single tests stay."""
    sources = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for folder in ("tests", "simulations")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }

    def row(match: re.Match[str]) -> str:
        number, meaning, before = match.groups()
        kept = [f"`{path}: {test}`" for path, test in _FILES.findall(before) if f"def {test}(" in sources.get(path, "")]
        naming = [f"`{path}`" for path, source in sources.items() if mentions(source, number)]
        naming = [path for path in naming if not any(test.startswith(path[:-1]) for test in kept)]
        return f"| {number} | {meaning} | {', '.join([*kept, *naming]) or '-'} |"

    return _ROW.sub(row, text)


def mentions(source: str, number: str) -> bool:
    """Whether a source names an entry, in words or in the name of a test."""
    return re.search(rf"(?<![A-Za-z0-9]){number}(?![A-Za-z0-9])", source) is not None


def main() -> None:
    """Write both files anew."""
    for name, renew in (("scheduler.md", with_diagram), ("races.md", with_tests)):
        path = DOCS / name
        path.write_text(renew(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
