"""A gang that started whole and then lost members to `kubectl drain`: the audit says what is true of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..e2e.platform_world import Up, until, up
from .kubectl import kubectl

pytestmark = pytest.mark.e2e

GANG = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "gang", "namespace": "default"}}


def create(platform: Up, *items: dict[str, Any]) -> None:
    kubectl(platform, "create", "-f", "-", stdin="\n---\n".join(map(json.dumps, items)))


def node(name: str) -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "64Gi", "nvidia.com/gpu": "2", "pods": "110"}
    ready = {"type": "Ready", "status": "True"}  # kwok says so by itself, the emulated cluster does not
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def member(number: int) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": "1"}}}
    meta = {"name": f"gang-{number}", "namespace": "default", "annotations": {"scheduling.k8s.io/group-name": "gang"}}
    spec = {"schedulerName": "hbox", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def phase(platform: Up) -> str:
    return str(json.loads(kubectl(platform, "get", "podgroup", "gang", "-o", "json")).get("status", {}).get("phase"))


@pytest.mark.parametrize("words", [("--api", "assets"), ()], ids=["real", "emulated"])
def test_a_gang_that_a_drain_took_members_from_did_not_start_in_part(tmp_path: Path, words: tuple[str, ...]) -> None:
    with up(tmp_path / "state", *words) as platform:
        create(platform, node("n0"), node("n1"), {**GANG, "spec": {"minMember": 4}}, *map(member, range(4)))
        until(lambda: phase(platform) == "Running", timeout_s=60, what="the gang's start")
        kubectl(platform, "drain", "n0", "--force", "--ignore-daemonsets", "--timeout=40s")
        until(lambda: phase(platform) == "Unknown", timeout_s=30, what="the PodGroup's word of it")
        audit = platform.json("audit")
        assert audit["faults"] == []
        [note] = audit["notes"]
        assert note == (
            "gang default/gang started whole, and 2 of its 4 members have no node now, since a drain or a deletion took them or its minMember was raised: "
            "0 wait for nodes, 2 are not there"
        )
        create(platform, member(4))
        until(lambda: "1 wait for nodes" in str(platform.json("audit")["notes"]), timeout_s=40, what="its new member's note")
        kubectl(platform, "uncordon", "n0")
        create(platform, member(5))
        until(lambda: phase(platform) == "Running", timeout_s=60, what="its being whole again")
        again = platform.json("audit")
        assert (again["faults"], again["notes"]) == ([], [])
