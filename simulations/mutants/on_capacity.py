"""Faults in the arithmetic of memory: what is there, what is coming back, and what a load takes."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

__all__ = ["MUTANTS"]

POOLS: Final = "trio_ollama.scheduler.core.pools"
MEMORY: Final = "trio_ollama.scheduler.core.memory"
PLACEMENTS: Final = "trio_ollama.scheduler.core.placements"
MEMO: Final = "trio_ollama.scheduler.core.memo"
RELOAD: Final = "trio_ollama.scheduler.core.reload"

MUTANTS: Final = (
    Mutant(
        name="stuck-memory-is-there",
        module=POOLS,
        old="max(0, there - stuck[id_] - device.overhead)",
        new="max(0, there - device.overhead)",
        mistake="memory of a process that cannot be killed counts as what there is without us (R71)",
    ),
    Mutant(
        name="stuck-memory-comes-back",
        module=POOLS,
        old="            if runner.stuck:\n",
        new="            if False:\n",
        mistake="memory of a process that cannot be killed is waited for (R71)",
    ),
    Mutant(
        name="draining-memory-is-forgotten",
        module=POOLS,
        old="                _add(self.later, held)\n",
        new="                pass\n",
        mistake="others are evicted for what a draining runner brings back anyway (R43)",
    ),
    Mutant(
        name="returning-memory-is-forgotten",
        module=POOLS,
        old="                _add(self.soon, held)\n",
        new="                pass\n",
        mistake="others are evicted for what an ending runner brings back anyway (R43)",
    ),
    Mutant(
        name="model-limit-wraps",
        module=POOLS,
        old="self.now[MODELS] = saturating_sub(model_limit, reserved[MODELS])",
        new="self.now[MODELS] = model_limit - reserved[MODELS] & 0xFFFF",
        mistake="more runners than the limit allows are taken for room for thousands (I08, I14)",
    ),
    Mutant(
        name="lag-ignored",
        module=MEMORY,
        old="min(reported_free, total - reserved)",
        new="reported_free",
        mistake="the driver's late figures are taken for the truth, and our own loads are not seen (R37)",
    ),
    Mutant(
        name="others-ignored",
        module=MEMORY,
        old="min(reported_free, total - reserved)",
        new="(total - reserved)",
        mistake="memory that other programs hold counts as free (R37)",
    ),
    Mutant(
        name="subtraction-wraps",
        module=MEMORY,
        old="    return max(0, left - right)",
        new="    return left - right & (1 << 64) - 1",
        mistake="less than nothing is very much, as with unsigned numbers (I08, R62)",
    ),
    Mutant(
        name="overhead-ignored",
        module=MEMORY,
        old="max(0, min(reported_free, total - reserved) - overhead)",
        new="max(0, min(reported_free, total - reserved))",
        mistake="what a user wants to be kept free is used (G41)",
    ),
    Mutant(
        name="half-a-reservation",
        module=PLACEMENTS,
        old="        _with_host({gpu.id: held.movable}, [gpu], held.host, base),",
        new="        _with_host({gpu.id: held.movable // 2}, [gpu], held.host, base),",
        mistake="less is reserved for a runner than it takes (I07)",
        survives="no other load starts there while it loads, and then what it has really taken is known",
    ),
    Mutant(
        name="partial-evicts",
        module=PLACEMENTS,
        old="        {MODELS: 1},\n        reservation,",
        new="        reservation,\n        reservation,",
        mistake="who asked for some layers on the GPU has others evicted for them (R46)",
    ),
    Mutant(
        name="placements-of-yesterday",
        module=MEMO,
        old="                self._placements.clear()\n            self._base = base",
        new="                pass\n            self._base = base",
        mistake="where a model may go is remembered longer than it holds",
    ),
    Mutant(
        name="any-context-will-do",
        module=RELOAD,
        old='        return "num_ctx"',
        new="        pass",
        mistake="a runner serves requests for another context than it has (R58)",
    ),
    Mutant(
        name="reload-for-less",
        module=RELOAD,
        old="return existing.num_ctx_auto or has >= wants",
        new="return has == wants",
        mistake="a model is loaded anew for a request that its runner serves as it is (I26, R59)",
    ),
)
