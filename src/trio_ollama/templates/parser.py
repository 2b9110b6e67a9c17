"""Builds the tree of a template, and refuses what this engine does not support."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from . import literals
from .errors import TemplateError
from .formatting import check_format
from .functions import FUNCTIONS, UNSUPPORTED
from .lexer import Kind, Token
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
    Node,
    Nodes,
    Operand,
    Pipeline,
    TemplateCall,
    Text,
    Variable,
)
from .stream import TokenStream

__all__ = ["MAX_NESTING", "MAX_SIZE", "Parsed", "parse"]

MAX_SIZE: Final = 1 << 20
"""Characters of a template."""
MAX_NESTING: Final = 48
"""Blocks, `else if`s and parentheses inside one another; the recursion below and in the evaluator is bounded by it."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The nodes of a template, and those of the templates it defines, by name."""

    root: Nodes
    defined: Mapping[str, Nodes]


def parse(text: str) -> Parsed:
    """Raises TemplateError for text that is no template, too large, or uses what is not supported."""
    if len(text) > MAX_SIZE:
        raise TemplateError(f"the template has more than {MAX_SIZE} characters")
    return _Parser(text).whole()


class _Parser(TokenStream):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.variables = ["$"]
        """Those that can be used here, the innermost last."""
        self.loops = 0
        self.depth = 0
        self.defined: dict[str, Nodes] = {}

    @contextmanager
    def nested(self) -> Iterator[None]:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise self.error(f"more than {MAX_NESTING} levels inside one another")
        yield
        self.depth -= 1

    # Lists of nodes.

    def whole(self) -> Parsed:
        nodes: list[Node] = []
        while (token := self.next()).kind is not Kind.END:
            if token.kind is Kind.OPEN and self.peek_solid().text == "define":
                self.solid()
                self.definition()
                continue
            self.push(token)
            node, word = self.node()
            if word:
                raise self.error(f"unexpected {{{{{word}}}}}")
            nodes += [node] if node else []
        return Parsed(tuple(nodes), self.defined)

    def definition(self) -> None:
        name = self.name("define")
        self.expect(Kind.CLOSE, "define")
        outer, self.variables = self.variables, ["$"]
        self.add(name, self.closed("define"))
        self.variables = outer

    def add(self, name: str, nodes: Nodes) -> None:
        """Of two definitions only one may have content, and that one counts."""
        if _is_empty(self.defined.get(name, ())):
            self.defined[name] = nodes
        elif not _is_empty(nodes):
            raise self.error(f'the template "{name}" is defined twice')

    def name(self, where: str) -> str:
        token = self.solid()
        if token.kind not in (Kind.STRING, Kind.RAW_STRING):
            raise self.unexpected(token, where)
        return self.literal(literals.string, token)

    def closed(self, where: str) -> Nodes:
        nodes, word = self.block(where)
        if word != "end":
            raise self.error(f"unexpected {{{{{word}}}}} in {where}")
        return nodes

    def block(self, where: str) -> tuple[Nodes, str]:
        """Nodes up to an `end` or `else`, and which it was: see `node`."""
        nodes: list[Node] = []
        with self.nested():
            while self.peek().kind is not Kind.END:
                node, word = self.node()
                if word:
                    return tuple(nodes), word
                nodes += [node] if node else []
        raise self.error(f"{{{{end}}}} is missing for {where}")

    def node(self) -> tuple[Node | None, str]:
        """A node, or what stands in its place: `end`, `else`, or the `else` of `else if` and `else with`."""
        token = self.next()
        if token.kind is Kind.TEXT:
            return Text(token.text), ""
        if token.kind is not Kind.OPEN:
            raise self.unexpected(token, "the template")
        word = self.peek_solid()
        if word.kind is not Kind.KEYWORD or word.text == "nil":
            return Action(self.pipeline("command", Kind.CLOSE)), ""
        self.solid()
        match word.text:
            case "if" | "with" | "range" as kind:
                return self.branch(kind), ""
            case "else":
                following = self.peek_solid().text
                if following in ("if", "with"):
                    return None, f"else {following}"
                self.expect(Kind.CLOSE, "else")
                return None, "else"
            case "end":
                self.expect(Kind.CLOSE, "end")
                return None, "end"
            case "template" | "block" as kind:
                return self.call(kind), ""
            case "break" | "continue" as kind:
                if not self.loops:
                    raise self.error(f"{{{{{kind}}}}} outside of range")
                self.expect(Kind.CLOSE, kind)
                return Jump(kind), ""
            case _:
                raise self.error("define stands inside of another block")

    def branch(self, kind: Literal["if", "with", "range"]) -> Branch:
        known = len(self.variables)
        pipeline = self.pipeline(kind, Kind.CLOSE)
        self.loops += kind == "range"
        body, word = self.block(kind)
        self.loops -= kind == "range"
        otherwise: Nodes = ()
        if word == f"else {kind}":
            # `else if` is an `if` inside of `else`, and shares its `end`.
            self.solid()
            with self.nested():
                otherwise = (self.branch(kind),)
        elif word == "else":
            otherwise = self.closed(kind)
        elif word != "end":
            raise self.error(f"unexpected {{{{{word}}}}} in {kind}")
        del self.variables[known:]
        return Branch(kind, pipeline, body, otherwise)

    def call(self, kind: Literal["template", "block"]) -> TemplateCall:
        name, line = self.name(kind), self.line
        pipeline = None
        if kind == "block" or self.peek_solid().kind is not Kind.CLOSE:
            pipeline = self.pipeline(kind, Kind.CLOSE)
        else:
            self.solid()
        if kind == "block":
            outer, self.variables = self.variables, ["$"]
            loops, self.loops = self.loops, 0
            self.add(name, self.closed("block"))
            self.variables, self.loops = outer, loops
        return TemplateCall(name, pipeline, line)

    # Pipelines.

    def pipeline(self, where: str, end: Kind) -> Pipeline:
        line = self.peek_solid().line
        variables, assigns = self.declarations(where)
        commands: list[Command] = []
        while (token := self.solid()).kind is not end:
            self.push(token)
            commands.append(self.command(where, first=not commands))
        if not commands:
            raise self.error(f"a value is missing for {where}")
        return Pipeline(tuple(commands), line, variables, assigns)

    def declarations(self, where: str) -> tuple[tuple[str, ...], bool]:
        """The `$x :=`, `$x =` or `$i, $x :=` in front of a pipeline."""
        names: list[str] = []
        while self.peek_solid().kind is Kind.VARIABLE:
            variable, after = self.solid(), self.next()
            mark = self.solid() if after.kind is Kind.SPACE else after
            if mark.kind in (Kind.DECLARE, Kind.ASSIGN):
                names.append(variable.text)
                self.variables += names
                return tuple(names), mark.kind is Kind.ASSIGN
            if mark.kind is Kind.COMMA and where == "range" and not names:
                names.append(variable.text)
                continue
            if mark.kind is Kind.COMMA or names:
                raise self.error(f"too many variables in {where}" if names else f"unexpected , in {where}")
            self.push(variable, *([after] if after.kind is Kind.SPACE else []), mark)
            break
        if names:
            raise self.error("range can only set variables")
        return (), False

    def command(self, where: str, *, first: bool) -> Command:
        operands: list[Operand] = []
        while True:
            operand = self.operand()
            if operand is not None:
                operands.append(operand)
            token = self.next()
            if operand is not None and token.kind is Kind.SPACE:
                continue
            if token.kind in (Kind.CLOSE, Kind.RIGHT_PAREN):
                self.push(token)
            elif token.kind is not Kind.PIPE:  # one after the last command is allowed
                raise self.unexpected(token, where)
            break
        if not operands:
            raise self.error(f"a value is missing in {where}")
        if not first and isinstance(operands[0], Constant | Dot | Nil):
            raise self.error("only a function can follow a |")
        return self.checked(Command(tuple(operands)))

    def checked(self, command: Command) -> Command:
        match command.operands:
            case (Function(name="printf"), Constant(value=str(form)), *_):
                try:
                    check_format(form)
                except ValueError as error:
                    raise self.error(str(error)) from None
            case (Nil(), *_):
                raise self.error("nil alone is no value")
        return command

    def operand(self) -> Operand | None:
        """A term with the fields that follow it directly; None if there is none."""
        term = self.term()
        if term is None:
            return None
        names: list[str] = []
        while self.peek().kind is Kind.FIELD:
            names.append(self.next().text[1:])
        if not names:
            return term
        match term:
            case Field(names=first):
                return Field((*first, *names))
            case Variable(name=name):
                return Variable(name, tuple(names))
            case Pipeline():
                return Chain(term, tuple(names))
            case _:
                raise self.error(f"unexpected .{names[0]}: only fields, variables and ( ) have fields")

    def term(self) -> Operand | None:
        token = self.solid()
        match token.kind:
            case Kind.WORD:
                return self.function(token.text)
            case Kind.DOT:
                return Dot()
            case Kind.KEYWORD if token.text == "nil":
                return Nil()
            case Kind.FIELD:
                return Field((token.text[1:],))
            case Kind.VARIABLE:
                if token.text not in self.variables:
                    raise self.error(f"the variable {token.text} is not defined")
                return Variable(token.text)
            case Kind.BOOL:
                return Constant(token.text == "true")
            case Kind.NUMBER:
                return Constant(self.literal(literals.number, token))
            case Kind.CHARACTER:
                return Constant(self.literal(literals.character, token))
            case Kind.STRING | Kind.RAW_STRING:
                return Constant(self.literal(literals.string, token))
            case Kind.LEFT_PAREN:
                with self.nested():
                    return self.pipeline("( )", Kind.RIGHT_PAREN)
            case _:
                self.push(token)
                return None

    def function(self, name: str) -> Function:
        if name in UNSUPPORTED:
            raise self.error(f"the function {name} is not supported: {UNSUPPORTED[name]}")
        if name not in FUNCTIONS:
            raise self.error(f"there is no function {name}")
        return Function(name)

    def literal(self, convert: Callable[[str], T], token: Token) -> T:
        try:
            return convert(token.text)
        except ValueError as error:
            raise TemplateError(str(error), token.line) from None


def _is_empty(nodes: Nodes) -> bool:
    return all(isinstance(node, Text) and not node.text.strip() for node in nodes)
