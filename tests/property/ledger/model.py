"""What the ledger may answer: the rules of arbitration said a second time, over the committed rows, with no sums kept."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from hbox_common.events import Placement, Plan
from hbox_common.model import CardSlice, PodUid, Queue, QueueName, Resources
from hbox_common.model.devices.nvidia import GPU_MEMORY

from . import lent
from .cluster import (
    CARDS,
    GPU,
    HOMES,
    JOBS,
    LAB_JOBS,
    MEMORY_MIB,
    NODES,
    POOL_OF,
    QUOTA,
    ROOM,
    SCARCE,
    SHARES,
    at_home,
    borrows,
    counted,
    owns,
    path,
    without_pods,
)  # fmt: skip
from .rows import ClaimRow, Rows


@dataclass(frozen=True)
class Nominated:
    """A place that is nominated for a pod."""

    pod: PodUid
    job: str
    queue: QueueName
    node: str
    requests: Resources
    slices: tuple[CardSlice, ...]


def nominated_by(plan: Plan) -> list[Nominated]:
    """The places of a plan with victims that is committed."""
    return [Nominated(p.pod_uid, plan.job, plan.queue, p.node, plan.requests[p.requests], p.slices) for p in plan.placements]


def nominated_in(rows: Rows) -> list[Nominated]:
    """By the plans that the ledger remembers, with the places that nobody has taken. How long it does, is not judged here."""
    return [place for one in rows.nominations for place in nominated_by(Plan.model_validate(one["plan"]))]


@dataclass(frozen=True)
class Model:
    rows: Rows
    queues: dict[QueueName, Queue]
    gone: Collection[PodUid]  #: pods of which the ledger knows that they hold nothing any more
    nominated: Sequence[Nominated] = ()
    blocked: Collection[str] = ()  #: claims whose pods may not be evicted, as the ledger has heard; of gangs that are unwound
    waiting: Mapping[PodUid, tuple[QueueName, Resources]] | None = (
        None  #: pods, as job-controller says; None: weights do not count
    )

    now: float = 0.0

    def accepts(self, plan: Plan) -> bool:
        """Whether an open ledger commits this plan, proposed in its epoch and never answered before."""
        pods = [p.pod_uid for p in plan.placements]
        live = self.rows.live()
        if len(set(pods)) < len(pods) or {c.pod for c in live} & set(pods) or set(self.gone) & set(pods):
            return False
        return (
            self._may_be_there(plan)
            and self._within_capability(plan)
            and self._paid_for(plan)
            and self._recallable(plan)
            and self._whole(plan)
            and self._rights(plan)
            and self._fits(plan)
        )

    def _may_be_there(self, plan: Plan) -> bool:
        """Queues of the lab have its nodes and public ones; to the others it lends its nodes."""
        return plan.queue not in HOMES or all(p.node in POOL_OF for p in plan.placements if p.node in NODES)

    def after(self, plan: Plan) -> Rows:
        """The rows when this plan was committed, as far as later plans are judged by them."""
        gangs = dict(self.rows.gangs)
        victims = {v.claim for v in plan.victims}
        claims = {id: replace(c, reason="gives way") if id in victims else c for id, c in self.rows.claims.items()}
        for p in () if victims else plan.placements:
            claims[f"{plan.id} {p.pod_uid}"] = ClaimRow(
                id=f"{plan.id} {p.pod_uid}", pod=p.pod_uid, job=plan.job, plan=plan.id, queue=plan.queue, priority=plan.priority,
                node=p.node, requests=plan.requests[p.requests], slices=p.slices, state="pending", intent="bind", generation=1,
                forced=False, preemptable=not self.protects(plan), min_member=plan.min_member, reason="", slots="",
            )  # fmt: skip
        if not victims and plan.job in gangs and gangs[plan.job].unwinding:
            gangs[plan.job] = gangs[plan.job]._replace(unwinding=False)
            claims |= {id: replace(claims[id], intent="revoke") for id in self.blocked if claims[id].job == plan.job}
        return replace(self.rows, claims=claims, gangs=gangs)

    def _asked(self, plan: Plan) -> Resources:
        asked: Resources = {}
        for placement in plan.placements:
            for name, units in counted(plan.requests[placement.requests], placement.slices, placement.node).items():
                asked[name] = asked.get(name, 0) + units
        return asked

    def _used(self, queue: str, without: Collection[str] = ()) -> Resources:
        """By the queue and all below it."""
        used: Resources = {}
        for claim in self.rows.live():
            if queue in path(claim.queue) and claim.id not in without:
                for name, units in claim.amounts.items():
                    used[name] = used.get(name, 0) + units
        return used

    def _to_be_used(self, queue: str, plan: Plan) -> Resources:
        """By the queue and all below it, when those who leave are gone and those who are nominated have their places."""
        used = self._used(queue, self._leaving(plan))
        for place in self._places(plan):
            for name, units in counted(place.requests, place.slices, place.node).items() if queue in path(place.queue) else ():
                used[name] = used.get(name, 0) + units
        return used

    def _leaving(self, plan: Plan) -> set[str]:
        """Claims that count as gone for this plan."""
        victims: set[str] = {v.claim for v in plan.victims}
        return victims | {c.id for c in self.rows.live() if evicted(c)} if victims else victims

    def _places(self, plan: Plan) -> list[Nominated]:
        """Places nominated for others, as far as this plan is judged by them."""
        if not plan.victims:
            return []
        mine, claimed = {p.pod_uid for p in plan.placements}, {c.pod for c in self.rows.live()}
        taken = mine | claimed | set(self.gone)
        return [p for p in self.nominated if p.pod not in taken]

    def _within_capability(self, plan: Plan) -> bool:
        """S3 at every ancestor, with pending claims. Who asks for room is judged as if all that leave were gone, and all who are nominated had their places."""
        asked = self._asked(plan)
        for queue in path(plan.queue):
            used = self._to_be_used(queue, plan)
            if any(
                asked.get(n, 0) and used.get(n, 0) + asked[n] > most
                for n, most in at_home(queue, self.queues[queue].capability).items()
            ):
                return False
        return True

    def _paid_for(self, plan: Plan) -> bool:
        """The quota of the namespace: memory of all cards together, of claims until they are void. Nobody leaves for its sake."""
        asked = sum(s.memory_mib for p in plan.placements for s in p.slices)
        if plan.namespace != QUOTA.namespace or not any(p.slices for p in plan.placements) or not asked:
            return True
        jobs = {job.id for job in (*JOBS, *LAB_JOBS) if job.namespace == QUOTA.namespace}
        used = sum(s.memory_mib for c in self.rows.live() if c.job in jobs for s in c.slices)
        used += sum(s.memory_mib for p in self._places(plan) if p.job in jobs for s in p.slices)
        return used + asked <= QUOTA.limits[GPU_MEMORY]

    def _recallable(self, plan: Plan) -> bool:
        """S4: a queue that gives nothing back takes nothing of what others are guaranteed, and could not be had back then."""
        return not lent.stands_firm(plan.queue, preemptable=True) or self._leaves_guarantees(plan)

    def protects(self, plan: Plan) -> bool:
        """What nobody may take is of a class that is listed, within what its queue and all above it deserve, and leaves what others are guaranteed."""
        if plan.preemptable or not any(self.queues[queue].non_preemptible_classes for queue in path(plan.queue)):
            return False
        if any(borrows(plan.queue, p.node) for p in plan.placements):
            return False  # its owners have it back whenever they ask
        everything = self._asked(plan)
        for pool in {n.partition("@")[2] for n in everything}:
            asked = {n: everything[n] for n in without_pods(everything) if n.partition("@")[2] == pool}
            for queue in path(plan.queue):
                due = at_home(queue, self.queues[queue].deserved)
                due = due | {n: max(units, due.get(n, 0)) for n, units in self._guarantee(queue).items()}
                named = _judged(asked, due)
                protected = self._used(queue, {c.id for c in self.rows.live() if c.preemptable})
                if not named or any(protected.get(n, 0) + asked[n] > due[n] for n in named):
                    return False
        return self._leaves_guarantees(plan)

    def _leaves_guarantees(self, plan: Plan) -> bool:
        gone = self._leaving(plan)
        non_preemptible = lent.non_preemptible(c for c in self.rows.live() if c.id not in gone)
        non_preemptible += [
            (p.queue, p.node, p.requests.get(GPU, 0)) for p in self._places(plan) if lent.stands_firm(p.queue, preemptable=True)
        ]
        fresh = [(plan.queue, p.node, plan.requests[p.requests].get(GPU, 0)) for p in plan.placements]
        for pool in lent.POOLS:
            asked = sum(cards for _, node, cards in fresh if lent.pool_of(node) == pool)
            relief = lent.owed(non_preemptible, pool) - lent.owed([*non_preemptible, *fresh], pool)
            slack = max(lent.room(non_preemptible, pool) - lent.owed(non_preemptible, pool), 0)
            if asked and asked - relief > slack:
                return False
        return True

    def _whole(self, plan: Plan) -> bool:
        """S6: a gang starts with its minimum, and one that is being unwound takes nothing, unless all that stays of it may not be evicted."""
        gang = self.rows.gangs.get(plan.job)
        live = [c for c in self.rows.live() if c.job == plan.job]
        if gang is not None and gang.unwinding:
            live = [c for c in live if not evicted(c) or c.intent != "none"]
            if not live or any(c.id not in self.blocked or c.intent != "evict" for c in live):
                return False
        members = len(live) + (gang.finished if gang else 0)
        return members + len(plan.placements) >= plan.min_member

    def _rights(self, plan: Plan) -> bool:
        """S8: lower priority gives within a queue. Between queues, where their branches part, the one with more than it deserves gives to the one with
        less, and whatever stands on its branch keeps its guarantee."""
        asked = {n: units for n, units in self._asked(plan).items() if n in without_pods({n: units})}
        gone = {c.id for c in self.rows.live() if evicted(c)}
        takers = set()
        shares = self._shares()
        given: list[ClaimRow] = []
        returned = self._to_the_owner(plan, gone)
        for victim in plan.victims:
            claim = self.rows.claims.get(victim.claim)
            if claim is None or claim.pod != victim.pod_uid or claim.state != "posted":
                return False
            if claim.intent == "revoke":  # its eviction is being taken back
                return False
            if claim.id in returned:
                continue
            if not claim.preemptable:
                return False
            if self.now < claim.protected_until:  # S9: it was evicted a short time ago, and has its place again
                return False
            if claim.queue == plan.queue:
                if claim.priority >= plan.priority:
                    return False
                continue
            ours, theirs = (
                [q for q in path(one) if q not in path(other)]
                for one, other in ((plan.queue, claim.queue), (claim.queue, plan.queue))
            )
            giver = self.queues.get(QueueName(claim.queue))
            if giver is None or not giver.reclaimable or not ours or not theirs:
                return False
            takers.add(ours[-1])
            if claim.id not in gone:
                given.append(claim)
        for loss in self._losses(given, gone):
            theirs = [q for q in path(loss[0].queue) if q not in path(plan.queue)]
            has = self._used(theirs[-1], gone)
            deserved = _larger(at_home(theirs[-1], self.queues[theirs[-1]].deserved), shares.get(theirs[-1], {}))
            amounts = {n: sum(c.amounts.get(n, 0) for c in loss) for c in loss for n in c.amounts}
            gives = [n for n, units in amounts.items() if units > 0 and asked.get(n, 0) > 0]
            named = _judged(amounts, deserved)
            shared = [n for n in named if n in gives or n.startswith(f"{GPU}.")] or named
            if not gives or (shared and all(has.get(n, 0) <= deserved[n] for n in shared)):
                return False
            gone |= {claim.id for claim in loss}
            for queue in theirs:
                left = self._used(queue, gone)
                if any(amounts.get(n, 0) > 0 and left.get(n, 0) < kept for n, kept in self._guarantee(queue).items()):
                    return False
        for taker in takers:
            due, used = at_home(taker, self.queues[taker].deserved), self._to_be_used(taker, plan)
            due = due | {n: max(units, due.get(n, 0)) for n, units in self._guarantee(taker).items()}
            due = _larger(due, shares.get(taker, {}))
            named = _judged(asked, due)
            if not named or any(used.get(n, 0) + asked[n] > due[n] for n in named):
                return False
        return True

    def _to_the_owner(self, plan: Plan, gone: Collection[str]) -> set[str]:
        """Victims that leave own nodes of which an owner asks for a place; and what they leave of a gang that breaks by it."""
        if not any(owns(plan.queue, p.node) for p in plan.placements):
            return set()
        named = {v.claim for v in plan.victims} & self.rows.claims.keys()
        victims = [self.rows.claims[id] for id in named]
        found = {c.id for c in victims if borrows(c.queue, c.node)}
        for job in {self.rows.claims[id].job for id in found}:
            stays = [c for c in self.rows.live() if c.job == job and c.id not in gone]
            if stays and sum(c.id not in found for c in stays) < max(c.min_member for c in stays):
                found |= {c.id for c in victims if c.job == job}
        return found

    def _shares(self) -> dict[QueueName, Resources]:
        """By weight: what there is goes round by round to those who ask for more, as fractions."""
        if self.waiting is None:
            return {}
        claimed = {c.pod for c in self.rows.live()}
        found: dict[QueueName, Resources] = {queue: {} for queue in self.queues}
        for name in ("cpu", GPU):
            asked = dict.fromkeys(self.queues, 0)
            held = [(c.queue, c.requests) for c in self.rows.live()]
            for queue, requests in [*held, *(one for pod, one in self.waiting.items() if pod not in claimed)]:
                for above in path(queue) if queue in self.queues else ():
                    asked[above] += requests.get(name, 0)
            levels = [(Fraction(SCARCE[name]), "")]
            while levels:
                amount, parent = levels.pop()
                children = [queue for queue in self.queues.values() if queue.parent == parent]
                for queue, share in self._divided(amount, children, name, asked).items():
                    found[queue][name] = int(share)
                    levels.append((share, queue))
        return found

    def _divided(
        self, amount: Fraction, children: Sequence[Queue], name: str, asked: Mapping[QueueName, int]
    ) -> dict[QueueName, Fraction]:
        kept = {queue.name: self._guarantee(queue.name).get(name, 0) for queue in children}
        wanted: dict[QueueName, Fraction] = {}
        has: dict[QueueName, Fraction] = {}
        for queue in children:
            reach = max(Fraction(0), amount - sum(kept.values()) + kept[queue.name])
            wanted[queue.name] = min(Fraction(asked[queue.name]), reach, Fraction(queue.capability.get(name, 10**9)))
            has[queue.name] = min(wanted[queue.name], Fraction(queue.deserved.get(name, 0)))
        rest = amount - sum(has.values())
        hungry = [queue for queue in children if has[queue.name] < wanted[queue.name]]
        while hungry and rest > 0:
            each = min(
                [rest / sum(queue.weight for queue in hungry)]
                + [(wanted[queue.name] - has[queue.name]) / queue.weight for queue in hungry]
            )
            for queue in hungry:
                has[queue.name] += each * queue.weight
                rest -= each * queue.weight
            hungry = [queue for queue in hungry if has[queue.name] < wanted[queue.name]]
        for queue in children:  # what is kept for those below it comes on top: there is one level of them
            has[queue.name] += sum(
                max(0, self._guarantee(one.name).get(name, 0) - asked[one.name])
                for one in self.queues.values()
                if one.parent == queue.name
            )
        return {queue: max(share, Fraction(kept[queue])) for queue, share in has.items()}

    def _losses(self, given: Sequence[ClaimRow], gone: Collection[str]) -> list[list[ClaimRow]]:
        """One claim each; but of a gang all of which is taken, what it cannot spare together, where the first of that stands."""
        losses: list[list[ClaimRow]] = []
        for claim in given:
            gang = [c for c in self.rows.live() if c.job == claim.job and c.id not in gone]
            mine = [c for c in given if c.job == claim.job]
            needs = max(c.min_member for c in gang)
            spared = mine[: len(gang) - needs] if len(mine) == len(gang) else mine
            if claim in spared:
                losses.append([claim])
            elif claim is mine[len(spared)]:
                losses.append(mine[len(spared) :])
        return losses

    def _guarantee(self, queue: QueueName) -> Resources:
        below: Resources = {}
        for child in self.queues.values():
            for name, units in self._guarantee(child.name).items() if child.parent == queue else ():
                below[name] = below.get(name, 0) + units
        return below | {n: max(units, below.get(n, 0)) for n, units in at_home(queue, self.queues[queue].guarantee).items()}

    def _fits(self, plan: Plan) -> bool:
        """S1, S2: every placement beside what is held, where the victims are gone."""
        gone = self._leaving(plan)
        held = [(c.node, c.requests, c.slices) for c in self.rows.live() if c.id not in gone]
        held += [(place.node, place.requests, place.slices) for place in self._places(plan)]
        for placement in plan.placements:
            requests = plan.requests[placement.requests]
            if not _beside(held, placement, requests):
                return False
            held.append((placement.node, requests, placement.slices))
        return True


def _larger(one: Resources, other: Resources) -> Resources:
    return {n: max(one.get(n, 0), other.get(n, 0)) for n in one | other}


def _judged(amounts: Resources, named: Resources) -> list[str]:
    """What both name; without the sum of all cards where the models of all of them are named."""
    found = [n for n, units in amounts.items() if units > 0 and n in named]
    for total in [n for n in found if n.partition("@")[0] == GPU]:
        models = [n for n in found if n.startswith(f"{GPU}.") and n.partition("@")[2] == total.partition("@")[2]]
        if sum(amounts[n] for n in models) >= amounts[total]:
            found.remove(total)
    return found


def _beside(held: Sequence[tuple[str, Resources, tuple[CardSlice, ...]]], placement: Placement, requests: Resources) -> bool:
    if placement.node not in NODES:
        return False
    there = [h for h in held if h[0] == placement.node]
    if any(units and sum(h[1].get(n, 0) for h in there) + units > ROOM.get(n, 0) for n, units in requests.items()):
        return False
    if len({s.index for s in placement.slices}) < len(placement.slices):
        return False
    for s in placement.slices:
        on = [o for h in there for o in h[2] if o.index == s.index]
        cores, memory = sum(o.cores for o in on), sum(o.memory_mib for o in on)
        if s.index >= CARDS or s.memory_mib > MEMORY_MIB:
            return False
        if on and (s.whole or cores >= 100 or cores + s.cores > 100 or memory + s.memory_mib > MEMORY_MIB or len(on) >= SHARES):
            return False
    return True


def evicted(claim: ClaimRow) -> bool:
    """Whether its pod's eviction was decided: it leaves."""
    return claim.state == "posted" and claim.reason != ""
