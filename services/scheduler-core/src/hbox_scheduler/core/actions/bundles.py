"""Bundles of victims: each surplus member of a gang alone, or all its members together, which breaks the gang.

A broken gang is evicted whole, including its members in other domains, because the rest would be too few to run.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from ..cluster.arrays import Bools, Ints
from ..cluster.entities import HOLDING, Gang, Member, SubGang
from ..plugins.gang import roles_count

if TYPE_CHECKING:
    from ..framework.session import Session


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """Members that are evicted together or not at all."""

    members: tuple[Member, ...]
    breaks: bool  #: the eviction takes the gang below its minimum
    here: tuple[Member, ...]  #: the members inside the domain


def bundles_of(
    session: "Session", legal: Sequence[Member], inside: Bools, *, preemptor: Gang, need: Ints, breaking: bool
) -> list[Bundle]:
    """Bundles of the legal victims in one domain, `inside` `[N]`, in the order of eviction: all surplus before the first broken gang, then by queue and gang.
    Among gangs that the policy ranks equal, those come first that cover the most of the need `[R]` for each lost member."""
    by_gang: dict[Gang, list[Member]] = {}
    may_leave = set(map(id, legal))
    for member in session.victims_first([member for member in legal if inside[member.row]], preemptor=preemptor):
        by_gang.setdefault(member.gang, []).append(member)
    safe: list[Bundle] = []
    rest: list[Bundle] = []
    for gang, members in by_gang.items():
        spare = list(spared(gang, members))
        safe += [Bundle((member,), False, (member,)) for member in spare]
        if breaking and len(spare) < len(members) and all(id(member) in may_leave for member in gang.of(*HOLDING)):
            elsewhere = (member for member in gang.of(*HOLDING) if not inside[member.row])
            rest.append(Bundle((*members, *elsewhere), True, tuple(members)))
    asked = [(column, int(need[column])) for column in np.flatnonzero(need > 0).tolist()]
    equal_runs = groupby(rest, key=lambda bundle: (bundle.members[0].gang.queue, session.gang_key(bundle.members[0].gang)[:-2]))
    found = safe + [bundle for _, run in equal_runs for bundle in sorted(run, key=lambda bundle: -_worth(bundle, asked))]
    return sorted(found, key=lambda bundle: not bundle.members[0].task.offline)  # offline work comes before any surplus


def _worth(bundle: Bundle, asked: Sequence[tuple[int, int]]) -> float:
    """The part of the requested amounts (column, units) that the bundle covers, per member that its gang loses."""
    covered = sum(min(sum(int(member.request[column]) for member in bundle.here) / units, 1.0) for column, units in asked)
    return covered / max(bundle.members[0].gang.holding, 1)


def leaving(bundles: Iterable[Bundle]) -> list[Member]:
    """The victims of these bundles, each once: a broken gang's bundle contains its surplus again."""
    return list({id(member): member for bundle in bundles for member in bundle.members}.values())


def leaving_here(bundles: Iterable[Bundle]) -> list[Member]:
    """The victims of these bundles inside the domain, each once."""
    return list({id(member): member for bundle in bundles for member in bundle.here}.values())


def spared(gang: Gang, members: Iterable[Member]) -> Iterable[Member]:
    """Members that the gang can lose one after the other: it keeps minMember, the minimums of its roles and its full sub-gangs."""
    left = gang.ready
    roles = Counter(member.role for member in gang.members if member.status in HOLDING)
    there = {sub_gang: sum(member.status in HOLDING for member in sub_gang.members) for sub_gang in gang.sub_gangs}
    full: Counter[str] = Counter()  #: whole sub-gangs by policy
    for sub_gang, count in there.items():
        if sub_gang.policy is not None and count >= sub_gang.policy.size:
            full[sub_gang.policy.name] += 1
    for member in members:
        minimum = gang.min_task_member.get(member.role, 0) if roles_count(gang) else 0
        if left <= gang.min_member or roles[member.role] <= minimum or not _sub_gang_can_spare(member.sub_gang, there, full):
            continue
        if member.sub_gang is not None and (policy := member.sub_gang.policy) is not None:
            full[policy.name] -= there[member.sub_gang] == policy.size
            there[member.sub_gang] -= 1
        left -= 1
        roles[member.role] -= 1
        yield member


def _sub_gang_can_spare(sub_gang: SubGang | None, there: dict[SubGang, int], full: Counter[str]) -> bool:
    if sub_gang is None or sub_gang.policy is None or there[sub_gang] != sub_gang.policy.size:
        return True
    return full[sub_gang.policy.name] > sub_gang.policy.min_sub_gangs
