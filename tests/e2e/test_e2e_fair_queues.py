"""Whose turn it is between queues of one priority, by HBox's own policy: who is furthest below what it deserves; nobody with room of its own waits behind a
borrower, whoever came first; and a borrower without a class gives back to an owner of any. `hbox simulate cycle` says the same.

six        deserves 6 of 16 cards
four       deserves 4, in gangs of 2
loaner     no amounts, weight 6: its jobs are the oldest, gangs of 2
late       no amounts, weight 3
"""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NODES, PODS, KubeClient

from .. import waiting
from .platform_world import simulate_cycle, up
from .test_e2e_weights import SPACE, create, gang, held, queue
from .traced_jobs import node

pytestmark = pytest.mark.e2e

GPU = "nvidia.com/gpu"
QUEUES_MADE = [
    queue("six", 1, deserved={GPU: "6"}),
    queue("four", 1, deserved={GPU: "4"}),
    queue("loaner", 6),
    queue("late", 3),
]


def jobs() -> list[dict[str, Any]]:
    """The borrowers' first: 24 cards of the loaner's, 6 of late's; then 20 that six asks for and 8 that four does."""
    loaner = [one for n in range(12) for one in gang(f"loaner{n}", "loaner", 2)]
    late = [one for n in range(6) for one in gang(f"late{n}", "late", 1)]
    six = [one for n in range(20) for one in gang(f"six{n}", "six", 1)]
    four = [one for n in range(4) for one in gang(f"four{n}", "four", 2)]
    return [*loaner, *late, *six, *four]


async def come(client: KubeClient, what: str, **wanted: int) -> None:
    async def there() -> bool:
        return dict(await held(client)) == wanted

    try:
        await waiting.until(there, what, timeout_s=90)
    except AssertionError as e:
        raise AssertionError(f"{e}: {dict(await held(client))}") from e
    await asyncio.sleep(2.0)
    assert dict(await held(client)) == wanted, what


async def test_nobody_with_room_of_its_own_waits_behind_a_borrower_that_came_first(tmp_path: Path) -> None:
    """All wait before there is a node: six gets its 6 and four its 4, and the 6 that nobody deserves go by weight."""
    with up(tmp_path / "state") as platform:
        async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
            await create(client, *QUEUES_MADE, *jobs())

            async def reason_given() -> bool:
                listed = await client.json("GET", PODS.path(SPACE))
                return all(one.get("status", {}).get("conditions") for one in listed["items"])

            await waiting.until(reason_given, "all wait", timeout_s=90)
            for name in ("n0", "n1"):
                await client.json("POST", NODES.path(), body=node(name))
            await come(client, "by what they deserve", six=6, four=4, loaner=4, late=2)
            assert simulated(tmp_path) == {"six": 6, "four": 4, "loaner": 4, "late": 2}
        assert platform.json("audit")["faults"] == []


def simulated(folder: Path) -> Counter[str]:
    items = [node("n0"), node("n1"), *QUEUES_MADE, *jobs()]
    for second, one in enumerate(items):
        if one["kind"] in ("Pod", "PodGroup"):
            stamp = f"2026-11-01T00:{second // 60:02}:{second % 60:02}Z"
            one["metadata"] |= {"namespace": SPACE, "creationTimestamp": stamp}
    said = simulate_cycle(folder, items)
    queue_of = {
        one["metadata"]["name"]: one["metadata"]["annotations"]["scheduling.volcano.sh/queue-name"]
        for one in items
        if one["kind"] == "Pod"
    }
    return Counter(queue_of[one["pod"].partition("/")[2]] for one in said["bindings"])
