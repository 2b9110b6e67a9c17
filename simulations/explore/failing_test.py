"""A failing run as a pytest file that can stay: laid out as `ruff format` does it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from textwrap import wrap
from typing import Final

from simulations.scenarios.scenario import spell
from simulations.scenarios.seeds import SHUFFLE, Spot

from .failing import Failing

__all__ = ["failing_test", "layout"]

WIDTH: Final = 120
MODULES: Final = {
    "simulations.explore.moments": ("Moment", "disturbed"),
    "simulations.explore.sweep": ("problems",),
    "simulations.scenarios": ("Fault", "Request", "Scenario", "What", "play"),
    "simulations.scenarios.seeds": ("ORDERS", "Spot"),
    "simulations.world.behaviour": ("Behaviour",),
    "trio_ollama.scheduler": ("Limits", "Policy"),
}


def failing_test(failing: Failing) -> str:
    """A module with one test: that this run breaks no rule."""
    spot, first = failing.spot, failing.wrong[0]
    name = re.sub(r"\W+", "_", first.split(":")[0].lower()).strip("_")
    body = [
        f"SCENARIO = {layout(spell(spot.scenario), room=len('SCENARIO = '))}",
        "",
        "",
        f"def test_{name}() -> None:",
        *wrap(first, WIDTH, initial_indent="    # ", subsequent_indent="    # ", break_long_words=False),
        *(_disturbed(failing) if failing.moments else _played(spot)),
    ]
    text = "\n".join(body) + "\n"
    imports = []
    for module, names in MODULES.items():
        if used := [name for name in names if re.search(rf"(?<![.\w]){name}\b", text)]:
            imports.append(f"from {module} import {', '.join(used)}\n")
    return '"""A run that broke a rule, made as small as it would go."""\n\n' + "".join(imports) + "\n" + text


def _played(spot: Spot) -> Iterator[str]:
    arguments = "SCENARIO" + (f", schedule={spot.schedule}" if spot.schedule else "")
    if spot.order != SHUFFLE:
        arguments += f', order=ORDERS["{spot.order}"]'
    yield f"    run = play({arguments})"
    yield r'    assert not run.broken, "\n".join([*run.broken, *run.trace])'


def _disturbed(failing: Failing) -> Iterator[str]:
    spot = failing.spot
    arguments = f", {spot.schedule}" if spot.schedule or spot.order != SHUFFLE else ""
    if spot.order != SHUFFLE:
        arguments += f', "{spot.order}"'
    moments = "".join(f', Moment.parse("{moment}")' for moment in failing.moments)
    yield f'    spot = Spot("found", SCENARIO{arguments})'
    yield f"    came = disturbed(spot{moments})"
    yield "    wrong = list(problems(came, spot.play()))"
    yield r'    assert not wrong, "\n".join([*wrong, *came.run.trace])'


def layout(expression: str, *, indent: int = 0, room: int = 0) -> str:
    """Python with one item on each line wherever all of them do not fit on one.

    `indent`: of the line it begins on; `room`: what else stands on that line.
    """
    return _lay(ast.parse(expression, mode="eval").body, indent, room)


def _lay(node: ast.expr, indent: int, room: int) -> str:
    line = _one_line(node)
    if indent + room + len(line) <= WIDTH:
        return line
    match node:
        case ast.Call(func=function, args=positional, keywords=keywords):
            items = [("", item) for item in positional] + [(f"{word.arg}=", word.value) for word in keywords]
            opened, closed = f"{_one_line(function)}(", ")"
        case ast.Tuple(elts=elements):
            items, opened, closed = [("", item) for item in elements], "(", ")"
        case ast.Dict(keys=keys, values=values):
            items = [(f"{_one_line(key)}: ", value) for key, value in zip(keys, values, strict=True) if key is not None]
            opened, closed = "{", "}"
        case _:
            return line
    deeper = indent + 4
    lines = [f"{' ' * deeper}{name}{_lay(value, deeper, len(name) + 1)}," for name, value in items]
    return "\n".join([opened, *lines, " " * indent + closed])


def _one_line(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str() as text):
            quoted = repr(text)
            return f'"{quoted[1:-1]}"' if quoted[0] == "'" and '"' not in text else quoted
        case ast.Call(func=function, args=positional, keywords=keywords):
            items = [_one_line(item) for item in positional]
            items += [f"{word.arg}={_one_line(word.value)}" for word in keywords]
            return f"{_one_line(function)}({', '.join(items)})"
        case ast.Tuple(elts=[only]):
            return f"({_one_line(only)},)"
        case ast.Tuple(elts=elements):
            return f"({', '.join(map(_one_line, elements))})"
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return (
                f"{{{', '.join(f'{_one_line(key)}: {_one_line(value)}' for key, value in pairs if key is not None)}}}"
            )
        case _:
            return ast.unparse(node)
