"""NodeResourceTopology and Numatopology objects as text: bounds, and what is none."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.clock import processor_s
from hbox_common.errors import InvalidRequest
from hbox_common.kube.objects import Metadata
from hbox_common.kube.zones import (
    MOST_BYTES,
    NumatopologyText,
    TopologyText,
    numatopology_of,
    topology_of,
    zones_of_numatopology,
    zones_of_topology,
)
from hbox_common.model.nodedevices import parse_cpu_list

from ...searching import examples

RESTRICTED = b'[{"name": "topologyManagerPolicy", "value": "restricted"}]'


def topology(zones: bytes, attributes: bytes = RESTRICTED) -> TopologyText:
    return TopologyText(Metadata("n1", "u"), attributes=msgspec.Raw(attributes), zones=msgspec.Raw(zones))


def numatopology(spec: bytes) -> NumatopologyText:
    return NumatopologyText(Metadata("n1", "u"), spec=msgspec.Raw(spec))


def test_zones_beyond_those_of_a_topology_manager_are_counted_and_not_read() -> None:
    zones = b",".join(b'{"name": "node-%d", "type": "Node", "resources": "none"}' % i for i in range(9))
    found = zones_of_topology(topology_of(topology(b"[" + zones + b"]")), at=1.0)
    assert (found.zones, found.problem) == ((), "9 NUMA nodes are more than the 8 that a topology manager takes")
    with pytest.raises(InvalidRequest, match="zones"):
        topology_of(topology(b'[{"name": "node-0", "type": "Node", "resources": "none"}]'))


def test_what_is_none_is_as_if_it_were_not_there() -> None:
    assert topology_of(topology(b"null", b"null")).zones == ()
    assert numatopology_of(numatopology(b"null")).spec.cpu_detail == {}


@pytest.mark.parametrize("number", [-1, 65_536, 2**63, 2**64, 10**30])
def test_a_numa_node_that_no_machine_has_is_refused(number: int) -> None:
    spec = b'{"policies": {"TopologyManagerPolicy": "restricted"}, "cpuDetail": {"0": {"numa": %d}}}' % number
    with pytest.raises(InvalidRequest):
        zones_of_numatopology(numatopology_of(numatopology(spec)), at=1.0)


def test_ranges_that_lie_over_each_other_without_end_are_refused() -> None:
    ranges = ",".join(["0-65535"] * 20_000)
    before = processor_s()
    with pytest.raises(ValueError, match="together"):
        parse_cpu_list(ranges)
    assert processor_s() - before < 1.0
    assert parse_cpu_list("0-3,2-5") == (0, 1, 2, 3, 4, 5)


@pytest.mark.hypothesis
@examples(300)
@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.dictionaries(
                st.sampled_from(["name", "type", "resources", "costs", "value", "capacity", "numa", "policies", "cpuDetail"]),
                inner,
                max_size=5,
            ),
        ),
        max_leaves=25,
    )
)
def test_anything_is_read_or_refused(value: object) -> None:
    text = msgspec.Raw(msgspec.json.encode(value))
    assert len(bytes(text)) < MOST_BYTES
    try:
        zones_of_topology(topology_of(TopologyText(Metadata("n1", "u"), text, text, text)), at=1.0)
        zones_of_numatopology(numatopology_of(NumatopologyText(Metadata("n1", "u"), text)), at=1.0)
    except InvalidRequest:
        pass
