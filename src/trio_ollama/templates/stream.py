"""Reads tokens one after the other, and takes them back where the grammar needs to look ahead."""

from __future__ import annotations

from collections.abc import Iterator

from .errors import TemplateError
from .lexer import Kind, Token, tokenize

__all__ = ["TokenStream"]


class TokenStream:
    """The tokens of a template. Every method raises TemplateError where the text is no template."""

    def __init__(self, text: str) -> None:
        self.tokens: Iterator[Token] = tokenize(text)
        self.pushed: list[Token] = []
        """Tokens that were taken back, the next one last."""
        self.line = 1
        """Of the token read last."""

    def next(self) -> Token:
        """The next token; the one of kind END is the last there is."""
        token = self.pushed.pop() if self.pushed else next(self.tokens)
        self.line = token.line
        return token

    def push(self, *tokens: Token) -> None:
        """Take tokens back; the first of them comes first again."""
        self.pushed += reversed(tokens)

    def peek(self) -> Token:
        """The next token, which stays."""
        token = self.next()
        self.push(token)
        return token

    def solid(self) -> Token:
        """The next token that is no blank."""
        token = self.next()
        return self.next() if token.kind is Kind.SPACE else token

    def peek_solid(self) -> Token:
        """The next token that is no blank, which stays; a blank before it goes."""
        token = self.solid()
        self.push(token)
        return token

    def expect(self, kind: Kind, where: str) -> Token:
        """The next token that is no blank, if it is of this kind."""
        token = self.solid()
        if token.kind is not kind:
            raise self.unexpected(token, where)
        return token

    def error(self, reason: str) -> TemplateError:
        return TemplateError(reason, self.line)

    def unexpected(self, token: Token, where: str) -> TemplateError:
        what = token.kind.value if token.kind in (Kind.END, Kind.SPACE) else token.text
        return TemplateError(f"unexpected {what} in {where}", token.line)
