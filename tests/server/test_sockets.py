"""What the daemon listens on."""

from __future__ import annotations

import socket

import pytest

from trio_ollama.server.sockets import AddressError, open_listeners


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


IPV6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback address")


async def test_port_zero_is_a_free_port() -> None:
    bound = await open_listeners([("127.0.0.1", 0)])
    try:
        assert bound.addresses[0][1] > 0
        assert bound.texts == (f"127.0.0.1:{bound.addresses[0][1]}",)
        assert bound.loopback
    finally:
        bound.close()


@IPV6
async def test_several_addresses_share_one_free_port() -> None:
    bound = await open_listeners([("127.0.0.1", 0), ("::1", 0)])
    try:
        (_, first), (_, second) = bound.addresses
        assert first == second
        assert bound.texts[1] == f"[::1]:{second}"
        assert bound.loopback
    finally:
        bound.close()


async def test_all_interfaces_are_not_loopback() -> None:
    bound = await open_listeners([("0.0.0.0", 0), ("::", 0)])
    try:
        assert bound.addresses[0][0] == "0.0.0.0"
        assert not bound.loopback
    finally:
        bound.close()


async def test_an_absent_address_is_left_out_beside_another() -> None:
    bound = await open_listeners([("203.0.113.7", 0), ("127.0.0.1", 0)])
    try:
        assert [host for host, _ in bound.addresses] == ["127.0.0.1"]
    finally:
        bound.close()


async def test_an_absent_address_alone_is_an_error() -> None:
    with pytest.raises(AddressError, match=r"^listen tcp 203\.0\.113\.7:1234: cannot assign requested address$"):
        await open_listeners([("203.0.113.7", 1234)])


async def test_a_taken_address_is_an_error_and_nothing_stays_open() -> None:
    with socket.create_server(("127.0.0.2", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressError, match=rf"^listen tcp 127\.0\.0\.2:{port}: address already in use$"):
            await open_listeners([("127.0.0.1", port), ("127.0.0.2", port)])
        (await open_listeners([("127.0.0.1", port)])).close()


async def test_a_name_that_means_nothing() -> None:
    with pytest.raises(AddressError, match=r"^listen tcp no such host:1234: "):
        await open_listeners([("no such host", 1234)])


async def test_accepted_sockets_inherit_the_options() -> None:
    bound = await open_listeners([("127.0.0.1", 0)], unacknowledged=12.5)
    listener = bound.listeners[0]
    try:
        with socket.create_connection(bound.addresses[0]):
            stream = await listener.accept()
            async with stream:
                assert stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                if hasattr(socket, "TCP_USER_TIMEOUT"):
                    assert stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 12_500
    finally:
        bound.close()
