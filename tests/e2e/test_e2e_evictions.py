"""The brake on evictions through all services: it trips, is said where operators look, and is released by command."""

import json
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from hbox_common.kube import NODES, PODS, PRIORITYCLASSES, KubeClient

from ..waiting import until
from .platform_world import Up, placed, up
from .test_e2e_policy_actions import SPACE, pod
from .traced_jobs import node

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def readiness(running: Up) -> dict[str, Any]:
    """What /readyz of quota-ledger says."""
    url = json.loads((running.state / "platform.json").read_text())["health"]["quota-ledger"]
    with urlopen(f"{url}/readyz", timeout=10) as answer:
        said: dict[str, Any] = json.loads(answer.read())
    return said


async def test_evictions_pause_where_they_are_too_many_and_go_on_when_they_are_released(tmp_path: Path) -> None:
    """One in five minutes is allowed; three jobs of a higher priority want a place on a full node."""
    with up(tmp_path / "state", env={"HBOX_EVICTIONS_MOST": "1"}) as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            await client.json("POST", NODES.path(), body=node("n0"))
            high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
            await client.json("POST", PRIORITYCLASSES.path(), body=high)
            for number in range(8):
                await client.json("POST", PODS.path(SPACE), body=pod(f"low-{number}"))

            async def full() -> bool:
                return len(await placed(client, SPACE)) == 8

            await until(full, "the node is full", timeout_s=60)
            said = running.hbox("evictions", "release")
            assert said.returncode == 0
            assert "nothing to release" in said.stderr
            assert running.json("evictions", "show")["paused"] is False

            for number in range(3):
                body = pod(f"high-{number}")
                body["spec"]["priorityClassName"] = "high"
                await client.json("POST", PODS.path(SPACE), body=body)

            def paused() -> bool:
                return bool(readiness(running)["conditions"]["evictions"]["message"])

            async def took(count: int) -> bool:
                return sum(name.startswith("high") for name in await placed(client, SPACE)) == count

            for taken in (1, 2):
                await until(lambda taken=taken: took(taken), f"{taken} of three have a place", timeout_s=30)  # type: ignore[misc]
                await until(paused, "it is said that evictions pause", timeout_s=30)
                found = readiness(running)
                assert found["ready"], "a brake is no reason not to be ready"
                assert "1 pods were evicted within 300 s" in found["conditions"]["evictions"]["message"]
                check = running.hbox("check")
                assert check.returncode == 0
                assert "evictions: 1 pods were evicted" in check.stdout
                assert running.json("evictions", "show")["paused"] is True
                assert await took(taken), "nobody else has left"

                said = running.hbox("evictions", "release")
                assert said.returncode == 0, said.stderr
                assert "evictions go on" in said.stderr

            await until(lambda: took(3), "all three have a place", timeout_s=30)
            head = running.json("evictions", "show")
            assert head["paused"] is False
            assert head["released"]
        assert running.json("audit")["faults"] == []
        assert running.json("audit", "--ledger")["faults"] == []
