"""The scheduler's core and the ledger's on the same news: in whatever tree of queues, what the one proposes the other accepts.

A proposal that is refused though nothing is news to the scheduler would be proposed again, and refused again.
"""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hbox_common.events import Placement, Plan, Victim
from hbox_common.model import (
    CardQuota,
    CardRequest,
    ClaimState,
    Generation,
    Job,
    Neighbour,
    NodeState,
    PlanId,
    Queue,
    QueueName,
    Refusal,
)
from hbox_common.model.annotations import QUEUE_MIN_RUN_TIME
from hbox_common.model.devices.nvidia import GPU, GPU_CORES, GPU_MEMORY
from hbox_ledger.core import arbitrate, guarantees
from hbox_ledger.core.evictions import preemption
from hbox_scheduler.core.framework.conf import Conf
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate import job, node

from ..policies import one_by_one
from ..searching import examples
from .both import CARDS, NODES, Both


@st.composite
def trees(draw: st.DrawFn) -> list[Queue]:
    """Up to three levels; amounts as they come, also such that nobody would want."""
    few = st.fixed_dictionaries({}, optional={GPU: st.integers(0, 6)})
    queues: list[Queue] = []
    for number in range(draw(st.integers(2, 7))):
        parent = draw(st.sampled_from(["", *(q.name for q in queues if q.name.count("-") < 2)]))
        name = QueueName(f"{parent}-{number}" if parent else f"q{number}")
        capability = {GPU: draw(st.integers(0, CARDS * NODES))} if draw(st.integers(0, 5)) == 5 else {}
        queues.append(
            Queue(
                name,
                parent=parent,
                capability=capability,
                deserved=draw(few),
                guarantee=draw(few),
                reclaimable=draw(st.integers(0, 5)) < 5,
                non_preemptible_classes=draw(st.sampled_from([(), ("*",)])),
            )
        )
    return queues


def lent_for_good(both: Both) -> int:
    """Cards that queues are guaranteed, and that neither are free nor could be taken back for them."""
    tree = both.books.queues
    non_preemptible = [
        h.claim for h in both.books.live.values() if not h.claim.preemptable or not tree[h.claim.queue].reclaimable
    ]

    def held(queue: QueueName) -> int:
        return sum(claim.requests[GPU] for claim in non_preemptible if queue in tree.path(claim.queue))

    def owed(queue: QueueName) -> int:
        return max(tree[queue].guarantee.get(GPU, 0) - held(queue), sum(map(owed, tree.children(queue))))

    return max(0, sum(map(owed, tree.tops())) + sum(map(held, tree.tops())) - CARDS * NODES)


@examples(60, dear=True)
@given(trees(), st.data())
def test_nothing_that_is_proposed_is_refused(queues: list[Queue], data: st.DataObject) -> None:
    """One queue fills the cluster, others ask for what is theirs."""
    both = Both(queues)
    leaves = [queue.name for queue in queues if not both.books.queues.children(queue.name)]
    before = lent_for_good(both)
    first = data.draw(st.sampled_from(leaves), label="who fills it")
    both.submit(*(job(f"f{i}", cards=1, queue=first, created_at=float(i)) for i in range(CARDS * NODES)))
    for number in range(data.draw(st.integers(1, 8), label="jobs")):
        queue = data.draw(st.sampled_from([*leaves, queues[0].name]), label="queue")
        pods, each, priority = (data.draw(st.integers(1, most)) for most in (3, 2, 2))
        non_preemptible = data.draw(st.integers(0, 3), label="may be preempted") == 3
        asking = job(f"j{number}", pods=pods, cards=each, queue=queue, priority=priority, created_at=100.0 + number)
        both.submit(replace(asking, preemptable=not non_preemptible))
        assert lent_for_good(both) <= before, "S4: a guarantee is lent to those who give nothing back"
    for one in queues:
        limit = one.capability.get(GPU)
        assert limit is None or both.held(one.name) <= limit


