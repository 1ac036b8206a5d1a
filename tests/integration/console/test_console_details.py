"""Placements, the rules of one node, evictions by name, and the cards of nodes, by the client's rights."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from hbox_common.bus import Bus, Endpoint
from hbox_common.events import (
    EvictedPod,
    EvictionReceipt,
    EvictionRule,
    HealthVerdict,
    NodeDevicesChanged,
    NodeNumaChanged,
)
from hbox_common.events.explain import DecisionsAnswer, DecisionsRequest, ExplainAnswer, ExplainRequest, NodeRules
from hbox_common.model import (
    ContainerHolds,
    DeviceIds,
    Generation,
    JobId,
    NodeDevices,
    NodeName,
    NodeNuma,
    NodeState,
    NumaZone,
    PlanId,
    PodUid,
    QueueName,
    Verdict,
)
from hbox_common.model.decision import Decision, NodeDecision, Scored
from hbox_console.adapters.reviews import Reviews
from hbox_console.api import CardList, EvictionExplanation, EvictionPause, NodeCards, NodeExplanation, PlacementExplanation
from hbox_console.core.rights import Scope

from ...console_objects import GPU, a_claim, a_job, a_node, a_pod
from ...waiting import until
from .conftest import NODES, PODS, World, queues

N1 = NodeName("n1")
ROOT = "root:system:masters"
#: Names of the other tenant.
OTHERS = ("ns-b", "sekrit", "theirs", "sidecar")


def _node(name: str) -> NodeState:
    """With cards that have an identity."""
    node = a_node(name)
    return replace(node, cards=tuple(replace(card, uuid=f"GPU-{card.uuid}") for card in node.cards))


@pytest.fixture
async def tenants(world: World) -> World:
    """Two tenants with a pod each on node n1."""
    world.jobs = [a_job("ns-a", "alpha", queue="mine", bound=1), a_job("ns-b", "sekrit", queue="theirs", waiting=0, bound=1)]
    world.pods = [a_pod(job) for job in world.jobs]
    world.claims = [a_claim(job, node="n1", cards=1) for job in world.jobs]
    await world.node(_node("n1"))
    await world.two_tenants(used=1)
    return world


@asynccontextmanager
async def scheduler(world: World) -> AsyncIterator[list[ExplainRequest]]:
    """Node n1 fails two rules; each job got n1, and n2 was the runner-up."""
    asked: list[ExplainRequest] = []

    async def explain(request: ExplainRequest) -> ExplainAnswer:
        asked.append(request)
        return ExplainAnswer(node=NodeRules(node=request.node, failed=("NodeUnschedulable", "Insufficient cpu")))

    async def decisions(request: DecisionsRequest) -> DecisionsAnswer:
        first, second = (Scored(NodeName(name), total, {"binpack": total}) for name, total in (("n1", 5.0), ("n2", 3.0)))
        on = NodeDecision(N1, ["alpha-0"], first, second, "it is 2 behind: binpack -2")
        return DecisionsAnswer(since=1.0, decisions=(Decision(PlanId("p"), request.job, 2.0, "the default policy", [on]),))

    async with world.scheduler(
        Endpoint("explain", "why", ExplainRequest, ExplainAnswer, explain),
        Endpoint("decisions", "why there", DecisionsRequest, DecisionsAnswer, decisions),
    ):
        yield asked


def _named(found: Mapping[str, Any]) -> list[str]:
    """Names of the other tenant in an answer."""
    return [name for name in OTHERS if name in json.dumps(found)]


async def test_placement_needs_the_job_and_its_runner_up_the_right_to_nodes(tenants: World) -> None:
    async with tenants.running() as world, scheduler(world):
        path = "/api/v1/jobs/ns-a/alpha/placement"
        status, found, _ = await world.ask(path)
        assert status == 200, found
        PlacementExplanation.model_validate(found)
        assert (found["name"], found["since"], found["decisions"][0]["at"]) == ("ns-a/alpha", 1.0, 2.0)
        [on] = found["decisions"][0]["nodes"]
        assert (on["chosen"]["node"], on["runner_up"]) == ("n1", None)
        assert (await world.ask("/api/v1/jobs/ns-b/sekrit/placement"))[0] == 403
        await world.allow("anna", rule=NODES)
        await world.allow("berta", "ns-a", rule=PODS)
        await world.allow("berta", rule=NODES)
        _, found, _ = await world.ask(path, user="berta")
        assert found["decisions"][0]["nodes"][0]["runner_up"]["node"] == "n2"


async def test_rules_of_a_node_need_the_job_and_nodes(tenants: World) -> None:
    await tenants.allow("berta", "ns-a", rule=PODS)
    await tenants.allow("berta", rule=NODES)
    async with tenants.running() as world, scheduler(world) as asked:
        path = "/api/v1/jobs/ns-a/alpha/nodes/n1"
        assert [(await world.ask(path))[0], asked] == [403, []]
        status, found, _ = await world.ask(path, user="berta")
        assert status == 200, found
        NodeExplanation.model_validate(found)
        rules = [{"label": "NodeUnschedulable", "code": "NodeUnschedulable"}]
        assert found["failed"] == [*rules, {"label": "Insufficient cpu", "code": "InsufficientResource"}]
        assert [(one.job, one.node, one.changes) for one in asked] == [("id-ns-a-alpha", "n1", False)]
        assert (await world.ask("/api/v1/jobs/ns-a/alpha/nodes/moon", user="berta"))[0] == 404
        assert (await world.ask("/api/v1/jobs/ns-b/sekrit/nodes/n1", user="berta"))[0] == 403


async def test_rules_of_a_node_are_no_explanation(tenants: World) -> None:
    """An explanation kept for seconds is asked for apart from the rules of a node."""
    async with tenants.running() as world, scheduler(world) as asked:
        for path in ("nodes/n1", "nodes/n1", "explanation"):
            await world.ask(f"/api/v1/jobs/ns-a/alpha/{path}", user=ROOT)
        assert [(one.node, one.changes) for one in asked] == [("n1", False), ("", True)]


async def _evict(world: World, namespace: str, name: str, *, taker: tuple[str, str, str]) -> None:
    receipt = EvictionReceipt(
        job=JobId(f"id-{namespace}-{name}"), namespace=namespace, queue=QueueName("mine"), rule=EvictionRule.RECLAIM,
        pods=(EvictedPod(pod=f"{name}-0", pod_uid=PodUid("u"), node=N1),), for_job=JobId("id-gone"), for_namespace=taker[0],
        for_name=taker[1], for_queue=QueueName(taker[2]), pods_kept=0, cards_kept=0, at=6.0, returns="soon",
        message=f"{taker[0]}/{taker[1]} of queue {taker[2]} takes its place",
    )  # fmt: skip
    async with Bus.connect(world.nats.url, name="quota-ledger", instance="test") as bus:
        await bus.publish(receipt, receipt.queue, receipt.job)


@pytest.mark.parametrize("name", ["alpha", "ns-a/alpha", "alpha-0", "id-ns-a-alpha"])
async def test_evictions_of_a_job_are_found_by_its_names(tenants: World, name: str) -> None:
    async with tenants.running() as world:
        await _evict(world, "ns-a", "alpha", taker=("ns-b", "sekrit", "theirs"))
        await _evict(world, "ns-b", "sekrit", taker=("ns-a", "alpha", "mine"))
        assert world.console is not None
        history = world.console.history
        await until(lambda: len(history.receipts) == 2)
        status, found, _ = await world.ask(f"/api/v1/evicted?name={name}")
        assert status == 200, found
        EvictionExplanation.model_validate(found)
        assert [one["rule"] for one in found["receipts"]] == ["reclaim"]
        assert [(one["name"], one["state"]) for one in found["now"]] == [("ns-a/alpha", "GROWING")]
        assert _named(found) == []


async def test_evictions_of_other_tenants_are_not_found(tenants: World) -> None:
    async with tenants.running() as world:
        await _evict(world, "ns-b", "sekrit", taker=("ns-a", "alpha", "mine"))
        assert world.console is not None
        history = world.console.history
        await until(lambda: len(history.receipts) == 1)
        for name, status in (("sekrit", 404), ("id-ns-b-sekrit", 404), ("ns-b/sekrit", 403), ("", 400)):
            assert (await world.ask(f"/api/v1/evicted?name={name}"))[0] == status, name
        assert (await world.ask("/api/v1/evicted?name=sekrit", user=ROOT))[0] == 200


async def test_pause_of_evictions_is_shown_to_all_clients(tenants: World) -> None:
    async with tenants.running() as world:
        _, found, _ = await world.ask("/api/v1/evictions/pause", user="stranger")
        EvictionPause.model_validate(found)
        assert (found["paused"], found["message"]) == (False, "")
        world.paused = "1001 evictions in 5 minutes"
        _, found, _ = await world.ask("/api/v1/evictions/pause", user="stranger")
        assert (found["paused"], found["message"]) == (True, "1001 evictions in 5 minutes")


async def _agent(world: World) -> None:
    """node-agent reports what the kubelet gave to a container of each tenant; health-monitor's verdict names one of them."""
    cards = [f"GPU-n1-{i}" for i in range(8)]
    holds = [
        ContainerHolds("ns-a", "alpha-0", "main", (DeviceIds(GPU, ("GPU-n1-0",)),)),
        ContainerHolds("ns-b", "sekrit-0", "sidecar", (DeviceIds(GPU, ("GPU-n1-1",), (0,)),)),
    ]
    devices = NodeDevices(N1, 1.0, (DeviceIds(GPU, tuple(cards)),), holds=tuple(holds), problem="ns-b/sekrit is in the way")
    numa = NodeNuma(N1, 1.0, zones=(NumaZone(0, "0-7", 1024),))
    async with Bus.connect(world.nats.url, name="node-agent", instance="test") as bus:
        await bus.publish(NodeDevicesChanged(devices=devices), N1)
        await bus.publish(NodeNumaChanged(numa=numa), N1)
    async with Bus.connect(world.nats.url, name="health-monitor", instance="test") as bus:
        verdict = Verdict(N1, Generation(1), healthy=False, reason="after ns-b/sekrit ended")
        await bus.publish(HealthVerdict(verdict=verdict), N1)


