"""The daemon: every part of the house, in one nursery tree.

    root                                     1st signal: drain, 2nd: cancel root
    ├── signals
    ├── closing                              refuses new work from the first signal on, ends what takes too long
    ├── recording                            with `--record` only
    ├── scheduler ── runner 1, runner 2, …   outlives the requests, so that they can finish
    ├── registry ── transfers, downloads     each ends with the last request that wants it
    ├── silence                              ends requests to which a runner says nothing any more
    └── http ── connections ── requests

The address is bound before anything else happens: a taken port fails at once and changes nothing.
"""

from __future__ import annotations

import datetime
import logging
import math
import os
import sys
from functools import partial
from pathlib import Path

import psutil
import trio

from trio_ollama import OLLAMA_API_VERSION, __version__
from trio_ollama.hardware.describe import machine_lines
from trio_ollama.hardware.machine import Machine
from trio_ollama.models.errors import ModelsError
from trio_ollama.models.metadata_cache import MetadataCache
from trio_ollama.models.store import Store
from trio_ollama.registry import Registry
from trio_ollama.runners.contract import RunnerFactory, SpawnError
from trio_ollama.runners.llama_server.factory import LlamaServerFactory, runner_factory
from trio_ollama.scheduler import Limits as SchedulerLimits
from trio_ollama.scheduler import Policy, Scheduler
from trio_ollama.scheduler.core.context import default_context
from trio_ollama.scheduler.core.events import Event
from trio_ollama.scheduler.core.memory import total_vram
from trio_ollama.scheduler.scheduler import log_event
from trio_ollama.server.app import create_app
from trio_ollama.server.limits import Limits
from trio_ollama.server.measured import feedback_of
from trio_ollama.server.record import Recorder, recording
from trio_ollama.server.serve import serve
from trio_ollama.server.services import services_of
from trio_ollama.server.signals import watch_signals
from trio_ollama.server.silence import watch_silence
from trio_ollama.server.sockets import AddressError, Bound, open_listeners
from trio_ollama.settings import Settings

__all__ = ["main", "run_daemon"]

logger = logging.getLogger(__name__)

CANNOT_START = (AddressError, ModelsError, SpawnError, OSError)
"""What can stop a start for reasons that the user can mend."""


def main(settings: Settings, record: Path | None = None) -> int:
    """Serve until a signal ends it; returns the exit status. What stops a start is one line on stderr.

    `record`: the file to which a line for each request is appended.
    """
    logging.basicConfig(
        level=settings.debug,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)-7s %(message)s",
        force=True,
    )
    for warning in settings.warnings:
        logger.warning("%s", warning)
    try:
        trio.run(run_daemon, settings, record)
    except (*CANNOT_START, ExceptionGroup) as error:
        reason = _first(error)
        if not isinstance(reason, CANNOT_START):
            raise
        hint = " (another server? OLLAMA_HOST chooses the address)" if isinstance(reason, AddressError) else ""
        print(f"Error: {reason}{hint}", file=sys.stderr)
        return 1
    return 0


async def run_daemon(settings: Settings, record: Path | None = None) -> None:
    """The daemon as a task. Raises one of `CANNOT_START`, possibly in a group, if it cannot start."""
    bound = await open_listeners(settings.host.bind_addresses, unacknowledged=settings.stall_timeout)
    try:
        with runner_factory(settings.runner, settings.llama_server) as factory, recording(record) as recorder:
            await _run(settings, bound, factory, recorder)
    finally:
        bound.close()