def granted(both: Both, one: Job) -> list[Plan]:
    """What the ledger would have leave for a job of one pod, of one job each: one member of it, or all of them."""
    task = one.tasks[0]
    plans: list[Plan] = []
    for id, held in both.books.jobs.items():
        claims = [both.books.live[claim].claim for claim in held.live]
        if id == one.id or len({claim.queue for claim in claims}) > 1:
            continue
        spare = len(claims) > max(claim.min_member for claim in claims)
        for victims in [*([[claim] for claim in claims] if spare else []), claims]:
            pod, place = task.pods[0], victims[0]
            plan = Plan(
                id=PlanId("would"), job=one.id, namespace=one.namespace, name=one.name, queue=one.queue, priority=one.priority,
                min_member=1, bound=0, requests=(task.requests,), created_at=one.created_at, preemptable=one.preemptable,
                deadline_s=60.0, victims=tuple(Victim(claim=claim.id, pod_uid=claim.pod_uid) for claim in victims),
                placements=(
                    Placement(pod.uid, pod.name, pod.resource_version, place.node, Generation(0), place.slices[: task.requests[GPU]], 0),
                ),
            )  # fmt: skip
            records = preemption._victims(both.books, plan)
            assert not isinstance(records, Refusal)
            refused = arbitrate._queue(both.books, plan) or guarantees.refuse(both.books, plan)
            if (
                refused or preemption._rights(both.books, plan, records, 0.0) or preemption._in_vain(both.books, plan, records)
            ) is None:
                plans.append(plan)
    return plans


@examples(100, dear=True)
@given(trees(), st.data())
def test_nobody_waits_for_what_it_may_take_back(queues: list[Queue], data: st.DataObject) -> None:
    """Gangs of any minimum fill the cluster; jobs of one card that still wait when nothing moves any more have no right to anything that runs."""
    both = Both(queues)
    leaves = [queue.name for queue in queues if not both.books.queues.children(queue.name)]
    for number in range(data.draw(st.integers(1, 5), label="gangs")):
        queue = data.draw(st.sampled_from(leaves), label="queue")
        pods = data.draw(st.integers(1, CARDS * NODES), label="pods")
        least = data.draw(st.integers(1, pods), label="least")
        gang = job(f"g{number}", pods=pods, min_member=least, cards=1, queue=queue, created_at=float(number))
        both.submit(replace(gang, preemptable=data.draw(st.booleans(), label="offered")))
    for place in range(data.draw(st.integers(1, 6), label="jobs")):
        queue = data.draw(st.sampled_from(leaves), label="queue")
        both.submit(job(f"j{place}", cards=1, queue=queue, created_at=100.0 + place))
    for one in both.waiting():
        assert granted(both, one) == []


A100, H100 = f"{GPU}.A100", f"{GPU}.H100"
MODELS = (A100, H100)


def two_models() -> list[NodeState]:
    """Four A100, four H100, and a node with two of each."""
    mixed = node("both", cards=CARDS, cpu=64)
    cards = tuple(replace(card, model="A100" if card.index < 2 else "H100") for card in mixed.cards)
    return [replace(mixed, cards=cards), *(node(m, cards=CARDS, cpu=64, model=m) for m in ("A100", "H100"))]


@st.composite
def rules(draw: st.DrawFn, name: QueueName, parent: str) -> Queue:
    """Amounts of models and of all cards, as they come."""
    few = st.fixed_dictionaries({}, optional=dict.fromkeys((GPU, *MODELS), st.integers(0, 6)))
    walls = st.fixed_dictionaries({}, optional={GPU: st.integers(4, 12)} | dict.fromkeys(MODELS, st.integers(0, 6)))
    capability = draw(walls) if draw(st.integers(0, 1)) else {}
    reclaimable = draw(st.integers(0, 5)) < 5
    return Queue(name, parent=parent, capability=capability, deserved=draw(few), guarantee=draw(few), reclaimable=reclaimable)


@st.composite
def trees_of_models(draw: st.DrawFn) -> list[Queue]:
    queues: list[Queue] = []
    for number in range(draw(st.integers(2, 5))):
        parent = draw(st.sampled_from(["", *(q.name for q in queues if q.name.count("-") < 1)]))
        queues.append(draw(rules(QueueName(f"{parent}-{number}" if parent else f"q{number}"), parent)))
    return queues


#: In batches, and one by one.
policies = st.sampled_from([default_conf(), one_by_one()])


