"""Pools of nodes, for the scheduler's core and the ledger's together: what the one proposes the other accepts. A node of four cards in each pool.

lab      owned by vision
n0       pooled
open     public
"""

from dataclasses import replace
from typing import Any

import pytest

from hbox_common.model import PUBLIC, JobId, NodeState, Queue, QueueName, in_pool
from hbox_common.model.annotations import QUEUE_MIN_RUN_TIME
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.pools import POOL
from hbox_scheduler.core.framework.conf import Conf
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate import job, node

from ..policies import one_by_one
from ..property.both import Both

LAB, A100 = in_pool(GPU, "lab"), f"{GPU}.A100"


def in_(pool: str, name: str, **more: Any) -> NodeState:
    return replace(node(name, cards=4, cpu=64, **more), labels={POOL: pool})


NODES = [in_("lab", "lab"), node("n0", cards=4, cpu=64), in_(PUBLIC, "open")]


@pytest.fixture(params=["batches", "one by one"])
def policy(request: pytest.FixtureRequest) -> Conf:
    return default_conf() if request.param == "batches" else one_by_one()


def world(policy: Conf, *queues: Queue, nodes: list[NodeState] | None = None) -> Both:
    return Both(list(queues), cluster=list(NODES if nodes is None else nodes), policy=policy)


def vision(**more: Any) -> Queue:
    return Queue(QueueName("vision"), pools=("lab", "pooled"), **more)


def submit(
    both: Both, queue: str, pods: int, *, cards: int = 1, gang: int = 1, name: str = "", first: int = 0, **more: Any
) -> None:
    both.submit(
        *(
            job(
                f"{name or queue}{first + i}",
                queue=queue,
                cards=cards,
                pods=gang,
                min_member=gang,
                created_at=float(first + i),
                **more,
            )
            for i in range(pods)
        )
    )


def held(both: Both, queue: str) -> dict[str, int]:
    """Cards by node."""
    found: dict[str, int] = {}
    for record in both.books.live.values():
        if record.claim.queue == queue:
            found[record.claim.node] = found.get(record.claim.node, 0) + len(record.claim.slices)
    return found


@pytest.mark.parametrize("gang", [1, 4])
def test_own_nodes_come_first_and_what_is_used_there_counts_against_no_limit_of_pooled(policy: Conf, gang: int) -> None:
    both = world(policy, vision(capability={GPU: 2}))
    submit(both, "vision", 2 if gang > 1 else 3, gang=gang)
    if gang == 1:
        assert held(both, "vision") == {"lab": 3}
    submit(both, "vision", 12, first=20)
    assert held(both, "vision") == {"lab": 4, "n0": 2, "open": 4}
    used = both.books.queues.used(QueueName("vision"))
    assert (used[GPU], used[LAB], used[in_pool(GPU, PUBLIC)]) == (2, 4, 4)


def test_public_cards_count_against_no_share(policy: Conf) -> None:
    both = world(policy, Queue(QueueName("team"), capability={GPU: 3}))
    submit(both, "team", 12)
    assert held(both, "team") == {"n0": 3, "open": 4}


def test_who_uses_its_own_nodes_still_takes_back_its_share_of_pooled(policy: Conf) -> None:
    both = world(policy, vision(deserved={GPU: 2}), Queue(QueueName("other")), nodes=NODES[:2])
    submit(both, "other", 4)
    assert held(both, "other") == {"n0": 4}
    submit(both, "vision", 7)
    assert held(both, "vision") == {"lab": 4, "n0": 2}
    assert held(both, "other") == {"n0": 2}


def test_what_public_nodes_hold_is_taken_back_by_nobody(policy: Conf) -> None:
    both = world(policy, Queue(QueueName("owner"), deserved={GPU: 4}), Queue(QueueName("other")), nodes=NODES[1:])
    submit(both, "other", 8)
    assert held(both, "other") == {"n0": 4, "open": 4}
    submit(both, "owner", 6)
    assert held(both, "owner") == {"n0": 4}
    assert held(both, "other") == {"open": 4}


