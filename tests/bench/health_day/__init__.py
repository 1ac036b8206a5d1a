"""A day of 10,000 cards in virtual time, under HBox's judgement and two other policies: what is found, who is disturbed, what is lost.

Faults begin at 6.5 per 1,000 node-days (Meta RSC, arXiv 2410.21680), with 300 faults of programs, 60 flaps of ports, 60 reboots for upgrades and 12 nodes in
maintenance a day. Agents' facts are read from kernel lines and states as on a node, and judged by the rules in force. `HBOX_BENCH_DAYS`: seeds.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Sequence

from hbox_health.data import shipped_rules

from .faults import KINDS, Cure
from .policies import CordonFatal, HBox, ReportOnly
from .world import CARDS, DAY_S, Closed, Fault, Policy, World

NODES, SPARE, RATE, FIRST_SEED, DAYS = 1250, 0.05, 6.5 / 1000, 37, 10
PROGRAMS_A_DAY, FLAPS_A_DAY, UPGRADES_A_DAY, MAINTAINED_A_DAY = 300, 60, 60, 12


def day(policy: Policy, seed: int) -> World:
    world, dice = World(policy, nodes=NODES, spare=SPARE, seed=seed), random.Random(seed)
    names = [node.name for node in world.nodes]
    dice.shuffle(names)
    sick = names[: round(NODES * RATE)]
    for name in sick:
        kind = dice.choices(KINDS, [kind.share for kind in KINDS])[0]
        at, card = dice.uniform(3600, DAY_S - 6 * 3600), dice.randrange(CARDS)
        of = [name]
        if kind.leaf:
            first = int(name[1:]) // 32 * 32
            of = [node.name for node in world.nodes[first : first + 32]]
        for one in of:
            world.plant(Fault(kind, one, card, at, dice.uniform(1, 25)))
    touched = {fault.node for fault in world.faults}
    healthy = [name for name in names if name not in touched]
    for name in dice.choices(names, k=PROGRAMS_A_DAY):
        world.at(dice.uniform(0, DAY_S), lambda node=world.by_name[name]: world.program(node))  # type: ignore[misc]
    for name in dice.sample(healthy, FLAPS_A_DAY):
        down = dice.uniform(2, 50)
        world.at(dice.uniform(0, DAY_S - 300), lambda node=world.by_name[name], down=down: world.flap(node, down))  # type: ignore[misc]
    for name in dice.sample(healthy, UPGRADES_A_DAY):
        world.at(dice.uniform(0, DAY_S - 1200), lambda node=world.by_name[name]: world.upgrade(node))  # type: ignore[misc]
    for name in dice.sample(healthy, MAINTAINED_A_DAY):
        world.at(dice.uniform(0, DAY_S - 8000), lambda node=world.by_name[name]: world.maintain(node))  # type: ignore[misc]
    world.run()
    return world


def main() -> None:
    seeds = range(FIRST_SEED, FIRST_SEED + int(os.environ.get("HBOX_BENCH_DAYS", DAYS)))
    days: dict[str, list[World]] = {}
    events = spent = 0.0
    for seed in seeds:
        for policy in (HBox(shipped_rules()), CordonFatal(), ReportOnly()):
            started = time.process_time()
            days.setdefault(policy.name, []).append(day(policy, seed))
            if isinstance(policy, HBox):
                spent, events = spent + time.process_time() - started, events + policy.events
    print(
        f"{len(seeds)} days of {NODES} nodes with {CARDS} cards; {events / len(seeds):,.0f} events and {spent / len(seeds):.1f} s of a core a day"
    )
    _judged(days[HBox.name])
    _lost(days)


def _judged(days: Sequence[World]) -> None:
    """Print which faults HBox found, how many healthy nodes it disturbed, and how many faults it cured."""
    faults = [(world, fault) for world in days for fault in world.faults]
    missed = Counter(fault.kind.name for world, fault in faults if not found_after(world, fault))
    waits = sorted(wait for world, fault in faults if (wait := found_after(world, fault)))
    false = sum(len(set(world.disturbed) - {fault.node for fault in world.faults} - world.by_hand) for world in days)
    node_days = NODES * len(days)
    print(f"found {len(waits)} of {len(faults)} planted faults" + (f"; not: {dict(missed)}" if missed else ""))
    print(
        f"  after p50 {waits[len(waits) // 2]:.0f} s, p90 {waits[len(waits) * 9 // 10]:.0f} s (a state is read within 25 s; a port has to be down 4 min)"
    )
    print(f"healthy nodes closed or drained: {false}, {100 * false / node_days:.4f} % of node-days (bar: 0, below 0.1 %)")
    curable = [(world, fault) for world, fault in faults if fault.kind.cure is not Cure.HANDS]
    alone = [fault for world, fault in curable if returned_alone(world, fault)]
    print(
        f"returned without hands: {len(alone)} of {len(curable)} that a reset or a reboot cures, {100 * len(alone) / len(curable):.1f} % (bar: 90 %)"
    )
    left = Counter(f"{fault.kind.name} by {fault.by or 'nothing'}" for world, fault in curable if fault not in alone)
    if left:
        print(f"  not: {dict(left)}")


def found_after(world: World, fault: Fault) -> float | None:
    """Seconds from the fault to the first incident of hardware on its node."""
    return next((max(at - fault.at, 1e-3) for at in world.found.get(fault.node, ()) if at >= fault.at), None)


def returned_alone(world: World, fault: Fault) -> bool:
    """Whether a verb cured the fault, and its node is in use as a whole."""
    return fault.by in ("reset", "reboot") and world.closed.get(fault.node, Closed()) == Closed()


def _lost(days: dict[str, list[World]]) -> None:
    print(
        f"{'lost a day':28} {'card-hours':>10} {'job-hours':>10}   (of jobs {_hours(days[HBox.name], 2):,.0f} more by programs, and at starts)"
    )
    for name, worlds in days.items():
        print(f"{name:28} {_hours(worlds, 0):10.1f} {_hours(worlds, 1):10.1f}")
    for name, worlds in list(days.items())[1:]:
        times = [_hours(worlds, of) / _hours(days[HBox.name], of) for of in (0, 1)]
        least = sum(
            _losses(ours)[of] <= _losses(theirs)[of]
            for ours, theirs in zip(days[HBox.name], worlds, strict=True)
            for of in (0, 1)
        )
        print(
            f"{name}: {times[0]:.2f} times the card-hours, {times[1]:.2f} times the job-hours; hbox loses less in {least} of {2 * len(worlds)}"
        )


def _hours(worlds: Sequence[World], of: int) -> float:
    return sum(_losses(world)[of] for world in worlds) / 3600 / len(worlds)


def _losses(world: World) -> tuple[float, float, float]:
    """Card-seconds out of use, of jobs stopped by hardware or the policy, and of jobs otherwise."""
    return world.card_s, world.gang_s[True], world.gang_s[False]
