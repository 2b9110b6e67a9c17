"""What would happen to recorded requests on other hardware, or with other settings.

TRACE is what `trio-ollama serve --record` wrote, or JSON lines by hand; docs/plan.md says what is in it, how times are
made, and how far off they were. The machine and the settings are those of the recording unless said otherwise.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulations.plan.calibrate import calibrate
from simulations.plan.forecast import Forecast, Plan, forecast
from simulations.plan.machine import Machine, MachineError, from_header, read_machine
from simulations.plan.models import describe_models
from simulations.plan.plot import draw
from simulations.plan.reading import TraceError, read_trace
from simulations.plan.sweep import KNOBS, SweepError, combinations, parse_sweep, turn
from simulations.plan.table import Row, planned, recorded, render
from simulations.plan.trace import Trace
from trio_ollama.scheduler import Policy

__all__ = ["arguments", "main"]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", type=Path, metavar="TRACE")
    parser.add_argument("--machine", type=Path, metavar="FILE", help="JSON with gpus, ram (GiB) and models")
    parser.add_argument("--gpu", action="append", metavar="GIB", help="a GPU of this size; once for each; 0: none")
    parser.add_argument("--ram", metavar="GIB")
    parser.add_argument("--keep-alive", metavar="TIME", help="such as 5m; negative: for ever; 0: not at all")
    parser.add_argument("--parallel", metavar="N", help="requests that a model answers at the same time")
    parser.add_argument("--max-models", metavar="N", help="most models loaded at once; 0: three for each GPU")
    parser.add_argument("--max-queue", metavar="N", help="requests that may wait")
    parser.add_argument("--speed", metavar="X", help="how many times as fast this machine computes")
    parser.add_argument(
        "--sweep", action="append", default=[], metavar="NAME=A,B,...", help=f"try all of these: {', '.join(KNOBS)}"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.svg", help="draw the figures as well")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def main(options: argparse.Namespace) -> int:
    try:
        return _main(options)
    except (TraceError, MachineError, SweepError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1


def _main(options: argparse.Namespace) -> int:
    trace = read_trace(options.trace)
    plan, notes = _plan(options, trace)
    if options.sweep:
        sweeps = [parse_sweep(text) for text in options.sweep]
        results = [(words, forecast(varied)) for words, varied in combinations(plan, sweeps)]
        rows = [(words, planned(result)[-1]) for words, result in results]
        report: dict[str, Any] = {
            "sweep": [
                {"combination": words, "models": [row.as_json() for row in planned(result)]}
                for words, result in results
            ]
        }
        title, sections = "by setting", [("", rows)]
    else:
        result = forecast(plan)
        rows = [(row.name, row) for row in planned(result)]
        was = [(row.name, row) for row in recorded(trace)]
        notes += _moved(trace, result)
        report = {"planned": [row.as_json() for _, row in rows], "recorded": [row.as_json() for _, row in was]}
        title, sections = "by model", [*([("recorded", was)] if was else []), ("planned", rows)]
    if options.output is not None:
        name = f"{options.trace.name}{_where(plan, options)}, {title}"
        options.output.write_text(draw(name, rows), encoding="utf-8")
    if options.json:
        print(json.dumps({"machine": str(plan.machine), **report, "notes": notes}, indent=1))
    else:
        print(f"{len(trace.requests)} requests{_where(plan, options)}")
        _print(plan, sections, notes)
    return 0


def _plan(options: argparse.Namespace, trace: Trace) -> tuple[Plan, list[str]]:
    rates, notes = calibrate(trace)
    header = trace.header
    machine: Machine = from_header(header)
    models: Mapping[str, Mapping[str, Any]] = {}
    if options.machine is not None:
        machine, models = read_machine(options.machine)
    trace, rates = describe_models(trace, rates, models)
    plan = Plan(
        trace=trace,
        machine=machine,
        rates=rates,
        policy=header.policy if header is not None else Policy(),
        gpu_overhead=header.gpu_overhead if header is not None else 0,
    )
    if options.gpu is not None:
        plan = turn(plan, "gpus", "+".join(options.gpu))
    for knob in ("ram", "keep-alive", "parallel", "max-models", "max-queue", "speed"):
        value = getattr(options, knob.replace("-", "_"))
        if value is not None:
            plan = turn(plan, knob, value)
    if trace.left_out:
        notes.append(f"{trace.left_out} lines are missing in the recording: its disk was too slow")
    return plan, notes


def _where(plan: Plan, options: argparse.Namespace) -> str:
    """The machine, unless there are several."""
    return "" if any(sweep.startswith(("gpus=", "ram=")) for sweep in options.sweep) else f" on {plan.machine}"


def _moved(trace: Trace, result: Forecast) -> list[str]:
    """Rates are those of a model that is where it was; elsewhere it is another story."""
    moved = result.split - {load.model for load in trace.loads if load.placement not in ("single", "group")}
    return [f"{model}: loaded with a part in RAM, or all of it, which its rates do not know" for model in sorted(moved)]


def _print(plan: Plan, sections: list[tuple[str, list[tuple[str, Row]]]], notes: list[str]) -> None:
    rates = plan.rates
    print(f"one more call in a runner costs {rates.within:g}, one more busy runner on the device {rates.beside:g}")
    for name in sorted({asked.model for asked in plan.trace.requests}):
        own = rates.of(name)
        print(
            f"{name}: load {own.load_constant:.2f} s and {rates.load_byte * (1 << 30):.2f} s/GiB, prompt "
            f"{own.prefill * rates.speed:,.0f} tokens/s, answer {rates.speed / own.token:,.1f} tokens/s"
        )
    for words, rows in sections:
        print(f"\n{words}\n{render(rows)}" if words else f"\n{render(rows)}")
    for note in notes:
        print(f"note: {note}")
