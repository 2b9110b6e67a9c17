"""The machine's memory as its driver shows it: late, and with what other programs hold."""

from __future__ import annotations

from trio_ollama.scheduler.core.values import RAM, DeviceFacts

from .workloads import GIB, Workload

__all__ = ["Driver"]

BEGINNING = -(1 << 62)


class Driver:
    """Bytes in use on each device, at every instant of the past; instants in nanoseconds."""

    def __init__(self, work: Workload) -> None:
        self._work = work
        self.sizes = {f"g{number}": round(size * GIB) for number, size in enumerate(work.gpus)}
        self.sizes[RAM] = round(work.ram * GIB)
        self._used = {id_: [(BEGINNING, 0)] for id_ in self.sizes}
        self._foreign = dict.fromkeys(self.sizes, 0)

    def use(self, id_: str, amount: int, now: int) -> None:
        """`amount` more bytes are in use from now on."""
        history = self._used[id_]
        history.append((now, history[-1][1] + amount))

    def others_hold(self, gpu: int, gib: float) -> None:
        """Other programs hold that much of a GPU from now on."""
        self._foreign[f"g{gpu}"] = round(gib * GIB)

    def used(self, id_: str, when: int) -> int:
        """Bytes of ours in use on a device at an instant."""
        return next(amount for since, amount in reversed(self._used[id_]) if since <= when)

    def figures(self, now: int) -> list[DeviceFacts]:
        """What the driver says now: usage as it was some time ago."""
        work = self._work
        figures = []
        for id_, total in self.sizes.items():
            free = max(0, total - self.used(id_, now - work.lag) - self._foreign[id_])
            overhead = round(work.overhead * GIB) if id_ != RAM else 0
            library = "cpu" if id_ == RAM else "cuda"
            figures.append(DeviceFacts(id_, total, free, overhead, library, work.integrated and id_ == "g0"))
        return figures
