"""What tenants write under `hbox.io/` on their pods counts for nothing: on a real API server, where anybody who may create pods may name their node too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hbox_common.model import parse_slices

from ..e2e.platform_world import Up, until, up
from .kubectl import kubectl

pytestmark = pytest.mark.e2e

NODES, CARDS = 2, 8


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("platform") / "state", "--api", "assets") as running:
        amounts = {"cpu": "64", "memory": "64Gi", "nvidia.com/gpu": str(CARDS), "pods": "110"}
        create(
            running,
            *(
                {
                    "apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{i}", "labels": {"nvidia.com/gpu.memory": "40960"}},
                    "status": {"allocatable": amounts, "capacity": amounts},
                }
                for i in range(NODES)
            ),
        )  # fmt: skip
        yield running


def create(platform: Up, *items: dict[str, Any]) -> None:
    kubectl(platform, "create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def pod(name: str, cards: int = 0, *, notes: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    limits = {"cpu": "100m"} | ({"nvidia.com/gpu": str(cards)} if cards else {})
    container = {"name": "main", "image": "busybox", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": notes or {}, "labels": {"app": "test"}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }


def pods(platform: Up) -> dict[str, dict[str, Any]]:
    found = json.loads(kubectl(platform, "get", "pods", "-o", "json"))["items"]
    return {each["metadata"]["name"]: each for each in found}


def cards_of(one: dict[str, Any]) -> tuple[str, set[str]]:
    said = one["metadata"]["annotations"]["hbox.io/cards"]
    return one["spec"]["nodeName"], {s.card for s in parse_slices(said)}


def test_forged_cards_and_copied_claims_take_no_card_from_anybody(platform: Up) -> None:
    create(platform, pod("honest", 2, schedulerName="hbox"))
    until(lambda: pods(platform)["honest"]["spec"].get("nodeName"), timeout_s=30, what="the honest pod's node")
    honest = pods(platform)["honest"]["metadata"]["annotations"]
    every = ",".join(f"{i}:100:40960" for i in range(CARDS))
    forged = [
        pod(f"forged-{i}", notes={"hbox.io/cards": every, "hbox.io/claim": claim}, nodeName=f"n{i % NODES}", schedulerName=scheduler)
        for i, (claim, scheduler) in enumerate(
            (claim, scheduler)
            for claim in ("f" * 32, honest["hbox.io/claim"], "")
            for scheduler in ("hbox", "default-scheduler")
        )
    ]  # fmt: skip
    create(platform, *forged)
    # Two cards asked for, and all eight written down.
    create(platform, pod("greedy", 2, notes={"hbox.io/cards": every}, nodeName="n1", schedulerName="default-scheduler"))
    until(lambda: all(one["spec"].get("nodeName") for one in pods(platform).values()), timeout_s=30, what="the forgers")

    # The honest pod's owner, or whoever may patch it, writes other cards on it.
    kubectl(platform, "annotate", "--overwrite", "pod", "honest", f"hbox.io/cards={every}", "hbox.io/claim=mine")
    free = NODES * CARDS - 2 - 2
    create(platform, *(pod(f"after-{i}", 1, schedulerName="hbox") for i in range(free)))
    until(
        lambda: all(one["spec"].get("nodeName") for one in pods(platform).values()),
        timeout_s=40,
        what="a node for each pod that the free cards are enough for",
    )
    held: dict[str, set[str]] = {}
    for name, one in pods(platform).items():
        if name.startswith("after-"):
            node, cards = cards_of(one)
            assert not held.setdefault(node, set()) & cards, f"{name} shares a card"
            held[node] |= cards
    assert sum(map(len, held.values())) == free

    audit = platform.json("audit")
    assert audit["faults"] == []
    assert any("default/honest" in note for note in audit["notes"]), audit["notes"]
    assert any("default/greedy" in note for note in audit["notes"]), audit["notes"]
