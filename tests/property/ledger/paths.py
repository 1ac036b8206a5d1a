"""Ways through the machine to bugs that a short search seldom meets: each by rules of the machine alone, and right without the bug."""

from collections.abc import Callable
from typing import TypeAlias

from hbox_common.events import EvictDecided
from hbox_common.model import CardSlice, NodeName, PodPhase

from . import bugs
from .cluster import JOBS, LAB_JOBS, MEMORY_MIB, Job
from .machine import LedgerMachine, Where
from .rows import ClaimRow

Path: TypeAlias = Callable[[LedgerMachine], None]

RED_LOW, RED_PAIR, BLUE_LOW, BLUE_HIGH = (next(job for job in JOBS if job.id == id) for id in ("a", "b", "c", "f"))
LONE_FIRM, LONE_PAIR, LONE_LOW = (next(job for job in JOBS if job.id == id) for id in ("i", "k", "h"))
LAB_LOW, LAB_PAIR, MATE_LOW, MATE_PAIR = LAB_JOBS
GREEN = next(job for job in JOBS if job.id == "e")


def at(node: str, *cards: int) -> list[Where]:
    return [(NodeName(node), tuple(CardSlice(card, 100, MEMORY_MIB) for card in cards))]


def bound(machine: LedgerMachine, job: Job, where: list[Where]) -> ClaimRow:
    """A pod of this job that runs there by now."""
    machine.propose_a_plan(job, where, twice=False, works=True)
    return next(claim for claim in machine.rows.live() if claim.job == job.id)


def a_third_card_where_two_are_allowed(machine: LedgerMachine) -> None:
    for where in (at("a", 0), at("a", 1), at("b", 0)):
        machine.propose_a_plan(RED_LOW, where, twice=False, works=False)


def a_fourth_card_where_the_department_has_three(machine: LedgerMachine) -> None:
    for job, where in ((RED_LOW, at("a", 0)), (RED_LOW, at("a", 1)), (BLUE_LOW, at("b", 0)), (BLUE_LOW, at("b", 1))):
        machine.propose_a_plan(job, where, twice=False, works=False)


def a_second_rare_card_where_one_is_allowed(machine: LedgerMachine) -> None:
    for where in (at("a", 1), at("b", 1)):
        machine.propose_a_plan(RED_LOW, where, twice=False, works=False)


def two_cards_where_the_namespace_has_memory_for_one(machine: LedgerMachine) -> None:
    machine.propose_a_plan(GREEN, at("a", 0, 1), twice=False, works=False)


def a_second_card_of_the_namespace_after_a_reload(machine: LedgerMachine) -> None:
    machine.propose_a_plan(GREEN, at("a", 0), twice=False, works=False)
    machine.a_decision_fails(RED_LOW, at("b", 0) * 3)
    machine.propose_a_plan(GREEN, at("a", 1), twice=False, works=False)


def a_plan_whose_commit_fails(machine: LedgerMachine) -> None:
    """Before it, and after it."""
    for after in (False, True):
        machine.the_database_fails(RED_LOW, [(NodeName("b"), ())] * 3, after=after)
        machine.complete()
    machine.propose_a_plan(GREEN, at("a", 0), twice=False, works=False)


def a_second_card_that_nobody_may_take_where_one_is_deserved(machine: LedgerMachine) -> None:
    for where in (at("a", 0), at("b", 0)):
        machine.propose_a_plan(LONE_FIRM, where, twice=False, works=False)


#: Half a card each.
_HALVES = [(NodeName(node), (CardSlice(card, 50, 50),)) for node, card in (("a", 0), ("a", 1), ("b", 0))]


def a_third_half_for_a_queue_that_gives_nothing_back(machine: LedgerMachine) -> None:
    for where in _HALVES:
        machine.propose_a_plan(GREEN, [where], twice=False, works=False)


def a_third_half_for_good_when_one_has_ended(machine: LedgerMachine) -> None:
    for where in _HALVES[:2]:
        bound(machine, GREEN, [where])
    machine.propose_a_plan(GREEN, _HALVES[2:], twice=False, works=False)
    machine.a_bound_pod_changes(0, PodPhase.SUCCEEDED)
    machine.work_goes_on()
    machine.propose_a_plan(GREEN, _HALVES[2:], twice=False, works=False)


