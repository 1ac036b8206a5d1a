"""No way around: when nothing moves any more, nobody waits for what it could have by the rules, whatever mix of queues and gangs there is (issue of shares).

The rules stand here a second time, for pods of one card on equal nodes: there a job fits wherever there are as many cards of one kind, so that who could have
what is a matter of counting (`mixes`).
"""

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbox_common.model import PUBLIC, CardQuota, CardRequest, Claim, Job, PodUid, Queue, QueueName
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.pools import POOL, POOLED, is_exclusive
from hbox_scheduler.core.simulate import job, node

from ..searching import examples
from .mixes import TOTAL, Kind, Mix, Work, World, mixes, work

#: So many mixes, in place of what is asked for below: the same at every run, others each time with `--hypothesis-profile=random`.
EXAMPLES = int(os.environ.get("HBOX_MIXES", "0"))

#: How a level's jobs may preempt: whom each may have leave.
PREEMPTS = {"high": {"low", ""}, "medium": set(), "low": set(), "": {"low", ""}}


class Rules:
    """The rules, counted."""

    def __init__(self, mix: Mix, world: World) -> None:
        self.mix, self.world, self.tree = mix, world, world.books.queues
        world.books.divide(world.now)

    def could_have(self, one: Job) -> str | None:
        """How the job could have its cards, all of one kind. None: it waits rightly."""
        runs = one.id in self.world.books.jobs
        for kind in self.world.kinds():
            if self.may_use(one, kind) and (how := self._of_kind(one, kind, one.min_member, grows=runs)) is not None:
                return f"{how} of {kind}"
        return None

    def may_use(self, one: Job, kind: Kind) -> bool:
        request = one.tasks[0].cards
        assert request is not None
        pool = kind.pool or POOLED
        pools = self.pools(one.queue)
        lent = (q for q in self.tree.values() if pool in q.lent_pools)
        return kind.model in (request.models or (kind.model,)) and (pool == PUBLIC or pool in pools or any(lent))

    def pools(self, queue: QueueName) -> tuple[str, ...]:
        return self.tree[self.tree.path(queue)[-1]].pools or (POOLED,)

    def owns(self, queue: QueueName, pool: str) -> bool:
        return is_exclusive(pool) and pool in self.pools(queue)

    def _of_kind(self, one: Job, kind: Kind, need: int, *, grows: bool) -> str | None:
        """grows: it is one pod more of a gang that has its minimum, which takes by shares alone, and for which no other gang is broken."""
        if self._limited(one, kind, need):
            return None
        free = self.world.free(kind)
        if free >= need and (not self.mix.by_weight or self.entitled(one.queue, kind, need)):
            return f"{free} cards are free"
        owning, by_shares = Owning(self, one, kind), Reclaiming(self, one, kind)
        reaches = (owning, by_shares) if grows else (owning, Preempting(self, one, kind), by_shares)
        for reach in reaches:
            freed = free
            for loss in self.losses(reach, whole=not grows):
                if freed < need and reach.loses(loss):
                    freed += sum(self.world.kind(claim) == kind for claim in loss)
            if freed >= need and reach.gone:
                return f"{freed - free} cards may be taken, by {type(reach).__name__},"
        return None

    def _limited(self, one: Job, kind: Kind, need: int) -> bool:
        """By a capability, by a quota, or because what is guaranteed to others would be lent for good."""
        world, tree = self.world, self.tree
        for queue in tree.path(one.queue):
            most = tree.amounts(queue).capability
            if any(world.used(queue, name) + need > most.get(name, TOTAL) for name in kind.names):
                return True
        for quota in self.mix.quotas if one.namespace == "small" else ():
            if sum(claim.namespace == "small" for claim in world.claims()) + need > quota.limits[GPU]:
                return True
        firm = not tree[one.queue].reclaimable
        return firm and world.books.lending.headroom(one.queue, dict.fromkeys(kind.names, need)).times == 0

    def entitled(self, queue: QueueName, kind: Kind, need: int) -> bool:
        """Whether all queues of the path stay within what they are entitled to."""
        return all(self.within(one, kind, need) for one in self.tree.path(queue))

    def within(self, queue: QueueName, kind: Kind, need: int) -> bool:
        """Whether one queue does: by the line of the model, where it has one, else by the line of all cards."""
        line = self.tree.rights(queue).entitlement
        name = next((name for name in kind.names if name in line), "")
        return bool(name) and self.world.used(queue, name) + need <= line[name]

    def losses(self, reach: "Reach", *, whole: bool) -> list[list[Claim]]:
        """What others could lose: members that a gang can spare one by one, and then, where it may go `whole`, the rest of it at once."""
        world, found = self.world, list[list[Claim]]()
        for held in world.books.jobs.values():
            claims = [world.books.live[id].claim for id in held.live]
            if not claims or any(not reach.takes(claim) for claim in claims):
                continue
            least = max(claim.min_member for claim in claims)
            spare = max(0, len(claims) - least) if least > 1 else len(claims)
            claims.sort(key=lambda claim: world.kind(claim) != reach.kind)
            found += [[claim] for claim in claims[:spare] if world.kind(claim) == reach.kind]
            if whole and any(world.kind(claim) == reach.kind for claim in claims[spare:]):
                found.append(claims[spare:])
        return sorted(found, key=len)


