"""What a picture of a run says in words: about its faults, and what to look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from simulations.picture.story import End, Kind, Mark, RequestLane

from .scenario import Fault, Scenario, What

__all__ = ["faults", "healing", "remark"]

WORDS: Mapping[What, tuple[str, str]] = {
    What.READS_FIRST: ("looks show what was when they began", "looks show what is when they answer"),
    What.QUERIES_FAIL: ("the GPUs cannot be asked", "the GPUs can be asked again"),
    What.QUERIES_RAISE: ("asking the GPUs raises", "asking the GPUs raises no more"),
    What.NO_FIGURES: ("the GPUs tell no free memory", "the GPUs tell their free memory again"),
    What.MEMORY_FAILS: ("RAM cannot be asked", "RAM can be asked again"),
    What.OUT_OF_MEMORY: ("a call runs out of memory", ""),
    What.FORCE: ("somebody ends at once", ""),
    What.CLOSE: ("the server closes", ""),
    What.END: ("the server ends", ""),
}
"""Of faults, and of their end."""


def faults(scenario: Scenario) -> Iterator[Mark]:
    """What goes wrong, without the end of what has not begun."""
    wrong: set[tuple[What, str]] = set()
    for fault in sorted(scenario.faults, key=lambda fault: fault.at):
        if fault.amount > 0 or (fault.what, fault.target) in wrong:
            wrong.add((fault.what, fault.target))
            yield Mark(fault.at, Kind.FAULT, _words(fault))


def healing(scenario: Scenario) -> Mark:
    return Mark(scenario.last, Kind.FAULT, "all is well again")


def _words(fault: Fault) -> str:
    match fault.what:
        case What.FOREIGN:
            verb = "takes" if fault.amount > 0 else "returns"
            return f"another program {verb} {abs(fault.amount):g} GiB of {fault.target}"
        case What.LAG:
            return f"memory reports{f' of {fault.target}' if fault.target else ''} lag {fault.amount:g} s"
        case What.QUERY_TIME:
            return f"a look at the GPUs takes {fault.amount:g} s"
        case What.VANISH:
            return f"{fault.target} vanishes" if fault.amount else f"{fault.target} is back"
        case _:
            on, off = WORDS.get(fault.what, (fault.what, fault.what))
            return f"{on if fault.amount else off} {fault.target}".rstrip()


def remark(requests: Sequence[RequestLane], problems: Sequence[str]) -> str:
    waiting = [lane for lane in requests if lane.end is End.NEVER]
    rest = [problem for problem in problems if not any(f"{lane.name} " in problem for lane in waiting)]
    if waiting:
        names = [f"{lane.name} ({lane.model})" for lane in waiting]
        one = len(names) == 1
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        rest.insert(0, f"look at {shown}: {'it waits' if one else 'they wait'} for ever")
    if rest:
        more = f"; and {len(rest) - 2} more" if len(rest) > 2 and not waiting else ""
        words = "; ".join(rest[:2]) + more
        return f"{words[0].upper()}{words[1:]}."
    if not requests:
        return "Nobody asks for anything."
    counts = {end: sum(lane.end is end for lane in requests) for end in End}
    told = ", ".join(f"{count} {end}" for end, count in counts.items() if count)
    return f"Every request ends ({told}), the last one at {max(lane.ended for lane in requests):.2f} s."
