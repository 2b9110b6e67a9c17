"""/api/fit and /api/devices: what they ask, and the shape of what they answer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from tests.support.fake_scheduler import FakeScheduler
from tests.support.fleet_builder import FleetBuilder, gib
from trio_ollama.hardware.contract import DeviceReport, MachineReport, MemoryReport
from trio_ollama.scheduler import Demand, Fit
from trio_ollama.scheduler.core.fitting import fit
from trio_ollama.scheduler.core.values import RAM, DeviceFacts, Policy
from trio_ollama.scheduler.views import Holding

from .conftest import Daemon


class Machine(FakeScheduler):
    """Has a fleet to look at."""

    def __init__(self, fleet: FleetBuilder) -> None:
        super().__init__()
        self.fleet = fleet
        self.gpus: tuple[DeviceReport, ...] | None = ()
        self.stuck = False
        self.parallel: int | None = None

    async def refresh(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.stuck:
            await trio.sleep_forever()

    def fit(self, demand: Demand, parallel: int | None = None) -> Fit:
        self.demands.append(demand)
        self.parallel = parallel
        return fit(self.fleet.fleet, demand, Policy(num_parallel=parallel) if parallel else None)

    def devices(self) -> Sequence[DeviceFacts]:
        return self.fleet.fleet.devices

    def machine(self) -> MachineReport:
        return MachineReport(self.gpus, MemoryReport(gib(64), gib(64)))

    def holdings(self, device: str) -> tuple[Holding, ...]:
        return tuple(
            Holding(runner.gen, runner.model.name, runner.state.value, runner.pid, runner.holds(device))
            for runner in self.fleet.fleet.runners.values()
            if runner.holds(device)
        )


@pytest.fixture
def machine(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(FleetBuilder({"g0": 24}, ram=64))
    services = daemon.app.extensions["trio_ollama"]
    object.__setattr__(services, "scheduler", made)
    daemon.scheduler = made
    return made


async def test_the_numbers_before_a_load(daemon: Daemon, machine: Machine) -> None:
    machine.fleet.runner("A", 23.9)
    answer = await daemon.post("/api/fit", {"model": "tiny", "options": {"num_ctx": 1024, "num_gpu": -1}})
    assert answer.status == 200
    found = answer.json
    assert (found["model"], found["verdict"]) == ("tiny:latest", "evicts")
    launch = found["launch"]
    assert (launch["num_ctx"], launch["num_ctx_auto"], launch["parallel"]) == (1024, False, 1)
    assert (launch["placement"], launch["gpus"]) == ("single", ["g0"])
    memory = found["memory"]
    assert sum(part["size"] for part in memory["parts"]) == memory["estimate"] == memory["expected"]
    assert memory["measured"] is None
    assert memory["formula"] > 0
    gpu, ram = found["devices"]
    assert (gpu["id"], gpu["total"], gpu["reserved"]) == ("g0", gib(24), gib(23.9))
    assert gpu["held"] == memory["expected_on_gpus"]
    assert gpu["held"] + ram["held"] == memory["expected"]
    assert gpu["left"] == gib(24) - gpu["held"]
    assert found["stops"] == [{"model": "A", "busy": False, "held": {"g0": gib(23.9), RAM: 0}}]
    assert [row["num_ctx"] for row in found["contexts"]] == [2048]
    assert found["largest_full_context"] == 2048
    assert "never_fits" not in found
    assert not machine.leases, "nothing is loaded"
    assert not machine.stopped, "and nobody is stopped"


async def test_the_models_own_parameters_count_and_the_requests_win(daemon: Daemon, machine: Machine) -> None:
    await daemon.post("/api/fit", {"name": "tiny"})
    await daemon.post("/api/fit", {"model": "tiny", "options": {"num_ctx": 512, "num_batch": 64}, "parallel": 3})
    automatic, asked = machine.demands
    assert automatic.options.num_ctx_auto
    assert (asked.options.num_ctx, asked.options.num_batch, machine.parallel) == (512, 64, 3)


async def test_what_never_fits_is_an_answer_not_an_error(daemon: Daemon, machine: Machine) -> None:
    machine.fleet = FleetBuilder({}, ram=0.0001)
    found = (await daemon.post("/api/fit", {"model": "tiny"})).json
    assert found["verdict"] == "never_fits"
    assert found["never_fits"]["needed"] > found["never_fits"]["there"]


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({}, 400, "model is required"),
        ({"model": "nope"}, 404, "model 'nope' not found"),
        ({"model": "tiny", "parallel": -1}, 400, "parallel must be between 1 and 1024"),
        ({"model": "tiny", "options": {"num_ctx": "x"}}, 400, 'option "num_ctx" must be of type integer'),
    ],
)
async def test_refusals(body: object, status: int, text: str, daemon: Daemon, machine: Machine) -> None:
    answer = await daemon.post("/api/fit", body)
    assert (answer.status, answer.json) == (status, {"error": text})


async def test_a_driver_that_hangs_does_not_hold_up_the_answer(daemon: Daemon, machine: Machine) -> None:
    machine.stuck = True
    with trio.fail_after(5):
        assert (await daemon.post("/api/fit", {"model": "tiny"})).status == 200
        assert (await daemon.send("GET", "/api/devices")).status == 200


async def test_devices_who_holds_what_and_what_is_not_used(daemon: Daemon, machine: Machine) -> None:
    machine.fleet.runner("A", 8)
    machine.gpus = (
        DeviceReport("g0", "cuda", "NVIDIA Something", gib(24), gib(16)),
        DeviceReport("g1", "cuda", "NVIDIA Other", gib(8), None, trouble="its memory cannot be read"),
    )
    answer = await daemon.send("GET", "/api/devices")
    assert answer.json["devices"] == [
        {
            "id": "g0",
            "name": "NVIDIA Something",
            "library": "cuda",
            "total": gib(24),
            "free": gib(16),
            "reserved": gib(8),
            "runners": [{"model": "A", "state": "ready", "pid": 1001, "reserved": gib(8)}],
            "usable": True,
            "trouble": "",
        },
        {
            "id": RAM,
            "name": "system memory",
            "library": "cpu",
            "total": gib(64),
            "free": gib(64),
            "reserved": 0,
            "runners": [],
            "usable": True,
            "trouble": "",
        },
        {
            "id": "g1",
            "name": "NVIDIA Other",
            "library": "cuda",
            "total": gib(8),
            "free": None,
            "reserved": 0,
            "runners": [],
            "usable": False,
            "trouble": "its memory cannot be read",
        },
    ]