def _two_of_one_queue_taken_for_another(machine: LedgerMachine, job: Job) -> None:
    """Of a queue that deserves one of them."""
    bound(machine, job, at("a", 0) + at("b", 0))
    machine.take([claim for claim in machine.rows.live() if claim.job == job.id], RED_PAIR)


def a_gang_that_stands_across_the_line(machine: LedgerMachine) -> None:
    _two_of_one_queue_taken_for_another(machine, LONE_PAIR)


def two_pods_of_a_job_of_which_one_is_deserved(machine: LedgerMachine) -> None:
    _two_of_one_queue_taken_for_another(machine, LONE_LOW)


def room_for_a_pod_that_has_a_place(machine: LedgerMachine) -> None:
    victim, other = bound(machine, BLUE_LOW, at("a", 0)), bound(machine, BLUE_HIGH, at("b", 0))
    machine.take([victim], BLUE_HIGH, pods=[machine.cluster.pods[other.pod]])  # type: ignore[index]


def a_victim_whose_beneficiary_is_deleted(machine: LedgerMachine) -> None:
    """It stays, and may leave for another later."""
    victim = bound(machine, BLUE_LOW, at("a", 0))
    machine.take([victim], BLUE_HIGH)
    machine.a_waiting_pod_is_deleted(0)
    machine.news_reach_the_ledger(-1, lost=False)
    machine.wait(0.5)
    assert machine.rows.claims[victim.id].intent == "revoke"
    machine.publish(9, flush=True)
    kept = next(
        e for event in reversed(machine.streams.decisions()) if isinstance(event, EvictDecided) for e in event.evictions
    )
    machine.cluster.land(kept, now=machine.time_of_day())
    machine.news_reach_the_ledger(-1, lost=False)
    assert (machine.rows.claims[victim.id].intent, machine.rows.claims[victim.id].reason) == ("none", "")
    machine.take([victim], BLUE_HIGH)
    machine.work_goes_on()


def a_victim_that_may_not_be_evicted(machine: LedgerMachine) -> None:
    """Nor does another leave for the same plan then."""
    guarded = bound(machine, BLUE_LOW, at("a", 0))
    machine.propose_a_plan(BLUE_LOW, at("a", 1), twice=False, works=True)
    other = next(claim for claim in machine.rows.live() if claim.id != guarded.id)
    machine.cluster.pods[guarded.pod].guarded = True  # type: ignore[index]
    machine.take([guarded, other], BLUE_HIGH)
    machine.decisions_reach_the_binder(0, published=True)
    refused = next(one for one in machine.cluster.begun if one.claim == guarded.id)
    machine.cluster.begun = [refused]
    machine.a_call_has_its_effect(0, again=False, heard=True)
    machine.wait(0.5)


def a_pair_of_which_one_stays(machine: LedgerMachine, *, guarded: bool) -> ClaimRow:
    """The other one's binding came to nothing, and the pair is unwound."""
    machine.propose_a_plan(RED_PAIR, [*at("a", 0), *at("b", 0)], twice=False, works=False)
    machine.decisions_reach_the_binder(0, published=True)
    first, second = machine.cluster.begun
    machine.cluster.begun = [first]
    machine.a_call_has_its_effect(0, again=False, heard=True)
    machine.cluster.pods[first.pod_uid].guarded = guarded
    machine.cluster.change(machine.cluster.pods[second.pod_uid], PodPhase.GONE)
    machine.news_reach_the_ledger(-1, lost=False)
    machine.wait(61.0)
    return next(claim for claim in machine.rows.live() if claim.job == RED_PAIR.id)


def a_pair_that_is_completed_though_it_is_unwound(machine: LedgerMachine) -> None:
    left = a_pair_of_which_one_stays(machine, guarded=True)
    machine.decisions_reach_the_binder(0, published=True)
    machine.a_call_has_its_effect(0, again=False, heard=True)
    machine.propose_a_plan(RED_PAIR, at("b", 0), twice=False, works=True)
    assert machine.rows.claims[left.id].intent == "none"
    assert RED_PAIR.id not in machine.rows.gangs


def a_pair_that_is_unwound_and_asks_for_a_place(machine: LedgerMachine) -> None:
    a_pair_of_which_one_stays(machine, guarded=False)
    machine.propose_a_plan(RED_PAIR, at("b", 0), twice=False, works=True)


