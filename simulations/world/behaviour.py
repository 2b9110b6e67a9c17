"""How one simulated child process behaves, from its start to its end: well by default, badly where a test says so."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Behaviour"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """Durations in seconds; None for "never"."""

    spawn_error: str | None = None
    spawn_raises: Exception | None = None
    """A fault of ours, not of the process."""
    load_time: float = 2.0
    dies_loading: float | None = None
    """The process ends after this part of the load (0 = at its start)."""
    refuses_to_load: str | None = None
    """At the end of the load the child says that it cannot, with this text, and stays."""
    stalls_loading: float | None = None
    """No sign of life after this part of the load (R83)."""
    ready_raises: Exception | None = None
    serve_raises: Exception | None = None
    """Raised at the end of the load: faults that the contract does not know."""
    reaping_raises: bool = False
    """`serve` goes on raising when it is called once more."""
    dies_idle: float | None = None
    """The process ends this long after it got ready (R79)."""
    dies_after_tokens: int | None = None
    """The process ends after that many tokens, in the middle of a call (R80)."""
    surplus: float = 0.0
    """GiB that it takes on each of its GPUs, or without any in RAM, beyond what was predicted. With any, it ends while
    it loads if they are not there (R48); without, it never finds out."""
    exit_code: int = 1
    exit_lines: tuple[str, ...] = ("simulated fault",)
    hangs: bool = False
    """Calls are accepted and never get anything (R81)."""
    refuses_calls: str | None = None
    """Calls are answered with status 500 and this text (R51)."""
    term_time: float | None = 0.05
    """Between SIGTERM and the end; None: it ignores SIGTERM (R71)."""
    kill_time: float | None = 0.01
    """Between SIGKILL and the end; None: it cannot be killed (R71)."""
    settle_time: float | None = 0.0
    """Between the early end of a call and its free slot (R08)."""
    prompt_time: float = 0.02
    """Until the head of an answer comes."""
    token_time: float = 0.01
