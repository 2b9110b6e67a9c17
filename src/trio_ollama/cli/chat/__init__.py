"""The conversation of `trio-ollama run`: a line editor, slash commands, and the turns between user and model."""

__all__: list[str] = []
