"""A failing run becomes as small as it will go, and a test that fails as long as the fault is there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulations.__main__ import main
from simulations.explore.failing import Failing, had, rule
from simulations.explore.failing_test import failing_test, layout
from simulations.explore.moments import Mode, Moment
from simulations.explore.shrink import shrink
from simulations.explore.simpler import edits, weight
from simulations.explore.sweep import cancels, cancels_at_the_end, sweep
from simulations.mutants.plant import command
from simulations.scenarios import Fault, Request, Run, Scenario, What
from simulations.scenarios.scenario import spell
from simulations.scenarios.seeds import Spot, find
from simulations.scenarios.workloads import KINDS, draw
from simulations.world.behaviour import Behaviour
from trio_ollama.scheduler import Limits, Policy, Scheduler
from trio_ollama.scheduler.core.fleet import Fleet

ROOT = Path(__file__).parents[2]
NAMES: dict[str, Any] = {
    kind.__name__: kind for kind in (Behaviour, Fault, Limits, Policy, Request, Scenario, ValueError, What)
}


def _breaks(monkeypatch: pytest.MonkeyPatch, when: Any, name: str = "first: simulated") -> None:
    """Let exactly those runs break a rule whose spot fulfils `when`."""

    def play(spot: Spot) -> Run:
        return Run(spot.scenario, spot.schedule, "none", broken=[name] if when(spot) else ["second: another one"])

    monkeypatch.setattr(Spot, "play", play)


def test_what_the_failure_does_not_need_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    def when(spot: Spot) -> bool:
        asked = [request for request in spot.scenario.requests if request.num_ctx is not None]
        return len(asked) >= 2 and any(fault.what is What.STOP for fault in spot.scenario.faults)

    _breaks(monkeypatch, when)
    requests = tuple(
        Request(model="xyz"[number % 3], at=number, num_ctx=(None, 5000)[number % 2]) for number in range(9)
    )
    faults = (Fault(at=3, what=What.LAG), Fault(at=4.25, what=What.STOP, target="y"), Fault(at=5, what=What.CRASH))
    scenario = Scenario(
        name="large",
        gpus=(24, 48),
        models={"x": 1, "y": 2},
        requests=requests,
        faults=faults,
        launches={"x": (Behaviour(hangs=True),) * 3},
        policy=Policy(num_parallel=2),
        limits=Limits(query=1),
    )
    shrunk = shrink(Spot("large", scenario, 7, "pct"))
    assert shrunk.done
    (stop,) = shrunk.spot.scenario.faults
    assert stop.what is What.STOP
    assert shrunk.spot.scenario == Scenario(requests=(Request(num_ctx=5000),) * 2, faults=(stop,))
    assert (shrunk.spot.schedule, shrunk.spot.order) == (0, "shuffle")


def test_a_moment_is_kept_while_others_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails only if a client leaves between two certain steps: those are others in a smaller run."""
    leave = Fleet.leave
    keeps = lambda self, seq, now: leave(self, seq, now) if seq in self.waiters else None  # noqa: E731
    usual = Behaviour(load_time=1.0, prompt_time=0.01, token_time=0.01)
    requests = (Request(model="b"), *(Request(at=0.25 * number) for number in range(3)), Request(model="b", at=3))
    spot = Spot("crowd", Scenario(models={"a": 3, "b": 4}, usual=usual, requests=requests))
    with monkeypatch.context() as patch:
        patch.setattr(Fleet, "leave", keeps)  # a lease stays behind that was granted in the step of a cancellation
        (found,) = sweep(spot, cancels(spot, [3], [Mode.BETWEEN]), most=1).failures
        assert found.moments[0].target == 3
        shrunk = shrink(spot, found.moments, seconds=30)
        (moment,) = shrunk.failing.moments
        assert moment.mode is Mode.BETWEEN
        assert len(shrunk.spot.scenario.requests) == 1
        assert shrunk.failing.rule == rule(found.problems)
        assert had(shrunk.spot, (moment,)).wrong == shrunk.failing.wrong
        assert not had(shrunk.spot).wrong
    text = failing_test(shrunk.failing)
    assert f'Moment.parse("{moment}")' in text
    names: dict[str, Any] = {}
    exec(compile(text, "test_found.py", "exec"), names)
    (test,) = (value for name, value in names.items() if name.startswith("test_"))
    test()
    monkeypatch.setattr(Fleet, "leave", keeps)
    with pytest.raises(AssertionError, match=shrunk.failing.rule):
        test()


