"""Metrics by queue and pool in /metrics of the ledger: nodes a and b with two cards each."""

import asyncio
from dataclasses import replace

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hbox_common.events import BindOutcome
from hbox_common.model import CardQuota, Generation, HyperNode, JobId, NodeName, Queue, QueueName, Verdict, in_pool
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.pools import POOL
from hbox_common.model.traceids import trace_id_of, traceparent_of
from hbox_common.telemetry import tracing
from hbox_common.telemetry.series import openmetrics
from hbox_ledger.core.cardstates import NodeCards, cards_on
from hbox_ledger.core.ledgerstate import LedgerState
from hbox_ledger.queuemetrics import FAMILIES, QueueMetrics

from ...jobterms import terms
from ...openmetrics import exemplars
from .conftest import World, node
from .test_nominations import leaves, nominated
from .test_preemption_rights import asks, full

LAB = in_pool(GPU, "lab")


async def series(world: World, metrics: QueueMetrics | None = None) -> dict[str, float]:
    """Values by name and labels of the series."""
    shown = metrics or QueueMetrics(clock=lambda: world.now)
    text = (await shown.text(lambda: world.state)).decode()
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    found = {name: float(value) for name, _, value in lines}
    assert len(found) == len(lines), "each series occurs once"
    return found


async def again(world: World, metrics: QueueMetrics) -> dict[str, float]:
    """A scrape after the shared text has expired."""
    metrics._rendered_at = float("-inf")
    return await series(world, metrics)


def cards(found: dict[str, float], queue: str) -> dict[str, float]:
    head = f'hbox_queue_cards{{queue="{queue}",state="'
    return {name.removeprefix(head).removesuffix('"}'): value for name, value in found.items() if name.startswith(head)}


def states(found: dict[str, float], pool: str = "pooled", model: str = "A100") -> dict[str, float]:
    """Card states of a pool that are not 0."""
    head = f'hbox_cards{{pool="{pool}",model="{model}",state="'
    return {
        name.removeprefix(head).removesuffix('"}'): value for name, value in found.items() if name.startswith(head) and value
    }


def nodes(found: dict[str, float], pool: str = "pooled") -> dict[str, float]:
    head = f'hbox_card_nodes{{pool="{pool}",state="'
    return {
        name.removeprefix(head).removesuffix('"}'): value for name, value in found.items() if name.startswith(head) and value
    }


def rule(world: World, *queues: Queue) -> None:
    for queue in queues:
        world.state.rule(world.state.step(0.0), queue.name, queue)


async def test_queue_that_deserves_nothing_borrows_nothing(world: World) -> None:
    rule(world, Queue(QueueName("free")))
    world.commits(world.plan("job", ("p0", "a", [world.card(0)]), queue="free"))
    assert cards(await series(world), "free") == {"used": 1, "offline": 0}


async def test_cards_of_a_queue_include_those_of_queues_below_it(world: World) -> None:
    rule(
        world,
        Queue(QueueName("dept"), deserved={GPU: 3}, capability={GPU: 8}),
        Queue(QueueName("team"), parent="dept", deserved={GPU: 1}, guarantee={GPU: 1}),
    )
    world.commits(world.plan("job", ("p0", "a", [world.card(0)]), ("p1", "a", [world.card(1)]), queue="team"))
    found = await series(world)
    assert cards(found, "team") == {"used": 2, "borrowed": 1, "offline": 0, "guaranteed": 1, "deserved": 1}
    assert cards(found, "dept") == {"used": 2, "borrowed": 0, "offline": 0, "guaranteed": 1, "deserved": 3, "limit": 8}


