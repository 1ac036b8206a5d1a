"""What claims ask of volumes, and what volumes offer, as read from their objects."""

import json
from typing import Any

import msgspec
import pytest

from hbox_common.kube import PersistentVolume, PersistentVolumeClaim, demand_of, supply_of
from hbox_common.model import Match, MatchOperator, Selector, VolumeDemand, VolumeSupply

SPEC = {"storageClassName": "local", "capacity": {"storage": "1.5Gi"}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Block"}
OFFER = VolumeSupply("v", "local", 3 * 2**29, "Block", frozenset({"ReadWriteOnce"}), (("disk", "nvme"),))


def supply(phase: str, meta: dict[str, Any] | None = None, **spec: Any) -> VolumeSupply | None:
    body = {
        "metadata": {"name": "v", "uid": "v", "labels": {"disk": "nvme"}, **(meta or {})},
        "spec": SPEC | spec,
        "status": {"phase": phase},
    }
    return supply_of(msgspec.json.decode(json.dumps(body), type=PersistentVolume))


def test_available_volume_is_offered_with_what_its_object_says() -> None:
    assert supply("Available") == OFFER


@pytest.mark.parametrize(
    ("phase", "meta", "spec"),
    [
        pytest.param("Pending", {}, {}, id="not known to the volume controller yet"),
        pytest.param("Released", {}, {"claimRef": {"namespace": "ml", "name": "old", "uid": "u"}}, id="released"),
        pytest.param("Available", {"deletionTimestamp": "2026-11-28T08:00:00Z"}, {}, id="being deleted"),
        pytest.param("Available", {}, {"capacity": {"storage": "much"}}, id="without a readable size"),
    ],
)
def test_volume_that_no_claim_can_take_is_not_offered(phase: str, meta: dict[str, Any], spec: dict[str, Any]) -> None:
    assert supply(phase, meta, **spec) is None


@pytest.mark.parametrize("phase", ["Pending", "Available", "Bound"])
def test_reserved_volume_is_offered_to_its_claim(phase: str) -> None:
    found = supply(phase, claimRef={"namespace": "ml", "name": "data", "uid": "u"})
    assert found is not None
    assert (found.claim, found.claim_uid) == ("ml/data", "u")


def demand(**spec: Any) -> VolumeDemand | None:
    body = {"metadata": {"name": "data", "uid": "u"}, "spec": spec}
    return demand_of(msgspec.json.decode(json.dumps(body), type=PersistentVolumeClaim))


def test_demand_of_a_claim_is_read() -> None:
    asked = demand(
        resources={"requests": {"storage": "1Gi"}}, accessModes=["B", "A"], selector={"matchLabels": {"disk": "nvme"}}
    )
    assert asked == VolumeDemand(2**30, "Filesystem", ("A", "B"), Selector((Match("disk", MatchOperator.IN, ("nvme",)),)))
    assert demand(resources={"requests": {"storage": "much"}}) is None
