"""Rules by which other schedulers select nodes for a job's pods, on counts of free cards (sources: leaf-cover, volcano-network-topology,
kueue-tas); the code is ours.

Each rule returns the number of pods per node, `[N]`, or None if the pods do not fit. All of them may use the whole cluster; topology wishes are soft.
"""

import random
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from hbox_scheduler.core.cluster.arrays import Ints

from .workload import CARDS, Fabric, Work

#: Free cards of each node `[N]`, and the job.
Rule: TypeAlias = Callable[[Fabric, Ints, Work], Ints | None]


def leaf_blind(seed: int) -> Rule:
    """kube-scheduler that packs (NodeResourcesFit, MostAllocated): pod by pod the fullest node that fits, of equal ones any."""
    dice = random.Random(seed)

    def place(fabric: Fabric, free: Ints, work: Work) -> Ints | None:
        left, counts = free.copy(), np.zeros(fabric.nodes, dtype=np.int64)
        for _ in range(work.pods):
            fits = np.flatnonzero(left >= work.cards)
            if not len(fits):
                return None
            best = fits[left[fits] == left[fits].min()]
            row = int(best[dice.randrange(len(best))])
            left[row] -= work.cards
            counts[row] += 1
        return counts

    return place


def slurm_tree(fabric: Fabric, free: Ints, work: Work) -> Ints | None:
    """topology/tree: the lowest switch below which the job fits, of several the one with the least room; in it leaf after leaf, the tightest that holds what
    is left, and where none does the largest. Nodes in their order."""
    room = free // work.cards
    for of in (fabric.unit, fabric.pod, np.zeros(fabric.nodes, dtype=np.int64)):
        rooms = np.bincount(of, room).astype(np.int64)
        fit = np.flatnonzero(rooms >= work.pods)
        if len(fit):
            below = of == fit[rooms[fit].argmin()]
            return _by_best_fit(fabric, np.where(below, room, 0), work.pods, by_free=False)
    return None


def _by_best_fit(fabric: Fabric, room: Ints, pods: int, *, by_free: bool) -> Ints:
    """Units, and in them nodes, the fullest last: the tightest one that holds the rest, else the one with most room. by_free: nodes in that way too, else in
    their order."""
    counts = np.zeros(fabric.nodes, dtype=np.int64)
    rooms = np.bincount(fabric.unit, room).astype(np.int64)
    while pods > 0:
        holding = np.flatnonzero(rooms >= pods)
        unit = int(holding[rooms[holding].argmin()]) if len(holding) else int(rooms.argmax())
        rows = np.flatnonzero(fabric.unit == unit)
        take = min(pods, int(rooms[unit]))
        pods -= take
        rooms[unit] = 0
        while take > 0:
            here = room[rows]
            holding = np.flatnonzero(here >= take)
            tightest = int(holding[here[holding].argmin()]) if len(holding) else int(here.argmax())
            at = tightest if by_free else int(np.flatnonzero(here)[0])
            counts[rows[at]] = min(take, int(here[at]))
            take -= int(counts[rows[at]])
            rows = np.delete(rows, at)
    return counts


