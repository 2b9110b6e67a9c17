"""The line editor: prompts, keys, history, pasting, completion of slash commands.

prompt_toolkit runs an asyncio loop of its own for as long as `.prompt()` lasts. That is its business alone: nothing of
ours runs in it, and no request is open meanwhile. It takes a fifth of a second to import, so only a conversation does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout.processors import TabsProcessor
from prompt_toolkit.output import Output
from prompt_toolkit.renderer import CPR_Support
from prompt_toolkit.shortcuts import CompleteStyle

from trio_ollama.cli.client import ClientError

from .history import HistoryFile
from .multiline import unfinished
from .outside import edited
from .words import CONTINUED, PLACEHOLDER, PROMPT, completions

__all__ = ["Editor"]


@dataclass(frozen=True)
class _Draft:
    """A message that goes on in another editor."""

    text: str


class Editor:
    """Reads one message at a time from the terminal, or from `input` to `output` in tests.

    `file` is the history of earlier sessions; None for none. `remembers` says whether what is typed is added.
    """

    def __init__(self, file: HistoryFile | None, *, input: Input | None = None, output: Output | None = None) -> None:
        self._history = _History(file)
        self._prompt: PromptSession[str | _Draft] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation=CONTINUED,
            placeholder=_placeholder,
            history=self._history,
            completer=_SlashCompleter(),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            reserve_space_for_menu=0,
            enable_suspend=True,
            key_bindings=_keys(),
            input_processors=[TabsProcessor(tabstop=8, char1=" ", char2=" ")],  # not as ^I
            input=input,
            output=output,
        )

        # The terminal is not asked where its cursor is: only menus need that, and a terminal that never answers, or
        # answers when we have gone, would leave a warning or junk.
        self._prompt.app.renderer.cpr_support = CPR_Support.NOT_SUPPORTED

    @property
    def remembers(self) -> bool:
        """Whether messages are added to the history, here and in the file."""
        return self._history.adds

    @remembers.setter
    def remembers(self, value: bool) -> None:
        self._history.adds = value

    def read(self) -> str:
        """The next message. Raises EOFError for Ctrl-D, KeyboardInterrupt for Ctrl-C where nothing had been typed."""
        text = ""
        while True:
            try:
                result = self._prompt.prompt(default=text)
            except KeyboardInterrupt:
                if not self._prompt.default_buffer.text:
                    raise
                text = ""  # thrown away
                continue
            finally:
                self._prompt.app.erase_when_done = False
            if isinstance(result, str):
                # Bytes that are no UTF-8 have come as lone surrogates, which no request can carry.
                return result.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            try:
                text = edited(result.text)
            except ClientError as error:
                error.show()
                text = result.text


class _History(History):
    """prompt_toolkit's list of entries, filled from and written to the file."""

    def __init__(self, file: HistoryFile | None) -> None:
        super().__init__()
        self.adds = True
        self._file = file

    def load_history_strings(self) -> Iterable[str]:
        return reversed(self._file.read() if self._file is not None else [])

    def append_string(self, string: str) -> None:
        if self.adds:
            super().append_string(string)

    def store_string(self, string: str) -> None:
        if self._file is not None:
            self._file.append(string)


class _SlashCompleter(Completer):
    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        typed = document.text_before_cursor
        begun = len(typed) - (typed.rfind(" ") + 1)
        return (Completion(f"{word} ", start_position=-begun, display=word) for word in completions(typed))


def _placeholder() -> StyleAndTextTuples:
    # What is done stays on the screen, and was not typed by anybody.
    return [] if get_app().is_done else [("ansibrightblack", PLACEHOLDER)]


def _keys() -> KeyBindings:
    keys = KeyBindings()
    typing = has_focus(DEFAULT_BUFFER)  # and not searching in the history

    @keys.add("enter", filter=typing)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if unfinished(buffer.text):
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=typing)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    @keys.add("c-g", filter=typing)
    def _(event: KeyPressEvent) -> None:
        event.app.erase_when_done = True
        event.app.exit(result=_Draft(event.current_buffer.text))

    return keys
