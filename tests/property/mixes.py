"""Clusters, trees of queues and work in all mixes: for the proof that nobody keeps what is another's (`test_no_way_around`).

A mix draws which rules are in use at all: pools (own, lent, public), models of cards, shares by weight, levels, disruption budgets, quotas of namespaces. Pods
ask for one card each, so that who could have what is a matter of counting cards by kind: of one pool and one model.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hypothesis import strategies as st

from hbox_common.model import (
    PUBLIC,
    CardQuota,
    CardRequest,
    Claim,
    Job,
    JobId,
    Neighbour,
    NodeName,
    NodeState,
    PodBudget,
    PodRef,
    PodUid,
    Queue,
    QueueName,
    Resources,
    by_pool,
    counted_as,
    in_pool,
    pool_of,
)
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.pools import POOL, POOLED, Pools
from hbox_ledger.core.accounts.demand import GRACE_S
from hbox_ledger.core.step import Step
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate import job, node

from .both import CARDS, NODES, Both

TOTAL = CARDS * NODES
#: So often may who was evicted come back before nothing moves.
RETURNS = 12
#: After which whatever waits for its time has been looked at again.
QUIET_S = 2 * GRACE_S

A100, H100 = "A100", "H100"
SPACES = ("default", "small")
#: What the cluster's PriorityClasses stand for where there are levels.
LEVELS = {"high": 1000, "medium": 500, "low": 100}

WEIGHTS = parse_conf(
    """
