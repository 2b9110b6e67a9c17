"""Who may import whom, and the rules that no linter knows (docs/scheduler.md says why they are there)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

PACKAGE: Final = Path(__file__).parents[1] / "src" / "trio_ollama"
MODULES: Final = tuple(sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")))
CORE: Final = tuple(name for name in MODULES if name.startswith("scheduler/core/"))

ARROWS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "durations": (),
        "templates": (),
        "settings": ("durations",),
        "hardware": ("settings",),
        "runners": ("settings", "hardware.contract"),
        "models": ("settings", "durations", "templates"),
        "registry": ("models", "settings"),
        "scheduler.core": (),
        "scheduler": ("scheduler.core", "runners.contract", "hardware.contract"),
        "server": ("models", "registry", "templates", "scheduler", "runners.contract", "settings", "durations"),
        "server.daemon": ("server", "models", "registry", "templates", "scheduler", "runners", "hardware", "settings"),
        "cli": ("server", "models", "settings", "durations"),
    }
)
"""What each part may import beside itself, the standard library and third parties. The longest name that fits counts.
`server.daemon` is where the house is put together; the commands speak HTTP, `serve` alone starts a daemon."""

THREADS: Final = frozenset({"runners/llama_server/child.py"})
"""Where `start` starts no task: the child process has no trio."""


@cache
def tree(name: str) -> ast.Module:
    return ast.parse((PACKAGE / name).read_text(encoding="utf-8"), name)


def dotted(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports(name: str) -> Iterator[str]:
    """Absolute names of the imported modules; `from a import b` counts as `a`."""
    here = ["trio_ollama", *name.split("/")[:-1]]
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = here[: len(here) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            # `from . import events` names a module.
            yield from (f"{module}.{alias.name}" for alias in node.names) if node.module is None else (module,)


def part_of(module: str) -> str:
    fitting = [part for part in ARROWS if module == part or module.startswith(part + ".")]
    return max(fitting, key=len, default=module)


@pytest.mark.parametrize("name", MODULES)
def test_imports_follow_the_arrows(name: str) -> None:
    ours = [module.removeprefix("trio_ollama.") for module in imports(name) if module.startswith("trio_ollama.")]
    part = part_of(dotted(name))
    if not ours or part not in ARROWS:  # the package's own `__init__`
        assert not ours
        return
    allowed = (part, *ARROWS[part])
    wrong = [
        module
        for module in ours
        if not any(module == to or module.startswith(to + ".") for to in allowed)
        or (part_of(module) == "server.daemon" and dotted(name) != "cli.commands.serve" and part != "server.daemon")
    ]
    assert not wrong, f"{name} may import {allowed}, not {wrong}"


@pytest.mark.parametrize("name", CORE)
def test_the_core_is_pure(name: str) -> None:
    """Standard library and siblings; no clock, no chance, no I/O (I17, I27)."""
    for module in imports(name):
        top = module.partition(".")[0]
        assert top == "trio_ollama" or top in sys.stdlib_module_names, module
        assert top not in {"asyncio", "datetime", "io", "logging", "os", "pathlib", "random", "threading", "time"}
    assert not [node for node in ast.walk(tree(name)) if isinstance(node, ast.AsyncFunctionDef | ast.Await)]


SETS: Final = frozenset({"set", "frozenset"})
ORDERLESS: Final = frozenset({"sorted", "any", "all", "sum", "min", "max", "len", "set", "frozenset", "union"})


def called(node: ast.expr) -> str:
    """The last part of the name of what is called, or of a name itself."""
    match node:
        case ast.Call(func=function):
            return called(function)
        case ast.Attribute(attr=attribute):
            return attribute
        case ast.Name(id=name):
            return name
        case ast.Subscript(value=value):
            return called(value)
        case _:
            return ""


@cache
def names_of_sets() -> frozenset[str]:
    """What is annotated as a set anywhere in the core."""
    found = set()
    for name in CORE:
        for node in ast.walk(tree(name)):
            match node:
                case ast.AnnAssign(target=target, annotation=annotation) if called(annotation) in SETS:
                    found.add(called(target))
                case ast.arg(arg=argument, annotation=ast.expr() as annotation) if called(annotation) in SETS:
                    found.add(argument)
                case ast.FunctionDef(name=function, returns=ast.expr() as returns) if called(returns) in SETS:
                    found.add(function)
    return frozenset(found)


def is_set(node: ast.expr) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.BinOp(left=left, right=right, op=ast.Sub() | ast.BitOr() | ast.BitAnd()):
            return is_set(left) or is_set(right)
        case ast.Call() | ast.Name() | ast.Attribute():
            return called(node) in SETS | names_of_sets()
        case _:
            return False


@pytest.mark.parametrize("name", CORE)
def test_the_core_never_iterates_over_a_set(name: str) -> None:
    """The order of a set of strings differs from run to run, and with it the decisions would (I27)."""
    module = tree(name)
    orderless = {
        argument
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and called(node) in ORDERLESS
        for argument in node.args
    }
    wrong = []
    for node in ast.walk(module):
        match node:
            case ast.For(iter=over) if is_set(over):
                wrong.append(over.lineno)
            case ast.ListComp(generators=loops) | ast.DictComp(generators=loops) | ast.GeneratorExp(generators=loops):
                if node not in orderless:
                    wrong += [loop.iter.lineno for loop in loops if is_set(loop.iter)]
    assert not wrong, f"{name}: sort them first, lines {wrong}"


@pytest.mark.parametrize("name", [name for name in MODULES if name not in THREADS])
def test_every_task_has_a_name(name: str) -> None:
    """So that a task tree says what hangs, and for whom."""
    nameless = [
        node.lineno
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"start_soon", "start"}
        and node.args
        and not isinstance(node.args[0], ast.Constant)
        and not any(keyword.arg == "name" for keyword in node.keywords)
    ]
    assert not nameless, f"{name}, lines {nameless}"


MUTABLE: Final = frozenset({"list", "dict", "set", "deque", "defaultdict", "Counter", "OrderedDict", "bytearray"})


def is_mutable(node: ast.expr | None) -> bool:
    displays = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp
    return isinstance(node, displays) or (isinstance(node, ast.Call) and called(node) in MUTABLE)


@pytest.mark.parametrize("name", MODULES)
def test_no_module_keeps_state(name: str) -> None:
    """Module-level containers are read-only, for the eye (a tuple, a frozenset, a MappingProxyType) or for mypy."""
    wrong = []
    for node in tree(name).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.AnnAssign(target=ast.Name(id="__all__")):
                pass
            case ast.Assign(value=value) if is_mutable(value):
                wrong.append(node.lineno)
            case ast.AnnAssign(annotation=annotation, value=value) if is_mutable(value):
                if called(annotation) not in {"Mapping", "Sequence", "Collection", "Final"}:
                    wrong.append(node.lineno)
    wrong += [node.lineno for node in ast.walk(tree(name)) if isinstance(node, ast.Global)]
    assert not wrong, f"{name}, lines {wrong}"


@pytest.mark.parametrize("name", [name for name in MODULES if (PACKAGE / name).stat().st_size])
def test_every_module_says_what_it_is_and_what_it_offers(name: str) -> None:
    module = tree(name)
    assert ast.get_docstring(module), "no docstring"
    targets = [
        called(target)
        for node in module.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    assert targets.count("__all__") == 1, "no __all__"