def an_eviction_without_an_answer(machine: LedgerMachine) -> None:
    machine.take([bound(machine, BLUE_LOW, at("a", 0))], BLUE_HIGH)
    machine.wait(20.0)


def a_pod_bound_while_the_clock_was_ahead_that_ends_unheard(machine: LedgerMachine) -> None:
    machine.the_clock_is_set(600.0)
    bound(machine, RED_LOW, at("a", 0))
    machine.the_clock_is_set(0.0)
    machine.a_bound_pod_changes(0, PodPhase.GONE)
    machine.compare_until_sure()


def a_loan_that_ends(machine: LedgerMachine) -> None:
    for card in (0, 1):
        machine.propose_a_plan(BLUE_LOW, at("a", card), twice=False, works=True)
    machine.a_bound_pod_changes(0, PodPhase.SUCCEEDED)
    machine.work_goes_on()


def an_older_ledger_that_wakes_up(machine: LedgerMachine) -> None:
    machine.the_ledger_is_killed(zombie=True, opens=True)
    machine.an_older_ledger_wakes_up(RED_LOW, at("a", 0)[0])


def half_of_a_pair(machine: LedgerMachine) -> None:
    machine.propose_a_plan(RED_PAIR, at("a", 0), twice=False, works=False)


def a_plan_that_is_proposed_again_after_a_restart(machine: LedgerMachine) -> None:
    machine.propose_a_plan(RED_LOW, at("a", 0), twice=False, works=False)
    machine.the_ledger_is_killed(zombie=False, opens=True)
    machine.propose_it_again(0, epochs=0)


def a_victim_whose_card_is_not_enough(machine: LedgerMachine) -> None:
    machine.take([bound(machine, BLUE_LOW, at("a", 0))], BLUE_HIGH, at("a", 0))


def a_bind_without_an_answer(machine: LedgerMachine) -> None:
    machine.propose_a_plan(RED_LOW, at("a", 0), twice=False, works=False)
    machine.decisions_reach_the_binder(0, published=True)
    machine.a_call_gets_no_answer(0)


def a_bind_beyond_its_deadline(machine: LedgerMachine) -> None:
    machine.propose_a_plan(RED_LOW, at("a", 0), twice=False, works=False)
    machine.wait(61.0)


def a_plan_of_the_last_epoch(machine: LedgerMachine) -> None:
    machine.propose_in_another_epoch(RED_LOW, at("a", 0), -1)


def a_pod_that_is_heard_of_again_after_its_end(machine: LedgerMachine) -> None:
    machine.another_scheduler_binds(NodeName("a"), 0)
    machine.news_reach_the_ledger(0, lost=False)
    machine.a_bound_pod_changes(0, PodPhase.GONE)
    machine.news_reach_the_ledger(0, lost=False)
    machine.the_ledger_is_killed(zombie=False, opens=True)
    machine.news_reach_the_ledger_again(0)


def a_victim_that_two_ask_for(machine: LedgerMachine) -> None:
    victim = bound(machine, BLUE_LOW, at("a", 0))
    for _ in range(2):
        machine.take([victim], BLUE_HIGH)
        machine.work_goes_on()


def a_pod_that_an_old_view_lacks_and_that_cannot_be_read(machine: LedgerMachine) -> None:
    bound(machine, RED_LOW, at("a", 0))
    machine.compare_with_a_view_that_is_old(0)
    machine.suspects_are_read(255)


def a_refusal_that_would_be_none_now(machine: LedgerMachine) -> None:
    bound(machine, RED_LOW, at("a", 0))
    machine.propose_a_plan(BLUE_LOW, at("a", 0), twice=False, works=False)
    machine.a_bound_pod_changes(0, PodPhase.SUCCEEDED)
    machine.news_reach_the_ledger(0, lost=False)
    machine.propose_it_again(0, epochs=0)


def a_victim_whose_queue_gives_nothing(machine: LedgerMachine) -> None:
    machine.take([bound(machine, GREEN, at("a", 0))], BLUE_HIGH)


def a_victim_of_its_equal(machine: LedgerMachine) -> None:
    machine.take([bound(machine, BLUE_HIGH, at("a", 0))], BLUE_HIGH)


