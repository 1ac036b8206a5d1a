"""Non-preemptible pods of a saved cluster by the services' rule: by queue and class, in the order in which pods started, and not by annotations of tenants
(ADR 33). No object records the ledger's judgement, so this module repeats it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

from hbox_common.model import Held, JobId, Lending, QueueName, QueueTree, Resources
from hbox_common.model.lending import may_stay
from hbox_common.model.resources import add
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.entities import HOLDING, Gang, Member
from hbox_scheduler.core.framework.guarantees import held_of


def protect(
    gangs: Sequence[Gang], classes: Mapping[JobId, str], offered: set[JobId], queues: QueueTree, columns: Columns
) -> None:
    """Set whether members of HBox's gangs are preemptible. classes: PriorityClass of each gang; offered: gangs that their tenants declare preemptible, of any
    class."""
    holding: list[Member] = []
    for gang in gangs:
        if gang.queue:
            gang.preemptable = True
            for member in gang.members:
                member.preemptable = True
            holding += [member for member in gang.members if member.status in HOLDING and member.row >= 0]
    holding.sort(key=lambda member: (member.started_at or 0.0, member.created_at, member.gang.id, member.name))
    judged: list[Held] = []
    lending = Lending(queues, lambda: judged, columns.described_nodes)
    protected: dict[QueueName, Counter[str]] = {}
    for (_, id), together in groupby(holding, key=lambda member: (member.started_at or 0.0, member.gang.id)):
        members = [*together]
        gang, asked = members[0].gang, Resources()
        for member in members:
            add(asked, held_of(member, columns).requests)
        if (
            id not in offered
            and not members[0].task.offline
            and queues.non_preemptible(gang.queue, classes[id])
            and not any(queues.borrows(gang.queue, member.pool) for member in members)
            and may_stay(queues, lending, lambda name: protected.get(name, Counter()), gang.queue, asked)
        ):
            for member in members:
                member.preemptable = False
            for name in queues.path(gang.queue):
                protected.setdefault(name, Counter()).update(asked)
        for member in members:
            held = held_of(member, columns)
            judged.append(held)
            lending.book(held)
