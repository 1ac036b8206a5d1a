"""Bugs for the machine to find: what somebody could break, one at a time, each with the invariant that it breaks."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from sqlalchemy import Connection, bindparam

from hbox_common.errors import Conflict
from hbox_common.events import BindOutcome, Outcome, Plan, PlanAnswer, PodRead, PodStanding
from hbox_common.model import (
    CardQuota,
    CardSlice,
    Claim,
    ClaimState,
    Held,
    Lending,
    PodFact,
    QueueName,
    QueueTree,
    Refusal,
    Resources,
    charge,
    lending,
    validate_claim,
)
from hbox_common.model.queuetree import Headroom
from hbox_common.model.rights import Standing
from hbox_common.store import Batch, Letter, Prepared
from hbox_common.store.prepared import Sent
from hbox_ledger.adapters import journal, load, tables
from hbox_ledger.core import arbitrate, decisions, guarantees, lifecycle, recovery
from hbox_ledger.core.accounts import loans
from hbox_ledger.core.accounts.demand import Demand
from hbox_ledger.core.claimrecord import ClaimRecord, Gang
from hbox_ledger.core.evictions import preemption
from hbox_ledger.core.evictions.beneficiaries import Beneficiaries
from hbox_ledger.core.ledgerstate import LedgerState
from hbox_ledger.core.step import Step
from hbox_ledger.ledger import Ledger, Turn

Bug = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Writes:
    """In the place of a prepared statement, on SQLite."""

    each: Callable[[Connection, Sequence[Any]], Sent]


def a_gang_starts_with_one_member_too_few(patch: pytest.MonkeyPatch) -> None:  # S6
    gang = arbitrate._gang

    def off_by_one(state: LedgerState, plan: Plan) -> Refusal | None:
        return gang(state, plan.model_copy(update={"min_member": plan.min_member - 1}))

    patch.setattr(arbitrate, "_gang", off_by_one)


def capability_ignores_pending_claims(patch: pytest.MonkeyPatch) -> None:  # S3
    queue = arbitrate._queue

    def forgetful(state: LedgerState, plan: Plan) -> Refusal | None:
        pending = [h.claim for h in state.live.values() if h.claim.state is ClaimState.PENDING]
        for claim in pending:
            state._use(claim, -1, state.counted(claim))
        try:
            return queue(state, plan)
        finally:
            for claim in pending:
                state._use(claim, 1, state.counted(claim))

    patch.setattr(arbitrate, "_queue", forgetful)


def walls_above_a_queue_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:  # S3
    room = QueueTree.headroom

    def low(self: QueueTree, name: QueueName, each: Resources, freed: Any = None) -> Headroom:
        alone = QueueTree({name: dict(self.own(name))})
        alone[name] = replace(self[name], parent="")
        return room(alone, name, each, freed or {})

    patch.setattr(QueueTree, "headroom", low)


def cards_are_not_counted_by_model(patch: pytest.MonkeyPatch) -> None:  # S3
    patch.setattr(preemption, "cards_by_model", lambda *_: {})


def quotas_of_namespaces_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:  # requirements A6
    patch.setattr(arbitrate, "_namespace", lambda *_: None)


def quotas_count_one_card_of_each_plan(patch: pytest.MonkeyPatch) -> None:  # requirements A6
    patch.setattr(arbitrate, "charge", lambda requests, slices: charge(requests, slices[:1]))


def books_that_are_read_anew_know_no_quotas(patch: pytest.MonkeyPatch) -> None:  # requirements A6
    limit = LedgerState.limit

    def at_the_start(self: LedgerState, quotas: Iterable[CardQuota]) -> set[str]:
        return limit(self, quotas) if isinstance(quotas, list) else set()

    patch.setattr(LedgerState, "limit", at_the_start)


def a_turn_whose_commit_failed_is_forgotten(patch: pytest.MonkeyPatch) -> None:  # S12, S18
    async def forget(self: Ledger, turn: Turn) -> None:
        self._pending, self._stale = None, False

    patch.setattr(Ledger, "_complete", forget)


def a_turn_that_was_committed_is_written_again(patch: pytest.MonkeyPatch) -> None:  # S12, S14
    async def write(self: Ledger, turn: Turn) -> None:
        try:
            await self._commit(turn)
        except journal.Repeated as e:
            raise Conflict("its answer is there already") from e
        self._finish(turn)

    patch.setattr(Ledger, "_complete", write)


def books_continue_after_an_older_head(patch: pytest.MonkeyPatch) -> None:  # S20
    adopt = Ledger._adopt

    def old(self: Ledger, turn: Turn, head: journal.Head) -> None:
        kept = replace(self._journal.head)
        adopt(self, turn, head)
        if turn.attempts:
            self._journal.head = kept

    patch.setattr(Ledger, "_adopt", old)


def guarantees_are_lent_for_good(patch: pytest.MonkeyPatch) -> None:  # S4
    patch.setattr(guarantees, "refuse", lambda *_: None)


def what_is_borrowed_is_never_taken(patch: pytest.MonkeyPatch) -> None:  # S4, S17
    patch.setattr(lending, "may_be_protected", lambda *_: True)


def queues_that_give_nothing_back_count_as_those_that_do(patch: pytest.MonkeyPatch) -> None:  # S4
    patch.setattr(Lending, "is_non_preemptible", lambda self, queue, *, preemptable: not preemptable)


def what_ends_stands_firm_for_ever(patch: pytest.MonkeyPatch) -> None:  # S4
    book = Lending.book

    def forgetful(self: Lending, held: Held, times: int = 1) -> None:
        if times > 0:
            book(self, held, times)

    patch.setattr(Lending, "book", forgetful)
    patch.setattr(Lending, "validate", lambda _: None)


def cards_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:  # S1
    patch.setattr(
        arbitrate, "validate_claim", lambda node, verdict, state, asked, _: validate_claim(node, verdict, state, asked, ())
    )


def plans_of_one_message_do_not_see_each_other(patch: pytest.MonkeyPatch) -> None:  # S1, S2
    nodes = arbitrate._nodes

    def blind(state: LedgerState, plan: Plan) -> Refusal | None:
        kept = {name: replace(one, used=dict(one.used), cards=dict(one.cards)) for name, one in state.by_node.items()}
        refusal = nodes(state, plan)
        if refusal is None:
            state.by_node = kept
        return refusal

    patch.setattr(arbitrate, "_nodes", blind)


def a_bind_of_unknown_outcome_frees_its_claim(patch: pytest.MonkeyPatch) -> None:  # S11, S13
    outcome = lifecycle.outcome

    def hasty(state: LedgerState, step: Step, result: Outcome) -> None:
        if result.outcome is BindOutcome.UNKNOWN:
            result = result.model_copy(update={"outcome": BindOutcome.CONFLICT})
        outcome(state, step, result)

    patch.setattr(lifecycle, "outcome", hasty)


def an_accepted_eviction_frees_its_claim(patch: pytest.MonkeyPatch) -> None:  # S13
    outcome = lifecycle.outcome

    def hasty(state: LedgerState, step: Step, result: Outcome) -> None:
        if result.outcome is BindOutcome.EVICTED:
            result = result.model_copy(update={"outcome": BindOutcome.GONE})
        outcome(state, step, result)

    patch.setattr(lifecycle, "outcome", hasty)


def a_deadline_frees_a_claim(patch: pytest.MonkeyPatch) -> None:  # S13
    def frees(state: LedgerState, step: Step, holding: ClaimRecord, reason: str, **_: object) -> None:
        if holding.claim.state is ClaimState.PENDING:
            lifecycle.end(state, step, holding, actor="ledger", cause=reason)
        else:
            decisions.take_back(state, step, holding, reason)

    patch.setattr(lifecycle, "take_back", frees)


def a_pod_that_cannot_be_read_counts_as_gone(patch: pytest.MonkeyPatch) -> None:  # S13
    read = lifecycle.read

    def hasty(state: LedgerState, step: Step, found: PodRead) -> None:
        if found.standing is PodStanding.UNKNOWN:
            found = found.model_copy(update={"standing": PodStanding.GONE})
        read(state, step, found)

    patch.setattr(lifecycle, "read", hasty)


def what_is_read_of_a_suspect_is_ignored(patch: pytest.MonkeyPatch) -> None:  # S11
    patch.setattr(lifecycle, "read", lambda *_: None)


def plans_of_other_epochs_are_judged(patch: pytest.MonkeyPatch) -> None:  # S14
    closed = arbitrate._closed
    patch.setattr(arbitrate, "_closed", lambda state, _, outdated: closed(state, state.epoch, outdated))


def nobody_looks_whether_another_ledger_has_begun(patch: pytest.MonkeyPatch) -> None:  # S14
    patch.setattr(journal, "_FENCED", Prepared(tables.ledger.update().values(idx=bindparam("last"))))


def an_answer_is_forgotten_with_the_process(patch: pytest.MonkeyPatch) -> None:  # S12, S18
    patch.setattr(load, "answers", lambda *_: {})
    patch.setattr(journal, "_ANSWERED", Writes(lambda connection, rows: Sent(len(rows))))


def messages_that_were_handled_are_handled_again(patch: pytest.MonkeyPatch) -> None:  # S12
    def add(batch: Batch, consumer: str, messages: Sequence[str], *, at: float, otherwise: Exception) -> None:
        batch.run(tables.inbox._insert, tables.inbox._rows(consumer, messages, at, b""))

    patch.setattr(tables.inbox, "results", lambda *_: {})
    patch.setattr(tables.inbox, "add", add)


def a_refusal_is_judged_anew(patch: pytest.MonkeyPatch) -> None:  # S12
    known, answered = load.answers, journal._ANSWERED

    def committed_only(connection: Connection, plans: Sequence[Any]) -> dict[Any, PlanAnswer]:
        return {id: answer for id, answer in known(connection, plans).items() if answer.committed}

    def rewritten(connection: Connection, rows: Sequence[Any]) -> Sent:
        for row in rows:
            connection.execute(tables.plan_answers.delete().where(tables.plan_answers.c.plan == row["plan"]))
        return answered.each(connection, rows)

    patch.setattr(load, "answers", committed_only)
    patch.setattr(journal, "_ANSWERED", Writes(rewritten))


def victims_are_evicted_in_vain(patch: pytest.MonkeyPatch) -> None:  # S7
    patch.setattr(preemption, "_in_vain", lambda *_: None)


def evictions_name_no_beneficiary(patch: pytest.MonkeyPatch) -> None:  # S7
    take_back = decisions.take_back

    def nameless(state: LedgerState, step: Step, holding: ClaimRecord, reason: str, **_: Any) -> None:
        take_back(state, step, holding, reason)

    patch.setattr(preemption, "take_back", nameless)


def whoever_leaves_leaves_whatever_becomes_of_those_for_whom(patch: pytest.MonkeyPatch) -> None:  # S7
    patch.setattr(lifecycle, "keep", lambda *_: None)


def others_leave_for_pods_that_have_places(patch: pytest.MonkeyPatch) -> None:  # S7
    claimed = arbitrate._claimed
    patch.setattr(arbitrate, "_claimed", lambda state, plan: None if plan.victims else claimed(state, plan))


def a_victim_that_may_not_leave_goes_on_leaving(patch: pytest.MonkeyPatch) -> None:  # S9
    patch.setattr(lifecycle, "_blocked", lambda *_: None)


def others_leave_on_for_a_plan_that_came_to_nothing(patch: pytest.MonkeyPatch) -> None:  # S7
    patch.setattr(Beneficiaries, "thwart", lambda *_: [])


def a_gang_that_is_unwound_counts_those_who_leave(patch: pytest.MonkeyPatch) -> None:  # S6
    patch.setattr(arbitrate, "stuck", lambda state, gang: [state.live[claim] for claim in state.jobs[gang.job].live])


def a_gang_that_is_stuck_takes_nothing(patch: pytest.MonkeyPatch) -> None:  # S6
    patch.setattr(arbitrate, "stuck", lambda *_: [])


def a_gang_that_is_completed_is_unwound_on(patch: pytest.MonkeyPatch) -> None:  # S6
    patch.setattr(arbitrate, "called_off", lambda *_: None)


def a_gang_is_completed_and_its_members_leave(patch: pytest.MonkeyPatch) -> None:  # S6
    def half(state: LedgerState, step: Step, gang: Gang) -> None:
        gang.unwinding = False
        step.gangs[gang.job] = gang

    patch.setattr(arbitrate, "called_off", half)


def gangs_leave_one_by_one(patch: pytest.MonkeyPatch) -> None:  # S8
    patch.setattr(preemption, "units", lambda victims, *_: [[victim] for victim in victims])


def gangs_leave_together_whatever_they_can_spare(patch: pytest.MonkeyPatch) -> None:  # S8
    patch.setattr(preemption, "_standing", lambda state, job: Standing(len(state.jobs[job].live), 99))


def a_victim_may_have_the_same_priority(patch: pytest.MonkeyPatch) -> None:  # S8
    rights = preemption._rights
    patch.setattr(
        preemption,
        "_rights",
        lambda state, plan, victims, now: rights(state, plan.model_copy(update={"priority": plan.priority + 1}), victims, now),
    )


def the_protected_are_taken_too(patch: pytest.MonkeyPatch) -> None:  # S8
    patch.setattr(preemption, "_rights", lambda *_: None)


def a_pod_is_evicted_for_each_who_asks(patch: pytest.MonkeyPatch) -> None:  # S9
    take_back = decisions.take_back

    def again(state: LedgerState, step: Step, holding: ClaimRecord, reason: str, **kept: Any) -> None:
        state.evicting.discard(holding.claim.id)
        take_back(state, step, holding, reason, **kept)

    patch.setattr(preemption, "take_back", again)


def an_eviction_that_is_sent_again_is_another(patch: pytest.MonkeyPatch) -> None:  # S9
    send = decisions.send

    def anew(step: Step, holding: ClaimRecord) -> None:
        if holding.claim.state is ClaimState.POSTED and holding.sendings:
            holding.generation += 1
        send(step, holding)

    patch.setattr(lifecycle, "send", anew)


def pods_of_ours_that_are_found_stay_unaccounted(patch: pytest.MonkeyPatch) -> None:  # S11
    force = lifecycle._force

    def blind(state: LedgerState, step: Step, fact: PodFact, actor: str, *, slices: tuple[CardSlice, ...]) -> None:
        if not fact.ours:
            force(state, step, fact, actor, slices=slices)

    patch.setattr(lifecycle, "_force", blind)


def pods_of_others_use_the_quota_they_name(patch: pytest.MonkeyPatch) -> None:  # S17
    force = lifecycle._force

    def credulous(state: LedgerState, step: Step, fact: PodFact, actor: str, *, slices: tuple[CardSlice, ...]) -> None:
        force(state, step, replace(fact, ours=True, queue=QueueName("red")) if not fact.ours else fact, actor, slices=slices)

    patch.setattr(lifecycle, "_force", credulous)


def a_restored_ledger_forgets_the_binds_under_way(patch: pytest.MonkeyPatch) -> None:  # S1, S11
    patch.setattr(recovery, "adopt", lambda *_: 0)


def a_restored_ledger_counts_its_epochs_from_the_backup(patch: pytest.MonkeyPatch) -> None:  # S14
    begin = load.begin_epoch
    patch.setattr(load, "begin_epoch", lambda connection, *, now, above: begin(connection, now=now))


def weights_do_not_count(patch: pytest.MonkeyPatch) -> None:  # S8, where queues have shares by weight
    patch.setattr(LedgerState, "divide", lambda *_: None)


def what_waits_is_not_asked_for(patch: pytest.MonkeyPatch) -> None:  # S8, likewise
    patch.setattr(Demand, "put", lambda *_: None)


def posting_moves_no_units(patch: pytest.MonkeyPatch) -> None:  # S5
    move = LedgerState._move

    def lazy(self: LedgerState, step: Step, claim: Claim, debit: Any, credit: Any, *amounts: Any) -> None:
        if debit != "pending" or credit != "posted":
            move(self, step, claim, debit, credit, *amounts)

    patch.setattr(LedgerState, "_move", lazy)


def what_was_lent_is_not_given_back(patch: pytest.MonkeyPatch) -> None:  # S5
    lend = loans.lend

    def generous(state: LedgerState, step: Step, names: Iterable[QueueName]) -> None:
        if not step.freed:
            lend(state, step, names)

    patch.setattr(loans, "lend", generous)


def binds_travel_without_the_outbox(patch: pytest.MonkeyPatch) -> None:  # S18
    add = tables.outbox.add

    def most(batch: Batch, letters: Sequence[Letter]) -> None:
        add(batch, [letter for letter in letters if "bind" not in letter.type])

    patch.setattr(tables.outbox, "add", most)


def an_eviction_has_no_record(patch: pytest.MonkeyPatch) -> None:  # S20
    changed = LedgerState._changed

    def silent(self: LedgerState, step: Step, claim: Claim, before: ClaimState | None, actor: str, cause: str) -> None:
        changed(self, step, claim, before, actor, cause)
        if claim.state is ClaimState.VOID:
            step.changes.pop()

    patch.setattr(LedgerState, "_changed", silent)


BUGS: list[Bug] = [
    a_gang_starts_with_one_member_too_few,
    capability_ignores_pending_claims,
    walls_above_a_queue_are_not_looked_at,
    cards_are_not_counted_by_model,
    quotas_of_namespaces_are_not_looked_at,
    quotas_count_one_card_of_each_plan,
    books_that_are_read_anew_know_no_quotas,
    a_turn_whose_commit_failed_is_forgotten,
    a_turn_that_was_committed_is_written_again,
    books_continue_after_an_older_head,
    cards_are_not_looked_at,
    plans_of_one_message_do_not_see_each_other,
    a_bind_of_unknown_outcome_frees_its_claim,
    an_accepted_eviction_frees_its_claim,
    a_deadline_frees_a_claim,
    a_pod_that_cannot_be_read_counts_as_gone,
    what_is_read_of_a_suspect_is_ignored,
    plans_of_other_epochs_are_judged,
    nobody_looks_whether_another_ledger_has_begun,
    an_answer_is_forgotten_with_the_process,
    messages_that_were_handled_are_handled_again,
    a_refusal_is_judged_anew,
    victims_are_evicted_in_vain,
    gangs_leave_one_by_one,
    gangs_leave_together_whatever_they_can_spare,
    a_victim_may_have_the_same_priority,
    the_protected_are_taken_too,
    a_pod_is_evicted_for_each_who_asks,
    an_eviction_that_is_sent_again_is_another,
    guarantees_are_lent_for_good,
    what_is_borrowed_is_never_taken,
    queues_that_give_nothing_back_count_as_those_that_do,
    what_ends_stands_firm_for_ever,
    evictions_name_no_beneficiary,
    a_victim_that_may_not_leave_goes_on_leaving,
    others_leave_on_for_a_plan_that_came_to_nothing,
    a_gang_that_is_unwound_counts_those_who_leave,
    a_gang_that_is_stuck_takes_nothing,
    a_gang_that_is_completed_is_unwound_on,
    a_gang_is_completed_and_its_members_leave,
    whoever_leaves_leaves_whatever_becomes_of_those_for_whom,
    others_leave_for_pods_that_have_places,
    pods_of_others_use_the_quota_they_name,
    posting_moves_no_units,
    what_was_lent_is_not_given_back,
    binds_travel_without_the_outbox,
    an_eviction_has_no_record,
    pods_of_ours_that_are_found_stay_unaccounted,
    a_restored_ledger_forgets_the_binds_under_way,
    a_restored_ledger_counts_its_epochs_from_the_backup,
]

#: Where queues have shares by weight.
WEIGHT_BUGS: list[Bug] = [weights_do_not_count, what_waits_is_not_asked_for]


def what_is_guaranteed_is_looked_for_in_one_pool(patch: pytest.MonkeyPatch) -> None:  # S4
    patch.setattr(LedgerState, "pool_of", lambda *_: "")


def a_gang_of_two_counts_as_one_beside_guarantees(patch: pytest.MonkeyPatch) -> None:  # S4
    asked = guarantees._asked

    def of_the_first(state: LedgerState, plan: Plan) -> Resources:
        return asked(state, plan.model_copy(update={"placements": plan.placements[:1]}))

    patch.setattr(guarantees, "_asked", of_the_first)


def what_is_lent_does_not_come_back(patch: pytest.MonkeyPatch) -> None:  # S8
    patch.setattr(preemption, "_to_the_owner", lambda *_: set())


def queues_go_where_they_like(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(arbitrate, "_pools", lambda *_: None)


def who_leaves_counts_beside_guarantees(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LedgerState, "held_by", lambda *_: [])