def test_a_queue_of_its_own_nodes_alone_has_its_amounts_there(policy: Conf) -> None:
    both = world(policy, Queue(QueueName("lab"), pools=("lab",), capability={GPU: 3}))
    submit(both, "lab", 9)
    assert held(both, "lab") == {"lab": 3, "open": 4}


def test_amounts_of_another_pool_are_said_by_pool(policy: Conf) -> None:
    both = world(policy, vision(pool_amounts={"capability": {LAB: 1, in_pool(GPU, PUBLIC): 2}}))
    submit(both, "vision", 9)
    assert held(both, "vision") == {"lab": 1, "n0": 4, "open": 2}


def test_shares_of_a_pool_with_two_owners_are_taken_back_there(policy: Conf) -> None:
    one = Queue(QueueName("one"), pools=("lab",), deserved={GPU: 2})
    both = world(policy, one, Queue(QueueName("two"), pools=("lab",), deserved={GPU: 2}), nodes=NODES[:2])
    submit(both, "one", 4)
    submit(both, "two", 3)
    assert (held(both, "one"), held(both, "two")) == ({"lab": 2}, {"lab": 2})


def test_models_and_pools_count_together(policy: Conf) -> None:
    nodes = [replace(one, cards=tuple(replace(card, model="A100") for card in one.cards)) for one in NODES[:2]]
    both = world(policy, vision(capability={A100: 1}, pool_amounts={"capability": {in_pool(A100, "lab"): 3}}), nodes=nodes)
    submit(both, "vision", 9)
    assert held(both, "vision") == {"lab": 3, "n0": 1}


def test_no_queue_has_nodes_of_others(policy: Conf) -> None:
    both = world(policy, vision(), Queue(QueueName("other")), nodes=NODES[:2])
    submit(both, "other", 8)
    assert held(both, "other") == {"n0": 4}


LENT = {"lent_pools": ("lab",)}


