"""Crash back-off: a model whose runner died several times in a row fails fast for a while (R78)."""

from __future__ import annotations

__all__ = ["CrashLog"]


class CrashLog:
    """Crashes in a row by model key. After `limit` of them the key is refused for `backoff` nanoseconds; then one
    more try is allowed, and another crash starts the next pause."""

    def __init__(self, limit: int, backoff: int) -> None:
        self._limit = limit
        self._backoff = backoff
        self._rows: dict[str, tuple[int, str, int]] = {}

    def note(self, key: str, error: str, now: int) -> None:
        count = self._rows.get(key, (0, "", 0))[0] + 1
        self._rows[key] = (count, error, now + self._backoff if count >= self._limit else 0)

    def forget(self, key: str) -> None:
        """A request was answered: no crash loop."""
        self._rows.pop(key, None)

    def backed_off(self, key: str, now: int) -> str | None:
        """The last error while the key is not tried again, else None."""
        row = self._rows.get(key)
        return row[1] if row is not None and now < row[2] else None
