"""Laws of placement in the fabric: against brute force on small trees, and on any tree."""

from collections import Counter
from collections.abc import Mapping
from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import HyperNode, NodeName, QueueName, SubGangPolicy
from hbox_scheduler.core.actions.allocator import Allocator, When
from hbox_scheduler.core.cluster.entities import QueueInfo
from hbox_scheduler.core.cluster.facts import ClusterFacts
from hbox_scheduler.core.cluster.snapshot import Cluster
from hbox_scheduler.core.framework import Session
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy.registry import PLUGINS, plugins_of
from hbox_scheduler.core.topology.cover import Parts, fewest, select
from hbox_scheduler.core.topology.spread import SpreadLevels, spread
from hbox_scheduler.core.topology.tree import tree_of

from ..searching import examples
from ..unit.hbox_scheduler.fabric_world import CONF, SOFT, Fabric, hard, placed

rooms = st.lists(st.integers(0, 5), min_size=1, max_size=6)

#: Leaf -> node -> cores, at most five leaves of three nodes.
leaf_shapes = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=3), min_size=1, max_size=5)


def leaves_of(shape: list[list[int]]) -> dict[str, dict[str, int]]:
    return {f"s{i}": {f"n{i}{j}": cores for j, cores in enumerate(nodes)} for i, nodes in enumerate(shape)}


def pods_above(leaves: Mapping[str, object], width: int) -> dict[str, list[str]]:
    names = list(leaves)
    return {f"p{i}": names[i : i + width] for i in range(0, len(names), width)}


@examples(300)
@given(rooms, st.data())
def test_the_chosen_cover_is_the_smallest_and_among_those_the_least(room: list[int], data: st.DataObject) -> None:
    whole = data.draw(st.lists(st.booleans(), min_size=len(room), max_size=len(room)))
    taken = data.draw(st.lists(st.booleans(), min_size=len(room), max_size=len(room)))
    need = data.draw(st.integers(1, 12))
    parts = Parts(np.array(room), np.array(whole), np.array(taken), np.array(room), np.zeros(len(room)))
    chosen = select(parts, need)
    own = sum(r for r, t in zip(room, taken, strict=True) if t)
    others = [i for i in range(len(room)) if not taken[i]]

    def cost(cover: tuple[int, ...]) -> tuple[int, int]:
        return sum(room[i] for i in cover if whole[i]), sum(room[i] for i in cover)

    covers = [c for k in range(len(others) + 1) for c in combinations(others, k) if own + sum(room[i] for i in c) >= need]
    if not covers:
        assert chosen is None
        assert fewest(np.array(room), np.array(taken), need) is None
        return
    least = min(len(cover) for cover in covers)
    assert chosen is not None
    pairs = list(zip(*(array.tolist() for array in chosen), strict=True))
    assert sum(took for _, took in pairs) == need
    assert all(0 < took <= room[part] for part, took in pairs)
    fresh = tuple(part for part, _ in pairs if not taken[part])
    assert len(fresh) == least == fewest(np.array(room), np.array(taken), need)
    assert cost(fresh) == min(cost(cover) for cover in covers if len(cover) == least)


@examples(60)
@given(leaf_shapes, st.integers(1, 3), st.integers(1, 8), st.data())
def test_a_soft_gang_never_uses_more_leaves_than_the_fewest_that_would_do(
    shape: list[list[int]], width: int, pods: int, data: st.DataObject
) -> None:
    leaves = leaves_of(shape)
    fabric = Fabric(leaves, above=pods_above(leaves, width))
    free = dict(Counter({node: cores for nodes in leaves.values() for node, cores in nodes.items()}))
    busy = [node for node, cores in free.items() for _ in range(cores) if data.draw(st.integers(0, 3)) == 0]
    if busy:
        fabric.gang("old", len(busy), on=busy)
    for node in busy:
        free[node] -= 1
    gang = fabric.gang("g", pods, wish=SOFT)
    report = fabric.run()
    got = placed(report, gang)
    room = sorted((sum(free[node] for node in nodes) for nodes in leaves.values()), reverse=True)
    if sum(room) < pods:
        assert not got
        return
    least = next(k for k in range(1, len(room) + 1) if sum(room[:k]) >= pods)
    assert got.total() == pods
    assert all(count <= free[node] for node, count in got.items())
    assert len(fabric.leaves_used(got)) == least