@pytest.mark.parametrize("gang", [1, 2, 4, 6])
def test_what_is_lent_while_it_is_idle_comes_back_to_its_owner(policy: Conf, gang: int) -> None:
    both = world(policy, vision(**LENT), Queue(QueueName("other")), nodes=NODES[:2])
    submit(both, "other", 8 // gang, gang=gang)
    assert sum(held(both, "other").values()) == gang * (8 // gang)
    assert held(both, "other")["n0"] == 4, "what is lent is used last"
    submit(both, "vision", 4)
    assert held(both, "vision") == {"lab": 4}
    assert held(both, "other").keys() <= {"n0"}
    assert sum(held(both, "other").values()) % gang == 0, "nothing of a gang that broke is left"


@pytest.mark.parametrize(("gang", "asked"), [(4, 1), (6, 3), (8, 1)])
def test_for_one_card_that_is_lent_to_a_gang_all_of_it_goes(policy: Conf, gang: int, asked: int) -> None:
    both = world(policy, vision(**LENT), Queue(QueueName("other")), nodes=NODES[:2])
    if gang == 4:
        submit(both, "other", 4, name="beside")
    submit(both, "other", 1, gang=gang, first=10)
    submit(both, "vision", asked)
    assert held(both, "vision") == {"lab": asked}
    assert held(both, "other") == ({"n0": 4} if gang == 4 else {})


def test_a_gang_that_can_spare_whom_it_has_on_lent_nodes_stays(policy: Conf) -> None:
    both = world(policy, vision(**LENT), Queue(QueueName("other")), nodes=NODES[:2])
    both.submit(job("elastic", queue="other", cards=1, pods=8, min_member=4))
    submit(both, "vision", 4)
    assert (held(both, "vision"), held(both, "other")) == ({"lab": 4}, {"n0": 4})


def test_what_nobody_may_take_yet_of_a_gang_stays_and_the_owner_has_its_nodes(policy: Conf) -> None:
    """What is lent has no minimum run time, what it has elsewhere does."""
    other = Queue(QueueName("other"), annotations={QUEUE_MIN_RUN_TIME: "1h"})
    both = world(policy, vision(**LENT), other, nodes=NODES[:2])
    submit(both, "other", 1, gang=6)
    submit(both, "vision", 4)
    assert (held(both, "vision"), held(both, "other")) == ({"lab": 4}, {"n0": 4})


def test_a_gang_of_the_owner_has_it_back_whole(policy: Conf) -> None:
    both = world(policy, vision(**LENT), Queue(QueueName("other")), nodes=NODES[:2])
    submit(both, "other", 8)
    submit(both, "vision", 1, gang=4)
    assert (held(both, "vision"), held(both, "other")) == ({"lab": 4}, {"n0": 4})


def test_no_word_of_a_borrower_keeps_what_is_lent(policy: Conf) -> None:
    firm = Queue(
        QueueName("other"), reclaimable=False, deserved={GPU: 8, LAB: 8}, guarantee={GPU: 4}, non_preemptible_classes=("*",)
    )
    both = world(policy, vision(**LENT), firm, nodes=NODES[:2])
    submit(both, "other", 8, priority=1000)
    assert held(both, "other") == {"n0": 4, "lab": 4}
    assert {r.claim.preemptable for r in both.books.live.values() if r.claim.pool == "lab"} == {True}
    submit(both, "vision", 3, priority=-5)
    assert held(both, "vision") == {"lab": 3}
    assert held(both, "other") == {"n0": 4, "lab": 1}


def test_it_is_lent_to_those_whom_its_owner_names(policy: Conf) -> None:
    friends, child, other = Queue(QueueName("friends")), Queue(QueueName("child"), parent="friends"), Queue(QueueName("other"))
    both = world(policy, vision(**LENT, lent_to=("friends",)), friends, child, other, nodes=NODES[:1])
    submit(both, "other", 2)
    submit(both, "child", 2)
    assert (held(both, "other"), held(both, "child")) == ({}, {"lab": 2})
    both.rule(vision(**LENT))
    both.settle()
    assert held(both, "other") == {"lab": 2}


def test_the_owner_leaves_alone_what_others_have_in_pooled(policy: Conf) -> None:
    both = world(policy, vision(**LENT), Queue(QueueName("other"), deserved={GPU: 8}), nodes=NODES[:2])
    submit(both, "other", 8)
    submit(both, "vision", 8)
    assert (held(both, "vision"), held(both, "other")) == ({"lab": 4}, {"n0": 4})


def test_who_waits_is_told_where_its_limit_is(policy: Conf) -> None:
    both = world(policy, vision(capability={GPU: 2}), nodes=NODES[:2])
    submit(both, "vision", 7)
    assert both.verdicts[JobId("vision6")] == (
        "0/2 nodes are available: 1 CardsInUse, 1 QueueCapabilityExceeded; in the way alone: CardsInUse on 1, "
        "QueueCapabilityExceeded on 1; queue vision may use 2 nvidia.com/gpu now, 2 nvidia.com/gpu are in use and 1 nvidia.com/gpu more are asked for"
    )


def test_who_waits_for_what_is_guaranteed_to_others_is_told_so(policy: Conf) -> None:
    stays = vision(reclaimable=False, non_preemptible_classes=("*",), deserved={GPU: 4})
    both = world(policy, stays, Queue(QueueName("owner"), guarantee={GPU: 2}), nodes=NODES[:2])
    submit(both, "vision", 8)
    assert held(both, "vision") == {"lab": 4, "n0": 2}
    assert "1 QueueGuaranteedToOthers" in both.verdicts[JobId("vision7")]
    assert "QueueCapabilityExceeded" not in both.verdicts[JobId("vision7")]
