"""For all tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A suite that a script has put into the background ignores Ctrl-C, and so would every program that it starts:
    those that are to be interrupted would not be.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
