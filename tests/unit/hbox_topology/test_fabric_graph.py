"""Units, pods and findings of fabrics, from ibnetdiscover's text on."""

import random
from dataclasses import replace
from functools import cache

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model.fabric import HostLink, Snapshot, Switch, Trunk
from hbox_sandbox.fabric import FabricPlan, disturbed, ibnetdiscover_text, lingjun
from hbox_topology.core.fabric.build import Owner, build
from hbox_topology.core.fabric.graph import Graph, Kind, Role
from hbox_topology.core.fabric.ibnetdiscover import parse_ibnetdiscover

#: As large as the capture of 458 machines by which the method was measured, with units of the same sizes.
SUPERPOD = FabricPlan(
    pods=4,
    units=6,
    hosts=(20, 20, 20, 20, 20, 19, 19, 19, 19, 19, 19, 19, 18, 18, 18, 17, 17, 16, 15, 14),
    spines=10,
    planes=True,
    cores=20,
)
TINY = FabricPlan()


@cache
def superpod() -> Snapshot:
    return SUPERPOD.snapshot()


def read(snapshot: Snapshot) -> Snapshot:
    """As it comes back from ibnetdiscover's text."""
    return parse_ibnetdiscover(ibnetdiscover_text(snapshot).splitlines())


def told(graph: Graph) -> list[str]:
    return [str(finding) for finding in graph.findings]


def rewired(snapshot: Snapshot, host: str, hca: str, /, **change: object) -> Snapshot:
    return replace(
        snapshot,
        hosts=tuple(replace(link, **change) if (link.host, link.hca) == (host, hca) else link for link in snapshot.hosts),  # type: ignore[arg-type]
    )


def leaf_named(snapshot: Snapshot, name: str) -> str:
    return next(guid for guid, switch in snapshot.switches.items() if switch.name == name)


def test_text_of_a_fabric_comes_back_as_the_fabric() -> None:
    snapshot = FabricPlan(pods=2, units=2, cores=2).snapshot()
    again = read(snapshot)
    assert again.switches == snapshot.switches
    assert set(again.hosts) == set(snapshot.hosts)
    assert set(again.trunks) == set(snapshot.trunks)
    assert again.problems == ()


def test_units_pods_and_tiers_of_a_whole_fabric() -> None:
    graph = build(read(superpod()))
    assert [frozenset(unit.hosts) for unit in graph.units] == SUPERPOD.truth()
    assert {(len(unit.leaves), unit.rails, unit.rail_optimised) for unit in graph.units} == {(8, 8, True)}
    assert [len(pod.units) for pod in graph.pods] == [6, 6, 6, 6]
    assert [len(pod.spines) for pod in graph.pods] == [80, 80, 80, 80]
    assert (len(graph.roots), graph.tiers, graph.hosts) == (1, 3, sum(SUPERPOD.sizes))
    assert graph.findings == ()


@pytest.mark.parametrize("seed", range(8))
def test_units_are_found_with_a_tenth_of_links_down_and_two_percent_swapped(seed: int) -> None:
    graph = build(read(disturbed(superpod(), random.Random(seed), down=0.10, swapped=0.02)))
    assert {frozenset(unit.hosts) for unit in graph.units} == set(SUPERPOD.truth())
    assert {len(unit.leaves) for unit in graph.units} == {8}
    assert len(graph.pods) == 4


def test_all_cards_of_a_host_on_one_leaf_make_units_of_that_leaf() -> None:
    snapshot = FabricPlan(units=3, hosts=(2,), rails=1).snapshot()
    links = tuple(
        replace(link, card=f"{int(link.card, 16) + n:016x}", hca=f"mlx5_{n}", switch_port=link.switch_port * 10 + n)
        for link in snapshot.hosts
        for n in range(8)
    )
    graph = build(replace(snapshot, hosts=links))
    assert [(len(unit.leaves), unit.rails, unit.rail_optimised) for unit in graph.units] == [(1, 8, False)] * 3
    short = build(replace(snapshot, hosts=links[:3] + links[4:]))
    assert told(short) == ["node-0000 has no link on rail 4 (mlx5_3)"]


