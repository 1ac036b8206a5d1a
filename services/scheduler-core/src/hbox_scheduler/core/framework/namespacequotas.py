"""Card quotas of namespaces in a session, with their use including the session's placements and nominations.

Victims count until they are gone: a quota never causes an eviction.
"""

from collections.abc import Iterable, Sequence

from hbox_common.model import CardQuotas, CardSlice, Resources, charge_all
from hbox_common.model.resources import add

from ..cluster import Columns
from ..cluster.entities import Gang, Member, Status
from ..cluster.snapshot import Cluster
from ..cluster.task import Task
from ..explain.labels import Label
from ..quotas.namespaces import NamespaceQuota


class NamespaceQuotas:
    """Truth value: whether any quota limits cards. If False, all checks are skipped."""

    def __init__(self, columns: Columns, cluster: Cluster) -> None:
        self._quotas = cluster.card_books.copy() if cluster.card_books is not None else CardQuotas()
        self._quota = NamespaceQuota(columns, self._quotas)
        self._uniform: dict[Gang, bool] = {}
        if cluster.card_quotas:
            held = [
                (member.namespace, member.task.requests, member.slices)
                for gang in cluster.gangs
                for member in gang.members
                if member.row >= 0
            ]
            self._quotas.adopt(cluster.card_quotas, held)
        self._limited = any(True for _ in self._quotas)

    def __bool__(self) -> bool:
        return self._limited

    def task(self, member: Member) -> Task:
        """Its task, kept from cards that its namespace's quotas do not pay for now."""
        need = self.need(member)
        return (
            self._quota.within_quota(member.task, self._quota.remaining(member.namespace), together=need)[0]
            if need
            else member.task
        )

    def most(self, member: Member) -> int | None:
        """How many members like it the quotas pay for, on cards of the size that they pay for now; None = no quota limits it."""
        need = self.need(member)
        if not need:
            return None
        return self._quota.within_quota(member.task, self._quota.remaining(member.namespace), together=need)[1]

    def limit_message(self, member: Member) -> str:
        """Which quota does not."""
        return self._quota.limit_message(member.namespace, member.task, together=self.need(member) or 1)

    def exceeded(self, gang: Gang) -> str:
        """Which quota does not pay for what the gang still needs, whichever cards it takes; empty where they all do."""
        need = max(gang.min_member - gang.ready - gang.waiting, 1)
        waiting = [member.task for member in gang.of(Status.PENDING) if gang.namespace in self._quotas]
        headroom = self._quotas.headroom(gang.namespace, self.least(waiting, need))
        return f"{Label.CARD_QUOTA}: {headroom.message}" if headroom.times == 0 else ""

    def least(self, tasks: Iterable[Task], need: int) -> Resources:
        """What `need` pods of these count at least, whichever cards they take."""
        least = sorted((self._quota.least(task) for task in tasks), key=lambda each: list(each.values()))
        asked: Resources = {}
        for each in least[:need]:
            add(asked, each)
        return asked

    def pays(self, namespace: str, requests: Resources, slices: Iterable[Sequence[CardSlice]]) -> bool:
        """Whether the quotas pay for all of these, of pods that request the same."""
        if namespace not in self._quotas:
            return True
        asked = charge_all(requests, slices)
        return not any(asked.values()) or self._quotas.headroom(namespace, asked).times != 0

    def book(self, members: Iterable[Member], times: int = 1) -> None:
        """They have, or are promised, their slices now; `times=-1`: no more."""
        if self._limited:
            for member in members:
                self._quotas.book(member.namespace, member.task.requests, member.slices, times)

    def need(self, member: Member) -> int:
        """Number of equal members that its gang still needs; 1 if they are not all equal, 0 if no quota limits them."""
        if member.task.cards is None or member.namespace not in self._quotas:
            return 0
        gang = member.gang
        uniform = self._uniform.get(gang)
        if uniform is None:
            uniform = self._uniform[gang] = all(one.task is member.task for one in gang.of(Status.PENDING))
        return max(gang.min_member - gang.ready - gang.waiting, 1) if uniform else 1
