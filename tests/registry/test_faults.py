"""What registries and networks do to a download; none of it makes a wrong blob, or an endless wait."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import trio

from tests.support.fake_registry import FakeRegistry, Reaction, Request, fake_registry
from tests.support.until import until
from trio_ollama.models.digest import Digest
from trio_ollama.models.errors import StoreUnavailableError
from trio_ollama.registry import Registry, RegistryError
from trio_ollama.registry.verify import Verifier

from .conftest import QUICK, SOON, Here, finish

DATA = random.Random(2).randbytes(1_000_000)


def first(times: int, reaction: Reaction, of: Callable[[Request], bool] = lambda request: request.is_part) -> Any:
    """React so to the first requests of a kind."""
    left = [times]

    def react(request: Request) -> Reaction | None:
        if of(request) and left[0]:
            left[0] -= 1
            return reaction
        return None

    return react


async def arrives(here: Here) -> None:
    (digest,) = here.remote.add_model("library/tiny:latest", DATA)
    assert (await here.pull())[-1].status == "success"
    assert here.blob(digest) == DATA
    assert here.files() == set()


@pytest.mark.parametrize(
    "reaction",
    [
        Reaction(cut=150_000),
        Reaction(cut=0),
        Reaction(503, body=b"busy"),
        Reaction(429),
        Reaction(whole=True),
        Reaction(206, {"Content-Range": "bytes 5-6/1000000"}, b"no"),
        Reaction(206, {}, b"no"),
        Reaction(204),
    ],
    ids=lambda reaction: repr(reaction)[9:-1],
)
async def test_parts_that_go_wrong_are_fetched_again(here: Here, reaction: Reaction) -> None:
    here.remote.react = first(2, reaction)
    await arrives(here)


async def test_a_part_that_stalls_is_fetched_again(here: Here, new_registry: Callable[..., Registry]) -> None:
    here.registry = new_registry(here.store, replace(QUICK, stall=0.2))
    await trio.testing.wait_all_tasks_blocked()
    here.remote.react = first(1, Reaction(hold=100_000), lambda request: request.range == (200_000, 399_999))
    await arrives(here)
    again = [part for part in here.remote.parts() if part[1] == 399_999]
    assert again == [(200_000, 399_999), (300_000, 399_999)]


@pytest.mark.parametrize(("speed", "others"), [(0.0, False), (math.inf, True)], ids=["near", "far"])
async def test_connections_are_added_while_less_comes_than_the_check_can_take(
    here: Here, new_registry: Callable[..., Registry], monkeypatch: pytest.MonkeyPatch, speed: float, others: bool
) -> None:
    """A neighbour brings more over one connection: the next part waits for the first, whatever happens to that."""
    monkeypatch.setattr(Verifier, "speed", property(lambda _: speed))
    here.registry = new_registry(here.store, replace(QUICK, stall=0.5))
    await trio.testing.wait_all_tasks_blocked()
    here.remote.react = first(1, Reaction(hold=100_000), lambda request: request.range == (0, 199_999))
    await arrives(here)
    parts = [part for part in here.remote.parts() if part[1] > 100]
    assert parts[0] == (0, 199_999)
    assert (parts.index((100_000, 199_999)) > parts.index((200_000, 399_999))) is others


async def test_a_part_that_was_cut_goes_on_where_it_was_cut(here: Here) -> None:
    here.remote.react = first(1, Reaction(cut=100_000), lambda request: request.range == (200_000, 399_999))
    await arrives(here)
    again = [part for part in here.remote.parts() if part[1] == 399_999]
    assert again == [(200_000, 399_999), (300_000, 399_999)]


async def test_as_long_as_bytes_come_attempts_do_not_count(here: Here) -> None:
    here.remote.react = lambda request: Reaction(cut=20_000) if request.is_part else None
    await arrives(here)
    assert len(here.remote.parts()) >= 50 > 5 * QUICK.tries


async def test_a_part_that_never_comes_is_given_up(here: Here) -> None:
    here.remote.add_model("library/tiny:latest", DATA)
    here.remote.react = first(100, Reaction(500, body=b"oh"), lambda request: request.range == (200_000, 399_999))
    with pytest.raises(RegistryError, match=r"^max retries exceeded: 500: oh$"):
        await here.pull()
    assert here.remote.parts().count((200_000, 399_999)) == QUICK.tries
    assert "-partial" in here.files(), "what came is kept"
    assert not here.store.list()
    here.remote.react = lambda _: None
    await here.pull()
    assert here.remote.parts().count((0, 199_999)) == 1, "it is fetched once"


@pytest.mark.parametrize("stays", [True, False])
async def test_a_server_that_knows_no_ranges(here: Here, stays: bool) -> None:
    """It is seen when it is first asked, or later: then all comes in one stream."""
    here.remote.react = lambda request: Reaction(whole=True) if request.is_part or stays else None
    await arrives(here)
    whole = [request for request in here.remote.of("GET", "/blobs/") if request.range is None]
    assert len(whole) >= 1


async def test_one_stream_that_breaks_is_begun_again(here: Here) -> None:
    def react(request: Request) -> Reaction | None:
        if request.range is not None:
            return Reaction(whole=True)
        streams = [seen for seen in here.remote.of("GET", "/blobs/") if seen.range is None]
        return Reaction(cut=400_000 * (len(streams) + 1)) if "/blobs/" in request.path and len(streams) < 2 else None

    here.remote.react = react
    await arrives(here)


async def test_a_wrong_blob_is_thrown_away(here: Here) -> None:
    (digest,) = here.remote.add_model("library/tiny:latest", DATA)
    here.remote.react = lambda request: Reaction(corrupt=True) if request.is_part else None
    with pytest.raises(RegistryError, match=f"^digest mismatch, file must be downloaded again: want {digest}, got sha"):
        await here.pull()
    assert here.files() == set()
    assert not here.store.has_blob(digest)
    assert not here.store.list()
    here.remote.react = lambda _: None
    await arrives(here)


async def test_a_blob_of_another_size_is_not_begun(here: Here) -> None:
    (digest,) = here.remote.add_model("library/tiny:latest", DATA)
    here.remote.blobs[digest] += b"more"
    with pytest.raises(RegistryError, match=rf"^{digest} has 1000004 bytes, its manifest says 1000000$"):
        await here.pull()


async def test_a_blob_that_is_not_there(here: Here) -> None:
    (digest,) = here.remote.add_model("library/tiny:latest", DATA)
    del here.remote.blobs[digest]
    with pytest.raises(RegistryError, match=r"^404: blob unknown$"):
        await here.pull()


async def test_where_it_lies_is_asked_again_when_that_may_help(here: Here) -> None:
    here.remote.react = first(2, Reaction(502), lambda request: request.is_probe)
    await arrives(here)


def elsewhere(to: str) -> Callable[[Request], Reaction | None]:
    def react(request: Request) -> Reaction | None:
        if "/blobs/" in request.path:
            return Reaction(307, {"Location": f"{to}/elsewhere/{request.path.rpartition('/')[2]}?signed=1"})
        return None

    return react


async def redirected(here: Here, other: FakeRegistry) -> None:
    other.blobs = here.remote.blobs
    here.remote.react = elsewhere(other.url)
    await arrives(here)


async def test_blobs_of_another_host_are_asked_for_once_and_without_our_token(here: Here) -> None:
    here.remote.token = "secret"
    async with fake_registry() as other:
        await redirected(here, other)
        asked = here.remote.of("GET", "/blobs/")
        assert {request.range for request in asked} == {(0, 0)}, "parts are fetched where they lie"
        assert len(asked) <= 4, "once for each blob, and once again with the token"
        assert len(other.parts()) == 6
        assert not [request for request in other.requests if "authorization" in request.headers]


async def test_nobody_but_the_registry_may_ask_us_to_sign_in(here: Here) -> None:
    async with fake_registry() as other:
        challenge = {"WWW-Authenticate": f'Bearer realm="{other.url}/token",service="s",scope="x"'}
        other.react = first(1, Reaction(401, challenge))
        await redirected(here, other)
        assert not other.of("GET", "/token")


async def test_redirects_at_the_registry_itself_keep_the_token(here: Here) -> None:
    here.remote.token = "secret"
    here.remote.react = elsewhere("")
    await arrives(here)
    parts = [request for request in here.remote.of("GET", "/elsewhere/") if request.is_part]
    assert parts[-1].query == {"signed": "1"}
    assert all(request.headers["authorization"] == "Bearer secret" for request in parts)


async def test_redirects_without_end(here: Here) -> None:
    here.remote.add_model("library/tiny:latest", DATA)
    here.remote.react = lambda request: (
        Reaction(307, {"Location": request.target}) if "/blobs/" in request.path else None
    )
    with pytest.raises(RegistryError, match="more than 10 redirects"):
        await here.pull()


async def test_an_address_that_has_grown_old_is_asked_for_anew(here: Here) -> None:
    async with fake_registry() as other:
        other.react = first(1, Reaction(403, body=b"expired"))
        await redirected(here, other)
        probes = [request for request in here.remote.of("GET", "/blobs/") if request.is_probe]
        assert len(probes) == 3, "two blobs, one of them twice"


async def test_a_full_disk_is_told_at_once_and_what_came_is_kept(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0

    def pwrite(descriptor: int, data: memoryview, offset: int) -> int:
        nonlocal written
        if written > 300_000:
            raise OSError(28, "No space left on device")
        written += len(data)
        return len(data)

    here.remote.add_model("library/tiny:latest", DATA)
    with monkeypatch.context() as patch:
        patch.setattr("trio_ollama.registry.partial.write_all", pwrite)
        with pytest.raises(StoreUnavailableError, match=r"^cannot write to the model store: No space left on device"):
            await here.pull()
    assert len(here.remote.parts()) <= 9, "nothing is tried again"
    assert "-partial" in here.files()
    assert not here.store.list()


async def test_a_disk_that_is_too_small_is_told_before_anything_is_fetched(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.remote.add_model("library/tiny:latest", DATA)
    monkeypatch.setattr("trio_ollama.registry.partial.free_space", lambda _: 999_999)
    with pytest.raises(StoreUnavailableError, match="1000000 bytes are needed, 999999 are free"):
        await here.pull()
    assert not here.remote.of("GET", "/blobs/")


async def test_a_cancel_takes_effect_at_every_kind_of_wait(here: Here) -> None:
    """While parts come, stall, or wait for the next attempt: no connection and no lock is left."""
    here.remote.add_model("library/tiny:latest", DATA)
    for reaction in (Reaction(hold=50_000), Reaction(hold=0), Reaction(500)):
        here.remote.react = lambda request, reaction=reaction: reaction if request.is_part else None  # type: ignore[misc]
        here.remote.asked = trio.Event()
        transfer = here.begin()
        with trio.fail_after(SOON):
            while not here.remote.parts():
                await here.remote.asked.wait()
                here.remote.asked = trio.Event()
            transfer.cancel()
            with pytest.raises(trio.BrokenResourceError):
                await finish(transfer)
            await until(lambda: not here.remote.connections, SOON, lambda: "connections are left")
            await until(lambda: here.free(Digest.of(DATA)), SOON, lambda: "the lock is left")
        here.remote.requests.clear()