def test_a_link_that_is_down_leaves_its_host_in_the_unit_and_is_told() -> None:
    snapshot = TINY.snapshot()
    kept = tuple(link for link in snapshot.hosts if (link.host, link.hca) != ("node-0001", "mlx5_4"))
    graph = build(replace(snapshot, hosts=kept))
    assert told(graph) == ["node-0001 has no link on rail 3 (mlx5_4)"]
    assert graph.degraded == {"node-0001": (3,)}
    assert [frozenset(unit.hosts) for unit in graph.units] == TINY.truth()


def test_a_port_that_its_source_calls_down_is_told_with_its_card() -> None:
    snapshot = rewired(TINY.snapshot(), "node-0001", "mlx5_4", up=False, switch="", switch_port=0)
    [finding] = build(snapshot).findings
    card = next(link.card for link in snapshot.hosts if (link.host, link.hca) == ("node-0001", "mlx5_4"))
    assert (finding.kind, finding.rails, finding.card) == (Kind.LINK_DOWN, (3,), card)


def test_swapped_rails_and_a_cable_to_another_unit_are_told_apart() -> None:
    snapshot = TINY.snapshot()
    one, two = leaf_named(snapshot, "leaf-p1u01-r1"), leaf_named(snapshot, "leaf-p1u01-r2")
    far = leaf_named(snapshot, "leaf-p1u02-r8")
    snapshot = rewired(snapshot, "node-0002", "mlx5_0", switch=two)
    snapshot = rewired(snapshot, "node-0002", "mlx5_3", switch=one)
    snapshot = rewired(snapshot, "node-0003", "mlx5_11", switch=far)
    assert told(build(snapshot)) == [
        "node-0002: cables of rails 1 and 2 are swapped",
        "node-0003 mlx5_11 (rail 8) is cabled to leaf-p1u02-r8 instead of leaf-p1u01-r8",
    ]


def test_a_card_without_a_name_is_given_by_elimination_and_by_the_inventory_for_certain() -> None:
    snapshot = TINY.snapshot()
    card = next(link.card for link in snapshot.hosts if (link.host, link.hca) == ("node-0003", "mlx5_6"))
    nameless = read(rewired(snapshot, "node-0003", "mlx5_6", host="", hca=""))
    graph = build(nameless)
    assert told(graph) == [f"card {card} at leaf-p1u01-r5 does not say whose it is; by elimination of node-0003"]
    assert [port.role for port in graph.ports].count(Role.UNKNOWN) == 1
    assert build(nameless, inventory={card: Owner("node-0003", "mlx5_6")}).findings == ()


def test_slow_and_narrow_links_and_missing_uplinks() -> None:
    snapshot = rewired(TINY.snapshot(), "node-0004", "mlx5_9", speed="EDR")
    snapshot = rewired(snapshot, "node-0005", "mlx5_10", width=1)
    leaf, spine = leaf_named(snapshot, "leaf-p1u01-r4"), leaf_named(snapshot, "spine-p1-002")
    snapshot = replace(snapshot, trunks=tuple(t for t in snapshot.trunks if {t.a, t.b} != {leaf, spine}))
    assert told(build(snapshot)) == [
        "node-0004 mlx5_9 (rail 6) runs at 4xEDR instead of 4xNDR",
        "node-0005 mlx5_10 (rail 7) runs at 1xNDR instead of 4xNDR",
        "leaf-p1u01-r4 has 3 uplinks instead of 4: missing to spine-p1-002",
    ]


def test_a_leaf_of_management_that_all_hosts_share_joins_no_units() -> None:
    snapshot = TINY.snapshot()
    mgmt = "fc6a1c03fff00000"
    hosts = sorted({link.host for link in snapshot.hosts})
    beside = tuple(HostLink(f"{n + 1:016x}", 1, host, "mlx5_12", mgmt, n + 1, "HDR", 4) for n, host in enumerate(hosts))
    switches = {**snapshot.switches, mgmt: Switch(mgmt, "mgmt-leaf-01")}
    graph = build(replace(snapshot, switches=switches, hosts=snapshot.hosts + beside))
    assert [frozenset(unit.hosts) for unit in graph.units] == TINY.truth()
    assert told(graph) == ["mgmt-leaf-01 carries management or storage (mlx5_12)"]
    assert {port.role for port in graph.ports if port.link.hca == "mlx5_12"} == {Role.OTHER}