def a_backup_from_before_a_bind_that_is_under_way(machine: LedgerMachine) -> None:
    machine.a_backup_is_made()
    machine.propose_a_plan(RED_LOW, at("a", 0), twice=False, works=False)
    machine.decisions_reach_the_binder(0, published=True)
    machine.the_backup_is_restored()
    machine.propose_a_plan(BLUE_LOW, at("a", 0), twice=False, works=False)
    machine.a_call_has_its_effect(0, again=False, heard=True)


def a_backup_from_before_a_pod_was_bound(machine: LedgerMachine) -> None:
    machine.a_backup_is_made()
    bound(machine, RED_LOW, at("a", 0))
    machine.the_backup_is_restored()


def a_backup_from_an_epoch_ago(machine: LedgerMachine) -> None:
    machine.a_backup_is_made()
    machine.the_ledger_is_killed(zombie=False, opens=True)
    bound(machine, RED_LOW, at("a", 0))
    machine.the_backup_is_restored()


PATHS: dict[bugs.Bug, Path] = {
    bugs.walls_above_a_queue_are_not_looked_at: a_fourth_card_where_the_department_has_three,
    bugs.cards_are_not_counted_by_model: a_second_rare_card_where_one_is_allowed,
    bugs.quotas_of_namespaces_are_not_looked_at: two_cards_where_the_namespace_has_memory_for_one,
    bugs.quotas_count_one_card_of_each_plan: two_cards_where_the_namespace_has_memory_for_one,
    bugs.books_that_are_read_anew_know_no_quotas: a_second_card_of_the_namespace_after_a_reload,
    bugs.a_turn_whose_commit_failed_is_forgotten: a_plan_whose_commit_fails,
    bugs.a_turn_that_was_committed_is_written_again: a_plan_whose_commit_fails,
    bugs.books_continue_after_an_older_head: a_plan_whose_commit_fails,
    bugs.what_was_lent_is_not_given_back: a_loan_that_ends,
    bugs.nobody_looks_whether_another_ledger_has_begun: an_older_ledger_that_wakes_up,
    bugs.a_gang_starts_with_one_member_too_few: half_of_a_pair,
    bugs.an_answer_is_forgotten_with_the_process: a_plan_that_is_proposed_again_after_a_restart,
    bugs.guarantees_are_lent_for_good: a_third_half_for_a_queue_that_gives_nothing_back,
    bugs.what_is_borrowed_is_never_taken: a_second_card_that_nobody_may_take_where_one_is_deserved,
    bugs.queues_that_give_nothing_back_count_as_those_that_do: a_third_half_for_a_queue_that_gives_nothing_back,
    bugs.what_ends_stands_firm_for_ever: a_third_half_for_good_when_one_has_ended,
    bugs.evictions_name_no_beneficiary: an_eviction_without_an_answer,
    bugs.whoever_leaves_leaves_whatever_becomes_of_those_for_whom: a_victim_whose_beneficiary_is_deleted,
    bugs.others_leave_for_pods_that_have_places: room_for_a_pod_that_has_a_place,
    bugs.a_victim_that_may_not_leave_goes_on_leaving: a_victim_that_may_not_be_evicted,
    bugs.others_leave_on_for_a_plan_that_came_to_nothing: a_victim_that_may_not_be_evicted,
    bugs.a_gang_that_is_unwound_counts_those_who_leave: a_pair_that_is_unwound_and_asks_for_a_place,
    bugs.a_gang_that_is_stuck_takes_nothing: a_pair_that_is_completed_though_it_is_unwound,
    bugs.a_gang_that_is_completed_is_unwound_on: a_pair_that_is_completed_though_it_is_unwound,
    bugs.a_gang_is_completed_and_its_members_leave: a_pair_that_is_completed_though_it_is_unwound,
    bugs.an_eviction_that_is_sent_again_is_another: an_eviction_without_an_answer,
    bugs.victims_are_evicted_in_vain: a_victim_whose_card_is_not_enough,
    bugs.capability_ignores_pending_claims: a_third_card_where_two_are_allowed,
    bugs.a_bind_of_unknown_outcome_frees_its_claim: a_bind_without_an_answer,
    bugs.a_deadline_frees_a_claim: a_bind_beyond_its_deadline,
    bugs.what_is_read_of_a_suspect_is_ignored: a_pod_bound_while_the_clock_was_ahead_that_ends_unheard,
    bugs.plans_of_other_epochs_are_judged: a_plan_of_the_last_epoch,
    bugs.messages_that_were_handled_are_handled_again: a_pod_that_is_heard_of_again_after_its_end,
    bugs.a_pod_is_evicted_for_each_who_asks: a_victim_that_two_ask_for,
    bugs.an_accepted_eviction_frees_its_claim: a_victim_that_two_ask_for,
    bugs.a_pod_that_cannot_be_read_counts_as_gone: a_pod_that_an_old_view_lacks_and_that_cannot_be_read,
    bugs.a_refusal_is_judged_anew: a_refusal_that_would_be_none_now,
    bugs.the_protected_are_taken_too: a_victim_whose_queue_gives_nothing,
    bugs.gangs_leave_one_by_one: a_gang_that_stands_across_the_line,
    bugs.gangs_leave_together_whatever_they_can_spare: two_pods_of_a_job_of_which_one_is_deserved,
    bugs.a_victim_may_have_the_same_priority: a_victim_of_its_equal,
    bugs.a_restored_ledger_forgets_the_binds_under_way: a_backup_from_before_a_bind_that_is_under_way,
    bugs.pods_of_ours_that_are_found_stay_unaccounted: a_backup_from_before_a_pod_was_bound,
    bugs.a_restored_ledger_counts_its_epochs_from_the_backup: a_backup_from_an_epoch_ago,
}