actions: "enqueue, allocate, backfill, reclaim, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}, {name: pdb}, {name: levels}]
- plugins: [{name: predicates}, {name: proportion}, {name: binpack}]
""",
    plugins=list(PLUGINS),
)


class Kind(NamedTuple):
    """Cards of one model in one pool, as counted (empty: `pooled`)."""

    pool: str
    model: str

    @property
    def names(self) -> tuple[str, str]:
        """Under which queues count them: as one of that model, and as one of all."""
        return in_pool(f"{GPU}.{self.model}", self.pool), in_pool(GPU, self.pool)


@dataclass(frozen=True, slots=True)
class Work:
    """One job of equal pods, one card each."""

    job: Job
    budget: str = ""

    def __repr__(self) -> str:
        one = self.job
        models = one.tasks[0].cards.models if one.tasks[0].cards else ()
        said = {"class": one.priority_class, "space": one.namespace, "models": models, "budget": self.budget}
        what = f"{one.id} of {one.queue}: {one.min_member} to {one.members} pods, priority {one.priority}, offered {one.preemptable}"
        return f"<{what}{''.join(f', {name} {value}' for name, value in said.items() if value)}>"


@dataclass(frozen=True, slots=True)
class Mix:
    """budgets: by name, how many pods have to stay."""

    nodes: Sequence[NodeState]
    queues: Sequence[Queue]
    by_weight: bool = False
    levels: bool = False
    budgets: Mapping[str, int] = field(default_factory=dict)
    quotas: Sequence[CardQuota] = ()

    def __repr__(self) -> str:
        rows = [f"{one.name} {one.labels.get(POOL, '')} {one.cards[0].model}" for one in self.nodes]
        for one in self.queues:
            given = {
                "d": one.deserved, "g": one.guarantee, "c": one.capability, "pools": one.pools, "lends": one.lent_pools,
                "elsewhere": one.pool_amounts, "firm": one.non_preemptible_classes, "weight": one.weight * self.by_weight,
            }  # fmt: skip
            said = [f"{name}={value}" for name, value in given.items() if value]
            rows.append(" ".join([f"{one.name}{'' if one.reclaimable else ' (gives nothing)'}", *said]))
        rows += [name for name in ("by_weight", "levels") if getattr(self, name)]
        rows += [f"budget {name}: {least} stay" for name, least in self.budgets.items()]
        rows += [f"quota of {quota.namespace}: {quota.limits}" for quota in self.quotas]
        return "\n  ".join(["", *rows])

    def world(self) -> "World":
        policy = WEIGHTS if self.by_weight else default_conf()
        world = World(list(self.queues), list(self.nodes), list(self.quotas), policy, by_weight=self.by_weight)
        world.budgets = dict(self.budgets)
        if self.levels:
            world.scheduler.on_priority_classes(LEVELS)
        return world

    @property
    def leaves(self) -> list[QueueName]:
        parents = {queue.parent for queue in self.queues}
        return [queue.name for queue in self.queues if queue.name not in parents]


@dataclass
class World(Both):
    """Who is evicted comes back: a gang that went whole as a gang, a member as a job of its own. Controllers count disruption budgets before each cycle."""

    evicted: list[Claim] = field(default_factory=list)
    jobs: dict[JobId, Work] = field(default_factory=dict)
    budgets: dict[str, int] = field(default_factory=dict)
    allowed: Counter[str] = field(default_factory=Counter)

    def bring(self, *work: Work) -> None:
        """Until nothing moves any more."""
        self._take_in(work)
        for _ in range(RETURNS):
            leaving, self.evicted = self.evicted, []
            if not leaving:
                return
            self._take_in(list(self._back(leaving)))
        raise AssertionError("the same cards go from queue to queue for ever")

    def rest(self) -> None:
        """Quiet time: all that is tried again after a while is tried, and what was taken counts as asked for no more."""
        before = None
        while before != self.books.index:
            before = self.books.index
            self.now += QUIET_S
            self.settle()
            self.bring()

    def _take_in(self, work: Iterable[Work]) -> None:
        fresh = list(work)
        self.jobs.update((one.job.id, one) for one in fresh)
        pods = [(one, pod.uid) for one in fresh if one.budget for task in one.job.tasks for pod in task.pods]
        self.scheduler.on_neighbours(Neighbour(uid, one.job.namespace, budgets=(one.budget,)) for one, uid in pods)
        self.submit(*(one.job for one in fresh))

    def before_cycle(self) -> None:
        running = Counter(self.jobs[held.claim.job].budget for held in self.books.live.values())
        self.allowed = Counter({name: max(0, running[name] - least) for name, least in self.budgets.items()})
        self.scheduler.on_budgets(PodBudget("default", name, allowed) for name, allowed in sorted(self.allowed.items()))

    def obey(self, step: Step) -> None:
        going = [self.books.live[eviction.claim].claim for eviction in step.evictions]
        for name, count in Counter(self.jobs[claim.job].budget for claim in going).items():
            assert not name or count <= self.allowed[name], f"the API server refuses: {count} of budget {name}, {self.allowed}"
        self.evicted += going
        super().obey(step)

    def _back(self, leaving: list[Claim]) -> Iterable[Work]:
        for id, count in Counter(claim.job for claim in leaving).items():
            gang = self.jobs[id]
            whole = id not in self.books.jobs
            pods, least = (count, min(gang.job.min_member, count)) if whole else (1, 1)
            for number in range(1 if whole else count):
                name = f"{id}+{len(self.jobs)}.{number}"
                (task,) = gang.job.tasks
                fresh = replace(task, pods=tuple(PodRef(PodUid(f"{name}-{i}"), f"{name}-{i}", "1") for i in range(pods)))
                again = replace(
                    gang.job, id=JobId(name), name=name, tasks=(fresh,), members=pods, min_member=least, gang=pods > 1, created_at=self.now
                )  # fmt: skip
                yield replace(gang, job=again)

    # Counted by hand.

    def kind(self, claim: Claim) -> Kind:
        return self.kind_of(claim.node)

    def kind_of(self, name: NodeName) -> Kind:
        state = self.books.nodes[name]
        return Kind(counted_as(pool_of(state.labels)), state.cards[0].model)

    def kinds(self) -> list[Kind]:
        return sorted({self.kind_of(name) for name in self.books.nodes})

    def claims(self) -> list[Claim]:
        return [held.claim for held in self.books.live.values()]

    def free(self, kind: Kind) -> int:
        there = sum(len(state.cards) for name, state in self.books.nodes.items() if self.kind_of(name) == kind)
        return there - sum(self.kind(claim) == kind for claim in self.claims())

    def used(self, queue: QueueName, name: str) -> int:
        path = self.books.queues.path
        return sum(name in self.kind(claim).names and queue in path(claim.queue) for claim in self.claims())

    def waiting(self) -> list[Job]:
        """Jobs that could go on: those of which nothing runs, with all that they need; an elastic gang that runs, with one pod more."""
        there = [one.job for one in self.jobs.values() if self.scheduler.reports.entry(one.job.id) is not None]
        return [
            one if one.id not in self.books.jobs else replace(one, min_member=1)
            for one in there
            if any(pod.uid not in self.books.by_pod for task in one.tasks for pod in task.pods)
        ]


# What is drawn.


@st.composite
def mixes(draw: st.DrawFn) -> Mix:
    pools, models, by_weight, levels, budgets, quotas = (draw(st.booleans()) for _ in range(6))
    models = models and not by_weight  # shares by weight know no models
    nodes = []
    for number in range(NODES):
        pool = draw(st.sampled_from(["", "", "lab", PUBLIC])) if pools else ""
        model = draw(st.sampled_from([A100, H100])) if models else A100
        one = node(f"n{number}", cards=CARDS, cpu=64, model=model)
        nodes.append(replace(one, labels={POOL: pool}) if pool else one)
    there = Counter[str]()
    for state in nodes:
        there.update(dict.fromkeys(Kind(counted_as(pool_of(state.labels)), state.cards[0].model).names, CARDS))
    queues = draw(trees(there, pools=pools, models=models, by_weight=by_weight))
    keeps = {name: draw(st.integers(0, 4)) for name in ("b0", "b1")} if budgets else {}
    limits = [CardQuota("small", "cards", {GPU: draw(st.integers(0, TOTAL))})] if quotas else []
    return Mix(nodes, queues, by_weight, levels, keeps, limits)


@st.composite
def trees(draw: st.DrawFn, there: Counter[str], *, pools: bool, models: bool, by_weight: bool) -> list[Queue]:
    """Two to four departments that deserve no more than there is, with up to three projects each that deserve no more than their department."""

    def amounts(left: Counter[str], home: str) -> tuple[Resources, Resources]:
        """Deserved and guaranteed in one pool, out of what is left: of all cards, or by model."""
        by_model = models and draw(st.booleans())
        names = [Kind(home, model).names[0] for model in (A100, H100)] if by_model else [in_pool(GPU, home)]
        deserved = {name: draw(st.integers(0, max(0, left[name]))) for name in names}
        return deserved, {
            name: least
            for name, units in deserved.items()
            if (least := draw(st.integers(0, units)) if draw(st.booleans()) else 0)
        }

    def queue(name: str, left: Counter[str], parent: Queue | None) -> tuple[Queue, Counter[str]]:
        """And what it deserves. Nothing is named in one of six; a limit is seldom."""
        own: Pools = draw(st.sampled_from([(), (), ("lab",), (POOLED, "lab")])) if pools and parent is None else ()
        at = parent.pools if parent is not None else own
        lent: Pools = ("lab",) if "lab" in own and draw(st.booleans()) else ()
        found = Queue(
            QueueName(name),
            parent=parent.name if parent is not None else "",
            reclaimable=draw(st.integers(0, 7)) < 7,
            weight=draw(st.integers(1, 4)) if by_weight else 1,
            pools=own,
            lent_pools=lent,
            non_preemptible_classes=draw(st.sampled_from([(), (), (), ("firm",), ("high",)])) if parent is None else (),
        )
        if draw(st.integers(0, 5)) == 5 or (by_weight and draw(st.booleans())):
            return found, Counter()
        home = counted_as(POOLED if POOLED in at or not at else at[0])
        deserved, guarantee = amounts(left, home)
        elsewhere: dict[str, Resources] = {}
        if POOLED in at and len(at) > 1 and draw(st.booleans()):
            more, _ = amounts(left, "lab")
            elsewhere = {"deserved": more}
        total = in_pool(GPU, home)
        limit = draw(st.integers(sum(deserved.values()), TOTAL)) if draw(st.integers(0, 4)) == 4 else TOTAL
        found = replace(
            found,
            deserved=in_spec(deserved),
            guarantee=in_spec(guarantee),
            capability=in_spec({total: limit}),
            pool_amounts=elsewhere,
        )
        return found, Counter({**deserved, **elsewhere.get("deserved", {})})

    queues, left = list[Queue](), there.copy()
    for number in range(draw(st.integers(2, 4))):
        top, takes = queue(f"d{number}", left, None)
        left.subtract(takes)
        queues.append(top)
        guaranteed = Counter(top.guarantee)
        for project in range(draw(st.integers(0, 3))):
            own, less = queue(f"d{number}-{project}", takes, top)
            takes.subtract(less)
            guarantee = {name: least for name, units in own.guarantee.items() if (least := min(units, guaranteed[name])) > 0}
            guaranteed.subtract(guarantee)
            limits = {name: min(units, top.capability.get(name, TOTAL)) for name, units in own.capability.items()}
            queues.append(replace(own, guarantee=guarantee, capability=limits))
    return queues


def in_spec(amounts: Resources) -> Resources:
    """Amounts as a queue's `spec` has them: by resource alone."""
    return {by_pool(name)[0]: units for name, units in amounts.items()}


@st.composite
def work(draw: st.DrawFn, mix: Mix, number: int) -> Work:
    pods = draw(st.sampled_from([1, 1, 2, 4, 8, TOTAL]))
    models = {state.cards[0].model for state in mix.nodes}
    wanted = draw(st.sampled_from([(), (), *((model,) for model in sorted(models))])) if len(models) > 1 else ()
    one = job(
        f"j{number}", pods=pods, min_member=draw(st.integers(1, pods)), cards=CardRequest(1, models=wanted),
        queue=draw(st.sampled_from(mix.leaves)), priority=draw(st.integers(0, 2)), created_at=float(number),
    )  # fmt: skip
    name = draw(st.sampled_from(["", "", "firm"] if not mix.levels else ["", "firm", *LEVELS]))
    space = draw(st.sampled_from(SPACES)) if mix.quotas else "default"
    one = replace(
        one,
        namespace=space,
        priority_class=name,
        priority=LEVELS.get(name, one.priority),
        preemptable=draw(st.integers(0, 3)) == 3,
    )
    return Work(one, draw(st.sampled_from(["", "", *mix.budgets])) if space == "default" else "")