def test_moments_that_nothing_needs_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scheduler, "close", lambda self: None)
    spot = Spot("two", Scenario(requests=(Request(), Request(at=0.5))))
    (found,) = sweep(spot, cancels_at_the_end(spot, 20), most=1).failures
    assert len(found.moments) == 2
    shrunk = shrink(spot, found.moments, seconds=30)
    assert [moment.target in (What.END, What.CLOSE) for moment in shrunk.failing.moments] == [True]
    assert len(shrunk.spot.scenario.requests) == 1


def test_another_rule_is_another_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    _breaks(monkeypatch, lambda spot: len(spot.scenario.requests) >= 2)
    assert len(shrink(Spot("two", Scenario(requests=(Request(),) * 4))).spot.scenario.requests) == 2


def test_the_time_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    _breaks(monkeypatch, lambda spot: True)
    spot = Spot("two", Scenario(requests=(Request(),) * 4))
    shrunk = shrink(spot, seconds=0)
    assert not shrunk.done
    assert shrunk.spot == spot
    assert shrink(spot, runs=3).runs == 3


def test_a_run_that_breaks_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    spot = Spot("one", Scenario(requests=(Request(),)))
    assert had(spot).rule is None
    with pytest.raises(ValueError, match="breaks no rule"):
        shrink(spot)
    assert main(["shrink", "0"]) == 1
    assert main(["shrink", "0", "--at", "2:racing:3"]) == 1
    assert main(["shrink", "0", "--at", "21:racing:3"]) == 2
    assert main(["shrink", "0", "--at", "racing"]) == 2
    assert main(["shrink", "no-such-race"]) == 2
    assert main(["shrink", "0", "--mutant", "no-such-fault"]) == 2
    assert "no-such-fault" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(0, len(KINDS), 3))
def test_every_edit_gives_a_scenario(seed: int) -> None:
    """One that can be spelled, whichever others came before."""
    scenario = draw(seed)
    for edit in edits(scenario):
        simpler = edit(scenario)
        if weight(simpler) < weight(scenario):
            scenario = simpler
            assert spell(eval(spell(scenario), NAMES)) == spell(scenario)
    assert not scenario.name


@pytest.mark.parametrize("seed", range(len(KINDS)))
def test_scenarios_are_laid_out_as_they_are_spelled(seed: int) -> None:
    text = spell(draw(seed))
    laid = layout(text)
    assert spell(eval(laid, NAMES)) == text
    assert max(map(len, laid.splitlines())) <= 120


@pytest.mark.skipif(shutil.which("ruff", path=Path(sys.executable).parent) is None, reason="ruff is not installed here")
def test_the_formatter_has_nothing_to_do(tmp_path: Path) -> None:
    for seed in range(len(KINDS)):
        spot = replace(find(str(seed)), schedule=seed % 3, order=("shuffle", "pct")[seed % 2])
        run = Run(spot.scenario, 0, "ours", broken=["I21: client 1 (a) waits for ever" + ", really" * 20])
        moments = tuple(map(Moment.parse, ("2:racing:17", "end:between:40")[: seed % 3]))
        (tmp_path / f"test_{seed}.py").write_text(failing_test(Failing(spot, moments, run, tuple(run.broken))))
    ruff = str(Path(sys.executable).parent / "ruff")
    config = ("--config", str(ROOT / "pyproject.toml"), "--no-cache", str(tmp_path))
    subprocess.run([ruff, "format", "--check", *config], check=True, cwd=ROOT)
    subprocess.run([ruff, "check", *config], check=True, cwd=ROOT)


def test_a_fault_becomes_a_small_test_that_fails_with_it(tmp_path: Path) -> None:
    """The whole story, in processes of their own: break the scheduler, shrink, keep the test, mend the scheduler."""
    test = tmp_path / "test_found.py"
    shrinking = [sys.executable, "-m", "simulations", "shrink", "--mutant", "lost-wake-up", "-o", str(test)]
    done = subprocess.run(shrinking, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "20 clients" in done.stderr
    assert "waits for ever" in done.stdout
    assert len(re.findall(r"Request\(", test.read_text())) <= 3
    arguments = ("-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(test))
    broken = subprocess.run(command("lost-wake-up", "pytest", *arguments), cwd=ROOT, capture_output=True, check=False)
    whole = subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, capture_output=True, check=False)
    assert (broken.returncode, whole.returncode) == (1, 0), whole.stdout.decode()
