"""Placement of gangs on a fabric of 10,240 cards: HBox's scheduler and the rules of others, on the same jobs (sources: leaf-cover).

C: units used, divided by the fewest possible at that moment; 1.000 is the limit. "in one": gangs in one unit, of those that are no larger than one. "spread":
units used, divided by those in an empty cluster, which shows how well the cluster is kept whole over time. "T/T best": predicted time of an all-reduce, divided
by that in an empty cluster, by cards. "whole": empty units, on average. "refused": jobs without a placement. Ranks follow the fabric for all, although of the
others only Slurm and Kueue order them.
"""

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from hbox_scheduler.app import calm_collector
from hbox_scheduler.core.cluster.arrays import Ints

from ..scheduler import report
from .measures import HEADS, Measures, total
from .ours import Ours
from .peers import Rule, rules
from .workload import CARDS, Fabric, Work, events, fabric

NODES = 1280
#: Nodes of a unit, units of a pod: SuperPODs of A100 and of H100.
SHAPES = ((20, 8), (32, 8))
LOADS = (0.70, 0.85, 0.95)
#: Gangs that are measured with each seed.
GANGS, SEEDS = 200, (1, 2, 3)


def measure(
    of: Fabric, *, load: float, gangs: int, seed: int, place: Callable[[Ints, Work], Ints | None], end: Callable[[Work], None]
) -> Measures:
    """One scheduler through all events."""
    free, where = np.full(of.nodes, CARDS, dtype=np.int64), dict[str, Ints]()
    out = Measures()
    for event in events(of.nodes * CARDS, load=load, measured=gangs, seed=seed):
        work = event.work
        if event.ends:
            if (counts := where.pop(work.name, None)) is not None:
                free += counts * work.cards
                end(work)
            continue
        started = time.process_time()
        counts = place(free, work)
        took = time.process_time() - started
        if counts is None:
            out.refused += event.measured
            continue
        assert int(counts.sum()) == work.pods
        if event.measured and work.pods > 1:
            out.add(of, free, work, counts)
            out.worst_s = max(out.worst_s, took)
        free -= counts * work.cards
        assert int(free.min()) >= 0
        where[work.name] = counts
    return out


def by_rule(of: Fabric, rule: Rule, *, load: float, gangs: int, seed: int) -> Measures:
    return measure(of, load=load, gangs=gangs, seed=seed, place=partial(rule, of), end=lambda _: None)


def by_hbox(of: Fabric, *, load: float, gangs: int, seed: int) -> Measures:
    ours = Ours(of)
    return measure(of, load=load, gangs=gangs, seed=seed, place=lambda _, work: ours.place(work), end=ours.end)


def main() -> None:
    calm_collector()  # as the service does
    for unit_nodes, pod_units in SHAPES:
        of = fabric(NODES, unit_nodes, pod_units)
        for load in LOADS:
            print(
                f"{NODES * CARDS:,} cards, units of {unit_nodes} nodes, {load:.0%} asked for, {GANGS * len(SEEDS)} gangs{'':5} {HEADS}"
            )
            for name, rule in rules(1).items():
                of_rule = total([by_rule(of, rule, load=load, gangs=GANGS, seed=seed) for seed in SEEDS])
                print(f"  {name:64} {of_rule.row()}", flush=True)
            mine = total([by_hbox(of, load=load, gangs=GANGS, seed=seed) for seed in SEEDS])
            print(f"  {'HBox':64} {mine.row()}", flush=True)
            report("  HBox: 1000 x C", 1000 * mine.used / mine.fewest, "", 1000, least=False)
            print(f"{'  HBox: slowest gang, submitted to claimed, processor':66} {1000 * mine.worst_s:>10,.1f} ms")