def test_machines_with_few_cards_make_no_unit() -> None:
    snapshot = TINY.snapshot()
    leaf = "fc6a1c03fff00000"
    logins = tuple(HostLink(f"{n + 1:016x}", 1, f"login-{n}", "mlx5_0", leaf, n + 1, "NDR", 4) for n in range(3))
    trunk = Trunk(
        min(leaf, leaf_named(snapshot, "spine-p1-001")), 60, max(leaf, leaf_named(snapshot, "spine-p1-001")), 60, "NDR", 4
    )
    switches = {**snapshot.switches, leaf: Switch(leaf, "service-leaf")}
    graph = build(replace(snapshot, switches=switches, hosts=snapshot.hosts + logins, trunks=(*snapshot.trunks, trunk)))
    assert [frozenset(unit.hosts) for unit in graph.units] == TINY.truth()
    assert graph.others == ("login-0", "login-1", "login-2")


def test_dragonfly_groups_are_pods_below_one_root() -> None:
    snapshot = FabricPlan(pods=3, units=2, hosts=(2,), rails=1, spines=2).snapshot()
    spines = [guid for guid, switch in snapshot.switches.items() if switch.name.startswith("spine")]
    across = tuple(
        Trunk(min(a, b), 50 + n, max(a, b), 50 + n, "NDR", 4)
        for n in range(3)
        for a, b in [(spines[2 * n], spines[(2 * n + 2) % 6])]
    )
    graph = build(replace(snapshot, trunks=snapshot.trunks + across))
    assert [pod.units for pod in graph.pods] == [
        ("leaf-p1u01-r1", "leaf-p1u02-r1"),
        ("leaf-p2u01-r1", "leaf-p2u02-r1"),
        ("leaf-p3u01-r1", "leaf-p3u02-r1"),
    ]
    assert [root.name for root in graph.roots] == ["fabric"]
    assert graph.tiers == 3


def test_a_leaf_without_hosts_is_neither_a_root_nor_a_bridge_between_pods() -> None:
    snapshot = FabricPlan(pods=2, units=2, hosts=(3,), rails=1, spines=2, cores=2).snapshot()
    empty = "fc6a1c03fff00000"
    spines = [guid for guid, switch in snapshot.switches.items() if switch.name.startswith("spine-p2")]
    extra = tuple(Trunk(min(empty, s), 40, max(empty, s), 40, "NDR", 4) for s in spines)
    switches = {**snapshot.switches, empty: Switch(empty, "leaf-p2u03-r1")}
    graph = build(replace(snapshot, switches=switches, trunks=snapshot.trunks + extra))
    assert [len(pod.units) for pod in graph.pods] == [2, 2]
    assert graph.levels[empty] == 1
    assert {graph.levels[guid] for guid, switch in switches.items() if switch.name.startswith("core")} == {3}


