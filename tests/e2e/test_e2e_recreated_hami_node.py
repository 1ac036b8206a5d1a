"""A HAMi node that is deleted and re-created while pods wait for its lock takes the waiting pods soon after its registration."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from hbox_common.clock import monotonic_s, wall_s
from hbox_common.kube import MERGE_PATCH, NODES, PODS, KubeClient
from hbox_common.model.devices import format_lock

from .platform_world import Up, until, up
from .test_e2e_cards_by_uuid import SPACE, card, made, shown, submit

pytestmark = pytest.mark.e2e

LOCK = "hami.io/mutex.lock"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("recreated") / "state") as running:
        yield running


async def test_pods_that_wait_for_the_lock_run_soon_after_the_node_is_recreated(platform: Up, client: KubeClient) -> None:
    """Another scheduler's pod holds the lock. The node is absent for long enough that a bind would be tried again only every 10 s, and has another card
    afterwards."""
    holder: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "holder", "namespace": SPACE},
        "spec": {"schedulerName": "hami-scheduler", "containers": [{"name": "main", "image": "pause"}]},
    }
    await client.json("POST", PODS.path(SPACE), body=holder)
    await made(client, "hami", "abcd")
    body = {"metadata": {"annotations": {LOCK: format_lock(SPACE, "holder", wall_s())}}}
    await client.json("PATCH", NODES.path("", "hami"), body=body, content_type=MERGE_PATCH)
    pods = [f"p{i}" for i in range(3)]
    for name in pods:
        await submit(client, "hami", name)

    def waits() -> bool:
        return sum(bool(one["owners"]) for one in shown(platform, "hami")) == 3

    await asyncio.to_thread(until, waits, timeout_s=30, what="claims that wait for the lock")
    await client.json("DELETE", NODES.path("", "hami"))

    def why() -> bool:
        return "no node" in platform.hbox("why", "hami-p0").stdout

    await asyncio.to_thread(until, why, timeout_s=20, what="the reason of the waiting pods")
    await made(client, "hami", "efgh")
    began = monotonic_s()
    assert {await card(client, "hami", name) for name in pods} < set("efgh")
    assert monotonic_s() - began < 8
