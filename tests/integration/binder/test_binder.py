"""The binder on a real broker and an API with faults."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from hbox_binder import worker as binder_worker
from hbox_binder.adapters.epochs import Epochs
from hbox_binder.adapters.nodes import NodeWorker
from hbox_binder.core import Binder, Limits
from hbox_binder.worker import Worker
from hbox_common.bus import Delivery, Start
from hbox_common.clock import wall_s
from hbox_common.errors import NotFound, Unavailable
from hbox_common.events import (
    Bind,
    BindDecided,
    BindOutcome,
    Evict,
    EvictKind,
    NodeAction,
    NodeDecided,
    NodeOutcome,
    PodAsked,
    PodsAsked,
    PodsRead,
    PodStanding,
)
from hbox_common.kube import MERGE_PATCH, NODES, PODS, Node
from hbox_common.model import DecisionId, Epoch, Generation, NodeName
from hbox_common.model.annotations import CARDS, CLAIM, CLAIM_GENERATION, CORDON_REASON, CORDONED_BY, RANK
from hbox_common.runtime.health import Condition
from hbox_sandbox.api.faults import Plan, Rule

from ...waiting import until
from .binder_world import NAMESPACE, BinderWorld, a_bind, a_state, an_evict, known_cards

BINDING = "pods/binding"
PDBS = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"


async def test_a_decided_pod_is_bound_with_its_claim_and_cards_in_one_write(world: BinderWorld) -> None:
    pod = await world.pod("a")
    bind = a_bind(pod)
    async with world.binder():
        await world.decide(bind)
        outcome = await world.settled(bind)
    assert (outcome.outcome, outcome.node, outcome.traceparent) == (BindOutcome.BOUND, "n1", bind.traceparent)
    bound = await world.seen("a")
    assert bound.spec.node_name == "n1"
    assert {bound.metadata.annotations[name] for name in (CLAIM, CLAIM_GENERATION, CARDS)} == {
        "claim-a", "claim-a:1", "3:50:4096",
    }  # fmt: skip


async def test_a_pod_is_told_its_rank_with_its_binding_and_no_other_is(world: BinderWorld) -> None:
    ranked, other = await world.pod("ranked"), await world.pod("other")
    binds = [replace(a_bind(ranked), rank=0), a_bind(other)]
    async with world.binder():
        await world.decide(*binds)
        for bind in binds:
            assert (await world.settled(bind)).outcome is BindOutcome.BOUND
    assert (await world.seen("ranked")).metadata.annotations[RANK] == "0"
    assert RANK not in (await world.seen("other")).metadata.annotations


async def test_a_thousand_binds_in_two_messages_are_bound_once_each(world: BinderWorld) -> None:
    pods = await asyncio.gather(*(world.pod(f"p{i}") for i in range(1000)))
    binds = [a_bind(pod) for pod in pods]
    async with world.binder():
        await world.decide(*binds[:500])
        await world.decide(*binds[500:])
        for bind in binds:
            assert (await world.settled(bind)).outcome is BindOutcome.BOUND
    assert sorted(o.decision for o in world.outcomes) == sorted(b.id for b in binds)


@pytest.mark.parametrize(
    "rule",
    [
        Rule(verb="create", resource=BINDING, applied_status=504, limit=1),
        Rule(verb="create", resource=BINDING, applied_reset=True, limit=1),
        Rule(verb="create", resource=BINDING, status=409, limit=3),
        Rule(verb="create", resource=BINDING, status=429, retry_after_s=1, limit=2),
        Rule(verb="create", resource=BINDING, status=503, limit=3),
        Rule(verb="create", resource=BINDING, reset=True, limit=2),
    ],
    ids=["applied but 504", "applied but reset", "409", "429", "503", "reset"],
)
async def test_a_pod_is_bound_once_whatever_the_api_server_answers(world: BinderWorld, rule: Rule) -> None:
    pod = await world.pod("a")
    bind = a_bind(pod)
    world.faults(rule)
    async with world.binder():
        await world.decide(bind)
        outcome = await world.settled(bind)
    assert outcome.outcome is BindOutcome.BOUND
    assert (await world.seen("a")).spec.node_name == "n1"


async def test_a_pod_that_another_controller_wrote_on_is_bound_all_the_same(world: BinderWorld) -> None:
    bind = a_bind(await world.pod("a"))
    await world.touch("a")
    async with world.binder():
        await world.decide(bind)
        assert (await world.settled(bind)).outcome is BindOutcome.BOUND


@pytest.mark.parametrize("left", [0, None], ids=["its card goes", "it goes"])
async def test_a_node_that_changes_while_a_pod_is_read_for_it_is_waited_for(world: BinderWorld, left: int | None) -> None:
    """Where a plugin goes by names of containers these are read first: until then the node may have lost its cards."""
    node = a_state("n1", registered=("Enflame",))
    node = replace(node, cards=tuple(replace(card, kind="Enflame", model="S60") for card in node.cards))
    await world.state(node)
    bind = a_bind(await world.pod("a"))
    async with world.binder() as health:
        world.faults(Rule(verb="get", resource="pods", client="hbox-binder", latency_s=2.0))
        await world.decide(bind)
        await until(lambda: world.api.faults.fired[0] == 1)
        await world.state(
            replace(node, generation=Generation(2), gone=True)
            if left is None
            else replace(node, generation=Generation(2), cards=())
        )
        await until(lambda: world.said(bind))
        assert set(world.said(bind)) == {BindOutcome.UNKNOWN}
        assert health.ready
        assert (await world.seen("a")).spec.node_name == ""
        world.faults()
        await world.state(replace(node, generation=Generation(3)))
        assert (await world.settled(bind)).outcome is BindOutcome.BOUND


async def test_a_bind_refused_for_good_leaves_a_fence_behind(world: BinderWorld) -> None:
    bind = a_bind(await world.pod("a"))
    world.faults(Rule(verb="create", resource=BINDING, status=403, limit=1))
    async with world.binder():
        await world.decide(bind)
        assert (await world.settled(bind)).outcome is BindOutcome.REJECTED
    world.outcomes.clear()
    async with world.binder():  # which remembers nothing, and finds the API server in another mood
        await world.decide(bind)
        assert (await world.settled(bind)).outcome is BindOutcome.REVOKED
    assert (await world.seen("a")).spec.node_name == ""


#: As the API server's authorizer says it; a webhook or a policy says other things.
LACKING = 'pods "a" is forbidden: User "system:serviceaccount:hbox-system:binder" cannot create resource "pods/binding" in API group "" in the namespace "ml"'

TAKEN = (("create", BINDING), ("get", "pods"), ("patch", "pods/status"))


@pytest.mark.parametrize("bound", [False, True])
async def test_a_right_that_is_taken_away_frees_no_claim_and_is_told_until_it_is_given_back(
    world: BinderWorld, bound: bool
) -> None:
    bind = a_bind(await world.pod("a"))
    taken = [Rule(verb=verb, resource=resource, status=403, message=LACKING) for verb, resource in TAKEN]
    async with world.binder(patience_s=0.3) as health:
        if bound:  # and nobody knows: the answer was lost
            world.faults(Rule(verb="create", resource=BINDING, applied_reset=True, limit=1), *taken[1:])
        else:
            world.faults(*taken)
        await world.decide(bind)
        if bound:
            await until(lambda: world.api.faults.fired[0])
            world.faults(*taken)
        await until(lambda: world.said(bind) == [BindOutcome.UNKNOWN])
        rights = health.condition("rights")
        assert not rights.good
        assert "cannot create resource" in rights.message
        world.faults()
        assert (await world.settled(bind)).outcome is BindOutcome.BOUND
        assert rights.good


async def test_a_right_to_one_kind_of_call_is_told_to_be_lacking_while_others_go_on(
    world: BinderWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    binds = [a_bind(await world.pod(name)) for name in ("a", "b", "c")]
    async with world.binder() as health:
        rights = health.condition("rights")
        await world.decide(binds[0])
        await world.settled(binds[0])
        said = LACKING.replace("pods/binding", "pods/eviction")
        world.faults(Rule(verb="create", resource="pods/eviction", status=403, message=said))
        refused = an_evict(await world.seen("a"))
        await world.decide(refused)
        await until(lambda: world.said(refused) == [BindOutcome.UNKNOWN])
        await world.decide(binds[1])
        assert (await world.settled(binds[1])).outcome is BindOutcome.BOUND
        assert not rights.good
        assert "pods/eviction" in rights.message

        world.faults()
        given_back = an_evict(await world.seen("b"))
        await world.decide(given_back)
        await world.settled(given_back)
        await until(lambda: rights.good)

        world.faults(Rule(verb="create", resource="pods/eviction", status=403, message=said, limit=1))
        monkeypatch.setattr(binder_worker, "LACKING_S", 0.5)
        await world.decide(an_evict(await world.seen("a"), generation=3))
        await until(lambda: not rights.good)
        await until(lambda: rights.good, "nobody asked for it again", timeout_s=5)


async def test_a_slow_pod_is_reported_as_unknown_and_holds_nobody_up(world: BinderWorld) -> None:
    slow, quick = a_bind(await world.pod("slow")), a_bind(await world.pod("quick"))
    world.faults(Rule(verb="create", resource=BINDING, latency_s=3.0, limit=1))
    async with world.binder(patience_s=0.3):
        await world.decide(slow)
        await until(lambda: world.api.faults.fired[0])
        await world.decide(quick)
        assert (await world.settled(quick)).outcome is BindOutcome.BOUND
        await until(lambda: world.said(slow) == [BindOutcome.UNKNOWN])
        assert (await world.settled(slow)).outcome is BindOutcome.BOUND


async def test_a_namesake_is_neither_bound_nor_evicted(world: BinderWorld) -> None:
    pod = await world.pod("a")
    await world.delete("a")
    namesake = await world.pod("a")
    bind, evict, revoke = a_bind(pod), an_evict(pod, generation=2, claim="x"), an_evict(pod, EvictKind.REVOKE, claim="y")
    async with world.binder():
        await world.decide(bind, evict, revoke)
        for decision in (bind, evict, revoke):
            assert (await world.settled(decision)).outcome is BindOutcome.GONE
    now = await world.seen("a")
    assert now.metadata.uid == namesake.metadata.uid
    assert (now.spec.node_name, now.metadata.deletion_timestamp, now.metadata.annotations) == ("", None, {})


async def test_a_revoked_claim_is_never_bound_and_the_next_claim_is(world: BinderWorld) -> None:
    pod = await world.pod("a")
    bind, revoke = a_bind(pod), an_evict(pod, EvictKind.REVOKE)
    async with world.binder():
        await world.decide(revoke)
        assert (await world.settled(revoke)).outcome is BindOutcome.REVOKED
    async with world.binder():  # which remembers nothing
        await world.decide(bind)
        assert (await world.settled(bind)).outcome is BindOutcome.REVOKED
        assert (await world.seen("a")).spec.node_name == ""
        again = a_bind(await world.seen("a"), claim="second", node="n2")
        await world.decide(again)
        assert (await world.settled(again)).outcome is BindOutcome.BOUND


@pytest.mark.parametrize("owners", [{"hbox.io/claim-gen": None}, {"hbox.io/claim-gen": ""}])
async def test_who_owns_a_pod_cannot_undo_what_revoked_its_claim(world: BinderWorld, owners: dict[str, str | None]) -> None:
    pod = await world.pod("a")
    bind, revoke = a_bind(pod), an_evict(pod, EvictKind.REVOKE)
    async with world.binder():
        await world.decide(revoke)
        assert (await world.settled(revoke)).outcome is BindOutcome.REVOKED
    patch = {"metadata": {"annotations": owners}, "status": {"conditions": []}}
    await world.client.json("PATCH", PODS.path("default", "a"), body=patch, content_type=MERGE_PATCH)
    async with world.binder():  # which remembers nothing
        await world.decide(bind)
        assert (await world.settled(bind)).outcome is BindOutcome.REVOKED
    assert (await world.seen("a")).spec.node_name == ""


async def test_a_revocation_that_comes_too_late_says_that_the_pod_is_bound(world: BinderWorld) -> None:
    pod = await world.pod("a")
    bind, revoke = a_bind(pod), an_evict(pod, EvictKind.REVOKE)
    other = an_evict(pod, EvictKind.REVOKE, claim="other")
    async with world.binder():
        await world.decide(bind)
        await world.settled(bind)
        await world.decide(revoke, other)
        assert (await world.settled(revoke)).outcome is BindOutcome.BOUND
        assert (await world.settled(other)).outcome is BindOutcome.CONFLICT


async def test_a_bind_past_its_deadline_expires_and_can_never_happen(world: BinderWorld) -> None:
    pod = await world.pod("a")
    late = a_bind(pod, deadline=wall_s() - 1)
    async with world.binder():
        await world.decide(late)
        assert (await world.settled(late)).outcome is BindOutcome.EXPIRED
    world.outcomes.clear()
    async with world.binder():
        timeless = a_bind(pod)
        await world.decide(timeless)
        assert (await world.settled(timeless)).outcome is BindOutcome.REVOKED


async def test_a_bind_past_its_deadline_that_had_happened_is_bound(world: BinderWorld) -> None:
    pod = await world.pod("a")
    async with world.binder():
        await world.decide(a_bind(pod))
        await world.settled(a_bind(pod))
    world.outcomes.clear()
    before = await world.seen("a")
    async with world.binder():
        late = a_bind(pod, deadline=wall_s() - 1)
        await world.decide(late)
        assert (await world.settled(late)).outcome is BindOutcome.BOUND
    assert (await world.seen("a")).metadata.resource_version == before.metadata.resource_version, "and it is not written on"


async def test_a_bound_pod_is_evicted(world: BinderWorld) -> None:
    pod = await world.pod("a")
    bind, evict = a_bind(pod), an_evict(pod)
    async with world.binder():
        await world.decide(bind)
        await world.settled(bind)
        await world.decide(evict)
        assert (await world.settled(evict)).outcome is BindOutcome.EVICTED
    assert (await world.seen("a")).metadata.deletion_timestamp is not None


RUNNING = {"status": {"phase": "Running"}}
HOOK = {"preStop": {"exec": {"command": ["save"]}}}


@pytest.mark.parametrize(
    ("spec", "taker", "setting", "grace_s"),
    [
        ({}, "a-plan", {}, 1),
        ({}, "a-plan", {"taken_grace_s": 0}, 0),
        ({}, "a-plan", {"taken_grace_s": -1}, 30),
        ({}, "a-plan", {"taken_grace_s": 300}, 30),
        ({}, "", {}, 30),
        ({"terminationGracePeriodSeconds": 60}, "a-plan", {}, 60),
        ({"terminationGracePeriodSeconds": 7200}, "a-plan", {}, 90),
        ({"terminationGracePeriodSeconds": 7200}, "", {}, 7200),
        ({"terminationGracePeriodSeconds": 7200}, "a-plan", {"notice_s": -1}, 7200),
        ({"terminationGracePeriodSeconds": 7200}, "a-plan", {"taken_grace_s": -1, "notice_s": 20}, 20),
        ({"containers": [{"name": "main", "image": "none", "lifecycle": HOOK}]}, "a-plan", {}, 30),
    ],
    ids=[
        "says nothing",
        "at once",
        "its own",
        "never longer",
        "for nobody",
        "a grace of its own",
        "hours",
        "hours, for nobody",
        "hours, unbounded",
        "bounded",
        "a hook",
    ],
)
async def test_who_makes_room_and_says_nothing_about_its_end_goes_quickly(
    world: BinderWorld, spec: dict[str, Any], taker: str, setting: dict[str, int], grace_s: int
) -> None:
    pod = await world.pod("a", spec=spec)
    bind, evict = a_bind(pod), an_evict(pod, taker=taker)
    async with world.binder(**setting):
        await world.decide(bind)
        await world.settled(bind)
        await world.client.json("PATCH", PODS.path(NAMESPACE, "a", "status"), body=RUNNING, content_type=MERGE_PATCH)
        await world.decide(evict)
        assert (await world.settled(evict)).outcome is BindOutcome.EVICTED
    try:
        left = await world.client.json("GET", PODS.path(NAMESPACE, "a"))
    except NotFound:
        left = {"metadata": {"deletionGracePeriodSeconds": 0}}
    assert left["metadata"]["deletionGracePeriodSeconds"] == grace_s


@pytest.mark.parametrize(
    ("asks", "notice_s", "grace_s"),
    [("20s", 90, 20), ("1500ms", 90, 2), ("9h", 90, 90), ("9h", 15, 15), ("soon", 90, 1), ("", 90, 1)],
)
async def test_who_writes_a_checkpoint_on_notice_gets_the_time_that_it_asks_for_up_to_a_bound(
    world: BinderWorld, asks: str, notice_s: int, grace_s: int
) -> None:
    pod = await world.pod("a")
    noted = {"metadata": {"annotations": {"hbox.io/checkpoint-on-notice": asks}}}
    await world.client.json("PATCH", PODS.path(NAMESPACE, "a"), body=noted, content_type=MERGE_PATCH)
    evict = an_evict(pod, taker="a-plan")
    bind = a_bind(await world.seen("a"))
    async with world.binder(notice_s=notice_s):
        await world.decide(bind)
        await world.settled(bind)
        await world.client.json("PATCH", PODS.path(NAMESPACE, "a", "status"), body=RUNNING, content_type=MERGE_PATCH)
        await world.decide(evict)
        assert (await world.settled(evict)).outcome is BindOutcome.EVICTED
    left = await world.client.json("GET", PODS.path(NAMESPACE, "a"))
    assert left["metadata"]["deletionGracePeriodSeconds"] == grace_s


@pytest.mark.parametrize(("notice_s", "grace_s"), [(600, 120), (60, 60), (-1, 30)])
async def test_a_pod_on_sick_hardware_gets_its_time_for_a_checkpoint_up_to_the_notice_of_the_decision(
    world: BinderWorld, notice_s: int, grace_s: int
) -> None:
    pod = await world.pod("a")
    noted = {"metadata": {"annotations": {"hbox.io/checkpoint-on-notice": "2m"}}}
    await world.client.json("PATCH", PODS.path(NAMESPACE, "a"), body=noted, content_type=MERGE_PATCH)
    evict = an_evict(pod).model_copy(update={"notice_s": notice_s})
    bind = a_bind(await world.seen("a"))
    async with world.binder():
        await world.decide(bind)
        await world.settled(bind)
        await world.client.json("PATCH", PODS.path(NAMESPACE, "a", "status"), body=RUNNING, content_type=MERGE_PATCH)
        await world.decide(evict)
        assert (await world.settled(evict)).outcome is BindOutcome.EVICTED
    left = await world.client.json("GET", PODS.path(NAMESPACE, "a"))
    assert left["metadata"]["deletionGracePeriodSeconds"] == grace_s


@pytest.mark.parametrize(
    "trouble", [Rule(status=503, limit=1), Rule(status=429, retry_after_s=1, limit=1), Rule(reset=True, limit=2)]
)
async def test_who_makes_room_is_bounded_also_where_the_api_server_is_busy_as_it_is_read(
    world: BinderWorld, trouble: Rule
) -> None:
    pod = await world.pod("a", spec={"terminationGracePeriodSeconds": 7200})
    bind, evict = a_bind(pod), an_evict(pod, taker="a-plan")
    async with world.binder():
        await world.decide(bind)
        await world.settled(bind)
        await world.client.json("PATCH", PODS.path(NAMESPACE, "a", "status"), body=RUNNING, content_type=MERGE_PATCH)
        trouble.verb, trouble.resource, trouble.client = "get", "pods", "hbox-binder"
        world.faults(trouble)
        await world.decide(evict)
        assert (await world.settled(evict)).outcome is BindOutcome.EVICTED
    left = await world.client.json("GET", PODS.path(NAMESPACE, "a"))
    assert left["metadata"]["deletionGracePeriodSeconds"] == 90


TOLD = ("hbox.io/eviction-deadline", "hbox.io/eviction-reason")


def notice_on(pod: Any) -> list[str]:
    return [pod.metadata.annotations[name] for name in TOLD if name in pod.metadata.annotations]


async def test_who_is_evicted_reads_on_the_pod_until_when_and_for_whom(world: BinderWorld) -> None:
    pod = await world.pod("a", spec={"terminationGracePeriodSeconds": 7200})
    bind, evict = a_bind(pod), an_evict(pod, taker="a-plan")
    async with world.binder(notice_s=40):
        await world.decide(bind)
        await world.settled(bind)
        await world.client.json("PATCH", PODS.path(NAMESPACE, "a", "status"), body=RUNNING, content_type=MERGE_PATCH)
        before = time.time()
        await world.decide(evict)
        outcome = await world.settled(evict)
        assert (outcome.outcome, outcome.grace_s) == (BindOutcome.EVICTED, 40)
        deadline, reason = notice_on(await world.seen("a"))
        left_s = datetime.fromisoformat(deadline).timestamp() - before
        assert 40 <= left_s <= 42 + (time.time() - before)
        assert reason == evict.reason
        await world.decide(evict)
        await until(lambda: len(world.said(evict)) == 2)
        assert notice_on(await world.seen("a")) == [deadline, reason], "it is told once"


@pytest.mark.parametrize("grace_s", [10**11, 10**12, 2**63 - 1])
async def test_a_pod_that_would_end_in_thousands_of_years_is_evicted_like_any_other(world: BinderWorld, grace_s: int) -> None:
    """Whoever makes pods may write any number there. A binder that ended of it would end of the same decision each time that it begins."""
    pod = await world.pod("a", spec={"terminationGracePeriodSeconds": grace_s})
    bind, evict = a_bind(pod), an_evict(pod)
    async with world.binder() as health:
        await world.decide(bind)
        await world.settled(bind)
        await world.decide(evict)
        assert (await world.settled(evict)).outcome is BindOutcome.EVICTED
        assert health.ready
    (deadline, _) = notice_on(await world.seen("a"))
    assert datetime.fromisoformat(deadline).year > 5000


async def blocked_by_a_budget(world: BinderWorld, bind: Bind, evict: Evict) -> None:
    """Pod `a` runs, and its budget lets nobody go."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": NAMESPACE},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
    }
    await world.decide(bind)
    await world.settled(bind)
    await world.client.json("PATCH", PODS.path(NAMESPACE, "a", "status"), body=READY, content_type=MERGE_PATCH)
    await world.client.json("POST", PDBS, body=budget)
    await world.decide(evict)
    await until(lambda: world.said(evict) == [BindOutcome.UNKNOWN])


