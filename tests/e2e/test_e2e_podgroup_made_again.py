"""A PodGroup that is deleted while its pods run, and made again under its name, as Volcano's Job controller does: its gang fills up as before."""

from pathlib import Path

import pytest

from hbox_common.kube import NODES, PODGROUPS, PODS, KubeClient

from .. import waiting
from .platform_world import placed, up
from .test_e2e_elastic_gangs import SPACE, gang
from .traced_jobs import node

pytestmark = pytest.mark.e2e


async def test_a_member_that_is_made_again_has_its_place_beside_those_of_the_podgroup_that_was(tmp_path: Path) -> None:
    group, *members = gang("train", "default", pods=3, needs=3)
    with up(tmp_path / "state") as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:

            async def whole() -> bool:
                return len(await placed(client, SPACE, "train-")) == len(members)

            await client.json("POST", NODES.path(), body=node("n0"))
            await client.json("POST", PODGROUPS.path(SPACE), body=group)
            for one in members:
                await client.json("POST", PODS.path(SPACE), body=one)
            await waiting.until(whole, "the gang has its places", timeout_s=60)
            await client.json("DELETE", PODGROUPS.path(SPACE, "train"))
            await client.json("POST", PODGROUPS.path(SPACE), body=group)
            await client.json("DELETE", PODS.path(SPACE, "train-1"), body={"gracePeriodSeconds": 0})
            await client.json("POST", PODS.path(SPACE), body=members[1])
            await waiting.until(whole, "the one that was made again has its place", timeout_s=90)
        assert running.json("audit")["faults"] == []
