"""Push: blobs in order or where they are redirected to, then the manifest, byte for byte."""

from __future__ import annotations

import hashlib
import json
import random

import pytest

from tests.support.fake_registry import MANIFEST, MODEL, Reaction, Request, fake_registry
from trio_ollama.models.errors import ModelNotFoundError
from trio_ollama.models.manifest import Layer, Manifest
from trio_ollama.registry import RegistryError

from .conftest import QUICK, Here

DATA = random.Random(5).randbytes(1_000_000)
NAME = "library/mine:latest"


def keep(here: Here, data: bytes = DATA, source: str = "") -> str:
    """A model in our store; its weights' digest."""
    config = here.store.put_blob_bytes(b"{}", "application/vnd.docker.container.image.v1+json")
    digest, _ = here.store.blobs.put(data)
    layer = Layer(MODEL, str(digest), len(data), source)
    here.store.write_manifest(here.reference(NAME).name, Manifest(config=config, layers=(layer,)))
    return str(digest)


def sent_ranges(here: Here) -> list[str]:
    return [request.headers["content-range"] for request in here.remote.of("PATCH", "") if len(request.body) > 10]


async def test_blobs_go_in_order_and_the_manifest_last(here: Here) -> None:
    digest = keep(here)
    told = await here.push(NAME)
    assert here.remote.blobs[digest] == DATA
    name = here.reference(NAME).name
    assert here.remote.manifests[NAME] == here.store.manifests.path(name).read_bytes()
    assert here.remote.requests[-1].method == "PUT"
    assert here.remote.requests[-1].headers["content-type"] == MANIFEST
    assert sent_ranges(here) == ["0-299999", "300000-599999", "600000-899999", "900000-999999"]
    commit = next(request for request in here.remote.requests if request.query.get("digest") == digest)
    parts = [DATA[begin : begin + 300_000] for begin in range(0, 1_000_000, 300_000)]
    md5 = hashlib.md5(b"".join(hashlib.md5(part).digest() for part in parts)).hexdigest()
    assert commit.query["etag"] == f"{md5}-4"
    statuses = list(dict.fromkeys(progress.status for progress in told))
    assert statuses[0] == "retrieving manifest"
    assert statuses[1] == f"pushing {digest[7:19]}"
    assert statuses[-2:] == ["pushing manifest", "success"]
    of_it = [progress for progress in told if progress.digest == digest]
    assert (of_it[-1].total, of_it[-1].completed) == (1_000_000, 1_000_000)


async def test_what_is_there_is_not_sent(here: Here) -> None:
    digest = keep(here)
    here.remote.add_blob(DATA)
    told = await here.push(NAME)
    assert not sent_ranges(here)
    assert [progress.completed for progress in told if progress.digest == digest] == [1_000_000]


async def test_a_blob_of_another_model_of_the_registry_is_taken_from_there(here: Here) -> None:
    digest = keep(here, source=f"{here.remote.host}/library/base:latest")
    here.remote.add_blob(DATA)
    here.remote.react = lambda request: Reaction(404) if request.method == "HEAD" else None
    await here.push(NAME)
    assert not sent_ranges(here)
    begun = here.remote.of("POST", "/uploads/")[0]
    assert begun.query == {"mount": digest, "from": "library/base"}


async def test_a_file_name_is_no_model_to_take_a_blob_from(here: Here) -> None:
    keep(here, source="/some/where/weights.gguf")
    await here.push(NAME)
    assert here.remote.of("POST", "/uploads/")[0].query == {}


@pytest.mark.parametrize("moment", [0, 1, 250_000])
async def test_an_upload_that_breaks_goes_on_where_the_registry_says(here: Here, moment: int) -> None:
    broken: list[Request] = []

    def react(request: Request) -> Reaction | None:
        if request.headers.get("content-range") == "300000-599999" and not broken:
            broken.append(request)
            return Reaction(unread=moment)
        return None

    digest = keep(here)
    here.remote.react = react
    await here.push(NAME)
    assert here.remote.blobs[digest] == DATA
    assert f"{300_000 + moment}-599999" in sent_ranges(here)[1:]
    md5 = [request.query["etag"] for request in here.remote.requests if request.query.get("digest") == digest]
    assert md5[0].endswith("-4")