async def test_who_may_not_be_evicted_reads_of_no_deadline(world: BinderWorld) -> None:
    pod = await world.pod("a")
    bind, evict = a_bind(pod), an_evict(pod, taker="a-plan")
    async with world.binder(patience_s=0.2):
        await blocked_by_a_budget(world, bind, evict)

        async def silent() -> bool:
            return not notice_on(await world.seen("a"))

        await until(silent, "it is told of none", timeout_s=10)


async def test_an_annotation_of_an_eviction_that_was_taken_back_goes(world: BinderWorld) -> None:
    """As a binder leaves it that dies between the two calls."""
    pod = await world.pod("a")
    bind = a_bind(pod)
    async with world.binder():
        await world.decide(bind)
        await world.settled(bind)
        notes = {"metadata": {"annotations": dict.fromkeys(TOLD, "2026-01-01T00:00:00Z")}}
        await world.client.json("PATCH", PODS.path(NAMESPACE, "a"), body=notes, content_type=MERGE_PATCH)
        kept = an_evict(pod, kind=EvictKind.REVOKE)
        await world.decide(kept)
        await world.settled(kept)
        assert not notice_on(await world.seen("a"))


async def test_an_eviction_that_a_disruption_budget_blocks_goes_on_when_it_may(world: BinderWorld) -> None:
    pod = await world.pod("a")
    bind, evict = a_bind(pod), an_evict(pod)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": NAMESPACE},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
    }
    world.faults(Rule(verb="create", resource="pods/eviction", status=429, limit=4))
    async with world.binder(patience_s=0.2):
        await world.decide(bind)
        await world.settled(bind)
        await world.client.json("POST", PDBS, body=budget)
        await world.decide(evict)
        await until(lambda: world.said(evict) == [BindOutcome.UNKNOWN])
        await world.client.json("DELETE", f"{PDBS}/keep")
        assert (await world.settled(evict)).outcome is BindOutcome.EVICTED
    assert world.said(evict) == [BindOutcome.UNKNOWN, BindOutcome.EVICTED]


