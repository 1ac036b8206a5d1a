"""The platform loses its view of pods on a full cluster, while jobs wait and nodes join; an observer outside judges it.

A service that takes an unseen pod for a deleted one allocates its card twice here: no card is idle, and every queue has pending jobs.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from hbox_cli.audit.reading import list_all
from hbox_common.clock import monotonic_s
from hbox_common.kube import PODS, KubeClient
from hbox_sandbox.trace import TracePod, pod_manifest

from .load import CARDS, NAMESPACE, make_nodes

NODES, JOINING = 10, (3, 2)
CARDS_IN_ALL = (NODES + sum(JOINING)) * CARDS
PODS_ASKED = 2 * NODES * CARDS
FULL_S = 90.0
SETTLED_S = 3.0
#: Seconds from the begin of the fault to the first group of joining nodes, and from there to the second.
JOIN_AFTER_S = 5.0, 20.0
#: After the fault all pods that fit must be bound within the first number of seconds; the observer watches for the second number.
BOUND_WITHIN_S, LOOK_S = 30.0, 10.0
#: Seconds between two lists of all pods, which are most of the cost. No pod ends here, so a double allocation stays visible.
LOOK_AGAIN_S = 2.0


@dataclass(slots=True)
class Seen:
    """Observations from outside. `most`: cards in use on one node; `after_s`: from the end of the fault until all pods that fit are bound, None: never."""

    most: int = 0
    bound: int = 0
    after_s: float | None = None


async def go_blind(
    client: KubeClient, begin: Callable[[], Awaitable[None]], end: Callable[[], Awaitable[None]], *, hold_s: float
) -> Seen:
    """Fill NODES nodes, with as many pending pods as running ones, and let nodes join during the fault. The fault does not affect `client`."""
    seen = Seen()
    await make_nodes(client, NODES)
    for number in range(PODS_ASKED):
        pod = TracePod(f"blind-{number}", 1000, 1024, cards=1, card_milli=1000)
        await client.json("POST", PODS.path(namespace=NAMESPACE), body=pod_manifest(pod, namespace=NAMESPACE))
    await _bound(client, seen, NODES * CARDS, within_s=FULL_S)
    assert seen.bound == NODES * CARDS, f"{seen.bound} pods run on {NODES * CARDS} cards before the fault"
    await asyncio.sleep(SETTLED_S)
    began = monotonic_s()
    await begin()
    try:
        there = NODES
        for pause_s, joining in zip(JOIN_AFTER_S, JOINING, strict=True):
            await _look(client, seen, pause_s)
            await make_nodes(client, joining, first=there)
            there += joining
        await _look(client, seen, began + hold_s - monotonic_s())
    finally:
        await end()
    seen.after_s = await _bound(client, seen, CARDS_IN_ALL, within_s=BOUND_WITHIN_S)
    await _look(client, seen, LOOK_S)
    return seen


async def _bound(client: KubeClient, seen: Seen, pods: int, *, within_s: float) -> float | None:
    """Seconds until `pods` pods are bound; None: not within `within_s`."""
    began = monotonic_s()
    while (now := monotonic_s()) < began + within_s:
        await _count(client, seen)
        if seen.bound >= pods:
            return now - began
        await asyncio.sleep(0.25)
    return None


async def _look(client: KubeClient, seen: Seen, for_s: float) -> None:
    until = monotonic_s() + for_s
    while monotonic_s() < until:
        await _count(client, seen)
        await asyncio.sleep(min(LOOK_AGAIN_S, max(0.0, until - monotonic_s())))
    await _count(client, seen)


async def _count(client: KubeClient, seen: Seen) -> None:
    on: Counter[str] = Counter()
    for pod in await list_all(client, PODS):
        if node := pod["spec"].get("nodeName"):
            on[node] += 1
    seen.bound = on.total()
    seen.most = max(seen.most, *on.values(), 0)