def test_the_chips_of_a_director_are_one_switch() -> None:
    """Each chip of a line card has two leaves, so that no chip says which leaves belong together: their chassis does."""
    snapshot = FabricPlan(units=6, hosts=(2,), rails=1, spines=3).snapshot()
    leaves = [guid for guid, switch in snapshot.switches.items() if switch.name.startswith("leaf")]
    chips = [guid for guid, switch in snapshot.switches.items() if switch.name.startswith("spine")]
    switches = {
        guid: replace(s, chassis="c" * 16, name="director") if guid in chips else s for guid, s in snapshot.switches.items()
    }
    trunks = tuple(
        Trunk(min(leaf, chip), 30 + n, max(leaf, chip), 30 + n, "NDR", 4)
        for n, leaf in enumerate(leaves)
        for chip in [chips[n // 2]]
    )
    graph = build(replace(snapshot, switches=switches, trunks=trunks))
    assert [len(pod.units) for pod in graph.pods] == [6]


def test_names_outlive_what_changes_elsewhere_and_renamed_switches() -> None:
    snapshot = FabricPlan(pods=1, units=3).snapshot()
    before = build(snapshot)
    names = {leaf: unit.name for unit in before.units for leaf in unit.leaves}
    gone = {link.host for link in snapshot.hosts if names[link.switch] == "leaf-p1u01"}
    rest = replace(
        snapshot,
        hosts=tuple(link for link in snapshot.hosts if link.host not in gone),
        switches={guid: replace(switch, name=f"renamed-{guid[-4:]}") for guid, switch in snapshot.switches.items()},
    )
    assert [unit.name for unit in build(rest, former=before).units] == ["leaf-p1u02", "leaf-p1u03"]


def test_names_that_many_switches_share_are_not_taken() -> None:
    snapshot = FabricPlan(units=3).snapshot()
    alike = replace(snapshot, switches={guid: replace(switch, name="MQM9700") for guid, switch in snapshot.switches.items()})
    graph = build(alike)
    names = [unit.name for unit in graph.units]
    assert len(set(names)) == 3
    assert all(name.startswith("unit-") for name in names)
    assert [unit.name for unit in build(alike).units] == names


def test_a_host_that_lost_most_of_its_links_stays_where_it_was() -> None:
    snapshot = TINY.snapshot()
    before = build(snapshot)
    far = {leaf for unit in before.units if unit.name == "leaf-p1u02" for leaf in unit.leaves}
    near = leaf_named(snapshot, "leaf-p1u01-r1")
    keep = []
    for link in snapshot.hosts:
        if link.host != "node-0001":
            keep.append(link)
        elif link.hca in ("mlx5_0", "mlx5_3"):
            keep.append(replace(link, switch=near if link.hca == "mlx5_0" else sorted(far)[1]))
    after = build(replace(snapshot, hosts=tuple(keep)), former=before)
    assert after.unit_of["node-0001"] == "leaf-p1u01"


def test_text_of_anything_else_is_refused_and_odd_lines_are_told() -> None:
    with pytest.raises(InvalidRequest, match="no line names a switch"):
        parse_ibnetdiscover(["<html>", "Sign in"])
    text = ibnetdiscover_text(TINY.snapshot()).replace("\t", " ").splitlines()
    odd = [*text, "", "[1] what", 'Switch x "S-zz"', "[" + "9" * 5000]
    snapshot = parse_ibnetdiscover(odd)
    assert len(snapshot.hosts) == 64
    assert [problem.split(" ", 2)[2] for problem in snapshot.problems] == [
        "is a port of no block",
        "is no block of a switch or card",
        "has 5001 characters",
    ]


def test_sharp_nodes_switches_cabled_to_themselves_and_blanks_at_the_end() -> None:
    text = """
Switch\t41 "S-b8599f0300fc6de4"\t\t# "MF0;sw95:MQM8700/U1" enhanced port 0 lid 13 lmc 0
[1]"H-0c42a103008b40d0"[1](c42a103008b40d0) # "Host-A.example.org mlx5_1 " lid 101 4xFDR
[25]\t"S-b8599f0300fc6de4"[26]\t\t# "MF0;sw95:MQM8700/U1" lid 19 4xFDR10
[41]\t"H-b8599f0300fc6dec"[1](b8599f0300fc6dec) \t\t# "Mellanox Technologies Aggregation Node" lid 65535 4xHDR
""".splitlines()
    snapshot = parse_ibnetdiscover(text)
    [link] = snapshot.hosts
    assert (link.host, link.hca, link.card, link.width, link.speed) == ("host-a", "mlx5_1", "0c42a103008b40d0", 4, "FDR")
    assert (snapshot.trunks, snapshot.aggregation_nodes) == ((), 1)


def test_three_tiers_of_a_cloud_are_units_pods_and_the_fabric() -> None:
    graph = build(read(lingjun().snapshot()))
    assert [len(unit.hosts) for unit in graph.units] == [16] * 4
    assert ([len(pod.units) for pod in graph.pods], graph.tiers, graph.findings) == ([2, 2], 3, ())