READY = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}


async def test_of_two_victims_under_one_budget_the_second_waits_at_the_api_server(world: BinderWorld) -> None:
    """S9: budgets are the API server's to keep. Its 429 is no answer to the ledger; a pod is evicted once, whatever is sent again."""
    pods = [await world.pod(name) for name in ("a", "b")]
    binds = [a_bind(pod) for pod in pods]
    evictions = [an_evict(pod, taker="a-plan") for pod in pods]
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": NAMESPACE},
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]},
        },
    }
    async with world.binder(patience_s=0.2, taken_grace_s=30):
        await world.decide(*binds)
        for bind, name in zip(binds, ("a", "b"), strict=True):
            await world.settled(bind)
            await world.client.json("PATCH", PODS.path(NAMESPACE, name, "status"), body=READY, content_type=MERGE_PATCH)
        await world.client.json("POST", PDBS, body=budget)
        await world.decide(*evictions)
        await until(
            lambda: sorted(world.said(evict)[-1:] for evict in evictions) == [[BindOutcome.EVICTED], [BindOutcome.UNKNOWN]]
        )
        gone, kept = sorted(evictions, key=lambda evict: world.said(evict)[-1] is not BindOutcome.EVICTED)
        leaving = (await world.seen(gone.pod)).metadata.deletion_timestamp
        assert leaving
        await world.decide(gone)
        await until(lambda: len(world.said(gone)) == 2)
        assert (await world.seen(gone.pod)).metadata.deletion_timestamp == leaving
        assert not (await world.seen(kept.pod)).metadata.deletion_timestamp
        await world.delete(gone.pod)
        await world.client.json("PATCH", f"{PDBS}/keep", body={"spec": {"maxUnavailable": 2}}, content_type=MERGE_PATCH)
        assert (await world.settled(kept)).outcome is BindOutcome.EVICTED


