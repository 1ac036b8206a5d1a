"""Domains of nodes from graphs, labels and NVLink; LLDP; the file of fabrics; rows of JSON as they come."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.model import HyperNode
from hbox_sandbox.fabric import FabricPlan
from hbox_topology.adapters.fabricsfile import Auth, fabrics_of
from hbox_topology.adapters.jsonrows import Rows, read_rows
from hbox_topology.adapters.measured import former_graph
from hbox_topology.core.fabric.build import build
from hbox_topology.core.fabric.domains import CLIQUE, domains_of, domains_of_labels, with_nvlink
from hbox_topology.core.fabric.lldp import snapshot_of


def shape(domains: tuple[HyperNode, ...]) -> list[tuple[str, int, str, tuple[str, ...]]]:
    return [(one.name, one.tier, one.tier_name, (*one.nodes, *one.children)) for one in domains]


def test_units_pods_and_roots_become_tiers_of_nodes_that_there_are() -> None:
    graph = build(FabricPlan(pods=2, units=2, hosts=(2,), cores=2).snapshot())
    nodes = ["node-0000.example.org", "NODE-0001", "node-0004", "other"]
    domains, problems = domains_of(graph, nodes)
    assert shape(domains) == [
        ("leaf-p1u01", 1, "leafgroup", ("node-0000.example.org", "NODE-0001")),
        ("leaf-p2u01", 1, "leafgroup", ("node-0004",)),
        ("spine-p1", 2, "pod", ("leaf-p1u01",)),
        ("spine-p2", 2, "pod", ("leaf-p2u01",)),
        ("fabric", 3, "fabric", ("spine-p1", "spine-p2")),
    ]
    assert problems == ()


def test_a_name_without_domain_that_two_nodes_have_is_nobodys() -> None:
    graph = build(FabricPlan(hosts=(2,)).snapshot())
    domains, problems = domains_of(graph, ["node-0000.a", "node-0000.b", "node-0001"])
    assert shape(domains)[0] == ("leaf-p1u01", 1, "leafgroup", ("node-0001",))
    assert problems == ("nodes node-0000.a and node-0000.b have one name without domain: in no domain",)


def test_names_are_found_again_from_what_was_said() -> None:
    graph = build(FabricPlan(pods=2, units=2, cores=2).snapshot())
    domains, _ = domains_of(graph, [host for unit in graph.units for host in unit.hosts], prefix="x-")
    back = former_graph(domains, "x-")
    assert [(unit.name, unit.leaves, unit.hosts) for unit in back.units] == [(u.name, u.leaves, u.hosts) for u in graph.units]
    assert (back.pods, back.roots, back.tiers) == (graph.pods, graph.roots, graph.tiers)


def test_labels_are_tiers_called_by_their_keys() -> None:
    labels = {
        "a": {"zone": "z1", "rack": "r1"},
        "b": {"zone": "z1", "rack": "r1"},
        "c": {"zone": "z2", "rack": "r1"},
        "d": {"zone": "z2"},
        "e": {},
    }
    rack1, rack2, zone1, zone2 = domains_of_labels(labels, ["zone", "rack"])
    assert [(one.tier, one.tier_name, one.nodes) for one in (rack1, rack2)] == [(1, "rack", ("a", "b")), (1, "rack", ("c",))]
    assert rack1.name != rack2.name
    assert [(one.tier, one.nodes, one.children) for one in (zone1, zone2)] == [
        (2, (), (rack1.name,)),
        (2, ("d",), (rack2.name,)),
    ]


def test_nvlink_domains_are_a_tier_below_the_leaf_group() -> None:
    plan = FabricPlan(hosts=(2,))
    domains, _ = domains_of(build(plan.snapshot()), ["node-0000", "node-0001", "node-0002", "node-0003"])
    labels = {
        "node-0000": {CLIQUE: "8f8e4a3c-0000-4000-8000-000000000001.1"},
        "node-0001": {CLIQUE: "8f8e4a3c-0000-4000-8000-000000000001.1"},
        "node-0002": {CLIQUE: "00000000-0000-0000-0000-000000000000.0"},
        "node-0003": {},
    }
    below, *rest = with_nvlink(domains, labels)
    assert (below.tier, below.tier_name, below.nodes) == (1, "nvlink", ("node-0000", "node-0001"))
    assert [(one.tier, one.tier_name) for one in rest] == [(2, "leafgroup"), (2, "leafgroup"), (3, "fabric")]
    assert with_nvlink(domains, {"node-0003": {}}) == domains


def neighbour(name: str, mac: str, **more: Any) -> dict[str, Any]:
    return {
        "chassis": {name: {"id": {"type": "mac", "value": mac}, **more}},
        "port": {"id": {"type": "ifname", "value": "etp4"}},
    }


def test_lldp_makes_units_of_machines_with_the_same_switches() -> None:
    def machine(unit: int) -> dict[str, Any]:
        seen = [
            {f"ens{rail}f0np0": neighbour(f"roce-leaf-s0{unit}-r{rail}", f"b8:ce:f6:00:0{unit}:0{rail}")}
            for rail in range(1, 5)
        ]
        return {"lldp": {"interface": seen}}

    machines = {f"n{number}": machine(1 + number // 3) for number in range(6)}
    graph = build(snapshot_of(machines.items()))
    assert [(unit.name, unit.hosts, unit.rails) for unit in graph.units] == [
        ("roce-leaf-s01", ("n0", "n1", "n2"), 4),
        ("roce-leaf-s02", ("n3", "n4", "n5"), 4),
    ]
    assert len(graph.roots) == 1


def test_lldp_of_one_neighbour_is_an_object_and_odd_neighbours_are_left_out() -> None:
    machines = {
        "one": {"lldp": {"interface": {"eth0": neighbour("tor", "0c:4f:9b:c4:18:61")}}},
        "none": {"lldp": {}},
        "phone": {
            "lldp": {
                "interface": {"eth0": neighbour("phone", "00:00:00:00:00:01", capability=[{"type": "Tel", "enabled": True}])}
            }
        },
        "odd": {"lldp": {"interface": [{"eth0": {"chassis": []}}, 7, {"eth1": None}, {"eth2": {"chassis": {"x": {"id": 3}}}}]}},
        "wrong": ["lldp"],
    }
    snapshot = snapshot_of(machines.items())
    assert [(link.host, link.switch) for link in snapshot.hosts] == [("one", "00000c4f9bc41861")]
    assert snapshot.problems == ("LLDP of wrong: there is no `lldp`",)


def test_the_file_of_fabrics_says_what_is_wrong_with_it() -> None:
    right = "fabrics: [{name: a, ufm: {url: 'https://ufm', credentials: /x}}, {name: b, labels: [zone]}]"
    found = fabrics_of(right)
    assert found.fabrics[0].ufm is not None
    assert (found.fabrics[0].ufm.auth, found.fabrics[0].is_aging, found.fabrics[1].is_aging) == (Auth.TOKEN, True, False)
    for text, told in {
        "fabrics: [{name: A, labels: [x]}]": "fabrics.0.name",
        "fabrics: [{name: a}]": "one of ufm",
        "fabrics: [{name: a, labels: [x], hyperNodes: true}]": "one of ufm",
        "fabrics: [{name: a, labels: [x]}, {name: a, labels: [x]}]": "one name",
        "fabrics: [{name: a, labels: [x], otherHcas: '('}]": "regular expression",
        "exportHyperNodes: true\nfabrics: [{name: a, hyperNodes: true}]": "leave one of them out",
        "fabrics: [{name: a, ufm: {url: 'http://ufm', credentials: /x}}]": "in the clear",
        "fabric: []": "fabric",
    }.items():
        with pytest.raises(InvalidRequest, match=told):
            fabrics_of(text)
    with pytest.raises(InvalidRequest, match="not among HBOX_FABRIC_HOSTS"):
        fabrics_of(right, ("other",))


def rows_of(text: bytes, size: int) -> tuple[list[Mapping[str, Any]], Rows]:
    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(text), size):
            yield text[at : at + size]

    taken: list[Mapping[str, Any]] = []
    return taken, asyncio.run(read_rows(chunks(), taken.append))


_ROWS = st.lists(
    st.dictionaries(
        st.text(max_size=5), st.none() | st.integers() | st.text(max_size=8) | st.lists(st.text(max_size=3)), max_size=4
    ),
    max_size=6,
)


@given(_ROWS, st.booleans(), st.booleans(), st.integers(1, 40))
def test_rows_are_the_same_wherever_the_text_is_cut(rows: list[dict[str, Any]], wrapped: bool, indent: bool, size: int) -> None:
    document = {"num_of_pages": 12, "first": -1.5, "data": rows, "more": {"a": [1]}} if wrapped else rows
    text = json.dumps(document, indent=2 if indent else None).encode()
    taken, found = rows_of(text, size)
    assert taken == rows
    assert (found.wrapped, found.listed, found.count) == (wrapped, True, len(rows))
    assert found.fields == ({"num_of_pages": 12} if wrapped else {})


@given(_ROWS, st.data())
def test_text_that_ends_early_is_refused(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    text = json.dumps(rows).encode()
    cut = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(Unavailable):
        rows_of(text[:cut], 7)


@pytest.mark.parametrize(
    "text", [b"<html>", b"[1]", b"[[]]", b"[{}] x", b"{'a'}", b"null", b"[{]", b'{"a" 1}', b'["' + b"x" * (2 << 20)]
)
def test_what_is_no_list_of_objects_is_refused(text: bytes) -> None:
    with pytest.raises(Unavailable):
        rows_of(text, 1000)