class Reach(ABC):
    """Whom a job may have leave, for cards of one kind."""

    def __init__(self, rules: Rules, one: Job, kind: Kind) -> None:
        self.rules, self.world, self.job, self.kind = rules, rules.world, one, kind
        self.gone: list[Claim] = []

    @abstractmethod
    def takes(self, claim: Claim) -> bool:
        """Whether such a claim may go at all."""

    def may_lose(self, loss: list[Claim]) -> bool:
        """Whether these may go beside those that went before."""
        return True

    def loses(self, loss: list[Claim]) -> bool:
        """As `may_lose`, within the disruption budgets; then they count as gone."""
        going = self.budgets([*self.gone, *loss])
        if any(count > self.world.allowed[name] for name, count in going.items()) or not self.may_lose(loss):
            return False
        self.gone += loss
        return True

    def budgets(self, claims: Iterable[Claim]) -> Counter[str]:
        named = (self.world.jobs[claim.job].budget for claim in claims)
        return Counter(name for name in named if name)


class Owning(Reach):
    """Owners have back what they lend, whatever else is said."""

    def takes(self, claim: Claim) -> bool:
        pool = self.kind.pool
        mine = self.rules.owns(self.job.queue, pool) and not self.rules.owns(claim.queue, pool)
        return mine and self.world.kind(claim).pool == pool


class Preempting(Reach):
    """A higher priority takes from lower ones of its own queue; where there are levels, high and who has none from low and who has none."""

    def takes(self, claim: Claim) -> bool:
        rules = self.rules
        if rules.mix.levels:
            own, other = (one if one in PREEMPTS else "" for one in (self.job.priority_class, self._class_of(claim)))
            if other not in PREEMPTS[own]:
                return False
        return claim.preemptable and claim.queue == self.job.queue and claim.priority < self.job.priority

    def may_lose(self, loss: list[Claim]) -> bool:
        """Where weights count the queue stays within its share: it has no more than that of what is free either."""
        need = self.job.min_member - len(self.gone) - len(loss)
        return not self.rules.mix.by_weight or self.rules.entitled(self.job.queue, self.kind, need)

    def _class_of(self, claim: Claim) -> str:
        return self.world.jobs[claim.job].job.priority_class