async def test_an_eviction_that_a_budget_blocks_is_taken_back_by_a_later_revocation(world: BinderWorld) -> None:
    """S7: its beneficiary is gone. The pod is bound, and stays when the budget would let it go."""
    pod = await world.pod("a")
    bind, evict, kept = a_bind(pod), an_evict(pod), an_evict(pod, EvictKind.REVOKE, generation=3)
    async with world.binder(patience_s=0.2):
        await blocked_by_a_budget(world, bind, evict)
        said = next(outcome for outcome in world.outcomes if outcome.decision == evict.id)
        assert said.blocked
        assert "budget keep needs 1 healthy pods" in said.message
        await world.decide(kept)
        assert (await world.settled(kept)).outcome is BindOutcome.BOUND
        await world.client.json("DELETE", f"{PDBS}/keep")
        await asyncio.sleep(1.0)
        stays = await world.seen("a")
    assert not stays.metadata.deletion_timestamp
    assert world.said(evict)[-1] is BindOutcome.BOUND, "the eviction shares the later word"


async def test_decisions_of_an_older_epoch_have_no_effect(world: BinderWorld) -> None:
    old, new = a_bind(await world.pod("old")), a_bind(await world.pod("new"))
    async with world.binder():
        await world.decide(new, epoch=7)
        await world.settled(new)
        await world.decide(old, epoch=6)
        last = a_bind(await world.pod("last"))
        await world.decide(last, epoch=7)
        await world.settled(last)
        assert world.said(old) == []
        assert (await world.seen("old")).spec.node_name == ""
        await world.decide(old, epoch=8)
        assert (await world.settled(old)).outcome is BindOutcome.BOUND


