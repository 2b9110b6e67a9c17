"""Just enough SVG: elements with escaped texts and short numbers."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

__all__ = ["element", "number", "polygon", "text"]


def number(value: float) -> str:
    """At most one decimal: a tenth of a pixel is not seen."""
    short = f"{value:.1f}"
    return short.removesuffix(".0")


def element(name: str, *inside: str, title: str = "", **attributes: str | float) -> str:
    """`<name ...>`; `stroke_width` becomes `stroke-width`, `class_` becomes `class`. `title` is its tooltip."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value) if isinstance(value, str) else number(value)}"'
        for key, value in attributes.items()
    )
    content = (f"<title>{escape(title)}</title>" if title else "") + "".join(inside)
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def text(x: float, y: float, words: str, **attributes: str | float) -> str:
    return element("text", escape(words), title="", x=x, y=y, **attributes)


def polygon(points: Iterable[tuple[float, float]], *, title: str = "", **attributes: str | float) -> str:
    written = " ".join(f"{number(x)},{number(y)}" for x, y in points)
    return element("polygon", title=title, points=written, **attributes)