@examples(200, dear=True)
@given(trees_of_models(), policies, st.data())
def test_what_is_proposed_keeps_to_amounts_by_model(queues: list[Queue], policy: Conf, data: st.DataObject) -> None:
    """One queue fills the cluster, others ask for what is theirs: of one model or of any; pods end, rules change, nodes get other cards."""
    both = Both(queues, two_models(), policy=policy)
    leaves = [queue.name for queue in queues if not both.books.queues.children(queue.name)]
    first = data.draw(st.sampled_from(leaves), label="who fills it")
    both.submit(*(job(f"f{i}", cards=1, queue=first, created_at=float(i)) for i in range(CARDS * NODES)))
    for number in range(data.draw(st.integers(1, 8), label="jobs")):
        queue = data.draw(st.sampled_from(leaves), label="queue")
        pods, each, priority = (data.draw(st.integers(1, most)) for most in (3, 2, 2))
        models = data.draw(st.sampled_from([(), ("A100",), ("H100",), ("A100", "H100")]), label="models")
        if data.draw(st.integers(0, 3), label="rules change") == 3:
            one = data.draw(st.sampled_from(queues), label="whose")
            both.rule(data.draw(rules(one.name, one.parent)))
        before = both.by_model()
        asked = CardRequest(each, models=models)
        both.submit(job(f"j{number}", pods=pods, cards=asked, queue=queue, priority=priority, created_at=100.0 + number))
        if both.books.by_pod and data.draw(st.integers(0, 2), label="one ends") == 2:
            both.ends(data.draw(st.sampled_from(sorted(both.books.by_pod)), label="which"))
        if data.draw(st.integers(0, 7), label="other cards") == 7:
            both.refit(data.draw(st.sampled_from(both.cluster)), data.draw(st.sampled_from(["A100", "H100", ""])))
        for name, rule in both.books.queues.items():
            has = both.books.queues.used(name)
            assert both.books.by_model is both.books.queues.by_model
            assert {r: n for r, n in has.items() if n} == {r: n for r, n in both.scheduler.queues.all().used(name).items() if n}
            for model, limit in rule.capability.items():
                assert has.get(model, 0) <= max(limit, before[name].get(model, 0)), (name, model)


@st.composite
def quotas(draw: st.DrawFn) -> list[CardQuota]:
    """Up to three, in two namespaces."""
    limits = st.fixed_dictionaries(
        {GPU_MEMORY: st.integers(0, 40) | st.integers(0, 200)},
        optional={GPU: st.integers(0, 8), GPU_CORES: st.integers(0, 500)},
    )
    return [
        CardQuota(space, f"q{number}", draw(limits))
        for number, space in enumerate(draw(st.lists(st.sampled_from(["one", "two"]), min_size=1, max_size=3)))
    ]


@st.composite
def requests(draw: st.DrawFn) -> CardRequest:
    count, cores = draw(st.integers(1, 2)), draw(st.sampled_from([0, 0, 30, 100]))
    return draw(
        st.builds(CardRequest, st.just(count), cores=st.just(cores), memory_mib=st.integers(1, 16))
        | st.builds(CardRequest, st.just(count), cores=st.just(cores), memory_percent=st.sampled_from([10, 30, 50, 90]))
        | st.just(CardRequest(count))
    )


@examples(150, dear=True)
@given(quotas(), policies, st.data())
def test_what_is_proposed_in_namespaces_with_quotas_is_paid_for(
    limits: list[CardQuota], policy: Conf, data: st.DataObject
) -> None:
    """Cards of 8, 16 and 40 MiB; jobs of all shapes, pods that end, quotas that change."""
    cluster = [node(f"n{i}", cards=2, card_mib=size, shares=4) for i, size in enumerate((8, 8, 16, 40))]
    both = Both([Queue(QueueName("default"))], cluster, limits, policy)
    for number in range(data.draw(st.integers(1, 8), label="jobs")):
        pods, priority = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 1))
        one = job(f"j{number}", pods=pods, cards=data.draw(requests()), priority=priority, created_at=float(number))
        if data.draw(st.integers(0, 4), label="quotas change") == 4:
            limits = data.draw(quotas())
            both.limit(*limits)
        before = {space: dict(both.books.card_quotas.used(space)) for space in ("one", "two")}
        both.submit(replace(one, namespace=data.draw(st.sampled_from(["one", "two", "free"]), label="namespace")))
        if both.books.by_pod and data.draw(st.integers(0, 2), label="one ends") == 2:
            both.ends(data.draw(st.sampled_from(sorted(both.books.by_pod)), label="which"))
        for quota in limits:
            used = both.books.card_quotas.used(quota.namespace)
            assert used == both.scheduler.bookings.card_quotas.used(quota.namespace)
            for name, limit in quota.limits.items():
                assert used.get(name, 0) <= max(limit, before[quota.namespace].get(name, 0)), quota
    assert not [entry for entry in both.waiting() if both.would_fit(entry)]