async def test_amounts_by_model_count_where_no_total_is_named(world: World) -> None:
    rule(
        world,
        Queue(QueueName("models"), capability={f"{GPU}.A100": 4, f"{GPU}.H100": 2}),
        Queue(QueueName("both"), capability={GPU: 5, f"{GPU}.A100": 4}),
        Queue(QueueName("pools"), pools=("lab", "pooled"), capability={GPU: 5}, pool_amounts={"capability": {LAB: 3}}),
        Queue(QueueName("none"), capability={"cpu": 5}),
    )
    found = await series(world)
    assert [cards(found, name).get("limit") for name in ("models", "both", "pools", "none")] == [6, 5, 8, None]


async def test_an_owner_lends_what_others_use_in_its_pool(world: World) -> None:
    world.state.know(node("a").name, replace(node("a"), labels={POOL: "lab"}))
    rule(
        world,
        Queue(QueueName("vision"), pools=("lab", "pooled"), lent_pools=("lab",)),
        Queue(QueueName("b"), deserved={GPU: 1}),
    )
    world.commits(world.plan("lent", ("p0", "a", [world.card(0)]), ("p1", "b", [world.card(0)]), queue="b"))
    found = await series(world)
    assert cards(found, "vision")["lent"] == 1
    assert "lent" not in cards(found, "b")
    assert cards(found, "b") == {"used": 2, "borrowed": 1, "offline": 0, "deserved": 1}
    assert states(found, "lab") == {"used": 1, "idle": 1}


async def test_a_job_is_pending_until_one_of_its_pods_has_a_place(world: World) -> None:
    rule(world, Queue(QueueName("train")))
    placed, pending = (world.plan(name, (f"{name}-0", "a", [world.card(0)]), queue="train") for name in ("placed", "pending"))
    world.commits(placed)
    world.state.records.receive([terms(placed), replace(terms(pending), created_at=400.0)])
    found = await series(world)
    assert found['hbox_queue_jobs{queue="train",state="pending"}'] == 1
    assert found['hbox_queue_jobs{queue="train",state="placed"}'] == 1
    assert found['hbox_queue_oldest_pending_seconds{queue="train"}'] == 600
    assert found['hbox_queue_oldest_pending_seconds{queue="default"}'] == 0


async def test_a_job_that_moves_counts_in_its_new_queue(world: World) -> None:
    rule(world, Queue(QueueName("train")), Queue(QueueName("serve")))
    world.state.records.receive([terms(world.plan("job", ("p0", "a", []), queue=queue)) for queue in ("train", "serve")])
    found = await series(world)
    assert [found[f'hbox_queue_jobs{{queue="{queue}",state="pending"}}'] for queue in ("train", "serve")] == [0, 1]


async def test_queue_names_that_jobs_invent_are_no_labels(world: World) -> None:
    world.state.records.receive([terms(world.plan("typo", ("p0", "a", []), queue="reserch"))])
    found = await series(world)
    assert found['hbox_queue_jobs{queue="other",state="pending"}'] == 1
    assert not [name for name in found if "reserch" in name]