async def test_a_decision_sent_twice_is_answered_twice_and_done_once(world: BinderWorld) -> None:
    bind = a_bind(await world.pod("a"))
    world.faults(Rule(verb="create", resource=BINDING, latency_s=0.01))
    async with world.binder():
        await world.decide(bind)
        await world.settled(bind)
        await world.decide(bind)
        await until(lambda: world.said(bind) == [BindOutcome.BOUND] * 2)
    assert world.api.faults.fired == [1]


async def test_killed_between_binding_and_saying_so_the_next_binder_says_it(world: BinderWorld) -> None:
    bind = a_bind(await world.pod("a"))
    # The binding is made and its answer lost; the read that would tell is slow, and in it the binder dies.
    world.faults(
        Rule(verb="create", resource=BINDING, applied_status=504, limit=1), Rule(verb="get", resource="pods", latency_s=30.0)
    )
    async with world.process() as binder:
        await world.decide(bind)
        await until(lambda: world.api.faults.fired == [1, 1])
        binder.kill()
    assert world.said(bind) == []
    world.faults()
    before = await world.seen("a")
    assert before.spec.node_name == "n1"
    async with world.binder():
        assert (await world.settled(bind)).outcome is BindOutcome.BOUND
    assert world.said(bind) == [BindOutcome.BOUND]
    assert (await world.seen("a")).metadata.resource_version == before.metadata.resource_version


