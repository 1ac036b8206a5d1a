"""Captures and samples beside the project, with what they have to come to: skipped where there is no folder ../shared/samples."""

import gzip
import json
import random
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model.fabric import Snapshot
from hbox_sandbox.fabric import disturbed
from hbox_topology.core.fabric.build import build
from hbox_topology.core.fabric.graph import Graph, Kind
from hbox_topology.core.fabric.ibnetdiscover import parse_ibnetdiscover
from hbox_topology.core.fabric.lldp import snapshot_of
from hbox_topology.core.fabric.ufm import UfmReading, event_of, port_row, system_row, versions_of

SAMPLES = Path(__file__).parents[4] / "shared" / "samples"
with_samples = pytest.mark.skipif(not SAMPLES.exists(), reason="no folder ../shared/samples beside the project")


def text(name: str) -> str:
    path = SAMPLES / name
    return gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()


@cache
def cabled(name: str) -> Snapshot:
    return parse_ibnetdiscover(text(f"ibnetdiscover/{name}").splitlines())


def expected(name: str) -> Any:
    return json.loads(text(f"ibnetdiscover/{name}.expected.json"))


def by_ufm(folder: str) -> Snapshot:
    """Of what UFM's REST says: systems, then ports."""
    reading = UfmReading()
    for name in ("systems", "ports"):
        path = next((SAMPLES / "ufm" / folder).glob(f"{name}.json*"))
        for row in json.loads(text(str(path.relative_to(SAMPLES)))):
            if name == "systems":
                reading.system(system_row(row))
            else:
                reading.port(port_row(row))
    return reading.snapshot()


def units(graph: Graph) -> set[frozenset[str]]:
    return {frozenset(unit.hosts) for unit in graph.units}


@with_samples
def test_selene_has_its_25_units_in_4_pods_and_nobody_is_misplaced() -> None:
    truth = expected("selene.compute")
    lines = text("ibnetdiscover/selene.compute.txt.gz").splitlines()
    started = time.process_time()
    graph = build(parse_ibnetdiscover(lines))
    assert time.process_time() - started < 1.0
    assert units(graph) == {frozenset(unit["hosts"]) for unit in truth["scalable_units"]}
    assert {unit.rails for unit in graph.units} == {8}
    unit_of = {leaf["guid"]: su["su"] for su in truth["scalable_units"] for leaf in su["leaves"].values()}
    named = {unit.name: unit_of[unit.leaves[0]] for unit in graph.units}
    pods = {frozenset(named[unit] for unit in pod.units) for pod in graph.pods}
    assert pods == {frozenset(pod["scalable_units"]) for pod in truth["pods"]}
    short = {finding.switch for finding in graph.findings if finding.kind is Kind.UPLINK_MISSING}
    assert short == {leaf["name"] for leaf in truth["degraded_leaves"]}


@with_samples
@pytest.mark.parametrize("seed", range(20))
def test_selene_keeps_its_units_with_a_tenth_of_links_down_and_two_percent_swapped(seed: int) -> None:
    whole = cabled("selene.compute.txt.gz")
    truth = {frozenset(unit["hosts"]) for unit in expected("selene.compute")["scalable_units"]}
    compute = frozenset().union(*truth)
    found = units(build(disturbed(whole, random.Random(seed), down=0.10, swapped=0.02)))
    assert len(found) == 25
    assert {unit & compute for unit in found} == truth, "a login whose only cable was swapped may come beside"


@with_samples
@pytest.mark.parametrize("read", ["ibnetdiscover", "UFM"])
@pytest.mark.parametrize("name", ["synth_tiny_2su_clean", "synth_tiny_2su_faulty"])
def test_two_units_are_found_in_both_forms_with_every_fault_that_is_labelled(name: str, read: str) -> None:
    graph = build(cabled(f"{name}.txt") if read == "ibnetdiscover" else by_ufm(name.removeprefix("synth_")))
    truth = expected(name)
    assert units(graph) == {frozenset(hosts) for hosts in (truth.get("scalable_units") or truth["must_still_find"]).values()}
    found = {(finding.kind, finding.host or "") for finding in graph.findings if finding.kind is not Kind.OTHER_LEAF}
    if name.endswith("clean"):
        assert not found
        return
    wanted = {
        (Kind.LINK_DOWN, "hb-s01-n02"), (Kind.RAIL_SWAP, "hb-s02-n03"), (Kind.MISWIRE, "hb-s02-n04"),
        (Kind.SLOW, "hb-s02-n01"), (Kind.NARROW, "hb-s02-n02"),
    }  # fmt: skip
    assert wanted <= found
    assert {Kind.UNNAMED, Kind.UPLINK_MISSING} <= {kind for kind, _ in found}