@examples(60)
@given(leaf_shapes, st.integers(1, 3), st.lists(st.integers(1, 2), min_size=1, max_size=6), st.integers(1, 3))
def test_a_hard_gang_is_in_one_allowed_domain_or_nowhere(
    shape: list[list[int]], width: int, cores: list[int], tier: int
) -> None:
    leaves = leaves_of(shape)
    above = pods_above(leaves, width)
    fabric = Fabric(leaves, above=above)
    gang = fabric.gang("g", len(cores), cores=cores, wish=hard(tier))
    got = placed(fabric.run(), gang)
    domains = [list(nodes) for nodes in leaves.values()]
    if tier >= 2:
        domains += [[node for leaf in group for node in leaves[leaf]] for group in above.values()]
    if tier >= 3:
        domains.append([node for nodes in leaves.values() for node in nodes])
    assert got.total() in (0, len(cores))
    if got:
        assert any(set(got) <= set(domain) for domain in domains)
    elif len(set(cores)) == 1:
        size = {node: count // cores[0] for nodes in leaves.values() for node, count in nodes.items()}
        assert all(sum(size[node] for node in domain) < len(cores) for domain in domains)


@examples(40)
@given(leaf_shapes, st.integers(1, 3), st.integers(1, 4), st.integers(1, 3))
def test_sub_gangs_are_each_in_a_leaf_and_all_placed_or_none(
    shape: list[list[int]], width: int, groups: int, size: int
) -> None:
    leaves = leaves_of(shape)
    fabric = Fabric(leaves, above=pods_above(leaves, width))
    gang = fabric.gang(
        "g",
        groups * size,
        wish=SOFT,
        policies=[SubGangPolicy("unit", labels=("unit",), size=size, topology=hard(1))],
        labels=[{"unit": str(i // size)} for i in range(groups * size)],
    )
    report = fabric.run()
    where = {bound.member.name: fabric.leaf_of[bound.node] for bound in report.bindings}
    units = sum(sum(nodes.values()) // size for nodes in leaves.values())
    assert len(where) == (groups * size if units >= groups else 0)
    for group in range(groups if where else 0):
        assert len({where[f"g-{i:03}"] for i in range(group * size, (group + 1) * size)}) == 1
    assert len({gang.id}) == 1


@examples(40)
@given(
    leaf_shapes,
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=4),
    st.integers(1, 5),
    st.integers(1, 2),
)
def test_nobody_is_evicted_in_vain_nor_by_equals(
    shape: list[list[int]], old: list[tuple[int, int]], pods: int, tier: int
) -> None:
    leaves = leaves_of(shape)
    fabric = Fabric(leaves, above={"top": list(leaves)})
    slots = [node for nodes in leaves.values() for node, cores in nodes.items() for _ in range(cores)]
    for number, (members, priority) in enumerate(old):
        mine, slots = slots[:members], slots[members:]
        if mine:
            fabric.gang(f"old{number}", len(mine), least=number % 3, on=mine, priority=priority)
    gang = fabric.gang("g", pods, wish=hard(tier), priority=1)
    report = fabric.run(actions="allocate, gangpreempt")
    if report.evictions:
        assert len(report.nominations) == pods
        domain = {fabric.leaf_of[node] for node in report.nominations.values()}
        assert tier == 2 or len(domain) == 1
    assert all(eviction.member.gang.priority < gang.priority for eviction in report.evictions)
    # Whoever stays fits beside the gang.
    used: Counter[str] = Counter(report.nominations.values())
    used.update(bound.node for bound in report.bindings)
    gone = {id(eviction.member) for eviction in report.evictions}
    for other in fabric.gangs[:-1]:
        used.update(fabric.columns.names[m.row] for m in other.members if m.row >= 0 and id(m) not in gone)
    assert all(used[node] <= cores for nodes in leaves.values() for node, cores in nodes.items())


@examples(30)
@given(leaf_shapes, st.integers(1, 6), st.integers(0, 6))
def test_what_a_quota_cuts_off_is_taken_back_to_the_last_cell(shape: list[list[int]], pods: int, allowed: int) -> None:
    fabric = Fabric(leaves_of(shape))
    gang = fabric.gang("g", pods, wish=SOFT)
    conf = parse_conf(CONF.format(actions="allocate"), plugins=list(PLUGINS))
    session = Session(
        columns=fabric.columns,
        cluster=Cluster(fabric.gangs, [QueueInfo(QueueName("q"))], facts=ClusterFacts(hypernodes=fabric.hypernodes)),
        conf=conf,
        tiers=plugins_of(conf),
    )
    before = {name: getattr(fabric.columns, name).copy() for name in ("used", "leaving", "card_pods", "card_cores_used")}
    asked = 0

    def may(*_: object) -> bool:
        nonlocal asked
        asked += 1
        return asked <= allowed

    statement = session.statement()
    seats = Allocator(session, may=may)
    ground = seats.capacities(gang.members[0], gang, When.NOW)
    counts = spread(session.tree, ground, session.tree.root, pods, SpreadLevels.LEAVES)
    if counts is None:
        return
    assert seats.take(statement, gang.members, counts, When.NOW) == (allowed >= pods)
    assert fabric.columns.used.sum() - before["used"].sum() == sum(
        sum(member.task.requests.values()) for member in gang.members[: min(allowed, pods)]
    )
    statement.discard()
    assert all((getattr(fabric.columns, name) == cells).all() for name, cells in before.items())
    assert gang.ready == 0


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sets(st.integers(0, 7), max_size=5), st.sets(st.integers(0, 5), max_size=2)), max_size=6
    ),
    st.sets(st.integers(0, 7), min_size=1),
)
def test_the_tree_agrees_with_sets(drawn: list[tuple[int, set[int], set[int]]], wanted: set[int]) -> None:
    """Several parents, cycles, empty domains, members that do not exist: all of it counts as the sets of nodes that it is."""
    hypernodes = [
        HyperNode(
            f"h{i}", tier, nodes=tuple(NodeName(f"n{n}") for n in sorted(nodes)), children=tuple(f"h{c}" for c in sorted(below))
        )
        for i, (tier, nodes, below) in enumerate(drawn)
    ]
    tree = tree_of(hypernodes, {NodeName(f"n{n}"): n for n in range(8)}, 8)

    def reach(i: int, seen: set[int]) -> set[int]:
        seen.add(i)
        return drawn[i][1].union(*(reach(c, seen) for c in drawn[i][2] if c < len(drawn) and c not in seen))

    sets = {f"h{i}": reach(i, set()) for i in range(len(drawn))}
    sets[tree.names[tree.root]] = set(range(8))
    for name, nodes in sets.items():
        assert set(tree.nodes(tree.index[name]).tolist()) == nodes
    amounts = np.arange(8) ** 2
    assert tree.sums(amounts).tolist() == [sum(n * n for n in sets[name]) for name in tree.names]
    lowest = tree.lowest(wanted)
    holding = [d for d, name in enumerate(tree.names) if wanted <= sets[name]]
    assert tree.tiers[lowest] == min(tree.tiers[d] for d in holding)
    for domain in range(tree.root):
        parent = int(tree.parents[domain])
        assert sets[tree.names[domain]] <= sets[tree.names[parent]]
        assert tree.tiers[parent] > tree.tiers[domain]
