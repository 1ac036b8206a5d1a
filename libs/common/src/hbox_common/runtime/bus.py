"""The bus of a service, as its settings name it."""

from contextlib import AbstractAsyncContextManager

from hbox_common.bus import Bus

from .settings import Settings


def connected(settings: Settings) -> AbstractAsyncContextManager[Bus]:
    """As `Bus.connect`, by the name of the service."""
    return Bus.connect(
        settings.nats_url,
        name=settings.service,
        instance=settings.instance,
        access=settings.nats_access,
        replicas=settings.nats_replicas,
    )
