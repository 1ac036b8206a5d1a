"""Undoing a turn that was decided and that the database does not take: what it changed is replaced by what the database has.

Nothing is computed backwards. The claims of the step are removed from all indices and sums, and their rows enter them as at a start; gangs and loans of the
step, and all nominations, are replaced by their rows. So the cost follows from the step and the nominations, not from the number of claims. What only this
process knows stays, as after a reload: pods that are gone, suspects, classes of jobs. Card numbers that the step assigned stay assigned, and the next turn
writes them.

A step that changed the rules of queues or the accounts of usage cannot be undone (`can_be_undone`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from hbox_common.events import HeldNomination
from hbox_common.model import ClaimState, PlanId, QueueName, Resources

from .claimrecord import ClaimRecord, Gang
from .evictions.beneficiaries import Beneficiaries
from .evictions.evicting import Evicting
from .evictions.nominations import Nominations
from .ledgerstate import LedgerState
from .step import Step


@dataclass(frozen=True, slots=True)
class Saved:
    """What the database has of the claims, gangs and queues of a step, and all nominations."""

    records: Sequence[ClaimRecord]
    gangs: Sequence[Gang]
    borrowed: Mapping[QueueName, Resources]
    nominations: Sequence[HeldNomination]
    unread: Sequence[PlanId]  #: nominations whose rows cannot be read


def can_be_undone(step: Step) -> bool:
    return step.usage is None and not step.ruled


def undo(state: LedgerState, step: Step, saved: Saved) -> None:
    """Replace what `step` changed by `saved`. The step is complete, and `can_be_undone`."""
    changed = {id: record.claim for id, record in (*step.made.items(), *step.touched.items())}
    nodes = {claim.node for claim in changed.values()}
    suspects = state.suspects.keys() & changed.keys()
    unseen = {id: state.unseen[id] for id in changed if id in state.unseen}
    unplaced = [fact for node in nodes for fact in state.unplaced.get(node, {}).values()]
    classes = {record.claim.job: state.class_quotas.classes.get(record.claim.job, "") for record in saved.records}
    leaving = [id for id in state.evicting.claims() if id not in changed]
    for id in changed:
        if (record := state.live.get(id)) is not None:
            state.take_out(record)
    for job, priority_class in classes.items():
        state.class_quotas.name(job, priority_class)
    for record in saved.records:
        state.take_in(record)
        leaving.append(record.claim.id)
    state.index = step.first
    state.suspects.update(dict.fromkeys(id for id in suspects if id in state.live))
    if seen := {id: at for id, at in unseen.items() if id in state.live and state.live[id].claim.state is ClaimState.POSTED}:
        state.unseen = dict(sorted({**state.unseen, **seen}.items(), key=itemgetter(1)))
    for fact in unplaced:
        if fact.uid in state.by_pod:
            state.unplaced.setdefault(fact.node, {})[fact.uid] = fact
            state.described.add(fact.node)
    state.look_at |= nodes
    known = {job: state.gangs.pop(job) for job in step.gangs if job in state.gangs}
    for gang in saved.gangs:
        if gang.job in state.jobs:
            state.gangs[gang.job] = gang
            gang.keep(known.get(gang.job))
    for queue in step.queues:
        state.borrowed.pop(queue, None)
    state.borrowed.update((queue, dict(amounts)) for queue, amounts in saved.borrowed.items())
    state.evicting, state.beneficiaries, state.nominations = Evicting(), Beneficiaries(), Nominations()
    for id in leaving:
        record = state.live[id]
        if record.claim.state is ClaimState.POSTED and record.reason:
            state.evicting.add(record)
    state.load_nominations(saved.nominations)
    for plan in saved.unread:
        state.nominations.set_aside(plan)
    state.numbers.give_back(step.names)