class Reclaiming(Reach):
    """Where the paths part the one branch stays within what it is entitled to, and the other has more than it deserves; no guarantee is touched."""

    def takes(self, claim: Claim) -> bool:
        return claim.preemptable and claim.queue != self.job.queue and self.rules.tree[claim.queue].reclaimable

    def may_lose(self, loss: list[Claim]) -> bool:
        rules, tree = self.rules, self.rules.tree
        ours, theirs = ([*reversed(tree.path(name))] for name in (self.job.queue, loss[0].queue))
        parting = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
        own, other = ours[parting], theirs[parting]
        if not rules.within(own, self.kind, self.job.min_member):
            return False
        if rules.mix.by_weight and not rules.entitled(self.job.queue, self.kind, self.job.min_member):
            return False  # `proportion` lets no queue have more than its share
        if not self._gives(other, loss):
            return False
        for queue in theirs[parting:]:
            for name, units in tree.guarantee(queue).items():
                less = sum(name in self.world.kind(claim).names for claim in loss)
                if less and self._left(queue, name) - less < units:
                    return False
        return True

    def _gives(self, queue: QueueName, loss: list[Claim]) -> bool:
        """Whether it has more than it deserves of anything of the right pool that it would lose; of a model where it has a line for it."""
        deserved = self.rules.tree.rights(queue).deserved
        kinds = {self.world.kind(claim) for claim in loss if self.world.kind(claim).pool == self.kind.pool}
        lines = {next((name for name in kind.names if name in deserved), "") for kind in kinds} - {""}
        return not lines or any(self._left(queue, name) > deserved[name] for name in lines)

    def _left(self, queue: QueueName, name: str) -> int:
        path = self.rules.tree.path
        gone = sum(name in self.world.kind(claim).names and queue in path(claim.queue) for claim in self.gone)
        return self.world.used(queue, name) - gone


def keeps_to_the_amounts(mix: Mix, world: World) -> None:
    """No queue is above its capability, and what nobody takes from is within what it is entitled to."""
    tree = world.books.queues
    for queue in tree:
        for name, most in tree.amounts(queue).capability.items():
            assert world.used(queue, name) <= most or name not in (GPU, f"{GPU}@lab")
        line = tree.ruled(queue).entitlement
        firm = [claim for claim in world.claims() if not claim.preemptable and queue in tree.path(claim.queue)]
        assert all(any(name in line for name in world.kind(claim).names) for claim in firm)
        for name, units in line.items():
            assert sum(name == next(n for n in world.kind(claim).names if n in line) for claim in firm) <= units


def lent_for_good(world: World) -> Counter[str]:
    """By name of an amount, cards that queues are guaranteed, and that are neither there nor could be taken back for them (S4)."""
    tree = world.books.queues
    kept = [claim for claim in world.claims() if not claim.preemptable or not tree[claim.queue].reclaimable]

    def held(queue: QueueName, name: str) -> int:
        return sum(name in world.kind(claim).names and queue in tree.path(claim.queue) for claim in kept)

    def owed(queue: QueueName, name: str) -> int:
        below = sum(owed(child, name) for child in tree.children(queue))
        return max(tree.amounts(queue).guarantee.get(name, 0) - held(queue, name), below)

    found = Counter[str]()
    for name in {name for queue in tree for name in tree.amounts(queue).guarantee}:
        there = sum(len(state.cards) for node, state in world.books.nodes.items() if name in world.kind_of(node).names)
        room = there - sum(name in world.kind(claim).names for claim in kept)
        found[name] = max(0, sum(owed(top, name) for top in tree.tops()) - room)
    return found


@pytest.mark.timeout(600 + EXAMPLES)
@(settings(max_examples=EXAMPLES) if EXAMPLES else examples(600, dear=True))
@given(mixes(), st.data())
def test_nobody_waits_for_what_it_could_have(mix: Mix, data: st.DataObject) -> None:
    world = mix.world()
    before = lent_for_good(world)
    for number in range(data.draw(st.integers(2, 10), label="jobs")):
        world.bring(data.draw(work(mix, number), label="work"))
        if world.books.by_pod and data.draw(st.integers(0, 3), label="one ends") == 3:
            world.ends(data.draw(st.sampled_from(sorted(world.books.by_pod)), label="which"))
            world.bring()
        keeps_to_the_amounts(mix, world)
        assert (now := lent_for_good(world)) <= before, f"S4: a guarantee is lent to those who give nothing back: {now}"
    world.rest()
    rules = Rules(mix, world)
    for one in world.waiting():
        assert (how := rules.could_have(one)) is None, (
            f"{one.id} of {one.queue} waits, and {how}; it is told: {world.verdicts.get(one.id)}"
        )


