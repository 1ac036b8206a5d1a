"""No way around: when nothing moves any more, nobody waits for what it could have by the rules, whatever mix of queues and gangs there is (issue of shares).

The rules stand here a second time, for pods of one card on equal nodes: there a job fits wherever there are as many cards, so that who could have what is a
matter of counting.
"""

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from hbox_common.model import Claim, Job, JobId, Queue, QueueName
from hbox_common.model.devices.nvidia import GPU
from hbox_ledger.core.step import Step
from hbox_scheduler.core.simulate import job

from .both import CARDS, NODES, Both

TOTAL = CARDS * NODES
#: So often may who was evicted come back before nothing moves.
RETURNS = 12


@dataclass
class Department(Both):
    """Who is evicted comes back: a gang that went whole as a gang, a member as a job of its own."""

    evicted: list[Claim] = field(default_factory=list)
    jobs: dict[JobId, Job] = field(default_factory=dict)

    def submit(self, *jobs: Job) -> None:
        self.jobs.update((one.id, one) for one in jobs)
        super().submit(*jobs)
        for _ in range(RETURNS):
            leaving, self.evicted = self.evicted, []
            if not leaving:
                return
            back = list(self._back(leaving))
            self.jobs.update((one.id, one) for one in back)
            super().submit(*back)
        raise AssertionError("the same cards go from queue to queue for ever")

    def obey(self, step: Step) -> None:
        self.evicted += [self.books.live[eviction.claim].claim for eviction in step.evictions]
        super().obey(step)

    def _back(self, leaving: list[Claim]) -> list[Job]:
        found = []
        for id, count in Counter(claim.job for claim in leaving).items():
            gang = self.jobs[id]
            whole = id not in self.books.jobs
            pods, least = (count, min(gang.min_member, count)) if whole else (1, 1)
            for number in range(1 if whole else count):
                again = job(
                    f"{id}+{len(self.jobs)}.{number}", pods=pods, min_member=least, cards=1, queue=gang.queue,
                    priority=gang.priority, created_at=self.now,
                )  # fmt: skip
                found.append(replace(again, preemptable=gang.preemptable, priority_class=gang.priority_class))
        return found

    # What the rules say, counted.

    def used(self, queue: QueueName) -> int:
        return self.books.queues.used(queue).get(GPU, 0)

    def waiting(self) -> list[Job]:
        """Jobs of which nothing runs."""
        return [one for one in self.jobs.values() if one.id not in self.books.jobs and self.scheduler.entry(one.id) is not None]

    def protected(self, queue: QueueName) -> int:
        """Cards of the queue that nobody takes from."""
        claims = [held.claim for held in self.books.live.values() if not held.claim.preemptable]
        return sum(queue in self.books.queues.path(claim.queue) for claim in claims)

    def losses(self, reach: "Reach") -> list[tuple[QueueName, int]]:
        """What others could lose, by queue: members that a gang can spare one by one, and then the rest of it at once."""
        found: list[tuple[QueueName, int]] = []
        for held in self.books.jobs.values():
            claims = [self.books.live[id].claim for id in held.live]
            if not claims or any(not reach.takes(claim) for claim in claims):
                continue
            least = max(claim.min_member for claim in claims)
            spare = len(claims) - least if least > 1 else len(claims)
            found += [(claims[0].queue, 1)] * spare
            if spare < len(claims):
                found.append((claims[0].queue, len(claims) - spare))
        return sorted(found, key=lambda loss: loss[1])

    def could_have(self, one: Job) -> str | None:
        """How the job could have its cards. None: it waits rightly."""
        tree, need = self.books.queues, one.min_member
        path = tree.path(one.queue)
        if any(self.used(queue) + need > tree[queue].capability.get(GPU, TOTAL) for queue in path):
            return None
        free = TOTAL - sum(map(self.used, tree.tops()))
        if free >= need:
            return f"{free} cards are free"
        for reach in (Preempting(self, one), Reclaiming(self, one)):
            freed = free
            for queue, cards in self.losses(reach):
                if freed < need and reach.loses(queue, cards):
                    freed += cards
            if freed >= need:
                return f"{freed - free} cards may be taken, by {type(reach).__name__}"
        return None


class Reach(ABC):
    """Whom a job may have leave."""

    def __init__(self, department: Department, one: Job) -> None:
        self.department, self.job = department, one
        self.gone: Counter[QueueName] = Counter()

    @abstractmethod
    def takes(self, claim: Claim) -> bool:
        """Whether such a claim may go at all."""

    def loses(self, queue: QueueName, cards: int) -> bool:
        """Whether so many cards of the queue may go beside those that went before; they count as gone then."""
        return True


class Preempting(Reach):
    """A higher priority takes from lower ones of its own queue."""

    def takes(self, claim: Claim) -> bool:
        return claim.preemptable and claim.queue == self.job.queue and claim.priority < self.job.priority