def a_node_decision(node: str, action: NodeAction, owner: str = "health") -> NodeDecided:
    return NodeDecided(
        id=DecisionId(f"{node}-{action}-{owner}"), node=NodeName(node), action=action, owner=owner, reason="XID 79"
    )


async def test_a_node_is_cordoned_with_a_reason_and_opened_by_its_owner_alone(world: BinderWorld) -> None:
    await world.node("n1")

    async def decide(decision: NodeDecided) -> NodeOutcome:
        await world.bus.publish(decision, decision.node)
        await until(lambda: any(o.decision == decision.id for o in world.nodes))
        return next(o.outcome for o in world.nodes if o.decision == decision.id)

    async def node() -> Node:
        return (await world.client.expected("GET", NODES.path(name="n1"))).decode(Node)

    world.faults(Rule(verb="patch", resource="nodes", status=503, limit=1))
    async with world.binder():
        assert await decide(a_node_decision("n1", NodeAction.CORDON)) is NodeOutcome.DONE
        cordoned = await node()
        assert cordoned.spec.unschedulable
        assert cordoned.metadata.annotations == {CORDONED_BY: "health", CORDON_REASON: "XID 79"}
        assert await decide(a_node_decision("n1", NodeAction.UNCORDON, owner="somebody")) is NodeOutcome.NOT_OURS
        assert (await node()).spec.unschedulable
        assert await decide(a_node_decision("n1", NodeAction.UNCORDON)) is NodeOutcome.DONE
        assert not (await node()).spec.unschedulable
        assert await decide(a_node_decision("n9", NodeAction.CORDON)) is NodeOutcome.GONE