def test_what_the_nearest_relative_may_not_give_all_of_comes_from_further_away() -> None:
    """chat is entitled to one card from its sister, and its department to two from the other one. A gang of two that begins with the sister never starts."""
    tops = [Queue(QueueName("speech"), deserved={GPU: 6}), Queue(QueueName("vision"), deserved={GPU: 6})]
    projects = [Queue(QueueName(name), parent="speech", deserved={GPU: most}) for name, most in (("asr", 3), ("chat", 1))]
    world = Mix([node(f"n{i}", cards=4, cpu=64) for i in range(3)], [*tops, *projects]).world()
    world.bring(*(Work(job(f"a{i}", cards=1, queue="asr", created_at=float(i))) for i in range(4)))
    world.bring(*(Work(job(f"v{i}", cards=1, queue="vision", created_at=float(i))) for i in range(8)))
    world.bring(Work(job("gang", pods=2, cards=1, queue="chat", created_at=100.0)))
    assert (world.held("chat"), world.held("asr")) == (2, 4)


def test_a_borrower_keeps_nothing_by_leaving_pods_of_its_gang_waiting() -> None:
    """Weights 1:1: the gang has 7 of 12 cards, asks for 12, and one after the other wants its half."""
    tops = [Queue(QueueName("first"), capability={GPU: 7}), Queue(QueueName("late"))]
    world = Mix([node(f"n{i}", cards=4, cpu=64) for i in range(3)], tops, by_weight=True).world()
    world.bring(Work(job("elastic", pods=12, min_member=2, cards=1, queue="first", created_at=0.0)))
    for number in range(8):
        world.bring(Work(job(f"j{number}", cards=1, queue="late", created_at=1.0 + number)))
    world.rest()
    assert (world.held("first"), world.held("late")) == (6, 6)


def test_an_elastic_gang_starts_with_as_many_pods_as_leave_others_what_they_are_guaranteed() -> None:
    """12 cards, 10 are guaranteed to others: of a queue that gives nothing back 2 pods start, though 8 would fit."""
    tops = [Queue(QueueName("owner"), guarantee={GPU: 10}), Queue(QueueName("keeps"), reclaimable=False)]
    world = Mix([node(f"n{i}", cards=4, cpu=64) for i in range(3)], tops).world()
    world.bring(Work(job("elastic", pods=8, min_member=1, cards=1, queue="keeps", created_at=0.0)))
    assert world.held("keeps") == 2
    world.bring(Work(job("more", pods=4, min_member=3, cards=1, queue="keeps", created_at=1.0)))
    assert world.held("keeps") == 2


def test_under_proportion_an_owner_has_what_is_free_on_its_own_nodes_whatever_its_weight_gives() -> None:
    """Weights divide what there is in `pooled`; what the lab has of its own is no part of that."""
    lab = Queue(QueueName("lab"), pools=("lab",), deserved={GPU: 1})
    nodes = [node("own", cards=4, cpu=64, labels={POOL: "lab"}), *(node(f"n{i}", cards=4, cpu=64) for i in range(2))]
    world = Mix(nodes, [lab, Queue(QueueName("others"), weight=4)], by_weight=True).world()
    world.bring(Work(job("theirs", pods=8, min_member=1, cards=1, queue="others", created_at=0.0)))
    world.bring(Work(job("ours", pods=3, cards=1, queue="lab", created_at=1.0)))
    assert (world.held("others"), world.used(QueueName("lab"), f"{GPU}@lab")) == (8, 3)


def test_what_a_queue_deserves_in_one_pool_protects_nothing_in_another() -> None:
    """Its class is one that nobody takes from; it deserves 2 of `pooled` and nothing in particular of the lab, and its gang is in both."""
    both = Queue(QueueName("both"), pools=(POOLED, "lab"), deserved={GPU: 2}, non_preemptible_classes=("firm",))
    nodes = [node("own", cards=2, cpu=64, labels={POOL: "lab"}), node("n0", cards=4, cpu=64)]
    world = Mix(nodes, [both]).world()
    gang = job("gang", pods=4, cards=1, queue="both", created_at=0.0)
    world.bring(Work(replace(gang, priority_class="firm", preemptable=False)))
    assert [claim.preemptable for claim in world.claims()] == [True] * 4


