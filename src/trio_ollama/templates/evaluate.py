"""Runs a parsed template over its values, within bounds: a model file's template is not to be trusted."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from .errors import TemplateError
from .functions import FUNCTIONS
from .nodes import (
    Action,
    Branch,
    Chain,
    Command,
    Constant,
    Dot,
    Field,
    Function,
    Jump,
    Nil,
    Nodes,
    Operand,
    Pipeline,
    TemplateCall,
    Text,
    Variable,
)
from .values import Record, Value, is_true, kind, show

__all__ = ["DEFAULT_LIMITS", "Limits", "evaluate"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one rendering may do."""

    output: int = 16 << 20
    """Characters."""
    steps: int = 250_000
    """Nodes, loop rounds and commands; a second at most, and a chat of thousands of turns needs fewer."""
    work: int = 16 << 20
    """Characters and elements that functions read or made."""
    depth: int = 96
    """Blocks, pipelines and templates inside one another: keeps clear of Python's own bound on recursion."""


DEFAULT_LIMITS: Final = Limits()


class _Missing(enum.Enum):
    """No value came through a pipeline; nil would be one."""

    MISSING = 0


MISSING: Final = _Missing.MISSING


class _Jump(enum.Enum):
    """How a list of nodes ended early."""

    BREAK = "break"
    CONTINUE = "continue"


def evaluate(
    nodes: Nodes, defined: Mapping[str, Nodes], values: Value, today: datetime.date, limits: Limits = DEFAULT_LIMITS
) -> str:
    """The text of a template; `values` is what `.` and `$` are. Raises TemplateError."""
    run = _Run(defined, today, limits)
    try:
        run.template(nodes, values)
    except RecursionError:
        raise TemplateError("values or blocks are nested too deeply", run.line) from None
    return "".join(run.out)