def volcano(fabric: Fabric, free: Ints, work: Work) -> Ints | None:
    """network-topology-aware: the lowest tier with a HyperNode that fits; of these the fullest with the job in it (binpack). In it pod by pod the node nearest
    to where the job is (the lowest HyperNode that has all of its nodes so far); of equally near ones those of the HyperNode with most of its pods, then the
    fullest node. A pod alone goes where its HyperNodes are fullest, the tiers fading by 0.8."""
    tiers = (fabric.unit, fabric.pod, np.zeros(fabric.nodes, dtype=np.int64))
    full = np.full(fabric.nodes, CARDS, dtype=np.int64)
    used = full - free
    packed = [(np.bincount(of, used) + work.all_cards) / np.bincount(of, full) for of in tiers]
    if work.pods == 1:
        score = sum(0.8**tier * packed[tier][of] for tier, of in enumerate(tiers[:2])) * 100 / 1.8
        score = np.where(free >= work.cards, score + 100 * (used + work.cards) / CARDS, -np.inf)
        counts = np.zeros(fabric.nodes, dtype=np.int64)
        counts[score.argmax()] = 1
        return counts if np.isfinite(score.max()) else None
    for tier, of in enumerate(tiers):
        rooms = np.bincount(of, free // work.cards)
        fit = np.flatnonzero(rooms >= work.pods)
        if len(fit):
            return _by_nearness(fabric, np.where(of == fit[packed[tier][fit].argmax()], free, 0), work)
    return None


def _by_nearness(fabric: Fabric, free: Ints, work: Work) -> Ints:
    left, counts = free.copy(), np.zeros(fabric.nodes, dtype=np.int64)
    in_unit = np.zeros(fabric.units, dtype=np.int64)
    for _ in range(work.pods):
        units = np.flatnonzero(in_unit)
        score = 100 * (CARDS - left + work.cards) / CARDS
        if len(units):
            pods = np.unique(fabric.pod[np.isin(fabric.unit, units)])
            near = np.zeros(fabric.nodes)
            if len(units) == 1:
                near = np.where(fabric.unit == units[0], 100.0, np.where(fabric.pod == pods[0], 200 / 3, 100 / 3))
            elif len(pods) == 1:
                near = np.where(fabric.pod == pods[0], 100.0, 100 / 3)
            best = (near == near[left >= work.cards].max()) & (left >= work.cards)
            if len(np.unique(fabric.unit[best])) > 1:
                near = near + np.where(best, 100 * in_unit[fabric.unit] / work.pods, 0.0)
            score = score + near
        row = int(np.where(left >= work.cards, score, -np.inf).argmax())
        left[row] -= work.cards
        counts[row] += 1
        in_unit[fabric.unit[row]] += 1
    return counts


def kueue(fabric: Fabric, free: Ints, work: Work) -> Ints | None:
    """Topology-aware scheduling, BestFit, `preferred` at the unit: the tightest domain of the lowest level that holds all; in it, level by level, those with
    most room, and as the last one the tightest that holds the rest. Jobs of one pod go by the profile for `unconstrained`: the domain with the least room that
    fits, level by level."""
    room = free // work.cards
    if int(room.sum()) < work.pods:
        return None
    if work.pods == 1:
        rows = np.arange(fabric.nodes)
        for of in (fabric.pod, fabric.unit):
            rooms = np.bincount(of[rows], room[rows])
            fit = np.flatnonzero(rooms > 0)
            rows = rows[of[rows] == fit[rooms[fit].argmin()]]
        fit = rows[room[rows] > 0]
        counts = np.zeros(fabric.nodes, dtype=np.int64)
        counts[fit[room[fit].argmin()]] = 1
        return counts
    allowed = room
    for of in (fabric.unit, fabric.pod):
        rooms = np.bincount(of, room)
        fit = np.flatnonzero(rooms >= work.pods)
        if len(fit):
            allowed = np.where(of == fit[rooms[fit].argmin()], room, 0)
            break
    else:
        allowed = np.where(np.isin(fabric.pod, _greedy(np.bincount(fabric.pod, room).astype(np.int64), work.pods)), room, 0)
    units = _greedy(np.bincount(fabric.unit, allowed).astype(np.int64), work.pods)
    return _by_best_fit(fabric, np.where(np.isin(fabric.unit, units), allowed, 0), work.pods, by_free=True)


def _greedy(rooms: Ints, need: int) -> list[int]:
    """Domains with most room first, the last one the tightest that holds the rest."""
    chosen: list[int] = []
    left = rooms.copy()
    while need > 0:
        holding = np.flatnonzero(left >= need)
        one = int(holding[left[holding].argmin()]) if len(holding) else int(left.argmax())
        need -= int(left[one])
        left[one] = 0
        chosen.append(one)
    return chosen


def rules(seed: int) -> Mapping[str, Rule]:
    return {"leaf-blind": leaf_blind(seed), "Slurm tree": slurm_tree, "Volcano": volcano, "Kueue TAS": kueue}
