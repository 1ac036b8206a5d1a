"""The safety invariants of the ledger, by the ids under which architecture and papers name them, over what is in the database and in the cluster.

`Proof.after` is called after every transaction, and after everything else that happens. It remembers what it saw before, so that it can tell what
one transaction did.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hbox_common.events import BindDecided, Event, EvictDecided, EvictKind, Plan
from hbox_common.model import CardSlice, QueueName
from hbox_common.model.devices.cardids import numbered
from hbox_common.model.devices.nvidia import GPU
from hbox_ledger.core.chain import GENESIS, Record, chained

from . import lent
from .cluster import JOBS, LAB_JOBS, MEMORY_MIB, QUEUES, SHARES, Cluster, Streams, at_home, path
from .rows import AuditRow, ClaimRow, Rows

FORWARD = {"none": 0, "pending": 1, "posted": 2, "void": 3}
BUCKETS = ("pending", "posted", "borrowed")
OUTSIDE = ("free", "pool")
_JOBS = {job.id: job for job in (*JOBS, *LAB_JOBS)}


class Proof:
    def __init__(self, plans: dict[str, Plan] | None = None) -> None:
        """`plans`: that were proposed, by id; more are added."""
        self.claims: dict[str, ClaimRow] = {}
        self.answers: dict[str, tuple[Any, ...]] = {}
        self.balances: dict[tuple[str, str, str], int] = defaultdict(int)
        self.epoch = 0
        self.head = GENESIS
        self.started: set[str] = set()
        self.evicted: set[str] = set()  #: decisions
        self.plans = {} if plans is None else plans

    def begin_with(self, rows: Rows) -> None:
        """Take in the books of a backup as they are."""
        self._chain(rows.audit)
        self._replay(rows)
        self.claims, self.answers, self.epoch = rows.claims, rows.answers, rows.epoch

    def after(self, rows: Rows, cluster: Cluster, streams: Streams) -> None:
        self.s1_no_card_is_given_twice(rows, cluster)
        self.s2_shared_cards_hold_what_they_have(rows)
        self.s3_no_queue_is_above_its_capability(rows)
        self.s4_guarantees_are_lent_to_those_who_can_be_made_to_leave(rows)
        self.s5_every_debit_has_its_credit(rows)
        self.s6_gangs_are_whole_or_on_their_way(rows, cluster)
        self.s7_whoever_leaves_makes_room_for_a_plan_that_needs_it(rows, streams)
        self.s9_a_pod_is_evicted_once(rows, streams)
        self.s12_answers_stay_and_claims_go_forward(rows)
        self.s13_claims_are_freed_on_evidence(rows, cluster)
        self.s14_epochs_rise(rows)
        self.s17_claims_are_their_jobs(rows)
        self.s18_nothing_that_was_accepted_disappears(rows, streams)
        self.s20_every_change_has_one_record(rows)
        self.claims, self.answers, self.epoch = rows.claims, rows.answers, rows.epoch

    def s1_no_card_is_given_twice(self, rows: Rows, cluster: Cluster) -> None:
        placed = [c for c in rows.live() if c.slices and not c.forced]
        slots = [(c.node, s.index, n) for c in placed for s, n in zip(c.slices, c.slots.split(","), strict=True)]
        assert len(slots) == len(set(slots)), "S1: two live claims on one slot"
        _over_booked([(c.node, c.slices) for c in rows.live() if not c.forced], "S1: claims")
        _over_booked([(p.node, p.slices) for p in cluster.bound() if p.job is not None], "S1: pods in the cluster")

    def s2_shared_cards_hold_what_they_have(self, rows: Rows) -> None:
        """And the cards' accounts say what the claims add up to."""
        counted: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0] * 5)
        for claim in rows.live():
            for s in claim.slices:
                sums = counted[claim.node, s.index]
                for i, units in enumerate((s.cores, s.memory_mib, 1, s.whole, claim.forced)):
                    sums[i] += units
        said = {key: list(account) for key, account in rows.cards.items() if any(account)}
        assert said == dict(counted), "S2: the accounts of cards differ from the claims on them"

    def s3_no_queue_is_above_its_capability(self, rows: Rows) -> None:
        for name, queue in QUEUES.items():
            for resource, most in queue.capability.items():
                used = sum(c.amounts.get(resource, 0) for c in rows.live() if name in path(c.queue) and not c.forced)
                assert used <= most, f"S3: queue {name} and all below it have {used} of {most} {resource}"

    def s4_guarantees_are_lent_to_those_who_can_be_made_to_leave(self, rows: Rows) -> None:
        """Pods that were found may break it: they are not refused. No plan does, and none makes it worse."""
        before, live = list(self.claims.values()), rows.live()
        by_plan = [c for c in live if c.id not in self.claims and not c.forced]
        were, are = lent.short(lent.non_preemptible(c for c in before if c.live)), lent.short(lent.non_preemptible(live))
        found = any(c.forced for c in (*before, *live))
        for pool, cards in are.items():
            made = [one for one in lent.non_preemptible(by_plan) if lent.pool_of(one[1]) == pool]
            assert cards <= were[pool] or (found and not made), (
                f"S4: {cards} cards of {pool or 'pooled'} are lent to those who give nothing back"
            )

    def s5_every_debit_has_its_credit(self, rows: Rows) -> None:
        self._replay(rows)
        used: dict[tuple[str, str, str], int] = defaultdict(int)
        for claim in rows.live():
            for resource, units in claim.amounts.items() if claim.queue else ():
                used[claim.queue, resource, claim.state] += units
        for queue, resource in {key[:2] for key in used}:
            deserved = at_home(queue, rows.deserved.get(queue, {}))
            if resource in deserved or resource == GPU:
                has = used[queue, resource, "pending"] + used[queue, resource, "posted"]
                used[queue, resource, "borrowed"] = max(0, has - deserved.get(resource, 0))
        replayed = {key: units for key, units in self.balances.items() if units and key[2] not in OUTSIDE}
        assert replayed == {key: units for key, units in used.items() if units}, "S5: transfers do not replay to the claims"
        said = {(q, r, b): n for (q, r), three in rows.accounts.items() for b, n in zip(BUCKETS, three, strict=True) if n}
        assert said == replayed, "S5: accounts differ from the transfers"

    def _replay(self, rows: Rows) -> None:
        for t in rows.transfers:
            self.balances[t.queue, t.resource, t.debit] -= t.amount
            self.balances[t.queue, t.resource, t.credit] += t.amount

    def s6_gangs_are_whole_or_on_their_way(self, rows: Rows, cluster: Cluster) -> None:
        live = defaultdict(list)
        for claim in rows.live():
            live[claim.job].append(claim)
        for job, gang in rows.gangs.items():
            assert live[job], "S6: a gang without a claim is on its way"
            assert gang.deadline > 0, "S6: a gang is on its way without a deadline"
        self.started &= live.keys()
        for job, members in live.items():
            need = max(c.min_member for c in members)
            posted = sum(c.state == "posted" for c in members)
            ended = sum(p.job is not None and p.job.id == job and p.over for p in cluster.pods.values())
            if posted + ended >= need:
                self.started.add(job)
            made = [c for c in members if c.id not in self.claims and not c.forced]
            assert not made or len(members) + ended >= need, "S6: a gang was begun below its minimum"
            waits = need > 1 and any(c.state == "pending" and not c.forced for c in members)
            assert not waits or job in self.started or job in rows.gangs, "S6: a part of a gang waits without a deadline"

    def s7_whoever_leaves_makes_room_for_a_plan_that_needs_it(self, rows: Rows, streams: Streams) -> None:
        """When its eviction is decided, which is when the plan is committed: the two are one transaction. Or it is of a gang that is unwound."""
        claimed = {c.pod for c in rows.live()}
        for event in (*streams.said.values(), *rows.outbox):
            for evict in event.evictions if isinstance(event, EvictDecided) else ():
                if evict.kind is not EvictKind.EVICT or evict.id in self.evicted:
                    continue
                self.evicted.add(evict.id)
                if evict.id in streams.lost:
                    continue
                if not evict.beneficiary:
                    gang = rows.gangs.get(evict.job)
                    assert gang is not None, f"S7: {evict.pod} leaves for nobody"
                    assert gang.unwinding, f"S7: {evict.pod} leaves for nobody, and its gang stays"
                    continue
                assert rows.answers[evict.beneficiary][2], f"S7: {evict.pod} leaves for a plan that was refused"
                plan = self.plans[evict.beneficiary]
                assert evict.claim in {v.claim for v in plan.victims}, (
                    f"S7: {evict.pod} leaves for a plan that did not ask for it"
                )
                pods = {p.pod_uid for p in plan.placements}
                assert not pods & (claimed | {evict.pod_uid}), f"S7: {evict.pod} leaves for pods that have places"

    def s9_a_pod_is_evicted_once(self, rows: Rows, streams: Streams) -> None:
        """By the second decision only where the first was taken back, and the binder has said that it had not been done."""
        decided: dict[str, dict[int, EvictKind]] = defaultdict(dict)
        for event in (*streams.said.values(), *rows.outbox):
            for evict in event.evictions if isinstance(event, EvictDecided) else ():
                if evict.id not in streams.lost:
                    decided[evict.claim][evict.generation] = evict.kind
        for kinds in decided.values():
            order = [kind for _, kind in sorted(kinds.items())]
            twice = any(one is other is EvictKind.EVICT for one, other in pairwise(order))
            assert not twice, "S9: a pod is evicted by two decisions"

    def s7_nobody_leaves_in_vain(self, rows: Rows, needed: dict[str, list[Plan]], gone: Collection[str]) -> None:
        """Called when time has passed. `needed`: by claim, the plans for which it leaves; `gone`: pods of which the ledger knows that they hold nothing."""
        claimed = {c.pod for c in rows.live()}
        for claim in rows.live():
            gang = rows.gangs.get(claim.job)
            if claim.intent != "evict" or claim.id not in needed or (gang is not None and gang.unwinding):
                continue
            waiting = {p.pod_uid for plan in needed[claim.id] for p in plan.placements} - claimed - set(gone)
            assert waiting, f"S7: {claim.pod} goes on leaving though nobody needs its place"

    def s12_answers_stay_and_claims_go_forward(self, rows: Rows) -> None:
        assert self.answers.items() <= rows.answers.items(), "S12: an answer was changed"
        assert self.claims.keys() <= rows.claims.keys(), "S12: a claim has vanished"
        for id, before in self.claims.items():
            assert FORWARD[before.state] <= FORWARD[rows.claims[id].state], "S12: a claim went back"

    def s13_claims_are_freed_on_evidence(self, rows: Rows, cluster: Cluster) -> None:
        for id, claim in rows.claims.items():
            before = self.claims.get(id)
            if claim.live or (before is not None and not before.live):
                continue
            pod = cluster.pods[claim.pod]  # type: ignore[index]
            elsewhere = pod.holds and (pod.claim != id or pod.node != claim.node)
            anew = pod.holds and any(c.pod == pod.uid and c.node == pod.node for c in rows.live())
            assert pod.over or elsewhere or anew or id in pod.fenced, (
                f"S13: the claim of {claim.pod} was freed, and it may still be bound"
            )

    def s14_epochs_rise(self, rows: Rows) -> None:
        assert rows.epoch >= self.epoch, "S14: the epoch went back"
        assert all(self.epoch <= record.epoch <= rows.epoch for record in rows.audit), "S14: a change of an epoch that is over"

    def s17_claims_are_their_jobs(self, rows: Rows) -> None:
        for id, claim in rows.claims.items():
            if (before := self.claims.get(id)) is not None:
                assert (claim.queue, claim.priority) == (before.queue, before.priority), (
                    "S17: a claim changed its queue or priority"
                )
            elif (job := _JOBS.get(claim.job)) is None:  # type: ignore[call-overload]
                assert claim.queue == QueueName(""), "S17: another scheduler's pod uses a queue"
            elif claim.forced and claim.plan:
                assert (claim.queue, claim.preemptable) == (job.queue, False), "S17: what was adopted, of which little is known"
            else:
                assert (claim.queue, claim.priority) == (job.queue, job.priority), "S17"
                assert claim.preemptable or not job.preemptable, "S17: nobody may take from it, though its tenant offers it"

    def s18_nothing_that_was_accepted_disappears(self, rows: Rows, streams: Streams) -> None:
        told = _told((*streams.said.values(), *rows.outbox))
        for claim in rows.live():
            if claim.intent != "none":
                assert (claim.id, claim.intent) in told, f"S18: the decision to {claim.intent} {claim.pod} reaches nobody"
        kept = {claim.plan for claim in rows.claims.values()}
        for plan, answer in rows.answers.items():
            assert not answer[2] or plan in kept or plan.startswith("take"), "S18: a plan was committed and has no claim"

    def s20_every_change_has_one_record(self, rows: Rows) -> None:
        changes: dict[str, list[str]] = defaultdict(list)
        for record in rows.audit:
            assert record.actor and record.cause, "S20: a record without an actor or a cause"  # noqa: PT018
            if record.subject in rows.claims:
                changes[record.subject].append(record.change)
        self._chain(rows.audit)
        for id, claim in rows.claims.items():
            at = self.claims[id].state if id in self.claims else "none"
            for change in changes.pop(id, ()):
                before, _, after = change.partition("->")
                assert (at, FORWARD[after] > FORWARD[before]) == (before, True), "S20: the audit does not follow the claim"
                at = after
            assert at == claim.state, f"S20: the claim of {claim.pod} is {claim.state}, its audit ends at {at}"
        assert not changes

    def _chain(self, records: Iterable[AuditRow]) -> None:
        for r in records:
            self.head = chained(self.head, r.seq, Record(r.epoch, r.at, r.actor, r.subject, r.change, r.cause, r.entry))  # type: ignore[arg-type]
            assert self.head == r.hash, "S20: the audit's chain is broken"


