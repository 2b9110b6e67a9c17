"""Pull: all blobs, checked, and then the name; told as clients expect it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
import trio

from tests.support.fake_registry import MANIFEST, Reaction, Request, digest_of
from trio_ollama.models.names import ModelName
from trio_ollama.registry import Reference, RegistryError

from .conftest import Here, finish

DATA = random.Random(1).randbytes(1_000_000)
TINY = b"tiny"


async def test_a_model_is_there_byte_for_byte_when_it_is_there_at_all(here: Here) -> None:
    digests = here.remote.add_model("library/tiny:latest", DATA, TINY)
    told = await here.pull()
    assert [here.blob(digest) for digest in digests] == [DATA, TINY]
    entry = here.store.entry(here.reference().name)
    assert f"sha256:{entry.digest}" == digest_of(here.remote.manifests["library/tiny:latest"])
    assert here.files() == set(), "nothing is left lying about"
    statuses = list(dict.fromkeys(progress.status for progress in told))
    names = [f"pulling {layer.parsed_digest.hex[:12]}" for layer in entry.manifest.blobs]
    ends = ["verifying sha256 digest", "writing manifest", "success"]
    assert statuses == ["pulling manifest", *names, *ends]
    for digest, data in zip(digests, (DATA, TINY), strict=True):
        of_it = [progress for progress in told if progress.digest == digest]
        assert {progress.total for progress in of_it} == {len(data)}
        assert [progress.completed for progress in of_it] == sorted(progress.completed for progress in of_it)
        assert of_it[-1].completed == len(data)


async def test_parts_are_fetched_beside_each_other_with_ranges_that_do_not_overlap(here: Here) -> None:
    here.remote.add_model("library/tiny:latest", DATA)
    await here.pull()
    parts = sorted(part for part in here.remote.parts() if part[1] > 100)
    assert parts == [(begin, begin + 199_999) for begin in range(0, 1_000_000, 200_000)]
    (manifest,) = here.remote.of("GET", "/manifests/")
    assert manifest.headers["accept"] == MANIFEST
    assert manifest.headers["user-agent"].startswith("ollama/")


async def test_what_is_there_is_not_fetched_again(here: Here) -> None:
    here.remote.add_model("library/tiny:latest", DATA)
    await here.pull()
    here.remote.requests.clear()
    told = await here.pull()
    assert [request.path for request in here.remote.requests] == ["/v2/library/tiny/manifests/latest"]
    assert [progress.completed for progress in told if progress.total == len(DATA)] == [len(DATA)]


async def test_a_blob_that_was_cut_short_is_fetched_again(here: Here) -> None:
    (digest,) = here.remote.add_model("library/tiny:latest", DATA)
    await here.pull()
    os.truncate(here.store.blob_path(digest), 500_000)
    await here.pull()
    assert here.blob(digest) == DATA


async def test_a_newer_version_takes_the_place_of_the_old_one(here: Here) -> None:
    (old,) = here.remote.add_model("library/tiny:latest", DATA)
    await here.pull()
    (new,) = here.remote.add_model("library/tiny:latest", TINY)
    told = await here.pull()
    assert [progress.status for progress in told][-3:] == ["writing manifest", "removing unused layers", "success"]
    assert here.blob(new) == TINY
    assert not here.store.has_blob(old)


async def test_an_empty_blob_is_a_blob(here: Here) -> None:
    (digest,) = here.remote.add_model("library/tiny:latest", b"")
    await here.pull()
    assert here.blob(digest) == b""


async def test_a_model_that_is_not_there(here: Here) -> None:
    with pytest.raises(RegistryError, match=r"^pull model manifest: file does not exist$"):
        await here.pull()
    assert not here.store.list()


@pytest.mark.parametrize(
    ("reaction", "text"),
    [
        (Reaction(400, body=b"no such thing"), r"^pull model manifest: 400: no such thing$"),
        (Reaction(412), r"^pull model manifest: 412$"),
        (Reaction(200, body=b"<html>"), r"^pull model manifest: .*JSON"),
        (Reaction(200, body=b'{"layers":[{"mediaType":"m","digest":"sha256:1","size":1}]}'), "invalid digest format"),
        (Reaction(200, body=b"x" * 9_000_000), "larger than"),
        (Reaction(500, body=b"y" * 9_000_000), r"^pull model manifest: 500: y{1024}$"),
    ],
)
async def test_a_manifest_that_cannot_be_used(here: Here, reaction: Reaction, text: str) -> None:
    here.remote.react = lambda _: reaction
    with pytest.raises(RegistryError, match=text):
        await here.pull()
    assert not here.store.list()


async def test_a_manifest_is_asked_for_again_when_that_may_help(here: Here) -> None:
    here.remote.add_model("library/tiny:latest", TINY)
    seen: list[Request] = []

    def react(request: Request) -> Reaction | None:
        seen.append(request)
        return {1: Reaction(503), 2: Reaction(200, {"Docker-Content-Digest": digest_of(b"?")}, b"{}")}.get(len(seen))

    here.remote.react = react
    assert (await here.pull())[-1].status == "success"


async def test_nobody_is_there(here: Here) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    host = f"127.0.0.1:{listener.socket.getsockname()[1]}"
    await listener.aclose()
    with pytest.raises(
        RegistryError,
        match=f"^pull model manifest: connection to {host} failed: Connection refused .no registry listens there.$",
    ):
        await finish(here.registry.pull(Reference(ModelName.parse(f"{host}/library/tiny"))))
    assert not here.store.list()


async def test_models_of_other_engines_are_refused_before_anything_is_fetched(here: Here) -> None:
    here.remote.add_model("library/tiny:latest", TINY)
    text = here.remote.manifests["library/tiny:latest"].replace(b"ollama.image.model", b"ollama.image.tensor")
    here.remote.manifests["library/tiny:latest"] = text
    with pytest.raises(RegistryError, match=r"^this model requires MLX support, but the MLX runtime is not available$"):
        await here.pull()
    assert not here.remote.of("GET", "/blobs/")


async def test_pulling_public_models_makes_no_key(here: Here, tmp_path: Path) -> None:
    here.remote.add_model("library/tiny:latest", TINY)
    await here.pull()
    assert not (tmp_path / "keys").exists()
