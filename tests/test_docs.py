"""The docs speak of what is there: names, states, variables and entries exist, and nothing is left out."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.support.living_docs import DOCS, ROOT, lifecycle_diagram, mentions, with_diagram
from trio_ollama.scheduler.core.decisions import Because
from trio_ollama.scheduler.core.lifecycle import State
from trio_ollama.settings import VARIABLES

PACKAGE: Final = ROOT / "src" / "trio_ollama"
PARITY, RACES, SCHEDULER = (
    (DOCS / name).read_text(encoding="utf-8") for name in ("parity.md", "races.md", "scheduler.md")
)
ANEW: Final = "write it anew with `python -m tests.support.living_docs`"
REFERENCE: Final = re.compile(r"`([\w/]+\.py)(?:: ([\w.]+))?`")


@cache
def names(path: Path) -> frozenset[str]:
    """What a module defines, dotted: functions, classes, constants, and of classes the attributes, too."""
    found = set()

    def collect(nodes: list[ast.stmt], prefix: str) -> None:
        for node in nodes:
            match node:
                case ast.ClassDef(name=name, body=body):
                    found.add(prefix + name)
                    collect(body, f"{prefix}{name}.")
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    found.add(prefix + name)
                    found.update(
                        prefix + inner.attr
                        for inner in ast.walk(node)
                        if isinstance(inner, ast.Attribute)
                        and isinstance(inner.ctx, ast.Store)
                        and isinstance(inner.value, ast.Name)
                        and inner.value.id == "self"
                    )
                case ast.Assign(targets=targets):
                    found.update(
                        prefix + inner.id
                        for target in targets
                        for inner in ast.walk(target)
                        if isinstance(inner, ast.Name)
                    )
                case ast.AnnAssign(target=ast.Name(id=name)):
                    found.add(prefix + name)

    collect(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return frozenset(found)


def located(path: str) -> Path | None:
    """A path as the docs write it: below the package, its scheduler, or the repository's root."""
    places = (PACKAGE / path, PACKAGE / "scheduler" / path, PACKAGE / "scheduler" / "core" / path, ROOT / path)
    return next((place for place in places if place.is_file()), None)


@pytest.mark.parametrize("name", ["parity.md", "races.md", "scheduler.md"])
def test_every_name_in_the_docs_exists(name: str) -> None:
    missing = []
    for path, thing in REFERENCE.findall((DOCS / name).read_text(encoding="utf-8")):
        file = located(path)
        if file is None or (thing and thing not in names(file)):
            missing.append(f"{path}: {thing}")
    assert not missing


def rows(text: str) -> list[list[str]]:
    """The cells of every table row, without head and rule."""
    lines = text.splitlines()
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines if line.startswith("|")]
    return [row for row in cells if not set("".join(row)) <= set("-: ")]


def test_the_parity_table_has_every_row_and_no_empty_cell() -> None:
    table = {row[0]: row for row in rows(PARITY) if re.fullmatch("[ABZ][0-9]{2,3}", row[0])}
    wanted = [
        f"{letter}{number:02}" for letter, last in (("A", 134), ("B", 33), ("Z", 50)) for number in range(1, last + 1)
    ]
    assert list(table) == wanted
    assert len(re.findall(r"^\| [ABZ][0-9]", PARITY, re.MULTILINE)) == len(wanted)
    for number, row in table.items():
        assert len(row) == 4, number
        assert all(row), number
        assert re.match(r"(same|DIFF: .|n/a: .|not yet: .)", row[3]), number
        assert row[2] != "nowhere" or row[3].startswith(("n/a", "DIFF")), number


def test_what_is_missing_is_listed() -> None:
    listing = PARITY.partition("## Not yet")[2].partition("\n## ")[0]
    marked = {row[0] for row in rows(PARITY) if len(row) == 4 and "not yet" in row[3].lower()}
    assert marked == set(re.findall(r"\b[ABZ][0-9]{2,3}\b", listing))


def test_the_races_are_all_there() -> None:
    numbers = [row[0] for row in rows(RACES) if re.fullmatch("[RI][0-9]{2}", row[0])]
    assert sorted(numbers) == sorted([f"I{n:02}" for n in range(1, 28)] + [f"R{n:02}" for n in range(1, 84)])
    assert all(len(row) == 3 and all(row) for row in rows(RACES) if row[0] in numbers)


def test_every_number_in_the_code_is_explained() -> None:
    known = {row[0] for text in (RACES, PARITY) for row in rows(text)}
    unknown = {
        (path.relative_to(ROOT).as_posix(), number)
        for folder in ("src", "tests", "simulations")
        for path in (ROOT / folder).rglob("*.py")
        for number in re.findall(r"(?<![\w-])([RIG][0-9]{2})\b", path.read_text(encoding="utf-8"))
        if number not in known
    }
    assert not unknown


def test_what_is_said_to_be_tested_is() -> None:
    wrong = []
    for row in rows(RACES):
        for path, test in REFERENCE.findall(row[-1]):
            file = ROOT / path
            if not test and not (file.is_file() and mentions(file.read_text(encoding="utf-8"), row[0])):
                wrong.append(f"{row[0]}: {path}")
    assert not wrong, ANEW


def test_the_state_diagram_is_the_table() -> None:
    assert lifecycle_diagram() in SCHEDULER, ANEW
    assert with_diagram(SCHEDULER) == SCHEDULER


def test_every_state_reason_and_bound_is_in_the_tour() -> None:
    first_cells = {row[0] for row in rows(SCHEDULER)}
    assert {state.value for state in State} <= first_cells
    listed = re.findall(r"`([A-Z][A-Z_]+)`", "".join("".join(row) for row in rows(SCHEDULER)))
    assert sorted(name for name in listed if name in Because.__members__) == sorted(Because.__members__)
    named = set(re.findall(r"`((?:TRIO_)?OLLAMA_\w+)`", SCHEDULER))
    assert named <= {variable.name for variable in VARIABLES}


def test_states_change_by_the_table_only() -> None:
    """No state is assigned but what `advance` returns, and nowhere but in one place; `Runner` has the first one."""
    changes = 0
    for path in sorted((PACKAGE / "scheduler").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Assign(targets=[ast.Attribute(attr="state")], value=value):
                    where = f"{path.name}:{node.lineno}"
                    assert path.name == "generations.py", where
                    assert ast.unparse(value) == "transition.to", where
                    changes += 1
                case ast.AugAssign(target=ast.Attribute(attr="state")):
                    raise AssertionError(f"{path.name}:{node.lineno}")
                case ast.Call(func=ast.Name(id="setattr" | "replace"), keywords=keywords):
                    assert not any(keyword.arg == "state" for keyword in keywords), f"{path.name}:{node.lineno}"
    assert changes == 1  # in `Generations.advance`, from what the table says
