"""The bus of a service, as its settings name it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hbox_common.bus import Bus

from .settings import Settings


@asynccontextmanager
async def connected(settings: Settings, *, ensure: bool = True) -> AsyncIterator[Bus]:
    """As `Bus.connect`, by the name of the service."""
    async with Bus.connect(
        settings.nats_url,
        name=settings.service,
        instance=settings.instance,
        access=settings.nats_access,
        user=settings.nats_user,
        ensure=ensure,
        replicas=settings.nats_replicas,
    ) as bus:
        watching = asyncio.create_task(bus.watch_certificates(settings.nats_access))
        try:
            yield bus
        finally:
            watching.cancel()
