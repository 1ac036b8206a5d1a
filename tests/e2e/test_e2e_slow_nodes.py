"""`hbox health nccl` on the platform: jobs of low priority on pairs of idle nodes find the one node that is slow, and not its partners.

No GPU is here: the test ends the pods as their kubelets would, with what nccl-tests prints on nodes of these speeds as termination message.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from hbox_cli.health.pairtests import PEER
from hbox_common.kube import HYPERNODES, MERGE_PATCH, NODES, PODS, KubeClient

from ..waiting import until
from .platform_world import Up, placed, up
from .test_e2e_fabric import hypernode
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE, NAMES = "default", [f"n{number}" for number in range(8)]
SLOW, WELL_GBS, SLOW_GBS = "n2", 380.0, 240.0
OUTPUT = """  1073741824     268435456     float     sum      -1    5300.1  202.59  {busbw}      0    5290.0  202.9  {busbw}      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : {busbw}
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("nccl") / "state", "--levels") as running:
        yield running


async def end_pods(client: KubeClient, prefix: str) -> None:
    """Each pod ends; a pair is as fast as its slower node."""
    for pod in (await client.json("GET", PODS.path(SPACE)))["items"]:
        name, home = pod["metadata"]["name"], pod["spec"]["nodeName"]
        if not name.startswith(prefix):
            continue
        busbw = SLOW_GBS if SLOW in (home, pod["metadata"]["annotations"][PEER]) else WELL_GBS
        state = {"terminated": {"exitCode": 0, "reason": "Completed", "message": OUTPUT.format(busbw=busbw)}}
        status = {
            "phase": "Succeeded",
            "containerStatuses": [{"name": "nccl", "image": "i", "ready": False, "restartCount": 0, "state": state}],
        }
        await client.json("PATCH", f"{PODS.path(SPACE, name)}/status", body={"status": status}, content_type=MERGE_PATCH)


def found(platform: Up, run: str) -> dict[str, Any]:
    document: dict[str, Any] = platform.json("health", "nccl", "read", run)
    return document


async def test_pair_tests_on_idle_nodes_find_the_slow_node(platform: Up) -> None:
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        for name in NAMES:
            await client.json("POST", NODES.path(), body=node(name))
        for leaf, members in (("leaf-0", "0-3"), ("leaf-1", "4-7")):
            selector = {"regexMatch": {"pattern": f"^n[{members}]$"}}
            await client.json("POST", HYPERNODES.path(), body=hypernode(leaf, 1, selector))

        async def planned() -> bool:
            return len((await asyncio.to_thread(platform.json, "health", "nccl", "plan", "--rounds", "1"))["items"]) == 4

        await until(planned, "a plan of all nodes", timeout_s=30)
        pairs: list[dict[str, Any]] = []
        for number in (1, 2, 3):
            run = f"run-{number}"
            words = ("health", "nccl", "submit", run, "--image", "nccl", "--command", "x", "--round", str(number))
            done = await asyncio.to_thread(platform.hbox, *words)
            assert done.returncode == 0, done.stderr

            async def all_placed(run: str = run) -> bool:
                return len(await placed(client, SPACE, run)) == 8

            await until(all_placed, f"the pods of {run}", timeout_s=30)
            assert found(platform, run)["waiting"] == 4
            await end_pods(client, run)
            assert found(platform, run)["waiting"] == 0
            pairs += found(platform, run)["pairs"]

            async def idle() -> bool:
                return await planned()

            await until(idle, "idle nodes", timeout_s=30)
        last = found(platform, "run-1")
        assert {one["busbw"] for one in pairs if SLOW in (one["one"], one["other"])} == {SLOW_GBS}
        assert {one["busbw"] for one in pairs if SLOW not in (one["one"], one["other"])} == {WELL_GBS}
        assert SLOW in last["slow"], last
        # The slow node's partner is cleared by its pair of another round.
        combined = platform.json("health", "nccl", "read", "run-1", "run-2", "run-3")
        assert (combined["slow"], combined["slowLeaves"], combined["uplinks"]) == ([SLOW], [], False)
        assert [one["one"] for one in combined["retests"]] == [SLOW]