async def test_the_taint_of_health_is_set_and_removed_and_others_taints_and_cordons_stay(world: BinderWorld) -> None:
    await world.node("n1")
    foreign = {"key": "mine", "value": "x", "effect": "NoSchedule"}
    body = {"spec": {"taints": [foreign]}}
    await world.client.json("PATCH", NODES.path(name="n1"), body=body, content_type=MERGE_PATCH)

    async def decide(decision: NodeDecided) -> NodeOutcome:
        await world.bus.publish(decision, decision.key)
        await until(lambda: any(o.decision == decision.id for o in world.nodes))
        return next(o.outcome for o in world.nodes if o.decision == decision.id)

    async def taints() -> list[dict[str, str]]:
        found: list[dict[str, str]] = (await world.client.json("GET", NODES.path(name="n1")))["spec"]["taints"]
        return found

    world.faults(Rule(verb="patch", resource="nodes", status=409, limit=2))
    async with world.binder():
        tainted = a_node_decision("n1", NodeAction.TAINT).model_copy(update={"taint": "degraded"})
        assert await decide(a_node_decision("n1", NodeAction.CORDON)) is NodeOutcome.DONE
        assert await decide(tainted) is NodeOutcome.DONE
        ours = {"key": "hbox.io/health", "value": "degraded", "effect": "PreferNoSchedule"}
        assert [one for one in await taints() if not one["key"].startswith("node.kubernetes.io/")] == [foreign, ours]
        assert await decide(a_node_decision("n1", NodeAction.UNTAINT)) is NodeOutcome.DONE
        assert [one for one in await taints() if not one["key"].startswith("node.kubernetes.io/")] == [foreign]
        assert (await world.client.expected("GET", NODES.path(name="n1"))).decode(Node).spec.unschedulable


async def test_a_taint_that_is_newer_than_a_cordon_does_not_replace_it(world: BinderWorld) -> None:
    await world.node("n1")
    together: list[Delivery] = []

    async def gather(deliveries: Sequence[Delivery]) -> None:
        together.extend(deliveries)

    ears = asyncio.create_task(world.bus.follow([NodeDecided], gather, start=Start.ALL))
    for action in (NodeAction.CORDON, NodeAction.TAINT):
        decision = a_node_decision("n1", action).model_copy(update={"taint": "degraded"})
        await world.bus.publish(decision, decision.key)
    await until(lambda: len(together) == 2)
    ears.cancel()
    await NodeWorker(world.client, world.bus).handle(together)
    found = (await world.client.json("GET", NODES.path(name="n1")))["spec"]
    assert (found["unschedulable"], [one["key"] for one in found["taints"]]) == (True, ["hbox.io/health"])


async def test_of_decisions_on_one_node_that_come_together_the_last_counts(world: BinderWorld) -> None:
    await world.node("n1")
    await world.bus.publish(a_node_decision("n1", NodeAction.CORDON), "n1")
    await world.bus.publish(a_node_decision("n1", NodeAction.UNCORDON), "n1")
    together: list[Delivery] = []

    async def gather(deliveries: Sequence[Delivery]) -> None:
        together.extend(deliveries)

    ears = asyncio.create_task(world.bus.follow([NodeDecided], gather, start=Start.ALL))
    await until(lambda: len(together) == 2)
    ears.cancel()
    await NodeWorker(world.client, world.bus).handle(together)
    assert not (await world.client.expected("GET", NODES.path(name="n1"))).decode(Node).spec.unschedulable
    await until(lambda: [o.action for o in world.nodes] == [NodeAction.UNCORDON])


async def test_a_nodes_decision_that_could_not_be_done_is_over_when_a_newer_one_is(world: BinderWorld) -> None:
    """A cordon that the API server has no time for is tried again later. Meanwhile the node recovers, and is opened."""
    await world.node("n1")
    cordon, uncordon = a_node_decision("n1", NodeAction.CORDON), a_node_decision("n1", NodeAction.UNCORDON)
    async with world.binder():
        world.faults(Rule(verb="get", resource="nodes", status=503))
        await world.bus.publish(cordon, "n1")
        await until(lambda: world.api.faults.fired[0] >= 5)  # its next try is 1.6 s away
        world.faults()
        await world.bus.publish(uncordon, "n1")
        await until(lambda: [o.decision for o in world.nodes] == [uncordon.id])
        await asyncio.sleep(2.5)
        assert not (await world.client.expected("GET", NODES.path(name="n1"))).decode(Node).spec.unschedulable
    assert [o.decision for o in world.nodes] == [uncordon.id]


async def test_a_nodes_decision_that_comes_again_to_the_next_binder_is_over_when_a_newer_one_is(world: BinderWorld) -> None:
    """As the broker delivers what a binder had that was killed, a moment after it began anew."""
    await world.node("n1")
    heard: list[Delivery] = []

    async def hear(deliveries: Sequence[Delivery]) -> None:
        heard.extend(deliveries)

    ears = asyncio.create_task(world.bus.follow([NodeDecided], hear, start=Start.ALL))
    await world.bus.publish(a_node_decision("n1", NodeAction.CORDON), "n1")
    await world.bus.publish(a_node_decision("n1", NodeAction.UNCORDON), "n1")
    await until(lambda: len(heard) == 2)
    ears.cancel()
    await NodeWorker(world.client, world.bus).handle(heard[1:])
    await NodeWorker(world.client, world.bus).handle(heard[:1])
    assert not (await world.client.expected("GET", NODES.path(name="n1"))).decode(Node).spec.unschedulable


