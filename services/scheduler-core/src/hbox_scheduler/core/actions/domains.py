"""Gangs that care where in the fabric they are: their turns in allocate.

Domains are tried as the policy's gradients say. Equal members are one problem, decided at once and exactly (`topology.choose`); members of
several kinds are placed kind by kind, the largest first, on trial; members whose places depend on each other's (affinity, spread, ports) one by
one. Equal sub-gangs are one problem too, in units of sub-gangs. What is free now comes before what will be.

A gang's places are one statement: whole, or without a trace.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..cluster.entities import HOLDING, Gang, Member, SubGang
from ..framework.basefits import capacity_when_empty
from ..framework.statement import Statement
from ..topology.choose import Survey, choose, ranked
from ..topology.constraints import TopologyConstraint, constraint_of
from ..topology.spread import SpreadLevels
from ..topology.units import share_out, used_by_tier
from .allocator import Allocator, When
from .mixtures import Mixtures
from .pending import PendingMembers, needed, there

if TYPE_CHECKING:
    from ..framework.session import Session


#: Domains of one tier that hold a gang with sub-gangs, and are compared before one is taken.
_COMPARED = 4


class Domains:
    """On one session."""

    def __init__(self, session: "Session", allocator: Allocator | None = None) -> None:
        self._session = session
        self._tree = session.tree
        self._allocator = allocator or Allocator(session)
        self._mixtures = Mixtures(session, self._allocator)

    def turn(self, pending: PendingMembers) -> bool:
        """One turn of a gang. Returns whether it got anything, so that another turn makes sense."""
        session, gang = self._session, pending.gang
        if gang.waiting and session.pipelined(gang):
            return False  # it has been promised all that it needs
        for wanted in self._servings(pending):
            statement = session.statement()
            if self._as_promised(statement, gang, wanted) or self._attempt(statement, gang, wanted):
                pending.drop(member for done in statement.operations for member in done.members)
                if session.ready(gang):
                    self._remember(gang)
                    statement.commit()
                return True
            statement.discard()
        self._explain(pending)
        return False

    def _servings(self, pending: PendingMembers) -> Iterator[dict[SubGang, list[Member]]]:
        """What to try for, one after the other until something works: what makes the gang ready; of a gang that is, the next members of
        one of its sub-gangs."""
        session, gang = self._session, pending.gang
        if not session.ready(gang):
            if wanted := needed(session, pending):
                yield wanted
            return
        for sub_gang in sorted(pending.by_sub_gang, key=session.sub_gang_key):
            if members := pending.by_sub_gang[sub_gang]:
                short = max(sub_gang.size - there(sub_gang), 1) if sub_gang.policy is not None else 1
                if short <= len(members):
                    yield {sub_gang: members[:short]}

    def place_in(self, statement: Statement, gang: Gang, wanted: dict[SubGang, list[Member]], domain: int, when: When) -> bool:
        """All of these members inside one domain, by the wishes of their gang, or nothing."""
        session = self._session
        groups = [[domain]] if not session.topological else self._within(domain, self._groups(session.gradients(None, gang)))
        apart = any(policy.topology is not None for policy in gang.sub_gang_policies)
        mark = statement.mark()
        for choice in [[[one]] for one in _flat(groups)] if apart else [groups]:
            if choice and self._place(statement, gang, wanted, choice, when=when) and self._enough(gang):
                return True
            statement.rollback(mark)
        return False

    def _as_promised(self, statement: Statement, gang: Gang, wanted: dict[SubGang, list[Member]]) -> bool:
        """The places that were made free for them in an earlier cycle, if all are there and where the gang may be."""
        members = [member for members in wanted.values() for member in members]
        if not self._allocator.take_nominated(statement, members) or not self._enough(gang) or not self._in_bounds(gang):
            statement.rollback()
            return False
        return True

    def _in_bounds(self, gang: Gang) -> bool:
        subjects: list[tuple[SubGang | None, list[Member]]] = [(None, gang.members)]
        subjects += [(sub_gang, sub_gang.members) for sub_gang in gang.sub_gangs]
        for sub_gang, members in subjects:
            constraint = constraint_of(self._tree, gang, sub_gang)
            rows = [member.row for member in members if member.row >= 0]
            if (
                constraint is not None
                and constraint.hard
                and rows
                and not (constraint.met_by_one_node and self._tree.is_one_loose_node(rows))
                and (
                    self._tree.tiers[lowest := self._tree.lowest(rows)] > constraint.ceiling
                    or self._tree.names[lowest] in self._session.cluster.facts.fabrics.old
                )
            ):
                return False
        return True

    def _attempt(self, statement: Statement, gang: Gang, wanted: dict[SubGang, list[Member]]) -> bool:
        for when in (When.NOW, When.LATER):
            if when is When.LATER and not self._session.columns.leaving.any():
                break
            for choices, scores in self._outer(gang, wanted, when=when):
                if self._best(statement, gang, wanted, choices, scores, when=when):
                    return True
            if self._on_one_node(statement, gang, wanted, when=when) and self._enough(gang):
                return True
            statement.rollback()
        return False

    def _on_one_node(self, statement: Statement, gang: Gang, wanted: dict[SubGang, list[Member]], *, when: When) -> bool:
        """All on one node outside of the fabric, best fit first, if that meets the gang's constraint."""
        constraint = constraint_of(self._tree, gang)
        if constraint is None or not constraint.met_by_one_node or any(policy.topology for policy in gang.sub_gang_policies):
            return False
        fits = self._tree.loose()
        if held := {member.row for member in gang.members if member.status in HOLDING}:
            fits &= np.isin(np.arange(len(fits)), list(held)) if len(held) == 1 else False
        if not fits.any():
            return False
        members = [member for members in wanted.values() for member in members]
        kinds = self._allocator.kinds(members)
        rooms = [self._allocator.capacities(kind[0], gang, when).room for kind in kinds]
        for room, kind in zip(rooms, kinds, strict=True):
            fits &= room[: len(fits)] >= len(kind)
        rows = np.flatnonzero(fits)
        for row in rows[np.argsort(rooms[0][rows], kind="stable")][:_COMPARED].tolist():
            mask = np.zeros(self._tree.rows, dtype=np.bool_)
            mask[row] = True
            if self._allocator.take_one_by_one(statement, members, [mask], when):
                return True
            statement.rollback()
        return False

    def _best(
        self,
        statement: Statement,
        gang: Gang,
        wanted: dict[SubGang, list[Member]],
        choices: list[list[list[int]]],
        scores: Mapping[int, float],
        *,
        when: When,
    ) -> bool:
        """Of the first few choices that work the one that uses the fewest domains tier by tier; of these the best by the policy's scores, where domains are
        chosen by them (`TopologyConstraint.fullest`); then the one with the fewest nodes."""
        good: list[tuple[tuple[int, ...], float, int, int]] = []
        members = [member for members in wanted.values() for member in members]
        for number, choice in enumerate(choices):
            if self._place(statement, gang, wanted, choice, when=when) and self._enough(gang):
                if len(choices) == 1:
                    return True
                *domains, nodes = self._shape(members)
                good.append((tuple(domains), -scores.get(choice[0][0], 0.0), nodes, number))
            statement.rollback()
            if len(good) == _COMPARED:
                break
        return bool(good) and self._place(statement, gang, wanted, choices[min(good)[-1]], when=when)

    def _shape(self, members: Sequence[Member]) -> tuple[int, ...]:
        """Domains that are used, and nodes."""
        used = np.zeros(self._tree.rows, dtype=np.bool_)
        used[[member.row for member in members]] = True
        return (*used_by_tier(self._tree, used), int(np.count_nonzero(used)))

    def _enough(self, gang: Gang) -> bool:
        return self._session.ready(gang) or self._session.pipelined(gang)

    def _outer(
        self, gang: Gang, wanted: dict[SubGang, list[Member]], *, when: When
    ) -> Iterator[tuple[list[list[list[int]]], Mapping[int, float]]]:
        """Choices of domains (grouped by tier) in which the whole gang may be; of the first list with one that works the best is taken. Where the gang
        has no sub-gangs with a wish of their own there is one choice, all domains, since the best of them is found at once. Else each domain is one. With
        the policy's scores of the domains, where these decide."""
        groups = self._groups(self._session.gradients(None, gang))
        if not any(policy.topology is not None for policy in gang.sub_gang_policies):
            yield [groups], {}
            return
        constraint = constraint_of(self._tree, gang) or TopologyConstraint(
            False, int(self._tree.tiers[-1]), 0, SpreadLevels.LEAVES
        )
        constraint = replace(constraint, fullest=not constraint.tight)
        kinds = self._allocator.kinds(member for members in wanted.values() for member in members)
        surveys = [(Survey(self._tree, self._allocator.capacities(members[0], gang, when)), len(members)) for members in kinds]
        for group in groups:
            fitting = [domain for domain in group if all(survey.room[domain] >= need for survey, need in surveys)]
            scores = self._scores(None, gang, fitting)
            order = ranked(*surveys[0], constraint, group=fitting, scores=scores)
            yield [[[domain]] for domain in order], scores if constraint.fullest else {}

    def _place(
        self, statement: Statement, gang: Gang, wanted: dict[SubGang, list[Member]], groups: list[list[int]], *, when: When
    ) -> bool:
        """All that is wanted, inside one of the domains."""
        constraint = constraint_of(self._tree, gang)
        if not any(sub_gang.policy is not None and sub_gang.policy.topology is not None for sub_gang in wanted):
            members = [member for members in wanted.values() for member in members]
            return self._seat(
                statement, members, constraint, groups=groups, scores=self._scores(None, gang, _flat(groups)), when=when
            )
        outer = groups[0][0]
        mark = statement.mark()
        for units in (True, False):
            if all(
                self._seat_units(statement, gang, batch, outer, when=when)
                if len(batch) > 1
                else self._seat_sub_gang(statement, *batch[0], outer, when=when)
                for batch in self._batches(wanted, units=units)
            ):
                return True
            statement.rollback(mark)
        return False

    def _batches(self, wanted: dict[SubGang, list[Member]], *, units: bool) -> list[list[tuple[SubGang, list[Member]]]]:
        """Sub-gangs, the largest first; with `units` equal ones that are to be placed together, else in the order of service."""
        batches: dict[object, list[tuple[SubGang, list[Member]]]] = {}
        for sub_gang, members in wanted.items():
            kinds = self._allocator.kinds(members)
            batchable = units and len(kinds) == 1 and not any(member.row >= 0 for member in sub_gang.members)
            own = sub_gang.policy is not None and sub_gang.policy.topology is not None
            key = (id(sub_gang.policy), id(members[0].task), len(members)) if batchable and own else id(sub_gang)
            batches.setdefault(key, []).append((sub_gang, members))
        found = list(batches.values())
        if units:
            found.sort(key=lambda batch: -sum(self._allocator.size(member) for member in batch[0][1]))
        return found

    def _seat_sub_gang(self, statement: Statement, sub_gang: SubGang, members: list[Member], outer: int, *, when: When) -> bool:
        gang = sub_gang.gang
        groups = self._within(outer, self._groups(self._session.gradients(sub_gang, gang)))
        constraint = constraint_of(self._tree, gang, sub_gang)
        scores = self._scores(sub_gang, gang, _flat(groups))
        return self._seat(statement, members, constraint, groups=groups, scores=scores, when=when)

    def _seat_units(
        self, statement: Statement, gang: Gang, batch: list[tuple[SubGang, list[Member]]], outer: int, *, when: When
    ) -> bool:
        """Equal sub-gangs, each in one of the widest domains that it may be in: the fewest such domains, then each sub-gang in its own."""
        tree = self._tree
        first, members = batch[0]
        constraint = constraint_of(tree, gang)
        shares = share_out(
            tree,
            self._allocator.capacities(members[0], gang, when),
            outer,
            domains=_flat(self._within(outer, self._groups(self._session.gradients(first, gang)))),
            size=len(members),
            count=len(batch),
            levels=constraint.levels if constraint is not None else SpreadLevels.LEAVES,
        )
        first_of = 0
        for domain, count in shares or ():
            mine = batch[first_of : first_of + count]
            first_of += count
            if len(set(tree.leaves()[tree.nodes(domain)].tolist())) == 1:  # together: all of it is one leaf
                together = [member for _, own in mine for member in own]
                good = self._seat(
                    statement, together, constraint_of(tree, gang, first), groups=[[domain]], scores={}, when=when
                )
            else:
                good = all(self._seat_sub_gang(statement, sub_gang, own, domain, when=when) for sub_gang, own in mine)
            if not good:
                return False
        return shares is not None

    def _seat(
        self,
        statement: Statement,
        members: list[Member],
        constraint: TopologyConstraint | None,
        *,
        groups: list[list[int]],
        scores: dict[int, float],
        when: When,
    ) -> bool:
        """Members of one gang or sub-gang, all of them, in one of the domains."""
        tree, allocator = self._tree, self._allocator
        constraint = constraint or TopologyConstraint(False, int(tree.tiers[-1]), 0, SpreadLevels.LEAVES)
        kinds = allocator.kinds(members)
        gang = members[0].gang
        surveys = [Survey(tree, allocator.capacities(kind[0], gang, when)) for kind in kinds]
        if len(kinds) == 1 and not allocator.entangled(members):
            counts = choose(surveys[0], len(members), constraint, groups=groups, scores=scores)
            return counts is not None and allocator.take(statement, members, counts, when)
        mark = statement.mark()
        for group in groups:
            fitting = [d for d in group if all(one.room[d] >= len(kind) for one, kind in zip(surveys, kinds, strict=True))]

            def place(domain: int) -> bool:
                if allocator.entangled(members):
                    return self._one_by_one(statement, members, domain, surveys[0], when)
                return self._mixtures.place(statement, kinds, domain, constraint, when)

            order = ranked(surveys[0], len(kinds[0]), constraint, group=fitting, scores=scores)
            if self._in_best(statement, members, order, place):
                return True
            statement.rollback(mark)
        return False

    def _in_best(
        self, statement: Statement, members: Sequence[Member], order: Sequence[int], place: Callable[[int], bool]
    ) -> bool:
        """Of the first few domains in which `place` finds room for all members the one where they use the fewest domains, tier by tier, then the fewest nodes.
        A leaf is taken at once: they are ranked."""
        mark = statement.mark()
        good: list[tuple[tuple[int, ...], int, int]] = []
        for number, domain in enumerate(order):
            if place(domain):
                good.append((self._shape(members), number, domain))
                if len(order) == 1 or (len(good) == 1 and self._tree.is_leaf(domain)):
                    return True
            statement.rollback(mark)
            if len(good) == _COMPARED:
                break
        return bool(good) and place(min(good)[2])

    def _one_by_one(self, statement: Statement, members: list[Member], domain: int, survey: Survey, when: When) -> bool:
        """Leaf after leaf, those that the gang has first, then the one with the most room; where that does not work, or pods are to be spread, anywhere."""
        mark, inside, leaves = statement.mark(), self._tree.mask(domain), self._tree.leaves()
        if not any(member.constraints.spread for member in members):
            one_a_node = any(member.constraints.anti_affinity for member in members)
            room = np.bincount(
                leaves, weights=np.where(inside, np.minimum(survey.capacities.room, 1 if one_a_node else 1 << 30), 0)
            )
            order = np.lexsort((-room, ~survey.leaf_taken)).tolist()
            masks = [inside & (leaves == leaf) for leaf in order if room[leaf]]
            if self._allocator.take_one_by_one(statement, members, masks, when):
                return True
            statement.rollback(mark)
        return self._allocator.take_one_by_one(statement, members, [inside], when)

    # Domains by number.

    def _groups(self, gradients: Sequence[Sequence[str]]) -> list[list[int]]:
        return [[self._tree.index[name] for name in group] for group in gradients]

    def _within(self, outer: int, groups: list[list[int]]) -> list[list[int]]:
        """Those inside `outer`; where all of `outer` is in one of them, `outer` too."""
        tree = self._tree
        inside = tree.sums(tree.mask(outer)) == tree.sizes
        around = tree.holding(tree.nodes(outer).tolist())
        found = [[domain for domain in group if inside[domain]] for group in groups]
        if any(around[domain] for group in groups for domain in group) and not any(outer in group for group in found):
            found.append([outer])
        return [group for group in found if group]

    def _scores(self, sub_gang: SubGang | None, gang: Gang, domains: Sequence[int]) -> dict[int, float]:
        names = self._tree.names
        found = self._session.domain_scores(sub_gang, gang, [names[domain] for domain in domains])
        return {domain: found[names[domain]] for domain in domains}

    # Afterwards.

    def _remember(self, gang: Gang) -> None:
        """In which domains the gang and its sub-gangs are."""
        subjects: list[Gang | SubGang] = [gang, *(one for one in gang.sub_gangs if one.policy is not None)]
        for subject in subjects:
            rows = [member.row for member in subject.members if member.status in HOLDING]
            if rows:
                lowest = self._tree.lowest(rows)
                subject.allocated_domain = self._tree.names[lowest] if lowest != self._tree.root else ""

    def _explain(self, pending: PendingMembers) -> None:
        """Say so where it is the fabric that has no room, not the nodes."""
        session, gang, tree = self._session, pending.gang, self._tree
        wanted = needed(session, pending)
        if session.ready(gang) or not wanted:
            return
        subjects: list[tuple[SubGang | None, list[Member]]] = [(None, [m for members in wanted.values() for m in members])]
        subjects += [(sub_gang, members) for sub_gang, members in wanted.items() if sub_gang.policy is not None]
        for sub_gang, members in subjects:
            constraint = constraint_of(tree, gang, sub_gang)
            if constraint is not None and constraint.hard and (why := self._lack(members, constraint)):
                whose = "" if sub_gang is None else f" of sub-group {sub_gang.name}"
                session.outcome.verdicts[gang.id] = why.format(pods=f"{len(members)} pods{whose}")
                return

    def _lack(self, members: list[Member], constraint: TopologyConstraint) -> str:
        """Why no domain has room for all of these members: either all nodes together have, or no domain would have if it were empty. "" otherwise."""
        tree = self._tree
        if tree.root == 0:
            return "TopologyUnknown: {pods} have to be in one domain of the fabric, and there are no HyperNodes"
        rooms = [
            (tree.sums(self._allocator.capacities(kind[0], kind[0].gang, When.NOW).room), len(kind))
            for kind in self._allocator.kinds(members)
        ]
        old = self._session.cluster.facts.fabrics.old
        if old and all(
            tree.names[d] in old for d in np.flatnonzero((tree.tiers <= constraint.ceiling) & (tree.sizes > 0)).tolist()
        ):
            return f"TopologyOld: {{pods}} have to be in one domain of the fabric, and {next(iter(old.values()))}"
        allowed = np.flatnonzero(tree.tiers <= constraint.ceiling)
        if not len(allowed):
            return ""
        where = f"TopologyFull: {{pods}} have to be in one domain of tier {constraint.ceiling} or lower"
        if any(room[tree.root] < count for room, count in rooms):
            if len(rooms) > 1 or members[0].gang.holding:
                return ""
            empty = tree.sums(capacity_when_empty(self._session.columns, members[0].task))
            best = int(allowed[empty[allowed].argmax()])
            if empty[best] >= len(members):
                return ""
            return f"{where}; the best, {tree.names[best]}, has room for no more than {empty[best]} even when empty"
        if len(rooms) > 1:
            return f"{where}; none has room for all of them"
        room, count = rooms[0]
        best = int(allowed[room[allowed].argmax()])
        if room[best] >= count:
            return ""
        return f"{where}; the best, {tree.names[best]}, has room for {room[best]}, all nodes together for {room[tree.root]}"


def _flat(groups: Sequence[Sequence[int]]) -> list[int]:
    return [domain for group in groups for domain in group]
