"""Pools of nodes, in whatever trees of queues: what the scheduler proposes the ledger accepts, and an owner that waits has all that it lends back.

Six nodes of two cards: two of lab, two of pooled, one of vision, one of public.
"""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import PUBLIC, NodeState, Queue, QueueName, in_pool
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.pools import POOL, Pools
from hbox_scheduler.core.framework.conf import Conf
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate import job, node

from ..policies import one_by_one
from ..searching import examples
from .both import Both

OWNED = ("lab", "vision")
OF = {"l0": "lab", "l1": "lab", "v0": "vision", "n0": "", "n1": "", "o0": PUBLIC}

policies = st.sampled_from([default_conf(), one_by_one()])


def cluster() -> list[NodeState]:
    return [replace(node(name, cards=2, cpu=64), labels={POOL: pool} if pool else {}) for name, pool in OF.items()]


@st.composite
def rules(draw: st.DrawFn, name: QueueName, parent: str) -> Queue:
    """Amounts as they come, in whichever pools."""
    few = st.fixed_dictionaries({}, optional={GPU: st.integers(0, 4)})
    there = st.fixed_dictionaries({}, optional={in_pool(GPU, pool): st.integers(0, 4) for pool in (*OWNED, PUBLIC)})
    pools: Pools = draw(st.sampled_from([(), (), ("lab",), ("lab", "pooled"), ("pooled", "vision", "lab")]))
    walls = draw(st.sampled_from([{}, {GPU: 3}, {GPU: 8}]))
    return Queue(
        name,
        parent=parent,
        pools=pools,
        capability=walls,
        deserved=draw(few),
        guarantee=draw(few),
        pool_amounts=draw(st.fixed_dictionaries({}, optional={"capability": there, "deserved": there, "guarantee": there})),
        lent_pools=draw(st.sampled_from([(), ("lab",), OWNED])),
        reclaimable=draw(st.integers(0, 5)) < 5,
        non_preemptible_classes=draw(st.sampled_from([(), ("*",)])),
    )


@st.composite
def trees(draw: st.DrawFn) -> list[Queue]:
    queues: list[Queue] = []
    for number in range(draw(st.integers(2, 5))):
        parent = draw(st.sampled_from(["", *(q.name for q in queues if q.name.count("-") < 1)]))
        queues.append(draw(rules(QueueName(f"{parent}-{number}" if parent else f"q{number}"), parent)))
    return queues


@examples(120, dear=True)
@given(trees(), policies, st.data())
def test_what_is_proposed_keeps_to_the_pools_and_their_amounts(queues: list[Queue], policy: Conf, data: st.DataObject) -> None:
    """Queues ask for what is there and what is theirs; pods end, rules and labels change."""
    both = Both(queues, cluster(), policy=policy)
    leaves = [queue.name for queue in queues if not both.books.queues.children(queue.name)]
    for number in range(data.draw(st.integers(1, 10), label="jobs")):
        queue = data.draw(st.sampled_from(leaves), label="queue")
        pods, each, priority = (data.draw(st.integers(1, most)) for most in (5, 2, 2))
        least = data.draw(st.integers(1, pods), label="minimum")
        both.submit(
            job(f"j{number}", queue=queue, pods=pods, min_member=least, cards=each, priority=priority, created_at=float(number))
        )
        change = data.draw(st.integers(0, 7), label="change")
        if change == 0:
            old = data.draw(st.sampled_from(queues), label="whose rules")
            both.rule(data.draw(rules(old.name, old.parent)))
        elif change == 1 and both.books.by_pod:
            both.ends(data.draw(st.sampled_from(sorted(both.books.by_pod)), label="who ends"))
        both.settle()
        both.books.validate()


@examples(60, dear=True)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 2)), min_size=1, max_size=6), st.integers(1, 4), policies, st.data()
)
def test_an_owner_has_all_that_it_lends(borrowed: list[tuple[int, int]], asks: int, policy: Conf, data: st.DataObject) -> None:
    owner = Queue(QueueName("owner"), pools=("lab",), lent_pools=("lab",))
    other = data.draw(rules(QueueName("other"), ""), label="the borrower's rules")
    both = Both([owner, replace(other, pools=())], cluster(), policy=policy)
    for number, (pods, cards) in enumerate(borrowed):
        both.submit(
            job(f"b{number}", queue="other", pods=pods, min_member=pods, cards=cards, priority=9, created_at=float(number))
        )
    both.submit(*(job(f"o{number}", queue="owner", cards=1, created_at=float(100 + number)) for number in range(asks)))
    held = [record.claim for record in both.books.live.values() if record.claim.queue == "owner"]
    assert len(held) == asks
    assert all(OF[claim.node] in ("lab", PUBLIC) for claim in held)


def test_what_a_borrower_deserves_there_takes_nothing_back_from_the_owner() -> None:
    """Of what the owner took back, a job of the borrower's that still waited got two cards: its queue was said to deserve two of the lab."""
    owner = Queue(QueueName("owner"), pools=("lab",), lent_pools=("lab",))
    both = Both([owner, Queue(QueueName("other"), pool_amounts={"deserved": {in_pool(GPU, "lab"): 2}})], cluster())
    both.submit(job("gang", queue="other", pods=3, min_member=3, cards=2, priority=9))
    for number in range(5):
        both.submit(job(f"b{number}", queue="other", cards=1, priority=9, created_at=float(1 + number)))
    both.submit(*(job(f"o{number}", queue="owner", cards=1, created_at=float(100 + number)) for number in range(4)))
    held = [record.claim for record in both.books.live.values() if record.claim.queue == "owner"]
    assert sorted(claim.node for claim in held) == ["l0", "l0", "l1", "l1"]


def test_what_a_department_deserves_of_a_pool_that_a_queue_below_it_owns_counts() -> None:
    """The label is on the project, the amount on its department."""
    amounts = {in_pool(GPU, "lab"): 2}
    departments = [Queue(QueueName(name), pool_amounts={"deserved": amounts}) for name in ("d", "e")]
    projects = [Queue(QueueName(f"{name}-p"), parent=name, pools=("lab",)) for name in ("d", "e")]
    both = Both([*departments, *projects], cluster())
    for number in range(4):
        both.submit(job(f"b{number}", queue="e-p", cards=1, created_at=float(number)))
    for number in range(4):
        both.submit(job(f"o{number}", queue="d-p", cards=1, created_at=float(100 + number)))
    held = [record.claim for record in both.books.live.values() if record.claim.queue == "d-p"]
    assert [OF[claim.node] for claim in held].count("lab") == 2
