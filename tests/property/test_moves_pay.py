"""On random clusters: whoever moves has a place, nobody moves who may not, and what is gained is more than what is lost, counted anew from the drawing."""

from collections import Counter
from random import Random

import pytest

from hbox_common.model import QueueName
from hbox_common.model.annotations import CHECKPOINT_INTERVAL
from hbox_scheduler.core.cluster.entities import Gang, Member, QueueInfo, Status
from hbox_scheduler.core.cluster.facts import DisruptionBudget
from hbox_scheduler.core.simulate.cycles import Report

from ..unit.hbox_scheduler.small_world import NOW, SmallWorld

CARDS = 8
HORIZON_S, RESTART_S, MOST_AN_HOUR = 3600.0, 120.0, 6
POLICY = f"""
actions: "allocate, consolidate"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: pdb}}]
- plugins: [{{name: predicates}}, {{name: binpack}}]
configurations: [{{name: consolidate, arguments: {{maxMovesPerHour: {MOST_AN_HOUR}}}}}]
"""


def world_of(rng: Random) -> SmallWorld:
    """Nodes that are partly used by gangs of all kinds; one gang of pods with many cards waits, and sometimes another."""
    nodes = rng.randint(2, 5)
    world = SmallWorld(nodes, queues=[QueueInfo(QueueName(name)) for name in ("q", "r")])
    room = dict.fromkeys(range(nodes), CARDS)
    for number in range(rng.randint(2, 12)):
        cards, pods = rng.choice((1, 1, 1, 2, 3)), rng.choice((1, 1, 1, 2, 3))
        on = []
        for _ in range(pods):
            free = [row for row, left in room.items() if left >= cards + 2]
            if free:
                on.append(rng.choice(free))
                room[on[-1]] -= cards
        if not on:
            continue
        gang = world.gang(
            f"g{number}",
            pods=len(on),
            cards=cards,
            on=on,
            min_member=rng.choice((1, len(on))),
            priority=rng.choice((0, 0, 0, 5)),
            queue=rng.choice(("q", "r")),
            age_s=rng.choice((60.0, 900.0, 3600.0, 20_000.0)),
            annotations=rng.choice(({}, {}, {CHECKPOINT_INTERVAL: "10m"})),
            preemptable=rng.random() > 0.15,
        )
        for member in gang.members:
            member.protected_until = rng.choice((0.0, 0.0, 0.0, NOW + 5.0))
            member.labels = {"budget": rng.choice(("", "", "tight"))}
    world.budgets = [DisruptionBudget("d", "tight", {"budget": "tight"}, allowed=rng.choice((0, 1)))]
    for name in ("wide", "wider")[: rng.randint(1, 2)]:
        world.gang(name, cards=rng.choice((4, 6, 8)), pods=rng.choice((1, 1, 2)), queue=rng.choice(("q", "r")))
    return world


def lost(members: list[Member]) -> float:
    """Card-seconds, from what the drawing says of each."""
    total = 0.0
    for member in members:
        assert member.started_at is not None
        ran_s = NOW - member.started_at
        total += len(member.slices) * ((ran_s % 600.0 if CHECKPOINT_INTERVAL in member.annotations else ran_s) + RESTART_S)
    return total


def moves_by_gang(report: Report) -> dict[str, list[Member]]:
    found: dict[str, list[Member]] = {}
    for eviction in report.evictions:
        found.setdefault(eviction.preemptor, []).append(eviction.member)
    return found


@pytest.mark.parametrize("seed", range(120))
def test_who_moves_may_and_it_pays(seed: int) -> None:
    world = world_of(Random(seed))
    running = {gang.id: [member for member in gang.members if member.row >= 0] for gang in world.gangs}
    report = world.decide(POLICY)
    by_id: dict[str, Gang] = {gang.id: gang for gang in world.gangs}
    assert len(report.evictions) <= MOST_AN_HOUR
    tight = 0
    for name, moved in moves_by_gang(report).items():
        gang = by_id[name]
        assert all(
            member.preemptable and member.protected_until <= NOW and member.gang.priority <= gang.priority for member in moved
        )
        assert all(member.id in report.nominations for member in moved), "each has a place"
        tight += sum(member.labels["budget"] == "tight" for member in moved)
        placed = [member for member in gang.members if member.status is Status.PIPELINED]
        assert len(placed) >= gang.min_member
        restarted = list(moved)
        for other in {id(member.gang): member.gang for member in moved}.values():
            left = [member for member in running[other.id] if member not in moved and member.status is not Status.PIPELINED]
            if other.min_member > 1 and len(left) < other.min_member:
                restarted += left
        assert sum(len(member.slices) for member in placed) * HORIZON_S > lost(restarted)
    assert tight <= world.budgets[0].allowed
    used: Counter[str] = Counter()
    for gang in world.gangs:
        for member in gang.members:
            node = report.nominations.get(member.id) or (world.columns.names[member.row] if member.row >= 0 else "")
            used[node] += len(member.slices) if node else 0
    assert all(cards <= CARDS for node, cards in used.items() if node)