def test_a_guarantee_in_one_pool_is_not_found_on_nodes_of_another() -> None:
    """The lab is guaranteed its 2 cards; keeps shares its nodes, gives nothing back, and has 4 of `pooled` besides."""
    lab = Queue(QueueName("lab"), pools=("lab",), guarantee={GPU: 2})
    keeps = Queue(QueueName("keeps"), pools=("lab",), reclaimable=False)
    nodes = [node("own", cards=4, cpu=64, labels={POOL: "lab"}), node("n0", cards=4, cpu=64)]
    world = Mix(nodes, [lab, keeps]).world()
    world.bring(*(Work(job(f"j{number}", cards=1, queue="keeps", created_at=float(number))) for number in range(4)))
    assert world.held("keeps") == 0
    assert world.used(QueueName("keeps"), f"{GPU}@lab") == 2


def test_a_gang_of_one_model_takes_no_more_from_its_relatives_than_they_may_give() -> None:
    """As above, by a line for a model: chat is entitled to one H100 from its sister, and its department to two from the other one."""
    h100 = f"{GPU}.H100"
    tops = [Queue(QueueName("speech"), deserved={h100: 6}), Queue(QueueName("vision"), deserved={h100: 6})]
    projects = [Queue(QueueName(name), parent="speech", deserved={h100: most}) for name, most in (("asr", 3), ("chat", 1))]
    world = Mix([node(f"n{i}", cards=4, cpu=64, model="H100") for i in range(3)], [*tops, *projects]).world()
    world.bring(*(Work(job(f"a{i}", cards=1, queue="asr", created_at=float(i))) for i in range(4)))
    world.bring(*(Work(job(f"v{i}", cards=1, queue="vision", created_at=float(i))) for i in range(8)))
    world.bring(Work(job("gang", pods=2, cards=1, queue="chat", created_at=100.0)))
    assert (world.held("chat"), world.held("asr")) == (2, 4)


def test_who_gives_nothing_back_has_the_model_that_nobody_is_guaranteed() -> None:
    """It names no model: that the H100 are guaranteed keeps it from these, and from no A100."""
    owner = Queue(QueueName("owner"), guarantee={f"{GPU}.H100": 4})
    nodes = [node("n0", cards=4, cpu=64, model="H100"), node("n1", cards=4, cpu=64, model="A100")]
    world = Mix(nodes, [owner, Queue(QueueName("keeps"), reclaimable=False)]).world()
    world.bring(Work(job("gang", pods=4, cards=1, queue="keeps", created_at=0.0)))
    assert [claim.node for claim in world.claims()] == ["n1"] * 4


def test_who_gives_nothing_back_has_the_pool_of_which_nobody_is_guaranteed_anything() -> None:
    owner = Queue(QueueName("owner"), guarantee={GPU: 4})
    nodes = [node("n0", cards=4, cpu=64), node("p0", cards=4, cpu=64, labels={POOL: PUBLIC})]
    world = Mix(nodes, [owner, Queue(QueueName("keeps"), reclaimable=False)]).world()
    world.bring(Work(job("gang", pods=4, cards=1, queue="keeps", created_at=0.0)))
    assert [claim.node for claim in world.claims()] == ["p0"] * 4


def test_in_a_queue_that_gives_nothing_back_one_job_makes_room_for_another() -> None:
    """What is guaranteed to others leaves the queue 2 cards, and the one that leaves gives as many back as the one that comes takes."""
    tops = [Queue(QueueName("owner"), guarantee={GPU: 2}), Queue(QueueName("keeps"), reclaimable=False)]
    world = Mix([node("n0", cards=4, cpu=64)], tops).world()
    low, high = (
        replace(job(name, pods=2, cards=1, queue="keeps", created_at=at), priority=rank)
        for name, at, rank in (("low", 0.0, 0), ("high", 1.0, 1))
    )
    world.bring(Work(low))
    world.bring(Work(high))
    assert {claim.job for claim in world.claims()} == {high.id}