@with_samples
def test_the_capture_by_ufm_is_the_capture_by_ibnetdiscover() -> None:
    graph = build(by_ufm("selene_2su"))
    truth = {frozenset(unit["hosts"]) for unit in expected("selene.compute")["scalable_units"]}
    assert units(graph) <= truth
    assert len(graph.units) == 2


@with_samples
def test_groups_of_dragonfly_and_a_leaf_without_hosts() -> None:
    graph = build(cabled("synth_dragonfly_plus_3groups.txt"))
    groups = {frozenset(group["hosts"]) for group in expected("synth_dragonfly_plus_3groups")["groups"].values()}
    of = {unit.name: unit.hosts for unit in graph.units}
    assert {frozenset(host for unit in pod.units for host in of[unit]) for pod in graph.pods} == groups
    assert len(graph.roots) == 1
    graph = build(cabled("synth_fattree_3tier_2pods.txt"))
    pods = expected("synth_fattree_3tier_2pods")["pods"].values()
    assert units(graph) == {frozenset(hosts) for leaves in pods for hosts in leaves.values() if hosts}
    assert (len(graph.pods), len(graph.roots)) == (2, 1)


@with_samples
def test_switches_that_lldp_tells_of() -> None:
    names = sorted(path.stem for path in (SAMPLES / "lldp").glob("*.json"))
    snapshot = snapshot_of((name, json.loads(text(f"lldp/{name}.json"))) for name in names)
    assert len([link for link in snapshot.hosts if link.host == "synth_rail_optimised_8nic_sonic"]) == 8
    assert {link.host for link in snapshot.hosts} >= {"real_bjg45", "synth_rail_optimised_8nic_sonic"}
    assert not [link for link in snapshot.hosts if link.host == "real_empty"]


@with_samples
@pytest.mark.parametrize("name", ["app_events_old_shape_6_11.json", "app_events_new_shape_6_17_plus.json"])
def test_events_of_old_and_new_versions_are_read(name: str) -> None:
    rows = json.loads(text(f"ufm/{name}"))
    assert any(event_of(row) is not None for row in rows)


@with_samples
def test_counters_of_versions_are_read() -> None:
    assert versions_of(json.loads(text("ufm/app_versioning.json"))) is not None


_anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_LLDP = ("lldp", "interface", "chassis", "port", "id", "type", "value", "capability", "enabled", "local")
_lldp = st.recursive(
    st.none() | st.integers() | st.text(max_size=12) | st.sampled_from(["mac", "0c:4f:9b:c4:18:61", "ifname", "Bridge"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_LLDP) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


@pytest.mark.hypothesis
@given(st.dictionaries(st.text(max_size=8), st.fixed_dictionaries({"lldp": _lldp}) | _lldp, max_size=3))
def test_anything_that_lldp_says_is_read_or_told(machines: dict[str, Any]) -> None:
    build(snapshot_of(machines.items()))


_ROW = {
    "name": "a088c20300a11028_1", "guid": "a088c20300a11028", "number": 1, "dname": "HCA-1/1", "systemID": "a088c20300a11028",
    "system_name": "n1", "node_description": "n1 mlx5_0", "peer": "fc6a1c0300600000_1", "peer_guid": "fc6a1c0300600000",
    "peer_node_name": "leaf", "peer_node_description": "leaf:1", "physical_state": "Link Up", "logical_state": "Active",
    "active_speed": "NDR", "active_width": "4x", "description": "Computer IB Port", "type": "switch", "system_guid": "", "model": "m",
}  # fmt: skip


@pytest.mark.hypothesis
@given(
    st.lists(st.dictionaries(st.sampled_from(sorted(_ROW)), _anything, max_size=5), max_size=4),
    st.sets(st.sampled_from(sorted(_ROW)), max_size=4),
)
def test_rows_of_ufm_with_anything_in_them_are_read_or_told(changes: list[dict[str, Any]], without: set[str]) -> None:
    reading = UfmReading()
    for change in changes:
        row = {key: value for key, value in (_ROW | change).items() if key not in without}
        reading.system(system_row(row))
        reading.port(port_row(row))
        event_of(row)
        versions_of(row)
    build(reading.snapshot())
