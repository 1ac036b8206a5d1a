"""Gangs all of whose members have places, kept from session to session, with the sums over them that plugins ask for.

The running service opens sessions many times a second over all that runs, and hardly any of it changes from one to the next. What is kept here is divided
into sub-gangs and counted once, is in `Session.gangs` like all others, and its sums are read as they are. A gang that a session may change other than by
operations that are told to its maker is not kept here: it is given to that session as the others are.
"""

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from hbox_common.model import JobId, QueueName, Resources
from hbox_common.model.resources import add

from .amounts import Asked
from .columns import Columns
from .entities import Gang, Member, form_sub_gangs
from .population import Population

#: Members that count alike in every sum: queue, task (by identity; its members keep it), whether they may be evicted, whether `enqueue` counts their gang
#: with its minimum, and cards by model.
CountKey: TypeAlias = tuple[QueueName, int, bool, bool, Asked]


class RunningGangs:
    """Gangs that run whole. Not to be changed while a session is on."""

    def __init__(self, columns: Columns) -> None:
        self.gangs: dict[JobId, Gang] = {}
        self.population = Population(columns, {})
        self.minimums: dict[QueueName, Resources] = {}  #: sums of minimums, of gangs that count with them
        self.unmet: Resources = {}  #: what such gangs have less than their minimums, resource by resource
        self._columns = columns
        self._alike: dict[CountKey, tuple[Member, int]] = {}

    def put(self, gang: Gang) -> None:
        """All of its members hold places, it is admitted, and its id is new here. What its minimum names has to have a column."""
        assert gang.id not in self.gangs
        form_sub_gangs(gang)
        gang.tally()
        self.gangs[gang.id] = gang
        self.population.put_all(gang.members)
        self._count(gang, 1)

    def take(self, job: JobId) -> Gang | None:
        """Out of here, if it is here."""
        gang = self.gangs.pop(job, None)
        if gang is not None:
            self.population.take_all(gang.members)
            self._count(gang, -1)
        return gang

    def alike(self) -> Iterator[tuple[Member, int]]:
        """One of each kind of members, and how many there are."""
        return iter(self._alike.values())

    def _count(self, gang: Gang, times: int) -> None:
        alike, minimum_counts = self._alike, gang.counts_minimum
        if minimum_counts:
            self._count_minimum(gang, times)
        for member in gang.members:
            key = gang.queue, id(member.task), member.preemptable, minimum_counts, member.models
            first, count = alike.get(key, (member, 0))
            if count + times:
                alike[key] = first, count + times
            else:
                del alike[key]

    def _count_minimum(self, gang: Gang, times: int) -> None:
        minimum = gang.counted_minimum
        columns = self._columns.resources
        held = np.sum([member.request for member in gang.members], axis=0)
        unmet = {name: units - int(held[columns[name]]) for name, units in minimum.items()}
        sums = self.minimums.setdefault(gang.queue, {})
        for into, amounts in ((sums, minimum), (self.unmet, unmet)):
            add(into, {name: units for name, units in amounts.items() if units > 0}, times)
            for name in [name for name, units in into.items() if not units]:
                del into[name]
        if not sums:
            del self.minimums[gang.queue]
