"""nodeSelector and node affinity: what is required, as Kubernetes has it: of several terms one has to hold, of a term all parts."""

import numpy as np
import pytest

from hbox_common.model import Match, MatchOperator, NodeTerm, PodGroupTask
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.plugins.nodeaffinity import NodeAffinity
from hbox_scheduler.core.simulate import node

ZONE_X, ZONE_Y = (Match("zone", MatchOperator.IN, (zone,)) for zone in "xy")
FAST = Match("fast", MatchOperator.EXISTS, ())
MORE = Match("size", MatchOperator.GT, ("2",))
#: By node its labels. Of the sizes Python's `int` reads all but x.
NODES = {
    "a": {"zone": "x"}, "b": {"zone": "y"}, "c": {"zone": "y", "fast": "1"}, "d": {"fast": "1"}, "e": {"size": "1_0"}, "f": {"size": "x"},
    "g": {"size": "10"}, "h": {"size": "03"}, "i": {"size": "2"}, "j": {"size": "9223372036854775808"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("task", "allowed"),
    [
        pytest.param(PodGroupTask("w", {}, (), node_selector={"zone": "y"}), "bc", id="a selector"),
        pytest.param(PodGroupTask("w", {}, (), node_selector={"zone": "y", "fast": "1"}), "c", id="all of a selector"),
        pytest.param(
            PodGroupTask("w", {}, (), affinity=(NodeTerm((ZONE_X,)), NodeTerm((ZONE_Y,)))), "abc", id="one of several terms"
        ),
        pytest.param(PodGroupTask("w", {}, (), affinity=(NodeTerm((ZONE_Y, FAST)),)), "c", id="all of a term"),
        pytest.param(PodGroupTask("w", {}, (), affinity=()), "", id="none of no terms"),
        pytest.param(PodGroupTask("w", {}, (), affinity=(NodeTerm((MORE,)),)), "gh", id="numbers as Kubernetes reads them"),
    ],
)
def test_the_nodes_that_are_allowed(task: PodGroupTask, allowed: str) -> None:
    columns = Columns()
    for name, labels in NODES.items():
        columns.put_node(node(name, labels=labels))
    fails = np.zeros(columns.size, dtype=np.bool_)
    for _, one in NodeAffinity().failures(columns, slice(0, columns.size), Tasks(columns).of(task)):
        fails |= one
    assert {name for name, row in columns.row_of.items() if not fails[row]} == set(allowed)