def two_halves_of_four_for_a_queue_that_has_only_its_weight(machine: LedgerMachine) -> None:
    """Two of the four cards are guaranteed to others: lone has two by its weight, and gives what it has beyond them, as far as it is asked for."""
    for node, card in (("a", 0), ("a", 1), ("b", 0), ("b", 1)):
        machine.propose_a_plan(LONE_LOW, [(NodeName(node), (CardSlice(card, 50, 50),))], twice=False, works=True)
    victims = [claim for claim in machine.rows.live() if claim.slices[0].index == 0]
    machine.take(victims, GREEN)
    assert all(machine.rows.claims[claim.id].intent == "evict" for claim in victims)


def a_second_card_of_the_lab_for_a_mate_that_gives_nothing_back(machine: LedgerMachine) -> None:
    """One of its two is guaranteed to the lab, and what is free in another pool is none of the lab's."""
    for card in (0, 1):
        machine.propose_a_plan(MATE_LOW, at("own", card), twice=False, works=False)


def a_gang_of_two_for_a_mate_that_gives_nothing_back(machine: LedgerMachine) -> None:
    machine.propose_a_plan(MATE_PAIR, at("own", 0) + at("own", 1), twice=False, works=False)


def a_card_that_was_lent_to_a_queue_that_gives_nothing_back(machine: LedgerMachine) -> None:
    machine.take([bound(machine, GREEN, at("own", 0))], LAB_LOW)
    assert any(claim.intent == "evict" for claim in machine.rows.live())


def a_pooled_card_for_the_lab(machine: LedgerMachine) -> None:
    machine.propose_a_plan(LAB_LOW, at("a", 0), twice=False, works=False)


def one_of_a_mate_for_another(machine: LedgerMachine) -> None:
    """It has all that the lab's guarantee leaves, and its own job of a higher priority takes the place."""
    machine.take([bound(machine, MATE_LOW, at("own", 0))], MATE_PAIR, [(NodeName("open"), ())])
    assert any(claim.intent == "evict" for claim in machine.rows.live())


#: Where there are pools.
POOL_PATHS: dict[bugs.Bug, Path] = {
    bugs.guarantees_are_lent_for_good: a_second_card_of_the_lab_for_a_mate_that_gives_nothing_back,
    bugs.what_is_guaranteed_is_looked_for_in_one_pool: a_second_card_of_the_lab_for_a_mate_that_gives_nothing_back,
    bugs.a_gang_of_two_counts_as_one_beside_guarantees: a_gang_of_two_for_a_mate_that_gives_nothing_back,
    bugs.what_is_lent_does_not_come_back: a_card_that_was_lent_to_a_queue_that_gives_nothing_back,
    bugs.queues_go_where_they_like: a_pooled_card_for_the_lab,
    bugs.who_leaves_counts_beside_guarantees: one_of_a_mate_for_another,
}
