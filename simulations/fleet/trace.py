"""Decisions as lines of a trace."""

from __future__ import annotations

from trio_ollama.scheduler.core.decisions import Abort, Claim, Decision, Drain, Grant, Refuse, StartLoad, Wait

__all__ = ["line"]


def line(decision: Decision) -> str:
    """A decision in one line that is the same in every process."""
    match decision:
        case Grant(seq=seq, gen=gen, because=because, slot=slot):
            return f"Grant {seq} generation {gen}{'' if slot else ' without a slot'}: {because.name}"
        case StartLoad(seq=seq, key=key, placement=placement, because=because):
            return f"StartLoad {seq} {key} {placement.kind} on {' '.join(placement.gpus)}: {because.name}"
        case Claim(seq=seq, gens=gens):
            return f"Claim {seq} generations {sorted(gens)}"
        case Drain(gen=gen, seq=seq, because=because):
            return f"Drain generation {gen} for {seq}: {because.name}"
        case Abort(gen=gen, because=because):
            return f"Abort generation {gen}: {because.name}"
        case Refuse(seq=seq, because=because, facts=facts):
            return f"Refuse {seq}: {because.name} {facts}"
        case Wait(seq=seq, because=because, by=by):
            return f"Wait {seq}: {because.name} {'' if by is None else by}"
