"""Kinds of others (HyperNodes, NUMA objects) that a cluster may not know, or not yet."""

import asyncio
from collections.abc import Callable

from hbox_common.errors import HBoxError, NotFound, Unavailable
from hbox_common.insisting import RETRY_S
from hbox_common.kube import KubeClient, Resource, resource_of


async def until_defined(
    client: KubeClient, resource: Resource, kind: str, *, look_again_s: float, absent: Callable[[], None] = lambda: None
) -> None:
    """Returns when the cluster knows the kind, or something is wrong that the informer will log. `absent` is called each time that it does not."""
    while True:
        try:
            await resource_of(client, api_version=f"{resource.group}/{resource.version}", kind=kind)
        except NotFound:
            absent()
            await asyncio.sleep(look_again_s)
        except Unavailable:
            await asyncio.sleep(RETRY_S)
        except HBoxError:
            return
        else:
            return
