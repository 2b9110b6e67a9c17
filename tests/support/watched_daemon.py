"""The real daemon, which tells on SIGUSR1 what trio tasks it has: the one thing that no one can see from outside.

Run as a module it is `trio-ollama`; nothing of the product knows about it.
"""

from __future__ import annotations

import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator

import trio

from tests.support.daemon_log import DaemonLog
from tests.support.real_daemon import RealDaemon

__all__ = ["WatchedDaemon"]


class WatchedDaemon(RealDaemon):
    """A daemon whose tasks can be counted."""

    module = "tests.support.watched_daemon"

    async def tasks(self, *, within: float = 5.0) -> Counter[str]:
        """Its tasks by name."""
        log = DaemonLog(self.log_path)
        self.signal(signal.SIGUSR1)
        await log.wait_for(r"end of tasks", within=within)
        return Counter(re.findall(r"^task: (.*)$", log.text, re.MULTILINE))


def tell(*_: object) -> None:
    """A signal handler: Python runs it between two steps of the main thread, so the tree stands still."""
    names = [task.name for task in _tasks(trio.lowlevel.current_root_task())]
    sys.stderr.write("".join(f"\ntask: {name}" for name in names))
    sys.stderr.write("\n1970-01-01 00:00:00,000 INFO    end of tasks\n")
    sys.stderr.flush()


def _tasks(task: trio.lowlevel.Task | None) -> Iterator[trio.lowlevel.Task]:
    if task is not None:
        yield task
        for nursery in task.child_nurseries:
            for child in nursery.child_tasks:
                yield from _tasks(child)


if __name__ == "__main__":
    from trio_ollama.cli import main

    signal.signal(signal.SIGUSR1, tell)
    main()
