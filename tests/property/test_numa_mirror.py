"""The mirror of the kubelet's topology manager against its hints and their merge as Go has them: CPU by CPU, every combination, compared pair by pair."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model.numa import Hint, NumaNode, NumaPolicy, NumaScope, Zone, admit, average_distance, hints_of, merge

from ..searching import examples

RESOURCES = ("cpu", "nvidia.com/gpu", "rdma/hca")


def brute(node: NumaNode, hints: Sequence[Sequence[Hint]]) -> Hint:
    """topologymanager's `HintMerger.Merge`, walked as it stands there."""
    default = (1 << len(node.zones)) - 1
    if node.policy is NumaPolicy.SINGLE:
        kept = [
            [
                h
                for h in one
                if (h.mask is None and h.preferred) or (h.mask is not None and h.mask.bit_count() == 1 and h.preferred)
            ]
            for one in hints
        ]
    else:
        kept = [list(one) or [Hint(None, preferred=False)] for one in hints]
    widths = [min((h.mask.bit_count() for h in one if h.mask is not None), default=99) for one in kept]
    wanted = max((w for w in widths if w != 99), default=0)
    best: Hint | None = None
    for combination in product(*kept):
        masks = [h.mask for h in combination if h.mask is not None]
        merged = default
        for mask in masks:
            merged &= mask
        preferred = all(h.preferred for h in combination) and all(mask == masks[0] for mask in masks)
        if merged:
            best = better(node, best, Hint(merged, preferred), wanted)
    return best or Hint(default, preferred=False)


def better(node: NumaNode, current: Hint | None, candidate: Hint, wanted: int) -> Hint:
    if current is None:
        return candidate
    if candidate.preferred != current.preferred:
        return candidate if candidate.preferred else current
    assert current.mask is not None
    assert candidate.mask is not None
    now, then = current.mask.bit_count(), candidate.mask.bit_count()
    if current.preferred:
        return narrower(node, current, candidate)
    if now > wanted:
        return narrower(node, current, candidate)
    if now == wanted:
        return narrower(node, current, candidate) if then == wanted else current
    if then > wanted:
        return current
    if then == wanted:
        return candidate
    if then != now:
        return candidate if then > now else current
    return narrower(node, current, candidate)


def narrower(node: NumaNode, current: Hint, candidate: Hint) -> Hint:
    assert current.mask is not None
    assert candidate.mask is not None
    now, then = current.mask.bit_count(), candidate.mask.bit_count()
    if now != then:
        return candidate if then < now else current
    if node.prefer_closest:
        a, b = average_distance(node, current.mask), average_distance(node, candidate.mask)
        if a != b:
            return candidate if b < a else current
    return candidate if candidate.mask < current.mask else current


def brute_hints(node: NumaNode, resource: str, amount: int, kept: Sequence[int]) -> list[Hint]:
    """`generateCPUTopologyHints` and `generateDeviceTopologyHints`, over CPUs and devices one by one; each is the place of its zone."""
    there = [i for i, zone in enumerate(node.zones) for _ in range(zone.total[resource])]
    available = [i for i, zone in enumerate(node.zones) for _ in range(zone.free[resource])]
    reusable = [i for i, units in enumerate(kept) for _ in range(units)]
    numa = sorted(set(there)) if resource == "cpu" else list(range(len(node.zones)))
    least, found = len(numa), []
    for mask in range(1, 1 << len(node.zones)):
        if any(mask >> i & 1 and i not in numa for i in range(len(node.zones))):
            continue
        width = mask.bit_count()
        if len([i for i in there if mask >> i & 1]) >= amount and width < least:
            least = width
        if all(mask >> i & 1 for i in reusable) and len([i for i in available + reusable if mask >> i & 1]) >= amount:
            found.append(mask)
    return [
        Hint(mask, mask.bit_count() == least or (resource == "cpu" and socket_aligned(node, mask, least, numa)))
        for mask in found
    ]


def socket_aligned(node: NumaNode, mask: int, least: int, numa: Sequence[int]) -> bool:
    """`isHintSocketAligned`."""
    if not node.align_by_socket or not numa:
        return False
    per_socket = len(numa) // len({node.sockets[i] for i in numa})
    return len({node.sockets[i] for i in numa if mask >> i & 1}) == (least + per_socket - 1) // per_socket


