"""Pods and the claims on volumes that they use, through the whole platform."""

from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NODES, PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES, PODS, KubeClient

from .. import waiting
from .platform_world import placed, up
from .test_e2e_elastic_gangs import SPACE
from .traced_jobs import node, pod

pytestmark = pytest.mark.e2e


def using(name: str, claim: str) -> dict[str, Any]:
    made = pod(name)
    made["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": claim}}]
    return made


async def test_second_pod_of_a_read_write_once_pod_claim_waits_without_a_card_until_the_first_is_gone(tmp_path: Path) -> None:
    mode = ["ReadWriteOncePod"]
    volume = {
        "metadata": {"name": "pv"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": mode, "claimRef": {"namespace": SPACE, "name": "data"}},
    }
    claim = {
        "metadata": {"name": "data", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "pv", "accessModes": mode, "resources": {"requests": {"storage": "1Gi"}}},
    }
    with up(tmp_path / "state") as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            await client.json("POST", NODES.path(), body=node("n0"))
            path = PERSISTENTVOLUMES.path()
            await client.json("POST", path, body={"apiVersion": "v1", "kind": "PersistentVolume", **volume})
            path = PERSISTENTVOLUMECLAIMS.path(SPACE)
            await client.json("POST", path, body={"apiVersion": "v1", "kind": "PersistentVolumeClaim", **claim})
            for name in ("first", "second"):
                await client.json("POST", PODS.path(SPACE), body=using(name, "data"))

            async def reason() -> str:
                conditions = (await client.json("GET", PODS.path(SPACE, "second")))["status"].get("conditions") or []
                return next((str(c.get("message", "")) for c in conditions if c["type"] == "PodScheduled"), "")

            async def says_why() -> bool:
                return "ReadWriteOncePod" in await reason() and set(await placed(client, SPACE)) == {"first"}

            await waiting.until(says_why, "the first runs, the second waits with the reason", timeout_s=60)
            await client.json("DELETE", PODS.path(SPACE, "first"), body={"gracePeriodSeconds": 0})

            async def second() -> bool:
                return set(await placed(client, SPACE)) == {"second"}

            await waiting.until(second, "the second has its place", timeout_s=30)
        assert running.json("audit")["faults"] == []