class _Run:
    def __init__(self, defined: Mapping[str, Nodes], today: datetime.date, limits: Limits) -> None:
        self.defined = defined
        self.today = today
        self.limits = limits
        self.out: list[str] = []
        self.written = 0
        self.steps = 0
        self.work = 0
        self.depth = 0
        self.line = 1
        self.variables: list[tuple[str, Value]] = []
        """The innermost last; a name may stand there more than once."""

    def fail(self, reason: str) -> NoReturn:
        raise TemplateError(reason, self.line)

    def step(self) -> None:
        self.steps += 1
        if self.steps > self.limits.steps:
            self.fail(f"the template does more than {self.limits.steps} steps")

    def charge(self, value: Value) -> None:
        """Count what a function reads or makes."""
        if isinstance(value, str | list | tuple | bytes):
            self.work += len(value)
            if self.work > self.limits.work:
                self.fail(f"the template's functions handle more than {self.limits.work} characters")

    def enter(self) -> None:
        self.depth += 1
        if self.depth > self.limits.depth:
            self.fail(f"the template goes more than {self.limits.depth} levels deep")

    def write(self, text: str) -> None:
        self.written += len(text)
        if self.written > self.limits.output:
            self.fail(f"the prompt has more than {self.limits.output} characters")
        self.out.append(text)

    # Nodes.

    def template(self, nodes: Nodes, values: Value) -> None:
        """A whole template: it sees no variables but its own `$`."""
        outer, self.variables = self.variables, [("$", values)]
        self.walk(nodes, values)
        self.variables = outer

    def walk(self, nodes: Nodes, dot: Value) -> _Jump | None:
        self.enter()
        for node in nodes:
            self.step()
            match node:
                case Text(text=text):
                    self.write(text)
                case Action(pipeline=pipeline):
                    value = self.pipeline(pipeline, dot)
                    if not pipeline.variables:
                        self.write(self.shown(value))
                case Branch():
                    if jump := self.branch(node, dot):
                        self.depth -= 1
                        return jump
                case TemplateCall():
                    self.call(node, dot)
                case Jump(kind=name):
                    self.depth -= 1
                    return _Jump(name)
        self.depth -= 1
        return None

    def shown(self, value: Value) -> str:
        if value is None:
            return "<no value>"
        try:
            return show(value)
        except ValueError as error:
            self.fail(str(error))

    def branch(self, node: Branch, dot: Value) -> _Jump | None:
        known = len(self.variables)
        value = self.pipeline(node.pipeline, dot)
        if node.kind == "range":
            jump = self.loop(node, value, dot)
        elif is_true(value):
            jump = self.walk(node.body, value if node.kind == "with" else dot)
        else:
            jump = self.walk(node.otherwise, dot)
        del self.variables[known:]
        return jump

    def loop(self, node: Branch, value: Value, dot: Value) -> _Jump | None:
        if value is None:
            return self.walk(node.otherwise, dot)
        known = len(self.variables)
        ran = False
        for key, element in self.elements(node.pipeline, value):
            self.step()
            ran = True
            self.bind(node.pipeline, key, element)
            jump = self.walk(node.body, element)
            del self.variables[known:]
            if jump is _Jump.BREAK:
                break
        return None if ran else self.walk(node.otherwise, dot)

    def elements(self, pipeline: Pipeline, value: Value) -> Iterable[tuple[Value, Value]]:
        match kind(value):
            case "map":
                return sorted(value.items())
            case "list":
                return enumerate(value)
            case "integer" if len(pipeline.variables) < 2:
                return ((None, number) for number in range(value))
            case "integer":
                reason = "range over a number sets one variable only"
            case other:
                reason = f"range cannot go over a value of kind {other}"
        self.line = pipeline.line
        self.fail(reason)

    def bind(self, pipeline: Pipeline, key: Value, element: Value) -> None:
        """Give the loop's variables their values of this round. They hide those that the pipeline itself has set."""
        names = pipeline.variables
        for name, value in zip(names, (key, element) if len(names) > 1 else (element,), strict=False):
            if pipeline.assigns:
                self.assign(name, value)
            else:
                self.variables.append((name, value))

    def call(self, node: TemplateCall, dot: Value) -> None:
        self.line = node.line
        if node.name not in self.defined:
            self.fail(f'the template "{node.name}" is not defined')
        value = None if node.pipeline is None else self.pipeline(node.pipeline, dot)
        self.enter()
        self.template(self.defined[node.name], value)
        self.depth -= 1

    # Values.

    def pipeline(self, pipeline: Pipeline, dot: Value) -> Value:
        self.enter()
        self.line = pipeline.line
        value: Value = MISSING
        for command in pipeline.commands:
            self.step()
            value = self.command(command, dot, value)
        for name in pipeline.variables:
            if pipeline.assigns:
                self.assign(name, value)
            else:
                self.variables.append((name, value))
        self.depth -= 1
        return value

    def variable(self, name: str) -> Value:
        for known, value in reversed(self.variables):
            if known == name:
                return value
        # Declared in an argument that `and` or `or` did not evaluate.
        self.fail(f"the variable {name} is not defined")

    def assign(self, name: str, value: Value) -> None:
        for index in range(len(self.variables) - 1, -1, -1):
            if self.variables[index][0] == name:
                self.variables[index] = (name, value)
                return
        self.fail(f"the variable {name} is not defined")

    def command(self, command: Command, dot: Value, last: Value) -> Value:
        first, *others = command.operands
        if isinstance(first, Function):
            return self.function(first.name, others, dot, last)
        if others or last is not MISSING:
            self.fail("only functions take arguments")
        return self.operand(first, dot)

    def operand(self, operand: Operand, dot: Value) -> Value:
        match operand:
            case Field(names=names):
                return self.fields(dot, names)
            case Variable(name=name, names=names):
                return self.fields(self.variable(name), names)
            case Constant(value=constant):
                return constant
            case Dot():
                return dot
            case Pipeline():
                return self.pipeline(operand, dot)
            case Chain(base=base, names=names):
                return self.fields(self.pipeline(base, dot), names)
            case Function(name=name):
                return self.function(name, (), dot, MISSING)
            case Nil():
                return None

    def fields(self, value: Value, names: Sequence[str]) -> Value:
        if value is None:
            return None  # what a pipeline gave; a nil among the fields below is an error, as in Go
        for name in names:
            if isinstance(value, Mapping):
                value = value.get(name)
            elif isinstance(value, Record) and name in value.fields:
                value = value.fields[name]
            else:
                self.fail(f"a value of kind {kind(value)} has no field {name}")
        return value

    def function(self, name: str, operands: Sequence[Operand], dot: Value, last: Value) -> Value:
        line = self.line
        function = FUNCTIONS[name]
        if function is None:
            return self.some(name, operands, dot, last)
        arguments = [self.operand(operand, dot) for operand in operands]
        if last is not MISSING:
            arguments.append(last)
        self.line = line
        if len(arguments) < function.least or (function.most is not None and len(arguments) > function.most):
            self.fail(f"{name} does not take {len(arguments)} arguments")
        for argument in arguments:
            self.charge(argument)
        try:
            value = function.call(self.today, arguments)
        except ValueError as error:
            self.fail(f"{name}: {error}")
        self.charge(value)
        return value

    def some(self, name: str, operands: Sequence[Operand], dot: Value, last: Value) -> Value:
        """`and` and `or`: the first argument that decides, or the last; those after it are not evaluated."""
        if not operands and last is MISSING:
            self.fail(f"{name} does not take 0 arguments")
        value: Value = None
        for operand in operands:
            value = self.operand(operand, dot)
            if is_true(value) is (name == "or"):
                return value
        return value if last is MISSING else last
