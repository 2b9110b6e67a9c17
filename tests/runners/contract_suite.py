"""What every kind of runner has to do. Subclass `RunnerContract` and provide the fixtures `factory` and `spec`."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from trio_ollama.runners.contract import (
    Call,
    LaunchSpec,
    LoadFailedError,
    LoadReport,
    OpenCall,
    Runner,
    RunnerDiedError,
    RunnerFactory,
    RunnerRefusedError,
)

__all__ = ["RunnerContract", "completion", "read_all", "running", "started"]

SpecMaker = Callable[..., LaunchSpec]

PATIENCE = 20.0
"""Seconds: far more than anything here takes, on a busy machine, too."""
LONG = 30000
"""Tokens of an answer that no test waits for."""


@asynccontextmanager
async def started(factory: RunnerFactory, spec: LaunchSpec) -> AsyncGenerator[Runner, None]:
    """A runner that is served until the end of the block, which kills it."""
    runner = factory.spawn(spec)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_own, runner)
        try:
            yield runner
        finally:
            runner.kill()


async def _own(runner: Runner) -> None:
    await runner.serve()


@asynccontextmanager
async def running(factory: RunnerFactory, spec: LaunchSpec) -> AsyncGenerator[tuple[Runner, LoadReport], None]:
    """Likewise, once it is ready."""
    async with started(factory, spec) as runner:
        yield runner, await runner.ready(PATIENCE)


async def _expect(error: Exception, wait: Callable[[Any], Awaitable[object]], call: object) -> None:
    """`wait` raises just this."""
    with pytest.raises(type(error)) as raised:
        await wait(call)
    assert raised.value is error


async def enter(opening: OpenCall) -> None:
    async with opening:
        pass


def completion(prompt: str = "w1 w2", tokens: int = 5, **options: Any) -> Mapping[str, Any]:
    """The body of a generation; deliberately without the fields that `stream` has to add."""
    return {"prompt": prompt, "n_predict": tokens, "cache_prompt": True, **options}


async def read_all(call: Call) -> list[dict[str, Any]]:
    """All events up to the end."""
    events: list[dict[str, Any]] = []
    while more := await call.receive():
        events += more
    return events


def tokens_of(events: list[dict[str, Any]]) -> int:
    """Tokens generated, as the events came: one each, without the progress reports and the last."""
    return sum(not event.get("stop") and "prompt_progress" not in event for event in events)


class RunnerContract:
    """The tests."""

    async def test_starts_and_reports_itself(self, factory: RunnerFactory, spec: SpecMaker) -> None:
        assert factory.describe()
        async with running(factory, spec(num_ctx=1024, parallel=2)) as (runner, report):
            assert report.context == 1024
            assert report.total_bytes > 0
            assert report.gpu_bytes == 0
            assert report.total_bytes == sum(report.buffers.values())
            assert report.resident is not None
            assert report.total_bytes <= report.resident
            assert report.private is not None
            assert 0 < report.private <= report.resident
            assert runner.exited is None
            assert runner.pid > 0
        assert runner.exited is not None

    async def test_streams_to_the_end(self, factory: RunnerFactory, spec: SpecMaker) -> None:
        async with running(factory, spec()) as (runner, _):
            async with runner.stream("/completion", completion(tokens=7)) as call:
                events = await read_all(call)
                assert await call.receive() == []
            assert call.settled.is_set()
            assert tokens_of(events) == 7
            assert [event.get("stop", False) for event in events].index(True) == len(events) - 1
            assert events[-1]["timings"]["predicted_n"] == 7

    async def test_asks_for_progress_whatever_the_caller_says(self, factory: RunnerFactory, spec: SpecMaker) -> None:
        async with running(factory, spec()) as (runner, _):
            body = completion(prompt="w1 " * 300, stream=False, return_progress=False)
            async with runner.stream("/completion", body) as call:
                events = await read_all(call)
            assert [event["prompt_progress"]["total"] for event in events if "prompt_progress" in event]

    async def test_answers_a_question(self, factory: RunnerFactory, spec: SpecMaker) -> None:
        async with running(factory, spec()) as (runner, _):
            answer = await runner.ask("/tokenize", {"content": "w1 w2 w3"})
            assert len(answer["tokens"]) == 3

    async def test_a_refusal_carries_status_and_text(self, factory: RunnerFactory, spec: SpecMaker) -> None:
        async with running(factory, spec(num_ctx=512)) as (runner, _):
            with pytest.raises(RunnerRefusedError, match=r"exceeds the available context size") as refused:
                async with runner.stream("/completion", completion(prompt="w1 " * 600)):
                    pass
            assert refused.value.status == 400
            assert refused.value.kind == "exceed_context_size_error"
            async with runner.stream("/completion", completion()) as call:  # and the slot is free
                assert tokens_of(await read_all(call)) == 5

    async def test_an_early_close_stops_the_work(self, factory: RunnerFactory, spec: SpecMaker) -> None:
        async with running(factory, spec()) as (runner, _):
            async with runner.stream("/completion", completion(tokens=LONG)) as call:
                await call.receive()
                assert not call.settled.is_set()
            with trio.fail_after(PATIENCE):
                await call.settled.wait()
                async with runner.stream("/completion", completion()) as call:
                    await read_all(call)

    async def test_a_cancelled_reader_leaves_at_once(self, factory: RunnerFactory, spec: SpecMaker) -> None:
        async with running(factory, spec()) as (runner, _):
            with trio.fail_after(PATIENCE):
                with trio.CancelScope() as scope:
                    async with runner.stream("/completion", completion(tokens=LONG)) as call:
                        await call.receive()
                        scope.cancel()
                        while True:
                            await call.receive()
                assert scope.cancelled_caught
                await call.settled.wait()

    async def test_an_abort_hits_one_call_only(self, factory: RunnerFactory, spec: SpecMaker) -> None:
        """R09."""
        async with running(factory, spec(num_ctx=2048, parallel=2)) as (runner, _):
            with trio.fail_after(PATIENCE):
                async with runner.stream("/completion", completion(tokens=1000)) as kept:
                    events = await kept.receive()
                    async with runner.stream("/completion", completion("w3 w4", tokens=2000)) as aborted:
                        await aborted.receive()
                    await aborted.settled.wait()
                    assert not kept.settled.is_set()
                    events += await read_all(kept)
                assert tokens_of(events) == 1000

    async def test_several_aborts_at_once_all_settle(self, factory: RunnerFactory, spec: SpecMaker) -> None:
        calls: list[Call] = []

        async def abort_soon(runner: Runner, number: int) -> None:
            async with runner.stream("/completion", completion(f"w{number}", tokens=LONG)) as call:
                calls.append(call)
                await call.receive()

        async with running(factory, spec(num_ctx=4096, parallel=3)) as (runner, _):
            with trio.fail_after(PATIENCE):
                async with trio.open_nursery() as nursery:
                    for number in range(3):
                        nursery.start_soon(abort_soon, runner, number)
                for call in calls:
                    await call.settled.wait()

    async def test_an_aborted_call_raises_at_once(self, factory: RunnerFactory, spec: SpecMaker) -> None:
        """R81: the reader gets the error given, whatever the child does, and the call settles as any that is left."""
        error = ValueError("nobody wants it")
        async with running(factory, spec()) as (runner, _):
            with trio.fail_after(PATIENCE):
                opening = runner.stream("/completion", completion(tokens=LONG))
                async with opening as call:
                    await call.receive()
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(_expect, error, read_all, call)
                        await trio.testing.wait_all_tasks_blocked()
                        opening.abort(error)
                    opening.abort(KeyError("only the first counts"))
                    with pytest.raises(ValueError, match="nobody wants it"):
                        await call.receive()
                    assert not call.settled.is_set()
                await call.settled.wait()
                async with runner.stream("/completion", completion()) as call:  # and the slot is free
                    assert tokens_of(await read_all(call)) == 5

    async def test_a_call_is_aborted_while_it_is_entered(self, factory: RunnerFactory, spec: SpecMaker) -> None:
        error = ValueError("nobody wants it")
        async with running(factory, spec()) as (runner, _):
            with trio.fail_after(PATIENCE):
                before = runner.stream("/completion", completion(tokens=LONG))
                before.abort(error)
                await _expect(error, enter, before)
                during = runner.stream("/completion", completion(tokens=LONG))
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_expect, error, enter, during)
                    await trio.lowlevel.checkpoint()
                    during.abort(error)
                await before.settled.wait()
                await during.settled.wait()

    async def test_terminate_ends_it(self, factory: RunnerFactory, spec: SpecMaker) -> None:
        runner = factory.spawn(spec())
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(runner.serve)
                await runner.ready(PATIENCE)
                runner.terminate()
        assert runner.exited is not None
        runner.terminate()
        runner.kill()

    async def test_kill_ends_it_and_may_be_repeated(self, factory: RunnerFactory, spec: SpecMaker) -> None:
        runner = factory.spawn(spec())
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(runner.serve)
                await runner.ready(PATIENCE)
                runner.kill()
                runner.kill()
        assert runner.exited is not None
        assert runner.exited.code == -signal.SIGKILL
        runner.kill()

    async def test_death_in_the_middle_of_a_call(self, factory: RunnerFactory, spec: SpecMaker) -> None:
        """R80."""
        runner = factory.spawn(spec())
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(runner.serve)
                await runner.ready(PATIENCE)
                async with runner.stream("/completion", completion(tokens=LONG)) as call:
                    await call.receive()
                    runner.kill()
                    with pytest.raises(RunnerDiedError, match=r"^an error was encountered while running the model: "):
                        await read_all(call)
                await call.settled.wait()
            with pytest.raises(RunnerDiedError, match=r"^model runner has unexpectedly stopped, "):
                async with runner.stream("/completion", completion()):
                    pass
            with pytest.raises(RunnerDiedError, match=r"^model runner has unexpectedly stopped, "):
                await runner.ask("/tokenize", {"content": "w1"})

    async def test_death_during_the_load(self, factory: RunnerFactory, spec: SpecMaker) -> None:
        """R78."""
        async with started(factory, spec()) as runner:
            runner.kill()
            with trio.fail_after(PATIENCE):
                with pytest.raises(LoadFailedError, match=r"^llama-server process has terminated: signal SIGKILL"):
                    await runner.ready(PATIENCE)

    async def test_a_cancelled_server_leaves_no_process(self, factory: RunnerFactory, spec: SpecMaker) -> None:
        runner = factory.spawn(spec())
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(runner.serve)
                await runner.ready(PATIENCE)
                nursery.cancel_scope.cancel()
        assert runner.exited is not None
