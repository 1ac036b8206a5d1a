"""The checks of one random cluster: counts of nodes, statements, the outcome, and each proposed change."""

from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from hbox_common.model.devices.nvidia import GPU_MEMORY
from hbox_common.model.explanation import Change, ChangeKind, Explanation
from hbox_common.model.resources import CPU, GIB, MEMORY, request_units
from hbox_common.reasons import CODES
from hbox_common.reasons.facts import filled
from hbox_scheduler.core.explain.changes import ChangeLimits

from .truths import TRUTH
from .world import World

UNITS = {CPU: (1000, 100), MEMORY: (GIB, GIB // 16), GPU_MEMORY: (1,)}
#: As much as every search needs.
PATIENT = ChangeLimits(probes=2000, seconds=60.0)


def check(seed: int) -> Counter[str]:
    """One cluster, and one of its jobs that wait. Figures by name. Raises AssertionError for what is wrong."""
    world = World(seed)
    if not (waiting := world.waiting()):
        return Counter({"clusters in which no job waits": 1})
    claimed = {claim.job for claim in world.simulation.claims.values()}
    waits = Random(seed).choice([one for one in waiting if one.id not in claimed] or waiting)
    reports = world.simulation.scheduler.reports
    explained = reports.explanation(waits.id, world.simulation.now)
    assert explained is not None
    found = reports.changes(waits.id, PATIENT, lambda: 0.0)
    assert found.complete
    figures = Counter({"clusters": 1, f"outcome {explained.outcome}": 1, f"code {explained.code}": 1})
    check_counts(explained)
    check_statements(world, explained, seed)
    if waits.id not in claimed:  # else its own pods may end
        check_outcome(seed, explained)
    for change in found.changes:
        if change.kind is not ChangeKind.MOVES:  # the policy of these clusters makes none
            check_change(seed, explained, change, minimal=not reports.reservations)  # which change with time
            figures[f"change {change.kind}"] += 1
    return figures


def check_counts(found: Explanation) -> None:
    nodes = found.nodes
    assert sum(nodes.first.values()) + nodes.fitting == nodes.total, nodes
    for label, count in nodes.first.items():
        assert nodes.only.get(label, 0) <= count, nodes
        assert len(nodes.names[label]) == count, nodes  # there are fewer than 20


def check_statements(world: World, found: Explanation, seed: int) -> None:
    facts = found.facts
    assert all(need > found.have[unit] for unit, need in found.need.items()), (seed, found)
    text = CODES[found.code].text
    assert filled(text.en, facts) is not None, (seed, found)
    assert filled(text.zh, facts) is not None, (seed, found)
    if found.code in TRUTH:
        assert TRUTH[found.code](world, found), (seed, found)


#: Codes whose ends depend on time, or on what the cluster of this test cannot do.
IN_TIME = frozenset(("ReservedForLargeJob", "NotTriedYet", "RoomSinceAttempt", "CardModelKeptForOthers"))


def check_outcome(seed: int, found: Explanation) -> None:
    if found.code in IN_TIME:
        assert found.outcome == "wait"
        return
    empty, repaired = World(seed).starts_when_empty(found.job)
    expected = "wait" if empty else "escalate" if repaired else "change"
    assert found.outcome == expected, (seed, expected, found)


def check_change(seed: int, found: Explanation, change: Change, *, minimal: bool) -> None:
    made = [(one.kind, one.facts) for one in (change, *change.also)]
    assert World(seed).starts(found.job, made), (seed, found.job, change)
    for number, (kind, facts) in enumerate(made) if minimal else ():
        others = [*made[:number], *made[number + 1 :]]
        for less in one_less(kind, facts):
            assert not World(seed).starts(found.job, [*made[:number], (kind, less), *made[number + 1 :]]), (seed, change, less)
        assert not World(seed).starts(found.job, others), (seed, change, "without one of them")


def one_less(kind: ChangeKind, facts: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The same change, smaller by one unit."""
    match kind:
        case ChangeKind.PODS if facts["pods"] + 1 < facts["of"]:
            yield {**facts, "pods": facts["pods"] + 1}
        case ChangeKind.CARDS if facts["cards"] + 1 < facts["of"]:
            yield {**facts, "cards": facts["cards"] + 1}
        case ChangeKind.LIMIT:
            yield {**facts, "amount": str(int(facts["amount"]) - 1)}
        case ChangeKind.RESOURCES:
            name, of = facts["resource"], request_units(facts["resource"], facts["of"])
            unit = next(unit for unit in UNITS[name] if of >= 2 * unit)
            units = request_units(name, facts["amount"]) + unit
            if units < of:
                yield {**facts, "amount": f"{units}m" if name == CPU else str(units)}
        case ChangeKind.NODES if facts["count"] > 1:
            for left_out in facts["nodes"]:
                nodes = tuple(name for name in facts["nodes"] if name != left_out)
                yield {**facts, "nodes": nodes, "count": facts["count"] - 1}