class Reclaiming(Reach):
    """Where the paths part the one branch stays within what it is entitled to, and the other has more than it deserves; no guarantee is touched."""

    def takes(self, claim: Claim) -> bool:
        return claim.preemptable and claim.queue != self.job.queue and self.department.books.queues[claim.queue].reclaimable

    def loses(self, queue: QueueName, cards: int) -> bool:
        tree = self.department.books.queues
        ours, theirs = ([*reversed(tree.path(name))] for name in (self.job.queue, queue))
        parting = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
        own, other = tree[ours[parting]], tree[theirs[parting]]
        if self.department.used(own.name) + self.job.min_member > entitled(own):
            return False
        if GPU in other.deserved and self._left(other.name) <= other.deserved[GPU]:
            return False
        if any(self._left(name) - cards < tree[name].guarantee.get(GPU, 0) for name in theirs[parting:]):
            return False
        for name in theirs:
            self.gone[name] += cards
        return True

    def _left(self, queue: QueueName) -> int:
        return self.department.used(queue) - self.gone[queue]


def entitled(queue: Queue) -> int:
    return max(queue.deserved.get(GPU, 0), queue.guarantee.get(GPU, 0))


@st.composite
def departments(draw: st.DrawFn) -> list[Queue]:
    """Two to four departments that deserve no more than there is, with up to three projects each that deserve no more than their department."""

    def queue(name: str, most: int, parent: str = "") -> Queue:
        """Nothing is named in one of six; a limit is seldom."""
        if draw(st.integers(0, 5)) == 5:
            return Queue(QueueName(name), parent=parent, reclaimable=draw(st.integers(0, 7)) < 7)
        deserved = draw(st.integers(0, most))
        guarantee = draw(st.integers(0, deserved)) if draw(st.booleans()) else 0
        limit = draw(st.integers(deserved, TOTAL)) if draw(st.integers(0, 4)) == 4 else TOTAL
        return Queue(
            QueueName(name),
            parent=parent,
            deserved={GPU: deserved},
            guarantee={GPU: guarantee} if guarantee else {},
            capability={GPU: limit},
            reclaimable=draw(st.integers(0, 7)) < 7,
        )

    classes = st.sampled_from([(), (), (), ("firm",)])
    queues, left = list[Queue](), TOTAL
    for number in range(draw(st.integers(2, 4))):
        top = replace(queue(f"d{number}", left), non_preemptible_classes=draw(classes))
        left -= top.deserved.get(GPU, 0)
        queues.append(top)
        guaranteed, below = top.guarantee.get(GPU, 0), top.deserved.get(GPU, 0)
        for project in range(draw(st.integers(0, 3))):
            own = queue(f"d{number}-{project}", below, top.name)
            limit = min(own.capability.get(GPU, TOTAL), top.capability.get(GPU, TOTAL))
            guarantee = min(own.guarantee.get(GPU, 0), guaranteed)
            below, guaranteed = below - own.deserved.get(GPU, 0), guaranteed - guarantee
            queues.append(replace(own, capability={GPU: limit}, guarantee={GPU: guarantee} if guarantee else {}))
    return queues


@settings(max_examples=100, deadline=None)
@given(departments(), st.data())
def test_nobody_waits_for_what_it_could_have(queues: list[Queue], data: st.DataObject) -> None:
    department = Department(queues)
    tree = department.books.queues
    leaves = [queue.name for queue in queues if not tree.children(queue.name)]
    for number in range(data.draw(st.integers(2, 10), label="jobs")):
        queue = data.draw(st.sampled_from(leaves), label="queue")
        pods = data.draw(st.sampled_from([1, 1, 2, 4, 8, TOTAL]), label="pods")
        one = job(
            f"j{number}", pods=pods, min_member=data.draw(st.integers(1, pods), label="least"), cards=1, queue=queue,
            priority=data.draw(st.integers(0, 2), label="priority"), created_at=float(number),
        )  # fmt: skip
        name = data.draw(st.sampled_from(["", "", "firm"]), label="class")
        department.submit(replace(one, priority_class=name, preemptable=data.draw(st.integers(0, 3), label="offered") == 3))
        if department.books.by_pod and data.draw(st.integers(0, 3), label="one ends") == 3:
            department.ends(data.draw(st.sampled_from(sorted(department.books.by_pod)), label="which"))
        for rule in tree.values():
            assert department.used(rule.name) <= rule.capability.get(GPU, TOTAL)
            assert department.protected(rule.name) <= entitled(rule)
    for one in department.waiting():
        assert (how := department.could_have(one)) is None, f"{one.id} waits, and {how}"


def test_what_the_nearest_relative_may_not_give_all_of_comes_from_further_away() -> None:
    """chat is entitled to one card from its sister, and its department to two from the other one. A gang of two that begins with the sister never starts."""
    tops = [Queue(QueueName("speech"), deserved={GPU: 6}), Queue(QueueName("vision"), deserved={GPU: 6})]
    projects = [Queue(QueueName(name), parent="speech", deserved={GPU: most}) for name, most in (("asr", 3), ("chat", 1))]
    department = Department([*tops, *projects])
    department.submit(*(job(f"a{i}", cards=1, queue="asr", created_at=float(i)) for i in range(4)))
    department.submit(*(job(f"v{i}", cards=1, queue="vision", created_at=float(i)) for i in range(8)))
    department.submit(job("gang", pods=2, cards=1, queue="chat", created_at=100.0))
    assert (department.used(QueueName("chat")), department.used(QueueName("asr"))) == (2, 4)