async def test_a_session_that_is_lost_is_begun_again(here: Here) -> None:
    digest = keep(here)
    lost = [True]

    def react(request: Request) -> Reaction | None:
        if request.headers.get("content-range") == "300000-599999" and lost[0]:
            return Reaction(unread=1000)
        if request.method == "GET" and lost[0]:
            lost[0] = False
            return Reaction(404, body=b"upload unknown")
        return None

    here.remote.react = react
    await here.push(NAME)
    assert here.remote.blobs[digest] == DATA
    assert sent_ranges(here).count("0-299999") == 2


async def test_an_upload_that_never_succeeds_is_given_up(here: Here) -> None:
    keep(here)
    here.remote.react = lambda request: Reaction(500, body=b"oh") if request.method == "PATCH" else None
    with pytest.raises(RegistryError, match=r"^max retries exceeded: 500: oh$"):
        await here.push(NAME)
    assert len(here.remote.of("PATCH", "")) == QUICK.tries
    assert not here.remote.manifests


async def test_parts_go_where_they_are_redirected_to_without_our_token(here: Here) -> None:
    digest = keep(here)
    here.remote.token = "secret"
    async with fake_registry() as storage:
        storage._sessions = here.remote._sessions
        here.remote.redirects_to = storage.url
        here.remote.add_blob(b"{}")
        await here.push(NAME)
        assert here.remote.blobs[digest] == DATA
        assert sorted(len(request.body) for request in storage.requests) == [100_000, 300_000, 300_000, 300_000]
        assert not [request for request in storage.requests if "authorization" in request.headers]
    assert all(request.headers["x-redirect-uploads"] == "1" for request in here.remote.of("PATCH", ""))


async def test_a_redirect_that_comes_early_is_not_sent_the_rest(here: Here) -> None:
    """The registry answers as soon as it has the head, and reads nothing of the body."""
    data = random.Random(6).randbytes(30_000_000)
    digest = keep(here, data)
    async with fake_registry() as storage:
        storage._sessions = here.remote._sessions
        here.remote.redirects_to = storage.url
        here.remote.add_blob(b"{}")
        here.remote.reads_redirected = False
        await here.push(NAME)
    assert here.remote.blobs[digest] == data
    assert not any(request.body for request in here.remote.of("PATCH", ""))


@pytest.mark.parametrize(
    ("status", "text"), [(401, r"unauthorized: access denied"), (403, r"^access denied: 403: not yours$")]
)
async def test_a_namespace_of_somebody_else(here: Here, status: int, text: str) -> None:
    keep(here)
    here.remote.react = lambda request: Reaction(status, body=b"not yours") if request.method == "POST" else None
    with pytest.raises(RegistryError, match=text):
        await here.push(NAME)


async def test_a_blob_that_arrived_damaged_is_refused_by_the_registry(here: Here) -> None:
    digest = keep(here)
    here.remote.react = lambda request: (
        Reaction(400, body=b"DIGEST_INVALID") if request.query.get("digest") == digest else None
    )
    with pytest.raises(RegistryError, match="400: DIGEST_INVALID"):
        await here.push(NAME)
    assert not here.remote.manifests


async def test_a_model_that_we_do_not_have(here: Here) -> None:
    transfer = here.registry.push(here.reference("library/nothing"))
    await here.ended(transfer)
    assert [progress.status for progress in await transfer.news()] == [
        "retrieving manifest",
        "couldn't retrieve manifest",
    ]
    with pytest.raises(ModelNotFoundError):
        await transfer.news()


async def test_what_was_pushed_can_be_pulled(here: Here) -> None:
    digest = keep(here)
    await here.push(NAME)
    manifest = json.loads(here.remote.manifests[NAME])
    here.store.delete(here.reference(NAME).name)
    assert not here.store.has_blob(digest)
    await here.pull(NAME)
    assert here.blob(digest) == DATA
    assert here.blob(manifest["config"]["digest"]) == b"{}"
