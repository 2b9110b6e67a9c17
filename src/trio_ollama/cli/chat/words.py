"""What the conversation says of itself: its prompts, its slash commands, its help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

__all__ = ["CONTINUED", "PARTS", "PLACEHOLDER", "PROMPT", "completions", "help_text"]

PROMPT: Final = ">>> "
CONTINUED: Final = "... "
PLACEHOLDER: Final = "Send a message (/? for help)"

PARTS: Final = {
    "info": "What is known about the model",
    "license": "Its license",
    "modelfile": "Its Modelfile",
    "parameters": "Its parameters, with those set here",
    "system": "Its system message, or the one set here",
    "template": "Its prompt template",
}
"""What `/show` shows."""

_SET: Final = {
    "parameter NAME VALUE": "A parameter, as in a Modelfile (seed, num_ctx, ...)",
    "system TEXT": "The system message; without a text the model's own",
    "history": "Keep what is typed in the history",
    "nohistory": "Keep no history",
    "wordwrap": "Break long lines between words",
    "nowordwrap": "Leave that to the terminal",
    "format json|SCHEMA": "Answers in JSON, or as a JSON schema says",
    "noformat": "Answers in any form",
    "verbose": "Counts and times after each answer",
    "quiet": "No counts and times",
    "think [LEVEL]": "Let the model think (low, medium, high, max)",
    "nothink": "Let it answer at once",
}

_COMMANDS: Final = {
    "/set": "How the model is asked and what is shown: see /? set",
    "/show [PART]": "Show the model: see /? show",
    "/load MODEL": "Go on with another model, and without what was said",
    "/save NAME": "Make a model of this one with what was set and said here",
    "/list": "List the models of the store",
    "/clear": "Forget what was said; what was set stays",
    "/bye": "Leave; /exit and Ctrl + d do the same",
    "/?, /help": "This help; also /? set, /? show, /? shortcuts",
}

_SHORTCUTS: Final = {
    "Ctrl + c": "Stop the answer, or throw away what is typed",
    "Ctrl + d": "Leave",
    "Up, Down": "What was typed before",
    "Ctrl + r": "Search in it",
    "Ctrl + a, Ctrl + e": "To the begin or the end of the line",
    "Alt + b, Alt + f": "Back or on by a word",
    "Ctrl + k, Ctrl + u": "Delete to the end or the begin of the line",
    "Ctrl + w": "Delete the word before",
    "Ctrl + l": "Clear the screen",
    "Ctrl + g": "Go on in your editor ($OLLAMA_EDITOR, $VISUAL, $EDITOR)",
    "Alt + Enter": "A new line in the message",
    "Tab": "Complete a command",
}

_ATTACH: Final = "The path of a picture or sound (.jpg .jpeg .png .webp .wav) in a message sends it."


def help_text(topic: str = "", *, attachments: bool = False) -> str | None:
    """The help about a topic; None if there is none."""
    match topic.removeprefix("/"):
        case "":
            tail = '\nBegin and end a message of several lines with """.\n' + (f"{_ATTACH}\n" if attachments else "")
            return _table("Available Commands:", _COMMANDS) + tail
        case "set":
            return _table("Available Commands:", {f"/set {name}": text for name, text in _SET.items()})
        case "show":
            return _table("Available Commands:", {f"/show {name}": text for name, text in PARTS.items()})
        case "shortcut" | "shortcuts":
            return _table("Available keyboard shortcuts:", _SHORTCUTS)
    return None


def completions(typed: str) -> Iterator[str]:
    """The words that the last one of a slash command may become."""
    *before, begun = typed.split(" ")
    match before:
        case [] if typed.startswith("/"):
            known = ["/set", "/show", "/load", "/save", "/list", "/clear", "/bye", "/exit", "/help"]
        case ["/set"]:
            known = [name.split()[0] for name in _SET]
        case ["/show"]:
            known = list(PARTS)
        case ["/set", "format"]:
            known = ["json"]
        case ["/set", "think"]:
            known = ["low", "medium", "high", "max"]
        case ["/set", "parameter"]:
            from trio_ollama.models.parameters import OPTION_TYPES

            known = list(OPTION_TYPES)
        case ["/?" | "/help"]:
            known = ["set", "show", "shortcuts"]
        case _:
            known = []
    return (word for word in known if word.startswith(begun))


def _table(title: str, rows: dict[str, str]) -> str:
    width = max(map(len, rows))
    return title + "\n" + "".join(f"  {name:<{width}}  {text}\n" for name, text in rows.items())
