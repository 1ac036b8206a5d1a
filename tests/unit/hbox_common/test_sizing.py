"""Standard sizes in manifests."""

import re
from typing import Any

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model.devices.sizes import DEFAULT, Choice, Size, Way
from hbox_common.model.devices.sizing import applied

SIZES = {size.name: size for size in DEFAULT}


def resolve(size: Size) -> Choice:
    mode = {"mode": "mig"} if size.ways == (Way.PARTITION,) else {"mode": "hami-core"} if size.memory_mib else {}
    return Choice(size, "NVIDIA", size.ways[0], {"gpu": size.cards, "mem": size.memory_mib}, mode)


def container(name: str, **limits: Any) -> dict[str, Any]:
    return {
        "name": name,
        "resources": {"requests": {"cpu": "1"}, "limits": {key.replace("_", "-"): amount for key, amount in limits.items()}},
    }


def sized(name: str, size: str, units: Any = 1) -> dict[str, Any]:
    return container(name) | {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", f"sizes.hbox.io/{size}": units}}}


def test_every_pod_template_of_a_manifest_is_resolved() -> None:
    pod = {
        "spec": {
            "containers": [sized("main", "8GB-compute", "2"), container("side")],
            "initContainers": [sized("load", "8GB-compute")],
        }
    }
    job = {
        "kind": "Job",
        "spec": {
            "tasks": [{"name": "a", "template": pod}, {"name": "b", "template": {"spec": {"containers": [container("c")]}}}]
        },
    }
    changed, said = applied(job, SIZES, resolve)
    template = changed["spec"]["tasks"][0]["template"]
    assert template["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "1"},
        "limits": {"cpu": "2", "gpu": "2", "mem": "8192"},
    }
    assert template["metadata"]["annotations"] == {"mode": "hami-core"}
    assert template["spec"]["initContainers"][0]["resources"]["limits"]["gpu"] == "1"
    assert said == [
        "container load: 8GB-compute is share of NVIDIA (gpu: 1, mem: 8192)",
        "container main: 8GB-compute is share of NVIDIA (gpu: 2, mem: 8192)",
    ]
    assert "sizes.hbox.io/8GB-compute" in pod["spec"]["containers"][0]["resources"]["limits"], "what came in stays as it was"
    assert changed["spec"]["tasks"][1] == {"name": "b", "template": {"spec": {"containers": [container("c")]}}}


def test_what_is_asked_for_in_requests_stands_in_both() -> None:
    pod = {"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1", "sizes.hbox.io/whole-training": 1}}}]}}
    changed, _ = applied(pod, SIZES, resolve)
    amounts = {"gpu": "1", "mem": "0"}
    assert changed["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"} | amounts, "limits": amounts}


@pytest.mark.parametrize(
    ("containers", "complaint"),
    [
        ([sized("a", "huge")], "container a: no size is called huge"),
        ([sized("a", "8GB-compute", 0)], "is 0.*1 or more"),
        ([sized("a", "8GB-compute", "1Gi")], "is 1Gi"),
        ([sized("a", "8GB-compute", "9" * 50)], "how many"),
        ([sized("a", "8GB-compute"), sized("b", "10GB-strict")], "container b: annotation mode would be mig"),
    ],
)
def test_what_cannot_be_is_said_with_its_container(containers: Any, complaint: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        applied({"spec": {"containers": containers}}, SIZES, resolve)
    assert re.search(complaint, f"{refusal.value} {refusal.value.hint}")
