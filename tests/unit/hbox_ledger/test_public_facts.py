"""Public events of the ledger's steps: two nodes with two cards each, all four held by queue b."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from hbox_common.events import (
    MOST_RESOURCES,
    CloudEvent,
    EvictionRule,
    JobEvicted,
    NodeDrained,
    PlanRefused,
    QueueReclaimed,
    QuotaChanged,
    encode,
)
from hbox_common.model import NodeName, PodPhase, Queue, QueueName, RefusalReason
from hbox_common.model.devices.nvidia import GPU
from hbox_ledger.core import lifecycle, publicfacts
from hbox_ledger.core.step import Step
from hbox_ledger.messages import messages_of

from .conftest import World
from .test_preemption_rights import asks, full


def one(step: Step, type_: type[CloudEvent]) -> Any:
    [found] = [event for event in step.public if isinstance(event, type_)]
    return found


def test_an_eviction_reports_rule_nodes_and_cards_and_the_reclaiming_queue_gets_the_same_places(world: World) -> None:
    full(world)
    world.commits(asks(world, 0))
    evicted, reclaimed = one(world.last, JobEvicted), one(world.last, QueueReclaimed)
    assert (evicted.data.job, evicted.data.queue, evicted.data.code) == ("b0", "b", EvictionRule.RECLAIM)
    assert (evicted.data.pods, evicted.data.pod_count, evicted.data.card_count) == (("p0",), 1, 1)
    card = world.state.live[world.state.by_pod[world.claim("p0").pod_uid]].claim.slices[0].card
    assert [(place.node, place.cards) for place in evicted.data.nodes] == [("a", (card,))]
    assert (reclaimed.data.queue, reclaimed.data.job, reclaimed.data.nodes) == ("a", "want", evicted.data.nodes)
    assert reclaimed.data.plan == evicted.data.plan == "want"


def test_an_evicted_queues_event_does_not_name_the_beneficiary(world: World) -> None:
    full(world)
    plan = asks(world, 0)
    world.commits(plan.model_copy(update={"id": "p-1", "name": "secret-job", "namespace": "secret-team"}))
    body = encode(one(world.last, JobEvicted).identified("ledger-1-1")).decode()
    assert "secret" not in body
    assert '"queue":"a"' not in body


def test_a_preemption_within_a_queue_is_no_reclaim(world: World) -> None:
    full(world)
    world.commits(asks(world, 0, queue="b", priority=9))
    assert one(world.last, JobEvicted).data.code is EvictionRule.PREEMPT
    assert not [event for event in world.last.public if isinstance(event, QueueReclaimed)]


def test_a_refusal_reports_its_code_and_no_text(world: World) -> None:
    world.state.queues[QueueName("small")] = Queue(QueueName("small"), capability={GPU: 0})
    world.propose(world.plan("j", ("p", "a", [world.card(0)]), queue="small"))
    refused = one(world.last, PlanRefused)
    assert (refused.data.queue, refused.data.job, refused.data.code) == ("small", "j", RefusalReason.QUEUE_CAPABILITY)
    assert refused.keys == ("small", "j")


@pytest.mark.parametrize(
    ("before", "after", "gone", "reported"),
    [
        ({"deserved": {GPU: 2}}, {"deserved": {GPU: 3}}, False, ({GPU: 2}, {GPU: 3})),
        (None, {"deserved": {GPU: 3}}, False, (None, {GPU: 3})),
        ({"deserved": {GPU: 2}}, {"deserved": {GPU: 2}}, True, ({GPU: 2}, None)),
        ({"deserved": {GPU: 2}}, {"deserved": {GPU: 2}, "priority": 5}, False, None),
    ],
)
def test_a_changed_quota_is_reported_with_old_and_new_amounts(
    world: World, before: Any, after: Any, gone: bool, reported: Any
) -> None:
    name, step = QueueName("q"), world.turn()
    if before is not None:
        world.state.queues[name] = Queue(name, **before)
    publicfacts.quota(world.state, step, Queue(name, **after), gone=gone)
    found = [(event.data.old and event.data.old.deserved, event.data.new and event.data.new.deserved)
             for event in step.public if isinstance(event, QuotaChanged)]  # fmt: skip
    assert found == ([reported] if reported is not None else [])


def test_a_changed_quota_of_many_resources_fits_into_its_message(world: World) -> None:
    name, step = QueueName("q"), world.turn()
    amounts = {f"example.com/{'r' * 240}{number}": number for number in range(1000)}
    world.state.queues[name] = Queue(name, guarantee=amounts, deserved=amounts, capability=amounts)
    publicfacts.quota(
        world.state, step, Queue(name, guarantee=amounts, deserved=amounts, capability=amounts | {"z": 1}), gone=False
    )
    [changed] = step.public
    assert isinstance(changed, QuotaChanged)
    assert encode(changed)
    assert changed.data.new is not None
    assert len(changed.data.new.capability) == MOST_RESOURCES


def ended(world: World, pod: str, where: str) -> list[CloudEvent]:
    step = world.turn()
    lifecycle.observed(world.state, step, world.fact(pod, where, PodPhase.SUCCEEDED))
    publicfacts.drained(world.state, step)
    return step.public


def test_a_cordoned_node_is_drained_when_its_last_pod_has_ended(world: World) -> None:
    full(world)
    a = world.state.nodes[NodeName("a")]
    world.state.know(a.name, replace(a, unschedulable=True, cordoned_by="ops", cordon_reason="fan"))
    assert ended(world, "p0", "a") == []
    [event] = ended(world, "p1", "a")
    assert isinstance(event, NodeDrained)
    assert (event.data.node, event.data.cordoned_by, event.data.reason, event.keys) == ("a", "ops", "fan", ("a",))
    assert [ended(world, pod, "b") for pod in ("p2", "p3")] == [[], []], "node b takes work"


def test_a_node_with_a_card_of_another_schedulers_pod_is_not_drained(world: World) -> None:
    full(world)
    a = world.state.nodes[NodeName("a")]
    world.state.know(a.name, replace(a, unschedulable=True))
    ended(world, "p0", "a")
    step = world.turn()
    lifecycle.observed(world.state, step, world.fact("foreign", "a", ours=False, slices=[world.on("a", 0)]))
    assert ended(world, "p1", "a") == []
    assert [event.ce_type() for event in ended(world, "foreign", "a")] == ["io.hbox.node.drained.v1"]


def test_messages_of_a_step_contain_its_public_events_and_their_bodies_are_cloudevents(world: World) -> None:
    full(world)
    world.commits(asks(world, 0))
    public = [
        message
        for message in messages_of(world.last, epoch=world.state.epoch, index=world.state.index)
        if isinstance(message.event, CloudEvent)
    ]
    assert [message.keys for message in public] == [("b", "b0"), ("a", "want")]
    body = msgspec.json.decode(encode(public[0].event))
    assert (body["specversion"], body["type"], body["source"]) == ("1.0", "io.hbox.job.evicted.v1", "/hbox/quota-ledger")
    assert (body["subject"], body["time"]) == ("queues/b/jobs/b0", "1970-01-01T00:16:40.000Z")
