"""What `hbox check node` says of NodeResourceTopology and Numatopology objects."""

from dataclasses import replace

from hbox_cli.check.findings import Level
from hbox_cli.check.machine import of_objects
from hbox_common.model import NodeName, NodeZones, ZoneAmounts
from hbox_common.model.numa import NumaPolicy

ZONES = NodeZones(
    NodeName("n1"), 1.0, NumaPolicy.RESTRICTED, zones=(ZoneAmounts(0), ZoneAmounts(1)), source="NodeResourceTopology"
)


def test_an_object_that_cannot_be_read_is_named_with_what_counts_instead() -> None:
    [good] = of_objects(ZONES)
    assert (good.level, good.message) == (Level.OK, "2 NUMA nodes by NodeResourceTopology: restricted")
    [bad] = of_objects(replace(ZONES, problem="'many' is not a quantity"))
    assert bad.level is Level.WARNING
    assert bad.message == "NodeResourceTopology: 'many' is not a quantity; 2 NUMA nodes from its earlier messages are used"
    [unknown] = of_objects(replace(ZONES, zones=(), problem="9 NUMA nodes are more than the 8"))
    assert unknown.message.endswith("its NUMA nodes are unknown, only node totals are checked")


def test_what_the_agent_tells_is_not_an_objects() -> None:
    assert [*of_objects(replace(ZONES, source="node-agent", problem="x"))] == []
