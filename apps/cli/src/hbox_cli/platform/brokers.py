"""nats-servers of our own: one, or several that keep each stream together."""

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .layout import Layout

#: What one alone is called; of several each has its number behind it.
BROKER = "nats-server"

#: Ports that each needs.
PORTS = 3


@dataclass(frozen=True, slots=True)
class Broker:
    """One of them. Whether it is alone decides its folder too: a store of one that was alone is none for a cluster."""

    name: str
    folder: Path
    port: int  #: for clients
    health_port: int
    route_port: int  #: for the others

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"


def brokers(layout: Layout, count: int, ports: Sequence[int]) -> list[Broker]:
    """`ports`: PORTS for each."""
    if count == 1:
        return [Broker(BROKER, layout.nats, *ports[:PORTS])]
    return [
        Broker(f"{BROKER}-{n + 1}", layout.folder / f"{layout.nats.name}-{n + 1}", *ports[PORTS * n : PORTS * (n + 1)])
        for n in range(count)
    ]


def commands(layout: Layout, several: Sequence[Broker]) -> dict[str, list[str]]:
    """What starts each, by name: their configurations are written, and their users' keys where they are missing. Raises InvalidRequest."""
    from hbox_common.brokerkeys import keep  # noqa: PLC0415
    from hbox_common.bus import Routes, find_binary, write_config  # noqa: PLC0415  a third of a second, while the cluster starts
    from hbox_common.bus.users import users  # noqa: PLC0415

    keys = keep(layout.nats_users, users())
    password, servers = secrets.token_urlsafe(), [f"127.0.0.1:{one.route_port}" for one in several]
    found = {}
    for one, listen in zip(several, servers, strict=True):
        routes = Routes(listen, servers, password) if len(several) > 1 else None
        name = one.name if routes else "hbox"
        config = write_config(one.folder, port=one.port, name=name, health_port=one.health_port, keys=keys, routes=routes)
        found[one.name] = [str(find_binary()), "--config", os.fspath(config)]
    return found
