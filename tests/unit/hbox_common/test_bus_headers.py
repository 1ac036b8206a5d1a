"""Headers of what is published: as the library writes them, in a quarter of its time; a value with a line end brings no header of its own."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from nats.aio.client import Client

from hbox_common.bus.access import Access
from hbox_common.bus.connection import _Client

PLAIN = {"ce-type": "io.hbox.v1.job.pending", "Nats-Msg-Id": "a.b-1", "ce-time": "2026-01-01T00:00:00+00:00"}


async def written(kind: Callable[[], Client], headers: dict[str, Any] | None) -> list[bytes]:
    """The commands that a client hands to its socket."""
    commands: list[bytes] = []
    client = kind()

    async def keep(cmd: bytes, priority: bool = False) -> None:
        commands.append(cmd)

    client._send_command = keep  # type: ignore[method-assign]
    client._flush_queue = None
    await client._send_publish("subject", "reply", b"body", 4, headers)
    assert client.stats["out_msgs"] == 1
    return commands


@pytest.mark.parametrize(
    "headers", [PLAIN, None, {}, {"name": "a\r\nNats-TTL: 1s"}, {"name": "a\nb", **PLAIN}, {"name": "ü\U0001f600"}], ids=repr
)
async def test_headers_are_written_as_the_library_writes_them(headers: dict[str, Any] | None) -> None:
    assert await written(partial(_Client, Access()), headers) == await written(Client, headers)
