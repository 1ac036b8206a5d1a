"""The broker of a running platform, which lets nobody in but its users: as its admin, who may say and hear all."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client

from hbox_common.bus import Access, Bus
from hbox_common.bus.micro import inbox_of
from hbox_common.bus.users import ADMIN


def seed_of(running: Mapping[str, Any], user: str = ADMIN) -> Path:
    """The file of a user's secret. `running`: what `platform.json` says."""
    return Path(running["nats_users"]) / f"{user}.nk"


@asynccontextmanager
async def admin_bus(running: Mapping[str, Any]) -> AsyncIterator[Bus]:
    access = Access(seed=seed_of(running))
    async with Bus.connect(running["nats_url"], name=ADMIN, instance="test", access=access, ensure=False) as bus:
        yield bus


async def client_of(running: Mapping[str, Any], user: str = ADMIN, **options: Any) -> Client:
    """A client of the library's own, not HBox's."""
    return await nats.connect(
        running["nats_url"].split(","), nkeys_seed=str(seed_of(running, user)), inbox_prefix=inbox_of(user).encode(), **options
    )