def test_who_waited_for_a_quota_takes_back_what_is_its_own_once_the_quota_leaves_it_room() -> None:
    """What ends is of another queue, and somebody else has the card that it leaves: for the owner nothing changes but what its namespace may have."""
    tops = [Queue(QueueName("owner"), deserved={GPU: 2}), Queue(QueueName("lends"), deserved={GPU: 0})]
    quota = CardQuota("small", "cards", {GPU: 2})
    world = Mix([node("n0", cards=2, cpu=64)], tops, quotas=[quota]).world()
    world.bring(Work(replace(job("held", cards=1, queue="lends", created_at=0.0), namespace="small")))
    world.bring(Work(job("other", cards=1, queue="lends", created_at=1.0)))
    world.bring(Work(replace(job("gang", pods=2, cards=1, queue="owner", created_at=2.0), namespace="small")))
    world.bring(Work(job("next", cards=1, queue="lends", created_at=3.0)))
    world.ends(PodUid("held-0"))
    world.rest()
    assert world.held("owner") == 2


def test_an_owner_that_names_models_has_back_what_it_lends() -> None:
    """The lab's amounts are of a model; a stranger has its cards."""
    h100 = f"{GPU}.H100"
    lab = Queue(QueueName("lab"), pools=("lab",), lent_pools=("lab",), deserved={h100: 4})
    nodes = [node("own", cards=4, cpu=64, model="H100", labels={POOL: "lab"}), node("n0", cards=4, cpu=64, model="H100")]
    world = Mix(nodes, [lab, Queue(QueueName("stranger"))]).world()
    world.bring(*(Work(job(f"s{i}", cards=1, queue="stranger", created_at=float(i))) for i in range(8)))
    assert world.used(QueueName("stranger"), f"{h100}@lab") == 4
    world.bring(Work(job("ours", pods=4, cards=1, queue="lab", created_at=10.0)))
    assert world.used(QueueName("lab"), f"{h100}@lab") == 4


def test_a_gang_that_crosses_the_line_of_its_queue_goes_after_those_who_can_be_spared_one_by_one() -> None:
    """The borrower deserves 2 and has 5: all 4 H100 and one A100. Its gang goes last, or its single pod could not go; the owner's gang needs the 4."""
    tops = [Queue(QueueName("owner"), deserved={GPU: 6}), Queue(QueueName("borrower"), deserved={GPU: 2})]
    nodes = [node("n0", cards=4, cpu=64, model="H100"), node("n1", cards=4, cpu=64, model="A100")]
    world = Mix(nodes, [*tops, Queue(QueueName("named"), deserved={f"{GPU}.H100": 0})]).world()
    h100, a100 = (CardRequest(1, models=(model,)) for model in ("H100", "A100"))
    world.bring(Work(job("single", cards=h100, queue="borrower", created_at=0.0)))
    world.bring(Work(job("gang", pods=3, min_member=2, cards=h100, queue="borrower", created_at=1.0)))
    world.bring(Work(job("away", cards=a100, queue="borrower", created_at=2.0)))
    world.bring(Work(job("ours", pods=4, cards=h100, queue="owner", created_at=10.0)))
    assert world.held("owner") == 4


def test_by_weight_nobody_waits_for_what_is_kept_for_its_sister() -> None:
    """The department's 3 guaranteed cards are chat's, who asks for none; asr asks for one, there are 8, and nobody else wants any."""
    top = Queue(QueueName("speech"), guarantee={GPU: 3})
    projects = [Queue(QueueName("chat"), parent="speech", guarantee={GPU: 3}), Queue(QueueName("asr"), parent="speech")]
    world = Mix(
        [node(f"n{i}", cards=4, cpu=64) for i in range(2)], [top, *projects, Queue(QueueName("other"))], by_weight=True
    ).world()
    world.bring(Work(job("one", cards=1, queue="asr", created_at=0.0)))
    assert world.held("asr") == 1