async def test_a_node_that_cannot_be_written_keeps_no_other_waiting(world: BinderWorld) -> None:
    for name in ("n1", "n2"):
        await world.node(name)
    heard: list[Delivery] = []

    async def hear(deliveries: Sequence[Delivery]) -> None:
        heard.extend(deliveries)

    ears = asyncio.create_task(world.bus.follow([NodeDecided], hear, start=Start.ALL))
    for name in ("n1", "n2"):
        await world.bus.publish(a_node_decision(name, NodeAction.CORDON), name)
    await until(lambda: len(heard) == 2)
    ears.cancel()
    world.faults(Rule(verb="patch", resource="nodes", name="n1", status=503))
    worker = NodeWorker(world.client, world.bus)

    async def closed(name: str) -> bool:
        return (await world.client.expected("GET", NODES.path(name=name))).decode(Node).spec.unschedulable

    with pytest.raises(Unavailable):
        await worker.handle(heard)
    assert await closed("n2")
    opened = {"spec": {"unschedulable": None}, "metadata": {"annotations": {CORDONED_BY: None}}}
    await world.client.json("PATCH", NODES.path(name="n2"), body=opened, content_type=MERGE_PATCH)  # by hand
    world.faults()
    await worker.handle(heard)
    assert (await closed("n1"), await closed("n2")) == (True, False), "what was done is not done once more"


async def test_a_decision_is_not_done_with_before_its_outcome_is_stored(
    world: BinderWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind = a_bind(await world.pod("a"))
    asked, may_store, store = asyncio.Event(), asyncio.Event(), world.bus.publish

    async def hold(*args: Any, **kwargs: Any) -> None:
        asked.set()
        await may_store.wait()
        await store(*args, **kwargs)

    async def epoch() -> Epoch:
        return Epoch(1)

    monkeypatch.setattr(world.bus, "publish", hold)
    worker = Worker(
        Binder(Limits()),
        world.client,
        world.bus,
        Condition("kube"),
        Condition("rights"),
        taken_grace_s=-1,
        cards=known_cards(),
        epochs=Epochs(epoch, every_s=0.0),
    )
    decided = Delivery(
        event=BindDecided(epoch=Epoch(1), binds=(bind,)),
        message_id="m",
        subject="s",
        sequence=1,
        deliveries=1,
        traceparent="",
        stored_at=wall_s(),
    )
    async with asyncio.TaskGroup() as group:
        service = group.create_task(worker.run())
        handled = group.create_task(worker.handle([decided]))
        await asyncio.wait_for(asked.wait(), 10)
        await asyncio.sleep(0.1)
        assert not handled.done(), "its acknowledgement would go out, and a crash now would lose the outcome"
        may_store.set()
        await asyncio.wait_for(handled, 10)
        assert (await world.settled(bind)).outcome is BindOutcome.BOUND
        service.cancel()


async def test_the_binder_waits_for_an_api_server_that_is_not_there_yet(world: BinderWorld) -> None:
    bind = a_bind(await world.pod("a"))
    world.faults(Rule(status=503))
    await world.decide(bind)
    async with asyncio.TaskGroup() as group:
        opened = asyncio.Event()

        async def serve() -> None:
            async with world.binder() as health:
                assert health.ready
                await world.settled(bind)
                opened.set()

        group.create_task(serve())
        await until(lambda: BindOutcome.UNKNOWN in world.said(bind))
        world.faults()
        await asyncio.wait_for(opened.wait(), 20)
    assert (await world.seen("a")).spec.node_name == "n1"


async def test_what_became_of_a_pod_is_read_by_its_uid_and_what_cannot_be_read_is_no_evidence(world: BinderWorld) -> None:
    runs, _, ended = [await world.pod(name) for name in ("runs", "again", "ended")]
    async with world.binder():
        binds = [a_bind(pod) for pod in (runs, ended)]
        await world.decide(*binds)
        for bind in binds:
            await world.settled(bind)
        done = {"status": {"phase": "Succeeded"}}
        path = f"{PODS.path(NAMESPACE, 'ended')}/status"
        await world.client.json("PATCH", path, body=done, content_type=MERGE_PATCH)
        asked = [
            PodAsked(uid=uid, namespace=NAMESPACE, name=name)
            for uid, name in (
                (runs.metadata.uid, "runs"),
                ("another", "again"),
                (ended.metadata.uid, "ended"),
                ("gone", "never-was"),
            )
        ]

        async def read() -> list[PodStanding]:
            pages = await world.bus.ask(PodsAsked(asker="test", pods=tuple(asked)), PodsRead)
            found = {pod.uid: pod for page in pages for pod in page.pods}
            return [found[one.uid].standing for one in asked]

        holds, gone, over, unknown = PodStanding.HOLDS, PodStanding.GONE, PodStanding.ENDED, PodStanding.UNKNOWN
        assert await read() == [holds, gone, over, gone]
        for status in (404, 403, 503):  # the API server's own 404 names the pod; a load balancer's does not
            world.api.faults.install(Plan(rules=[Rule(verb="get", resource="pods", status=status)]))
            assert await read() == [unknown] * 4
