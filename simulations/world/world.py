"""The real scheduler among simulated devices, runners and clients."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import trio
import trio.testing

from trio_ollama.runners.contract import LaunchSpec
from trio_ollama.scheduler import Demand, Limits, LoadOptions, ModelFacts, Policy, Scheduler
from trio_ollama.scheduler.core.events import Event

from .behaviour import Behaviour
from .clients import Client, Script
from .factory import SimulatedRunnerFactory
from .hardware import GIB, SimulatedHardware
from .layout import LAYERS, layout
from .rules import Rules
from .runners import SimulatedRunner
from .system import OURS, System
from .trace import Trace

__all__ = ["EFFECTIVELY_FOR_EVER", "GIB", "GPU", "World", "open_world", "running"]

GPU = "GPU-0"
"""The usual machine has one, of 24 GiB."""
SIZE = 4 * GIB
"""Of a model that has not been given another one. Its size is all that a simulated model takes."""
EFFECTIVELY_FOR_EVER = 1e6
"""Seconds: longer than any finite keep-alive and any bound in a test."""


class World:
    """A machine, its scheduler, and the clients of it. Models come to be when somebody asks for them."""

    def __init__(
        self,
        hardware: SimulatedHardware,
        *,
        policy: Policy | None = None,
        limits: Limits | None = None,
        usual: Behaviour | None = None,
        sizes: Mapping[str, int] | None = None,
        gpu_overhead: int = 0,
        system: System = OURS,
    ) -> None:
        self.hardware = hardware
        self.system = system
        self.sizes = dict(sizes or {})
        """Bytes by model name."""
        self.events: list[Event] = []
        self.clients: list[Client] = []
        self.trace = Trace()
        self._models: dict[str, ModelFacts] = {}
        self.factory = SimulatedRunnerFactory(hardware, self._footprint, usual, note=self.note)
        self.scheduler: Scheduler = system.make(
            hardware=hardware,
            runners=self.factory,
            policy=policy or Policy(),
            limits=limits,
            gpu_overhead=gpu_overhead,
            on_event=self._happened,
        )
        self.rules: Rules | None = None
        """Judge what happens, if somebody wants that."""
        self._nursery: trio.Nursery | None = None
        self.scheduler_scope = trio.CancelScope()
        self._there = 0
        """Clients that have not ended."""
        self.nobody = trio.Event()
        """The last client has ended, and no other one had come."""
        self.closed_at: float | None = None

    def note(self, text: str) -> None:
        """A line of the trace."""
        self.trace.add(trio.current_time(), text)

    def _happened(self, event: Event) -> None:
        self.events.append(event)
        self.trace.add(event.at / 1e9, event)
        if self.rules is not None:
            self.rules.happened(event)

    def _footprint(self, spec: LaunchSpec) -> Mapping[str, int]:
        return layout(spec, self.sizes.get(spec.model, SIZE), self.hardware.reported_free)

    # -- requests -------------------------------------------------------------------------------------------------

    def model(self, name: str) -> ModelFacts:
        facts = self._models.get(name)
        if facts is None:
            size = self.sizes.get(name, SIZE)
            facts = self._models[name] = ModelFacts(key=name, name=name, path=name, file_size=size, layers=LAYERS)
        return facts

    def demand(self, model: str, *, keep_alive: float | None = None, slot: bool = True, **options: Any) -> Demand:
        """A demand for a model; `keep_alive` in seconds, `options` of `LoadOptions`."""
        if "num_ctx" in options:
            options["num_ctx_auto"] = False
        keep = None if keep_alive is None else round(keep_alive * 1e9)
        return Demand(self.model(model), LoadOptions(**options), keep, slot)

    def client(self, model: str, script: Script | None = None, **changes: Any) -> Client:
        """A new client, on its way. `changes`: fields of `Script`, and arguments of `demand`."""
        fields = {name: changes.pop(name) for name in list(changes) if name in Script.__dataclass_fields__}
        demand = self.demand(model, **changes)
        client = Client(f"client {len(self.clients) + 1}", replace(script or Script(demand=demand), **fields))
        self.admit(client)
        return client

    def admit(self, client: Client) -> None:
        """A client, on its way."""
        self.clients.append(client)
        self._there += 1
        assert self._nursery is not None
        self._nursery.start_soon(self._play, client, name=client.name)
        if client.script.late:
            self._nursery.start_soon(client.leave_late, name=f"{client.name} leaves")

    async def _play(self, client: Client) -> None:
        await client.run(self.scheduler)
        why = f": {client.error}" if client.error is not None else ""
        self.note(f"{client.name} ({client.script.demand.model.name}) {client.outcome}, {client.got} received{why}")
        if self.rules is not None:
            self.rules.ended(client)
        self._there -= 1
        if not self._there:
            self.nobody.set()

    # -- looking at it --------------------------------------------------------------------------------------------

    def process(self, model: str) -> SimulatedRunner:
        """The newest process of a model."""
        return [process for process in self.factory.spawned if process.spec.model == model][-1]

    def check(self) -> None:
        """Raises `AssertionError` with all broken invariants."""
        broken = list(self.system.violations(self.scheduler, self.factory))
        assert not broken, broken

    @staticmethod
    async def rest() -> None:
        """Until nothing can happen without time passing."""
        await trio.testing.wait_all_tasks_blocked()

    async def quiesce(self, tidy: Callable[[], None] = lambda: None) -> None:
        """Wait for all clients, call `tidy`, wait for every finite keep-alive.

        Raises `AssertionError` if anything is left (I24).
        """
        for client in self.clients:
            client.finish()
        with trio.move_on_after(EFFECTIVELY_FOR_EVER):
            await self._all_ended()
        waiting = [client.name for client in self.clients if not client.ended.is_set()]
        assert not waiting, f"{waiting} wait for ever"
        tidy()
        await trio.sleep(EFFECTIVELY_FOR_EVER)
        self.assert_empty()
        for client in self.clients:
            assert client.outcome is not None, f"{client.name} has no outcome"

    async def _all_ended(self) -> None:
        for client in self.clients:
            await client.ended.wait()

    def assert_empty(self) -> None:
        """Nothing is left of any request, runner or process; only the scheduler's own task is there (I18)."""
        left = list(self.system.leftovers(self.scheduler, self.factory, self.hardware.in_use))
        assert not left, left

    async def host(self) -> None:
        """The scheduler, until `stop` or the end of the surroundings."""
        with self.scheduler_scope:
            await self.scheduler.run()

    def close(self) -> None:
        """The daemon takes no more requests."""
        self._note_closing()
        self.scheduler.close()

    def _note_closing(self) -> None:
        if self.closed_at is None:
            self.closed_at = trio.current_time()

    def stop(self) -> None:
        """Cancel the scheduler: the hard end of the daemon."""
        self._note_closing()
        self.scheduler_scope.cancel("the daemon ends")


@asynccontextmanager
async def open_world(
    gpus: Mapping[str, int] | None = None, *, ram: int = 64 * GIB, **rest: Any
) -> AsyncGenerator[World, None]:
    """A world with a running scheduler; `rest` as in `World`."""
    hardware = SimulatedHardware({GPU: 24 * GIB} if gpus is None else gpus, ram=ram)
    async with running(World(hardware, **rest)) as world:
        yield world


@asynccontextmanager
async def running(world: World) -> AsyncGenerator[World, None]:
    """Run the scheduler of `world`. At the end everything is cancelled, and must be gone then."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.host, name="scheduler")
        await world.rest()
        async with trio.open_nursery() as clients:
            world._nursery = clients
            yield world
            clients.cancel_scope.cancel("the test is over")
        nursery.cancel_scope.cancel("the test is over")
    left = [process.pid for process in world.factory.alive if process.behaviour.kill_time is not None]
    assert not left, f"processes {left} outlived the scheduler"
