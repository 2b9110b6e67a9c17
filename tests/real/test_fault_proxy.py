"""What the tests of pull and push rest on: the real registry, and a proxy before it that does harm on order."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import httpx2
import pytest
import trio

from tests.support.docker_registry import MANIFEST, DockerRegistry
from tests.support.fault_proxy import FaultProxy
from tests.support.proxy_faults import Answer, Exchange, Fault, Then
from tests.support.registry_models import publish
from tests.support.store_fixture import OllamaStore

BYTES = random.Random(7).randbytes(700_000)


@pytest.fixture
def url(source: OllamaStore, registry: DockerRegistry) -> str:
    published = publish(registry, source, "noise", BYTES)
    return f"/v2/library/noise/blobs/{published.weights}"


@pytest.fixture
async def client(proxy: FaultProxy) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=proxy.url, trust_env=False, verify=False) as made:
        yield made


async def test_what_passes_is_counted(
    registry: DockerRegistry, proxy: FaultProxy, client: httpx2.AsyncClient, url: str
) -> None:
    assert (await client.get(url)).content == BYTES
    part = await client.get(url, headers={"Range": "bytes=1000-300999"})
    assert (part.status_code, part.content) == (206, BYTES[1000:301_000])
    assert (await client.head(url)).headers["content-length"] == str(len(BYTES))
    assert [one.passed for one in proxy.gets(url[-71:])] == [range(len(BYTES)), range(1000, 301_000)]
    assert proxy.total == len(BYTES) + 300_000
    manifest = await client.get("/v2/library/noise/manifests/latest", headers={"Accept": MANIFEST})
    assert manifest.content == registry.manifest("library/noise")

    begun = await client.post("/v2/library/noise/blobs/uploads/")
    assert begun.headers["location"].startswith(proxy.url)
    assert (await client.patch(begun.headers["location"], content=BYTES[:500_000])).status_code == 202
    assert proxy.exchanges[-1].received == 500_000


@pytest.mark.parametrize("then", [Then.RESET, Then.END])
async def test_a_connection_that_ends(proxy: FaultProxy, client: httpx2.AsyncClient, url: str, then: Then) -> None:
    proxy.add(Fault(then=then, after=300_000))
    with pytest.raises(httpx2.ReadError if then is Then.RESET else httpx2.RemoteProtocolError):
        await client.get(url)
    assert proxy.total == 300_000
    assert (await client.get(url)).content == BYTES, "once only"


async def test_an_upload_that_ends(proxy: FaultProxy, client: httpx2.AsyncClient) -> None:
    proxy.add(Fault("/uploads/", "PATCH", then=Then.RESET, after=300_000))
    begun = await client.post("/v2/library/noise/blobs/uploads/")
    with pytest.raises(httpx2.TransportError):
        await client.patch(begun.headers["location"], content=BYTES)
    assert proxy.total == proxy.exchanges[-1].received == 300_000


async def test_wrong_bytes(proxy: FaultProxy, client: httpx2.AsyncClient, url: str) -> None:
    proxy.add(Fault(flip=123_456, times=2))
    wrong = bytearray(BYTES)
    wrong[123_456] ^= 0xFF
    assert (await client.get(url)).content == wrong
    assert (await client.get(url, headers={"Range": "bytes=100000-199999"})).content == wrong[100_000:200_000]
    assert (await client.get(url)).content == BYTES


async def test_ranges_that_are_not_kept(proxy: FaultProxy, client: httpx2.AsyncClient, url: str) -> None:
    proxy.add(Fault(whole=True), Fault(short=50))
    wish = {"Range": "bytes=10-99"}
    whole = await client.get(url, headers=wish)
    assert (whole.status_code, whole.content) == (200, BYTES)
    short = await client.get(url, headers=wish)
    assert (short.status_code, short.headers["content-range"]) == (206, f"bytes 10-59/{len(BYTES)}")


async def test_answers_of_the_proxy(proxy: FaultProxy, client: httpx2.AsyncClient, url: str) -> None:
    def token(exchange: Exchange) -> Answer:
        return Answer(200, exchange.path.encode())

    proxy.add(Fault(times=2, answer=Answer(500, b"no")), Fault("^/token", answer=token))
    assert [(await client.get(url)).status_code for _ in range(3)] == [500, 500, 200]
    assert (await client.get("/token?service=x")).text == "/token?service=x"


async def test_a_stall_and_a_client_that_leaves(proxy: FaultProxy, client: httpx2.AsyncClient, url: str) -> None:
    proxy.add(Fault(then=Then.STALL, after=100_000))
    with pytest.raises(httpx2.ReadTimeout):
        await client.get(url, timeout=0.2)
    (exchange,) = proxy.gets(url[-71:])
    await proxy.left(exchange)
    assert exchange.sent == 100_000


async def test_bytes_are_held_and_slowed(proxy: FaultProxy, client: httpx2.AsyncClient, url: str) -> None:
    proxy.allow(200_000)
    proxy.rate = 5e6
    began = trio.current_time()
    async with trio.open_nursery() as nursery:

        async def fetch() -> None:
            assert (await client.get(url)).content == BYTES

        nursery.start_soon(fetch)
        nursery.start_soon(fetch)
        await proxy.passed(200_000)
        assert proxy.total == 200_000
        proxy.allow(float("inf"))
    assert trio.current_time() - began > 2 * len(BYTES) / 5e6
