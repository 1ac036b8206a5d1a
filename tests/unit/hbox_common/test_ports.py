"""Ports for servers that are about to start."""

import asyncio
import socket

import pytest

from hbox_common.ports import free_ports, reserved


def test_ports_differ() -> None:
    assert len(set(free_ports(8))) == 8


def test_a_reserved_port_is_nobody_elses() -> None:
    with reserved(1) as [port], socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))


async def test_a_server_may_listen_on_its_reserved_port_again_and_again() -> None:
    with reserved(1) as [port]:
        for _ in range(2):
            server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", port)
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            server.close()
            await server.wait_closed()
