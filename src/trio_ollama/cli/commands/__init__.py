"""One module per command, each with a `command`. A folder of their own: `list` must hide no builtin of a neighbour."""

__all__: list[str] = []