async def _run(settings: Settings, bound: Bound, factory: LlamaServerFactory, recorder: Recorder | None) -> None:
    def tell(event: Event) -> None:
        log_event(event)
        if recorder is not None:
            recorder.happened(event)

    shutdown = trio.Event()
    store = Store(settings.models)
    policy = _policy(settings)
    machine = Machine.from_settings(settings, factory.build)
    scheduler = Scheduler(
        hardware=machine,
        runners=factory,
        policy=policy,
        limits=_scheduler_limits(settings),
        gpu_overhead=settings.gpu_overhead,
        on_event=tell,
        feedback=await trio.to_thread.run_sync(feedback_of, settings.cache),
    )
    async with trio.open_nursery() as root:
        await root.start(watch_signals, shutdown, root.cancel_scope, name="signals")
        await trio.to_thread.run_sync(_tidy, store, settings.noprune)
        await _prepare(machine, shutdown)
        await root.start(scheduler.run, name="scheduler")
        registry = Registry(store, settings.key, prune=not settings.noprune)
        await root.start(registry.run, name="registry")
        root.start_soon(_close, shutdown, scheduler, settings.drain_timeout, name="closing")
        context = settings.context_length or default_context(total_vram(scheduler.devices()))
        if recorder is not None:
            recorder.header(scheduler.devices(), policy, gpu_overhead=settings.gpu_overhead, default_context=context)
            root.start_soon(recorder.run, name="recording")
        app = create_app(
            settings=settings,
            scheduler=scheduler,
            store=store,
            metadata_cache=MetadataCache(),
            loopback=bound.loopback,
            default_context=context,
            registry=registry,
            recorder=recorder,
        )
        if settings.silence_timeout < math.inf:
            requests = services_of(app).requests
            root.start_soon(watch_silence, requests, settings.silence_timeout, name="silence")
        limits = Limits(stall=settings.stall_timeout, drain=settings.drain_timeout)
        async with trio.open_nursery() as http:
            await http.start(partial(serve, app, bound.listeners, limits, shutdown=shutdown), name="http")
            _announce(settings, bound, scheduler, factory)
        # All requests have ended by now, one way or the other.
        await scheduler.stop_all()
        root.cancel_scope.cancel("shut down")
    logger.info("stopped")


async def _prepare(machine: Machine, shutdown: trio.Event) -> None:
    """Know the machine before anybody plans with it. A build that hangs does not hold up a signal."""
    async with trio.open_nursery() as nursery:

        async def give_up() -> None:
            await shutdown.wait()
            nursery.cancel_scope.cancel("shutting down")

        nursery.start_soon(give_up, name="start: signals")
        await machine.prepare()
        nursery.cancel_scope.cancel("done")


async def _close(shutdown: trio.Event, scheduler: Scheduler, drain: float) -> None:
    """From the first signal on nobody new is accepted, and whoever still waits is told so (I25).

    After `drain` seconds the runners go, so that an answer that is still under way ends with the reason instead of in
    the middle (R75). No client can hold this up (R70).
    """
    await shutdown.wait()
    scheduler.close()
    await trio.sleep(drain)
    await scheduler.stop_all()


def _tidy(store: Store, noprune: bool) -> None:
    store.prepare()
    if not noprune:
        store.prune(datetime.datetime.now(datetime.UTC))


def _policy(settings: Settings) -> Policy:
    flash = settings.flash_attention
    return Policy(
        overtakes=settings.max_overtake,
        queue_bound=settings.max_queue,
        max_models=settings.max_loaded_models,
        keep_alive=settings.keep_alive_ns,
        num_parallel=settings.num_parallel,
        finish_abandoned_load=settings.abandoned_load == "finish",
        spread=settings.sched_spread,
        flash_attention="" if flash is None else ("on" if flash else "off"),
        prompt_cache=settings.prompt_cache_mib << 20,
        cache_type=settings.kv_cache_type,
        platform=sys.platform,
        threads=_threads(),
    )


def _threads() -> int:
    """What llama.cpp starts of its own accord: one for each core, as far as we may use them."""
    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 0
    return min(cores, len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else cores


def _scheduler_limits(settings: Settings) -> SchedulerLimits:
    return SchedulerLimits(
        stop_grace=settings.stop_grace,
        kill_wait=settings.kill_wait,
        load_stall=settings.load_timeout,
        abort_confirm=settings.abort_timeout,
        drain_progress=settings.progress_timeout,
        recovery=settings.recovery_timeout,
    )


def _announce(settings: Settings, bound: Bound, scheduler: Scheduler, factory: RunnerFactory) -> None:
    """What this daemon is, on stderr: for whoever has started it, so without the time in front as in the log."""
    reach = "for this machine only" if bound.loopback else "for other machines, too"
    lines = [f"trio-ollama {__version__} (Ollama API {OLLAMA_API_VERSION})"]
    lines += [f"  listening on http://{address} ({reach}; OLLAMA_HOST)" for address in bound.texts]
    lines += [f"  models in {settings.models} (OLLAMA_MODELS)", f"  runner: {factory.describe()}"]
    for level, line in machine_lines(scheduler.machine()):
        lines.append(f"  {'warning: ' if level >= logging.WARNING else ''}{line}")
    print("\n".join(lines), file=sys.stderr, flush=True)


def _first(error: BaseException) -> BaseException:
    """The first leaf of a group, or the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
