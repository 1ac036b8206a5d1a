"""Domains of the fabric that the places of a plan have to keep, for the ledger, which checks the plan when the fabric has changed meanwhile.

A gang that has to be in one domain (hard, singleSwitch) names the widest one that it may be in and that has all its places; so do its sub-gangs with
constraints of their own. All other gangs name none: for them the fabric is a preference.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hbox_common.events import PlanDomain
from hbox_common.model import Job

from ..cluster.entities import Gang, Member, SubGang
from ..cluster.fabrics import Fabrics
from ..queueing.jobs import Entry
from ..topology.constraints import concerned, constraint_of
from ..topology.known import KnownTree
from ..topology.tree import Tree

if TYPE_CHECKING:
    from .outcomes import PodPlacement


class PlanDomains:
    """Of the fabric as the scheduler knows it."""

    def __init__(self, tree: KnownTree, fabrics: Fabrics, *, heeded: Callable[[], bool]) -> None:
        """`heeded`: returns whether the policy applies jobs' topology constraints."""
        self._tree, self._fabrics, self._heeded = tree, fabrics, heeded

    def of(self, entry: Entry, places: "Sequence[Member | PodPlacement]") -> tuple[PlanDomain, ...] | None:
        """For these places, in their order. None = they are in no domain that the job may be in."""
        job = entry.job
        if job.topology is None and not job.sub_gangs and not job.annotations:
            return ()
        gang = _gang_of(job, places)
        if not concerned(gang) or not self._heeded():
            return ()
        subjects: list[tuple[SubGang | None, tuple[int, ...]]] = [(None, ())]
        by_sub_gang: dict[int, tuple[SubGang, list[int]]] = {}
        for number, one in enumerate(places):
            if isinstance(one, Member) and one.sub_gang is not None and one.sub_gang.policy is not None:
                by_sub_gang.setdefault(id(one.sub_gang), (one.sub_gang, []))[1].append(number)
        subjects += [(sub_gang, tuple(numbers)) for sub_gang, numbers in by_sub_gang.values()]
        found: list[PlanDomain] = []
        for sub_gang, numbers in subjects:
            rows = {places[number].row for number in numbers} if numbers else {one.row for one in places}
            domain = self._domain(gang, sub_gang, rows)
            if domain is None:
                return None
            if domain and (source := self._fabrics.source_of(domain)) is not None:
                found.append(PlanDomain(fabric=source[0], domain=domain, version=source[1], placements=numbers))
        return tuple(found)

    def _domain(self, gang: Gang, sub_gang: SubGang | None, rows: set[int]) -> str | None:
        """The widest domain that is allowed and has these rows; "" = any; None = there is none."""
        tree = self._tree.tree
        constraint = constraint_of(tree, gang, sub_gang)
        if constraint is None or not constraint.hard:
            return ""
        lowest = tree.lowest(rows)
        if tree.tiers[lowest] > constraint.ceiling:
            return "" if constraint.met_by_one_node and tree.is_one_loose_node(rows) else None
        return _widest(tree, lowest, constraint.ceiling)


def _widest(tree: Tree, domain: int, ceiling: int) -> str:
    while (above := int(tree.parents[domain])) >= 0 and tree.tiers[above] <= ceiling:
        domain = above
    return "" if domain == tree.root else tree.names[domain]


def _gang_of(job: Job, places: "Sequence[Member | PodPlacement]") -> Gang:
    """What the job wishes of the fabric."""
    for one in places:
        if isinstance(one, Member):
            return one.gang
    return Gang(
        job.id, job.namespace, job.name, job.queue, job.priority, job.min_member, job.created_at,
        topology=job.topology, annotations=job.annotations, sub_gang_policies=job.sub_gangs,
    )  # fmt: skip
