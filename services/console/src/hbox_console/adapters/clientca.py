"""The cluster's client CA: who signs the certificates of its users, as the API server publishes it."""

import asyncio
import logging
from collections.abc import Callable
from typing import NoReturn

from hbox_common.errors import HBoxError, InvalidRequest, Unavailable
from hbox_common.insisting import insist
from hbox_common.kube import CONFIGMAPS, KubeClient

log = logging.getLogger(__name__)

NAMESPACE, NAME, KEY = "kube-system", "extension-apiserver-authentication", "client-ca-file"
#: Between two looks: a rotated CA is trusted, and a removed one no longer, after this time.
EVERY_S = 60.0


async def client_ca(client: KubeClient) -> str:
    """PEM; empty where the cluster publishes none, or does not let this service read it. Waits until the API server answers."""
    try:
        return await insist(
            lambda: _read(client), on_unavailable=lambda e: log.warning("the client CA cannot be read yet: %s", e)
        )
    except InvalidRequest as e:
        log.warning("clients cannot authenticate with certificates: %s", e)
        return ""


async def _read(client: KubeClient) -> str:
    found = await client.json("GET", CONFIGMAPS.path(NAMESPACE, NAME))
    data = found.get("data") if isinstance(found, dict) else None
    return str((data or {}).get(KEY, ""))


async def watch(client: KubeClient, now: str, changed: Callable[[str], None]) -> NoReturn:
    """Call `changed` with each other CA, until cancelled."""
    while True:
        await asyncio.sleep(EVERY_S)
        try:
            if (found := await _read(client)) and found != now:
                changed(found)
                now = found
                log.info("the cluster's client CA changed")
        except (Unavailable, HBoxError) as e:
            log.info("the client CA cannot be read now; the former one stays: %s", e)