async def test_cards_of_a_node_need_the_right_and_name_no_other_tenant(tenants: World) -> None:
    await _agent(tenants)
    async with tenants.running() as world:
        for path in ("/api/v1/nodes/n1/cards", "/api/v1/cards"):
            assert (await world.ask(path))[0] == 403
        await world.allow("berta", "ns-a", rule=PODS)
        await world.allow("berta", rule=NODES)
        await world.allow("berta", rule=queues("mine"))
        status, found, _ = await world.ask("/api/v1/nodes/n1/cards", user="berta")
        assert status == 200, found
        NodeCards.model_validate(found)
        owners = [(one["pod"], one["queue"]) for one in found["cards"][0]["owners"]]
        assert owners == [("ns-a/alpha-0", "mine"), ("(another namespace)/(another pod)", "others")]
        assert [card["kubelet"] for card in found["cards"][:2]] == [["ns-a/alpha-0"], ["(another namespace)/(another pod)"]]
        assert [one["name"].rpartition("/")[2] for one in found["containers"]] == ["main", "(another container)"]
        assert found["numa"]["zones"][0]["pods"] == ["(another namespace)/(another pod)"]
        assert _named(found) == []
        _, listed, _ = await world.ask("/api/v1/cards", user="berta")
        CardList.model_validate(listed)
        assert [card["name"] for card in listed["items"]] == [f"n1/{i}" for i in range(8)]
        assert _named(listed) == []
        assert (await world.ask("/api/v1/nodes/moon/cards", user="berta"))[0] == 404
        _, every, _ = await world.ask("/api/v1/nodes/n1/cards", user=ROOT)
        assert every["cards"][1]["kubelet"] == ["ns-b/sekrit-0"]


async def test_pages_of_cards_end_with_a_node(tenants: World) -> None:
    await tenants.node(_node("n2"))
    async with tenants.running() as world:
        await world.allow("berta", rule=NODES)
        _, first, _ = await world.ask("/api/v1/cards?limit=1", user="berta")
        assert [card["node"] for card in first["items"]] == ["n1"] * 8
        _, second, _ = await world.ask(f"/api/v1/cards?limit=1&continue={first['metadata']['continue']}", user="berta")
        assert [card["node"] for card in second["items"]] == ["n2"] * 8
        assert second["metadata"]["continue"] == ""


async def test_node_that_is_removed_during_a_review_is_left_out(tenants: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await tenants.node(_node("n2"))
    async with tenants.running() as world:
        await world.allow("berta", rule=NODES)
        assert world.console is not None
        model, scope = world.console.model, Reviews.scope

        async def removing(*args: Any, **given: Any) -> Scope:
            found = await scope(*args, **given)
            model.nodes.pop(NodeName("n2"), None)
            return found

        monkeypatch.setattr(Reviews, "scope", removing)
        status, found, _ = await world.ask("/api/v1/cards", user="berta")
        assert (status, {card["node"] for card in found["items"]}) == (200, {"n1"})