def test_departments_lend_and_take_back_and_their_projects_among_themselves() -> None:
    """12 cards, three departments that deserve 4 each. vision has borrowed all; speech and robots take theirs back, and then serve takes from train."""
    departments = [Queue(QueueName(name), deserved={GPU: 4}) for name in ("vision", "speech", "robots")]
    projects = [Queue(QueueName(name), parent="vision", deserved={GPU: 2}) for name in ("train", "serve")]
    projects += [Queue(QueueName("asr"), parent="speech"), Queue(QueueName("arm"), parent="robots")]
    both = Both(departments + projects)
    both.submit(*(job(f"t{i}", cards=1, queue="train", created_at=float(i)) for i in range(12)))
    assert both.held("train") == 12
    for queue, jobs in (("asr", 6), ("arm", 4), ("serve", 3)):
        both.submit(*(job(f"{queue}{i}", cards=1, queue=queue, created_at=100.0 + i) for i in range(jobs)))
    assert [both.held(q.name) for q in departments] == [4, 4, 4]
    assert [both.held(q.name) for q in projects] == [2, 2, 4, 4]
    assert all(holding.claim.state is ClaimState.POSTED for holding in both.books.live.values())


def test_room_that_a_gang_leaves_beyond_what_was_taken_from_it_is_nobodys_right() -> None:
    """A gang of six cards would go whole for two of them. On the rest a second member would fit, with which the department had more than it is due."""
    tree = [Queue(QueueName("any")), Queue(QueueName("nlp")), Queue(QueueName("nlp-serve"), parent="nlp")]
    tree += [Queue(QueueName("nlp-serve-chat"), parent="nlp-serve", guarantee={GPU: 5}), Queue(QueueName("open"))]
    both = Both([*tree, Queue(QueueName("nlp-train"), parent="nlp", deserved={GPU: 2})])
    both.submit(*(job(f"f{i}", cards=1, queue="open", created_at=float(i)) for i in range(12)))
    wanted = (("nlp-train", 1, 2), ("any", 1, 1), ("nlp-serve-chat", 2, 2), ("nlp-serve-chat", 1, 1), ("open", 3, 2))
    for number, (queue, pods, cards) in enumerate(wanted):
        both.submit(job(f"j{number}", pods=pods, cards=cards, queue=queue, priority=1, created_at=100.0 + number))
    assert both.held("nlp") == 3


def test_who_is_in_its_minimum_run_time_is_not_said_to_cool_down_whatever_second_its_kubelet_says() -> None:
    """A kubelet says when a pod began to run in whole seconds: often a moment before the ledger gave it its place."""
    borrower = Queue(QueueName("borrower"), annotations={QUEUE_MIN_RUN_TIME: "15s"})
    both = Both([borrower, Queue(QueueName("owner"), deserved={GPU: 1})])
    both.now = 1_000.6
    both.submit(job("lent", pods=CARDS * NODES, cards=1, queue="borrower", min_member=1))
    held = [record.claim for record in both.books.live.values()]
    assert {claim.protected_until - claim.claimed_at for claim in held} == {15.0}
    both.scheduler.on_neighbours(
        Neighbour(claim.pod_uid, claim.namespace, started_at=float(int(claim.claimed_at))) for claim in held
    )
    waits = job("mine", cards=1, queue="owner")
    both.submit(waits)
    both.settle()
    assert f"{CARDS * NODES} of queue borrower in minimum run time until" in both.verdicts[waits.id]