@st.composite
def nodes(draw: st.DrawFn) -> NumaNode:
    count = draw(st.integers(1, 4))
    zones = []
    for i in range(count):
        total = {r: draw(st.integers(0, 4)) for r in RESOURCES}
        zones.append(Zone(i, total, {r: draw(st.integers(0, amount)) for r, amount in total.items()}))
    far = draw(st.lists(st.integers(11, 40), min_size=16, max_size=16))
    distances = tuple(tuple(10 if a == b else far[min(a, b) * 4 + max(a, b)] for b in range(count)) for a in range(count))
    by_socket = draw(st.booleans())
    own = (
        tuple(draw(st.integers(0, 2)) if zone.total["cpu"] else -1 for zone in zones)
        if by_socket or draw(st.booleans())
        else ()
    )
    return NumaNode(
        draw(st.sampled_from(NumaPolicy)), NumaScope.CONTAINER, tuple(zones), frozenset(RESOURCES), prefer_closest=draw(st.booleans()), distances=distances,
        align_by_socket=by_socket, sockets=own,
    )  # fmt: skip


asks = st.dictionaries(st.sampled_from(RESOURCES), st.integers(1, 9), max_size=3)


@pytest.mark.hypothesis
@examples(3000, dear=True)
@given(nodes(), st.sampled_from(RESOURCES), st.integers(1, 9), st.lists(st.integers(0, 2), min_size=4, max_size=4))
def test_the_hints_are_the_kubelets(node: NumaNode, resource: str, amount: int, left: list[int]) -> None:
    kept = [min(units, zone.total[resource] - zone.free[resource]) for units, zone in zip(left, node.zones, strict=False)]
    assert hints_of(node, resource, amount, kept) == brute_hints(node, resource, amount, kept)


@pytest.mark.hypothesis
@examples(3000, dear=True)
@given(nodes(), asks)
def test_the_merge_is_the_kubelets(node: NumaNode, ask: dict[str, int]) -> None:
    hints = [hints_of(node, resource, amount) for resource, amount in ask.items()]
    assert merge(node, hints) == brute(node, hints)


@pytest.mark.hypothesis
@examples(1500, dear=True)
@given(nodes(), st.lists(asks, min_size=1, max_size=3), st.booleans())
def test_what_is_admitted_is_taken_once_and_no_node_gives_more_than_it_has(
    node: NumaNode, containers: list[dict[str, int]], guaranteed: bool
) -> None:
    asked = [{r: amount * 1000 if r == "cpu" else amount for r, amount in one.items()} for one in containers]
    found = admit(node, asked, guaranteed=guaranteed)
    assert found.admitted == (not found.reason)
    if node.policy in (NumaPolicy.NONE, NumaPolicy.BEST_EFFORT):
        assert found.admitted
        return
    if not found.admitted:
        assert found.message
        return
    assert found.node is not None
    for resource in RESOURCES:
        taken = sum(one.get(resource, 0) for one in containers) if guaranteed or resource != "cpu" else 0
        before, after = (sum(zone.free[resource] for zone in one.zones) for one in (node, found.node))
        assert (before - after, after >= 0) == (taken, True)
    if node.policy is NumaPolicy.SINGLE:
        aligned = [
            mask for mask, one in zip(found.masks, containers, strict=True) if any(guaranteed or r != "cpu" for r in one)
        ]
        assert all(mask.bit_count() == 1 for mask in aligned)


@pytest.mark.hypothesis
@examples(1500, dear=True)
@given(nodes(), asks)
def test_restricted_admits_exactly_where_one_set_is_a_narrowest_one_of_every_resource(
    node: NumaNode, ask: dict[str, int]
) -> None:
    """The kubelet's rule in one sentence (sources: topology-manager)."""
    node = replace(node, policy=NumaPolicy.RESTRICTED, align_by_socket=False)
    every = range(1, 1 << len(node.zones))

    def covers(mask: int, resource: str, *, free: bool) -> bool:
        own = [zone for i, zone in enumerate(node.zones) if mask >> i & 1]
        return sum((zone.free if free else zone.total)[resource] for zone in own) >= ask[resource]

    def narrowest(mask: int, resource: str) -> bool:
        least = min((m.bit_count() for m in every if covers(m, resource, free=False)), default=len(node.zones))
        return covers(mask, resource, free=True) and mask.bit_count() == least

    wanted = not ask or any(all(narrowest(mask, r) for r in ask) for mask in every)
    asked = {r: amount * 1000 if r == "cpu" else amount for r, amount in ask.items()}
    assert admit(node, [asked], guaranteed=True).admitted == wanted