async def test_queues_beyond_the_limit_count_as_other(world: World) -> None:
    rule(
        world,
        Queue(QueueName("zoo")),
        *(Queue(QueueName(f"zoo-{n}"), parent="zoo", deserved={GPU: 1}) for n in range(3)),
        Queue(QueueName("other"), deserved={GPU: 7}),
    )
    for number, queue in enumerate(("zoo-0", "zoo-2", "other")):
        world.commits(world.plan(f"job{number}", (f"p{number}", "ab"[number // 2], [world.card(number % 2)]), queue=queue))
    metrics = QueueMetrics(clock=lambda: world.now, most=4)
    found = await series(world, metrics)
    assert {name.split('"')[1] for name in found if name.startswith("hbox_queue_jobs")} == {"default", "other", "zoo", "zoo-0"}
    assert cards(found, "other") == {"used": 2, "offline": 0}, "a queue of this name is no exception"
    assert found['hbox_queue_jobs{queue="other",state="placed"}'] == 2


async def test_the_choice_of_named_queues_does_not_follow_usage(world: World) -> None:
    rule(world, *(Queue(QueueName(f"q{n}")) for n in range(6)))
    metrics = QueueMetrics(clock=lambda: world.now, most=3)
    before = await series(world, metrics)
    world.commits(world.plan("job", ("p0", "a", [world.card(0)]), queue="q5"))
    assert (await series(world, QueueMetrics(clock=lambda: world.now, most=3))).keys() == before.keys()


async def test_evictions_count_by_rule_for_the_victim_and_for_the_beneficiary(world: World) -> None:
    metrics = QueueMetrics(clock=lambda: world.now)
    full(world)
    world.commits(asks(world, 0))
    metrics.committed(world.last, world.state.queues)
    first = await series(world, metrics)
    assert first['hbox_queue_evictions_total{queue="b",rule="reclaim"}'] == 0, "else Prometheus sees no increase"
    found = await again(world, metrics)
    assert found['hbox_queue_evictions_total{queue="b",rule="reclaim"}'] == 1
    assert found['hbox_queue_evictions_caused_total{queue="a",rule="reclaim"}'] == 1


async def test_a_queue_that_is_gone_ends_its_series_of_evictions(world: World) -> None:
    metrics = QueueMetrics(clock=lambda: world.now)
    full(world)
    world.commits(asks(world, 0))
    metrics.committed(world.last, world.state.queues)
    world.state.rule(world.state.step(0.0), QueueName("b"), None)
    found = await series(world, metrics)
    assert not [name for name in found if name.startswith("hbox_queue_evictions_total")]


async def test_time_to_bind_is_counted_once_the_minimum_of_a_gang_is_bound(world: World) -> None:
    rule(world, Queue(QueueName("train")))
    metrics = QueueMetrics(clock=lambda: world.now)
    gang = world.plan("gang", ("p0", "a", [world.card(0)]), ("p1", "b", [world.card(0)]), queue="train", min_member=2)
    gang = gang.model_copy(update={"created_at": world.now - 30.0})
    world.commits(gang)
    for pod, node_name in (("p0", "a"), ("p1", "b")):
        step = world.outcome(pod, BindOutcome.BOUND, at=node_name)
        assert step.bound == ([] if pod == "p0" else [("train", "gang", 30.0)])
    metrics.committed(step, world.state.queues)
    await series(world, metrics)
    found = await again(world, metrics)
    name = "hbox_queue_submit_to_bound_seconds"
    assert [found[f'{name}_bucket{{queue="train",le="{le}"}}'] for le in ("10.0", "60.0", "+Inf")] == [0, 1, 1]
    assert (found[f'{name}_sum{{queue="train"}}'], found[f'{name}_count{{queue="train"}}']) == (30, 1)


async def test_time_to_bind_has_the_trace_of_a_job_as_exemplar(world: World) -> None:
    metrics = QueueMetrics(clock=lambda: world.now)
    tracing.setup("quota-ledger", "1", exporter=InMemorySpanExporter(), environ={})
    try:
        world.commits(world.plan("job", ("p0", "a", [world.card(0)])))
        metrics.committed(world.outcome("p0", BindOutcome.BOUND, at="a"), world.state.queues)
    finally:
        tracing.shutdown()
    await series(world, metrics)
    metrics._rendered_at = float("-inf")
    found = exemplars(openmetrics(await metrics.text(lambda: world.state)).decode())
    assert set(found.values()) == {trace_id_of(traceparent_of(JobId("job")))}


async def test_nodes_and_leaf_groups_of_gangs_are_compared_with_the_least(world: World) -> None:
    world.state.fabrics.put("f", 1, [HyperNode(f"leaf-{name}", 1, nodes=(NodeName(name),)) for name in "ab"])
    metrics = QueueMetrics(clock=lambda: world.now)
    world.commits(world.plan("gang", ("p0", "a", [world.card(0)]), ("p1", "b", [world.card(0)]), min_member=2))
    for pod, node_name in (("p0", "a"), ("p1", "b")):
        step = world.outcome(pod, BindOutcome.BOUND, at=node_name)
    metrics.committed(step, world.state.queues)
    await series(world, metrics)
    found = await again(world, metrics)
    numbers = {
        (kind, of): found[f'hbox_queue_gang_{kind}_total{{queue="default",of="{of}"}}']
        for kind in ("nodes", "groups")
        for of in ("used", "least")
    }
    assert numbers == {("nodes", "used"): 2, ("nodes", "least"): 1, ("groups", "used"): 2, ("groups", "least"): 1}


async def test_single_pods_have_no_spread(world: World) -> None:
    world.commits(world.plan("job", ("p0", "a", [world.card(0)])))
    assert not world.outcome("p0", BindOutcome.BOUND, at="a").gangs_bound


async def test_time_to_bind_of_a_job_that_comes_back_is_not_counted(world: World) -> None:
    first = world.plan("job", ("p0", "a", [world.card(0)]))
    world.state.records.receive([terms(first)])
    world.state.records.withdraw([first.job], [terms(first).revision])
    world.commits(world.plan("again", ("p1", "a", [world.card(0)]), job="job"))
    assert not world.outcome("p1", BindOutcome.BOUND, at="a").bound


async def test_only_changed_nodes_are_counted_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = QueueMetrics(clock=lambda: world.now)
    await series(world, metrics)
    counted: list[str] = []

    def count(state: LedgerState, name: NodeName) -> NodeCards | None:
        counted.append(name)
        return cards_on(state, name)

    monkeypatch.setattr("hbox_ledger.core.cardstates.cards_on", count)
    await again(world, metrics)
    assert counted == []
    world.commits(world.plan("job", ("p0", "a", [world.card(0)])))
    assert states(await again(world, metrics)) == {"used": 1, "idle": 3}
    assert counted == ["a"]
    world.state.know(NodeName("b"), replace(node("b"), gone=True))
    assert states(await again(world, metrics)) == {"used": 1, "idle": 1}
    leaves(world, "p0")
    assert states(await again(world, metrics)) == {"idle": 2}


async def test_a_nominated_place_is_counted_until_it_ends(world: World) -> None:
    metrics = QueueMetrics(clock=lambda: world.now)
    await series(world, metrics)
    nominated(world)
    assert states(await again(world, metrics))["kept"] == 1
    for nomination in world.state.nominations.all():
        world.state.give_up(nomination.plan.id)
    assert "kept" not in states(await again(world, metrics))


async def test_quotas_of_namespaces_are_on_the_page(world: World) -> None:
    world.state.limit([CardQuota("ml", "cards", {GPU: 4})])
    world.commits(world.plan("job", ("p0", "a", [world.card(0)])))
    found = await series(world)
    labels = f'{{namespace="ml",quota="cards",resource="{GPU}"}}'
    assert (found[f"hbox_ledger_card_quota_used{labels}"], found[f"hbox_ledger_card_quota_limit{labels}"]) == (1, 4)


async def test_names_are_escaped(world: World) -> None:
    rule(world, Queue(QueueName('a"} 1\nhbox_fake 2\\')))
    text = (await QueueMetrics(clock=lambda: world.now).text(lambda: world.state)).decode()
    assert 'hbox_queue_jobs{queue="a\\"} 1\\nhbox_fake 2\\\\",state="pending"} 0' in text.splitlines()
    assert not [line for line in text.splitlines() if line.startswith("hbox_fake")]


async def test_each_card_counts_once_by_what_it_is_used_for(world: World) -> None:
    world.commits(world.plan("share", ("p0", "a", [world.card(0, cores=30, memory=20_480)])))
    found = await series(world)
    assert states(found) == {"used": 0.5, "idle": 3.5}
    assert nodes(found) == {"partial": 1, "empty": 1}
    world.commits(world.plan("rest", ("p1", "a", [world.card(0, cores=50, memory=20_480)]), ("p2", "a", [world.card(1)])))
    assert nodes(await series(world)) == {"full": 1, "empty": 1}


async def test_idle_cards_of_a_cordoned_node_are_unavailable(world: World) -> None:
    world.commits(world.plan("job", ("p0", "a", [world.card(0)])))
    world.state.know(NodeName("a"), replace(node("a"), unschedulable=True))
    found = await series(world)
    assert states(found) == {"used": 1, "unavailable": 1, "idle": 2}
    assert nodes(found) == {"unavailable": 1, "empty": 1}


async def test_an_unhealthy_card_that_a_pod_holds_is_unhealthy(world: World) -> None:
    world.commits(world.plan("job", ("p0", "a", [world.card(0)])))
    bad = Verdict(NodeName("a"), Generation(1), healthy=True, bad_cards=(0,))
    world.state.know(NodeName("a"), verdict=bad)
    found = await series(world)
    assert states(found) == {"unhealthy": 1, "idle": 3}
    assert nodes(found) == {"empty": 2}


async def test_a_nominated_card_is_kept_once_it_is_free(world: World) -> None:
    nominated(world)
    assert states(await series(world)) == {"kept": 1, "used": 3}


async def test_a_card_that_is_still_held_by_the_victim_is_used(world: World) -> None:
    full(world)
    world.commits(asks(world, 0))
    assert states(await series(world)) == {"used": 4}
    leaves(world, "p0")
    assert states(await series(world)) == {"kept": 1, "used": 3}


async def test_replicas_count_as_parts_of_cards(world: World) -> None:
    a = world.state.nodes[NodeName("a")]
    units = tuple(replace(a.cards[0], index=n, uuid=f"a-{n}", shares=1) for n in range(8))
    labels = {f"{GPU}.replicas": "4", f"{GPU}.count": "2"}
    world.state.know(a.name, replace(a, labels=labels, allocatable={**a.allocatable, GPU: 8}, cards=units))
    world.commits(world.plan("job", ("p0", "a", [world.card(0)])))
    assert states(await series(world)) == {"used": 0.25, "idle": 3.75}


async def test_pools_are_labels_and_a_deleted_node_is_not_counted(world: World) -> None:
    world.state.know(NodeName("a"), replace(node("a"), labels={POOL: "lab"}))
    world.state.know(NodeName("b"), replace(node("b"), gone=True))
    found = await series(world)
    assert (states(found, "lab"), nodes(found, "lab")) == ({"idle": 2}, {"empty": 1})
    assert not states(found)


async def test_scrapes_within_seconds_share_one_rendering(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("hbox_ledger.queuemetrics.monotonic_s", lambda: now)
    metrics = QueueMetrics(clock=lambda: world.now)
    reads = 0

    def books() -> LedgerState:
        nonlocal reads
        reads += 1
        return world.state

    first, second = await asyncio.gather(metrics.text(books), metrics.text(books))
    assert first == second
    seen = reads
    await metrics.text(books)
    assert reads == seen
    world.commits(world.plan("job", ("p0", "a", [world.card(0)])))
    world.outcome("p0", BindOutcome.BOUND, at="a")
    now += 5.0
    assert await metrics.text(books) != first


async def test_every_family_has_its_type_even_without_series(world: World) -> None:
    text = (await QueueMetrics(clock=lambda: world.now).text(lambda: world.state)).decode()
    assert [line for line in text.splitlines() if line.startswith("# TYPE")] == [
        f"# TYPE {family.name} {family.type}" for family in FAMILIES
    ]


async def test_other_tasks_run_while_many_queues_are_rendered(world: World) -> None:
    rule(world, *(Queue(QueueName(f"q{n}"), deserved={GPU: 1}) for n in range(2_000)))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await series(world)
    task.cancel()
    assert turns > 2_000 // 64, "a part of the queues at a time"
