"""Volumes that name their zones by labels, as job-controller reads them and the scheduler's filter judges them: kube-scheduler's VolumeZone."""

import json

import msgspec
import numpy as np
import pytest

from hbox_common import kube
from hbox_common.model import PodGroupTask
from hbox_jobs.adapters.volumes import reach_of
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.plugins.volumes import VolumeReach
from hbox_scheduler.core.simulate import node

ZONE, OLD_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"


@pytest.mark.parametrize(
    ("labels", "reached"),
    [
        pytest.param({}, "abcdef", id="it says nothing"),
        pytest.param({ZONE: "x"}, "acf", id="its zone, and who has no zone and no region"),
        pytest.param({ZONE: "x__y"}, "abcf", id="one of its zones"),
        pytest.param({ZONE: "x__"}, "abcdef", id="what cannot be read says nothing"),
        pytest.param({ZONE: "x", REGION: "r"}, "cf", id="zone and region"),
        pytest.param({OLD_ZONE: "x"}, "acf", id="the old name is met by the new one"),
        pytest.param({OLD_ZONE: "z"}, "df", id="and by itself before"),
    ],
)
def test_a_volume_is_reached_from_the_zones_that_its_labels_name(labels: dict[str, str], reached: str) -> None:
    """As kube-scheduler's VolumeZone has it."""
    nodes: dict[str, dict[str, str]] = {
        "a": {ZONE: "x"},
        "b": {ZONE: "y"},
        "c": {ZONE: "x", REGION: "r"},
        "d": {ZONE: "x", OLD_ZONE: "z"} if labels == {OLD_ZONE: "z"} else {ZONE: "w", OLD_ZONE: "v"},
        "e": {REGION: "s"},
        "f": {"rack": "1"},
    }
    body = {"metadata": {"name": "v", "uid": "v", "labels": labels}}
    columns = Columns()
    for name, own in nodes.items():
        columns.put_node(node(name, labels=own))
    task = Tasks(columns).of(
        PodGroupTask("w", {}, (), volumes=reach_of(msgspec.json.decode(json.dumps(body), type=kube.PersistentVolume)))
    )
    fails = np.zeros(columns.size, dtype=np.bool_)
    for _, one in VolumeReach().failures(columns, slice(0, columns.size), task):
        fails |= one
    assert "".join(name for name, row in columns.row_of.items() if not fails[row]) == reached
