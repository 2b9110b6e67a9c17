"""Many who want one blob, in one daemon and in two: it is fetched once, and stops when nobody wants it any more."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import trio

from tests.support.fake_registry import Reaction, fake_registry
from tests.support.until import until
from trio_ollama.models.digest import Digest
from trio_ollama.models.manifest import Layer
from trio_ollama.models.names import ModelName
from trio_ollama.models.store import Store
from trio_ollama.registry import Reference, Registry, RegistryError, Transfer

from .conftest import QUICK, SOON, Here, finish

DATA = random.Random(3).randbytes(1_000_000)
MANY = 50


def hold(here: Here, after: int = 50_000) -> None:
    """Parts come as far as that, until `go`."""
    here.remote.react = lambda request: Reaction(hold=after) if request.is_part else None


def go(here: Here) -> None:
    here.remote.react = lambda _: None


async def asked(here: Here, parts: int = 4) -> None:
    await until(lambda: len(here.remote.parts()) >= parts, SOON, lambda: "not asked")


async def joined(transfer: Transfer) -> None:
    """It waits for the download."""
    with trio.fail_after(SOON):
        while not [progress for progress in await transfer.news() if progress.digest]:
            pass


async def test_fifty_pulls_are_one_download_and_the_last_that_leaves_stops_it(here: Here) -> None:
    (digest,) = here.remote.add_model("library/tiny:latest", DATA)
    hold(here)
    transfers = [here.begin() for _ in range(MANY)]
    await asked(here)
    for transfer in transfers:
        await joined(transfer)
    for transfer in transfers[:-1]:  # the first of them has begun it
        transfer.cancel()
    await trio.sleep(0.02)
    assert here.remote.connections >= 4, "it goes on for the last"
    assert len([request for request in here.remote.of("GET", digest) if request.is_probe]) == 1
    begin = trio.current_time()
    transfers[-1].cancel()
    await until(lambda: not here.remote.connections, SOON, lambda: "it goes on for nobody")
    assert trio.current_time() - begin < 1, "generous: 50 ms on a quiet machine"
    assert "-partial" in here.files()
    go(here)
    await here.pull()
    assert here.blob(digest) == DATA


async def test_who_comes_when_the_last_has_just_left_begins_anew(here: Here) -> None:
    (digest,) = here.remote.add_model("library/tiny:latest", DATA)
    downloads, layer = here.registry.downloads, Layer("model", digest, len(DATA))
    fetch = partial(downloads.fetch, here.reference(), layer, "pulling", lambda _: None)
    hold(here)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetch)
        await asked(here)
        go(here)
        nursery.cancel_scope.cancel()
    with trio.fail_after(SOON):
        await fetch()
    assert here.blob(digest) == DATA


async def test_all_who_wait_hear_of_a_failure(here: Here) -> None:
    (digest,) = here.remote.add_model("library/tiny:latest", DATA)
    here.remote.react = lambda request: Reaction(500, body=b"no") if request.is_part else None
    transfers = [here.begin() for _ in range(3)]
    failures = []

    async def wait(transfer: Transfer) -> None:
        with pytest.raises(RegistryError, match="max retries exceeded: 500: no") as caught:
            await finish(transfer)
        failures.append(caught.value)

    async with trio.open_nursery() as nursery:
        for transfer in transfers:
            nursery.start_soon(wait, transfer)
    assert len(failures) == 3
    assert not here.store.has_blob(digest)


async def test_another_registrys_failure_is_no_verdict_on_ours(
    here: Here, new_registry: Callable[..., Registry]
) -> None:
    """Both give the same blob; who joined the one that fails fetches it from his own."""
    here.registry = new_registry(here.store, replace(QUICK, stall=0.3))
    await trio.testing.wait_all_tasks_blocked()
    (digest,) = here.remote.add_model("library/tiny:latest", DATA)
    async with fake_registry() as sound:
        sound.blobs, sound.manifests = here.remote.blobs, here.remote.manifests
        hold(here)
        failing = here.begin()
        await asked(here)
        other = here.registry.pull(Reference(ModelName.parse(f"{sound.host}/library/tiny")))
        await until(lambda: sound.of("GET", "/manifests/"), SOON, lambda: "manifest")
        here.remote.react = lambda request: Reaction(500) if request.is_part else None
        with pytest.raises(RegistryError, match="max retries exceeded"):
            await finish(failing)
        assert (await finish(other))[-1].status == "success"
        assert sound.parts()
    assert here.blob(digest) == DATA


async def test_two_daemons_on_one_store_fetch_a_blob_one_after_the_other(
    here: Here, new_registry: Callable[[Store], Registry]
) -> None:
    (digest,) = here.remote.add_model("library/tiny:latest", DATA)
    hold(here)
    first = here.begin()
    await asked(here)
    other = new_registry(Store(here.store.root))
    await trio.testing.wait_all_tasks_blocked()
    second = other.pull(here.reference())
    await until(lambda: len(here.remote.of("GET", "/manifests/")) == 2, SOON, lambda: "manifest")
    await trio.sleep(0.03)  # three looks at the lock
    assert len(here.remote.parts()) == 4, "the second waits for the first"
    assert not here.free(Digest.of(DATA))
    go(here)
    first.cancel()  # its daemon might as well have been killed
    assert (await finish(second))[-1].status == "success"
    assert here.blob(digest) == DATA
    assert here.files() == set()


async def test_a_daemon_that_waited_takes_what_the_other_has_fetched(
    here: Here, new_registry: Callable[[Store], Registry]
) -> None:
    here.remote.add_model("library/tiny:latest", DATA)
    other = new_registry(Store(here.store.root))
    await trio.testing.wait_all_tasks_blocked()
    transfers = [here.begin(), other.pull(here.reference())]
    async with trio.open_nursery() as nursery:
        for transfer in transfers:
            nursery.start_soon(finish, transfer)
    assert len(here.remote.parts()) == 6, "five parts and a config, once"
    assert here.files() == set()