def s11_every_pod_of_ours_has_a_claim(rows: Rows, cluster: Cluster) -> None:
    claimed = {(c.pod, c.node): c for c in rows.live()}
    for pod in cluster.bound():
        assert (pod.uid, pod.node) in claimed, f"S11: {pod.uid} is bound and has no claim after a comparison"


def s10_s11_a_binding_is_what_was_claimed(rows: Rows, claim: str, node: str, slices: tuple[CardSlice, ...]) -> None:
    """Called when a pod is bound in the cluster."""
    row = rows.claims.get(claim)
    assert row is not None, "S11: a pod was bound without a claim"
    assert row.live, f"S11: {row.pod} was bound after its claim was freed"
    assert (row.node, row.slices) == (node, _numbered(slices)), "S10: a pod was bound otherwise than its claim says"


def _numbered(slices: Iterable[CardSlice]) -> tuple[CardSlice, ...]:
    """The slices as rows store them: by number, which is the fixed index of the card here."""
    return tuple(replace(s, card=numbered(s.index)) for s in slices)


def _over_booked(held: Iterable[tuple[str, tuple[CardSlice, ...]]], what: str) -> None:
    on = defaultdict(list)
    for node, slices in held:
        for s in slices:
            on[node, s.index].append(s)
    for card, there in on.items():
        alone = len(there) == 1 or not any(s.whole for s in there)
        assert alone and len(there) <= SHARES, f"{what} share card {card}"  # noqa: PT018
        assert sum(s.cores for s in there) <= 100, f"{what} take more than card {card} is"
        assert sum(s.memory_mib for s in there) <= MEMORY_MIB, f"{what} take more than card {card} has"


def evictions(events: Iterable[Event]) -> Iterable[tuple[str, str]]:
    for event in events:
        if isinstance(event, EvictDecided):
            yield from ((e.pod_uid, e.id) for e in event.evictions if e.kind is EvictKind.EVICT)


def _told(events: Iterable[Event]) -> set[tuple[str, str]]:
    told: set[tuple[str, str]] = set()
    for event in events:
        if isinstance(event, BindDecided):
            told |= {(bind.claim, "bind") for bind in event.binds}
        elif isinstance(event, EvictDecided):
            told |= {(e.claim, e.kind.value) for e in event.evictions}
    return told
