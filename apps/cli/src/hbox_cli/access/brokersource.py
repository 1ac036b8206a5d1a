"""The broker of a platform as a source, for operators and for users of `hbox up`: the services' answers and their last messages."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from hbox_common.bus import Bus
from hbox_common.clock import wall_s
from hbox_common.errors import NotFound, Unavailable
from hbox_common.events import (
    Budget,
    Event,
    HealthEvictionAsked,
    HealthVerdict,
    JobsPage,
    NodeDevicesChanged,
    NodeNumaChanged,
    NodeRests,
    NodeStateChanged,
    Usage,
    UsageKey,
)
from hbox_common.model import KindRest, LeavingPod, NodeRest, named_models
from hbox_common.views.cards import card_items
from hbox_common.views.evictions import about, receipt_item
from hbox_common.views.firstreport import report_text
from hbox_common.views.jobs import items_of
from hbox_common.views.node import node_item
from hbox_common.views.nodes import node_items, rest_text
from hbox_common.views.queues import tree_of
from hbox_common.views.shares import share_document

from ..aio import run
from ..explaining import explanation, rules_of_node
from ..output import notify
from ..platform.layout import Running
from ..queues import fair_shares, memory_of, models_of, queue_item, queue_items, read
from ..session import bus_of, claims_of, job_pages, last_values, ledger_of, receipts_of, usage_of
from .eventfeeds import read_events
from .jobnames import find
from .source import Item, Wanted

T = TypeVar("T")

#: The scheduler's label for nodes that wait for node-agent's first report.
KUBELET_POLICY = "KubeletPolicyNotKnown"
#: A pod that is being deleted is slow to end once it should have ended so long ago; its kubelet may be a little late.
LATE_S = 30.0
#: Timeout in seconds of a query for card reasons, and attempts: an answer may be lost, or late under load.
CARDS_S = 5.0
ATTEMPTS = 2


class BrokerSource:
    """One platform; each method makes a connection of its own."""

    def __init__(self, running: Running) -> None:
        self._running = running

    def jobs(self, wanted: Wanted) -> list[Item]:
        async def ask(bus: Bus) -> list[Item]:
            return items_of(await job_pages(bus), now=wall_s())

        return wanted.of(self._ask(ask))

    def job(self, name: str) -> Item:
        return find(self.jobs(Wanted()), name)

    def why(self, job: str) -> Item:
        return self._ask(lambda bus: _why(bus, job))

    def placement(self, job: str) -> Item:
        return self._ask(lambda bus: _placement(bus, job))

    def node_rules(self, job: str, node: str) -> Item:
        async def ask(bus: Bus) -> Item:
            found = find(items_of(await job_pages(bus), now=wall_s()), job)
            return {**found, "failed": await rules_of_node(bus, found, node)}

        return self._ask(ask)

    def evicted(self, name: str) -> Item:
        return self._ask(lambda bus: _evicted(bus, name))

    def queues(self) -> list[Item]:
        found = run(lambda: read(self._running))
        return queue_items(found.tree, found.jobs, now=wall_s())

    def queue(self, name: str) -> Item:
        found, memory = run(lambda: read(self._running)), run(lambda: memory_of(self._running))
        queue = found.named(name)
        path = [str(one) for one in reversed(found.tree.path(queue.name))]
        named = named_models(queue.guarantee, queue.deserved, queue.capability)
        models = run(lambda: models_of(self._running)) if named else None
        item = queue_item(found.tree, queue.name, found.jobs, now=wall_s(), models=models)
        item |= {"fair": fair_shares(found.tree, found.jobs, memory).get(queue.name)}
        item |= {"usageWeight": memory.weight, "halfLifeHours": memory.half_life_h, "cards": memory.cards}
        item |= {"path": path, "children": list(found.tree.children(queue.name)), "pods": len(found.holding(queue.name))}
        return item

    def share(self, name: str, resource: str) -> Item:
        found, memory = run(lambda: read(self._running)), run(lambda: memory_of(self._running))
        return share_document(found.tree, found.named(name).name, found.jobs, resource, now=wall_s(), memory=memory)

    def nodes(self) -> list[Item]:
        async def ask(bus: Bus) -> list[Item]:
            values = await last_values(bus, [NodeStateChanged, HealthVerdict, NodeRests])
            return node_items(
                [event.node for event in values if isinstance(event, NodeStateChanged)],
                {event.verdict.node: event.verdict for event in values if isinstance(event, HealthVerdict)},
                [claim for page in await claims_of(bus) for claim in page.claims],
                {event.rest.node: event.rest for event in values if isinstance(event, NodeRests)},
                now=wall_s(),
            )

        return self._ask(ask)

    def devices(self) -> list[Item]:
        async def ask(bus: Bus) -> list[Item]:
            values = await last_values(bus, [NodeStateChanged, HealthVerdict])
            return card_items(
                [event.node for event in values if isinstance(event, NodeStateChanged)],
                {event.verdict.node: event.verdict for event in values if isinstance(event, HealthVerdict)},
                [claim for page in await claims_of(bus) for claim in page.claims],
            )

        return self._ask(ask)

    def node(self, name: str) -> Item:
        return self._ask(lambda bus: _node(bus, name))

    def usage(self, by: Sequence[UsageKey], *, since: int, until: int) -> tuple[list[Usage], list[Budget]]:
        return self._ask(lambda bus: usage_of(bus, by, since=since, until=until))

    def events(self, take: Callable[[Event], None], *, follow: bool) -> None:
        self._ask(lambda bus: read_events(bus, take, follow=follow))

    def evictions(self) -> Mapping[str, Any]:
        head = self._ask(ledger_of)
        return {"paused": bool(head.paused), "message": head.paused, "released": head.released}

    def _ask(self, ask: Callable[[Bus], Awaitable[T]]) -> T:
        async def connected() -> T:
            async with bus_of(self._running) as bus:
                return await ask(bus)

        return run(connected)


async def _why(bus: Bus, job: str) -> Item:
    """The job, and what cards say to it where it waits for some."""
    pages = await job_pages(bus)
    items = items_of(pages, now=wall_s())
    rests = [one.event.rest for one in await bus.last(NodeRests, [(None,)]) if isinstance(one.event, NodeRests)]
    try:
        found = find(items, job)
    except NotFound:
        if (refused := next((one for one in _refusals(rests) if job in (one.pod, one.pod.partition("/")[2])), None)) is None:
            raise
        raise NotFound(
            f"pod {refused.pod} has ended: the kubelet of its node refused it: {refused.message}",
            hint="`hbox nodes` shows what the node refuses; HBox places the pod's replacement on another node while this one rests",
        ) from None
    waits = found["waiting"] and found["cards"]
    return {
        **found,
        "explanation": await explanation(bus, found) if found["waiting"] else None,
        "cardReasons": await _cards(bus, found) if waits else [],
        "latePods": late_pods((pod for page in pages for pod in page.leaving), now=wall_s()) if waits else [],
        "failingNodes": {one.node: text for one in rests if found["waiting"] and (text := rest_text(one, wall_s()))},
        "unreportedNodes": await _unreported(bus) if KUBELET_POLICY in found["reason"] else {},
        "sickPods": await _sick_pods(bus, found, pages) if found["placed"] else [],
    }


async def _sick_pods(bus: Bus, found: Item, pages: Sequence[JobsPage]) -> list[Item]:
    """Pods of the job that are on hardware out of use."""
    from hbox_common.views.sickpods import Sickness, sick_pods  # noqa: PLC0415  for jobs that run

    from ..health.incidents import changes  # noqa: PLC0415

    names = sorted(set(found["placed"].values()))
    verdicts = [
        one.event.verdict
        for one in await bus.last(HealthVerdict, [(name,) for name in names])
        if isinstance(one.event, HealthVerdict)
    ]
    sick = {verdict.node: verdict for verdict in verdicts if verdict.cards or not verdict.healthy}
    if not sick:
        return []
    claims = await claims_of(bus)
    queues = tree_of([queue for page in claims for queue in page.queues], {})
    requests = [one for one in await last_values(bus, [HealthEvictionAsked]) if isinstance(one, HealthEvictionAsked)]
    incidents = {one.id: one for name in sick for one in await changes(bus, name)}
    head = await ledger_of(bus)
    return sick_pods(
        [claim for page in claims for claim in page.claims if claim.job == found["id"]],
        {str(pod.uid): pod.on_sick for page in pages for pod in page.pods if pod.job == found["id"]},
        queues.sick_policy,
        Sickness(sick, list(incidents.values()), [one for one in requests if not one.ended], head.paused),
    )


async def _unreported(bus: Bus) -> dict[str, str]:
    nodes = [one.node for one in await last_values(bus, [NodeStateChanged]) if isinstance(one, NodeStateChanged)]
    return {node.name: report_text(node, wall_s()) for node in sorted(nodes, key=lambda node: node.name) if node.report_due}


async def _placement(bus: Bus, job: str) -> Item:
    from hbox_common.events.explain import DecisionsAnswer, DecisionsRequest, endpoint_of  # noqa: PLC0415  for those who ask

    found = find(items_of(await job_pages(bus), now=wall_s()), job)
    asked = endpoint_of("decisions", found.get("shard", ""))
    answer = await bus.call("scheduler-core", asked, DecisionsRequest(job=found["id"]), DecisionsAnswer)
    return {**found, **answer.model_dump(mode="json")}


async def _evicted(bus: Bus, name: str) -> Item:
    items, kept = items_of(await job_pages(bus), now=wall_s()), await receipts_of(bus)
    named = [item["id"] for item in items if name in (item["id"], item["name"], item["name"].partition("/")[2])]
    found = about(kept, name, jobs=named)
    ids = {*named, *(one.job for one in found)}
    return {"name": name, "receipts": [receipt_item(one) for one in found], "now": [one for one in items if one["id"] in ids]}


def _refusals(rests: Iterable[NodeRest]) -> Iterator[KindRest]:
    return (one for rest in rests for one in rest.refused)


async def _cards(bus: Bus, found: Item) -> list[Item]:
    from hbox_common.events.explain import endpoint_of  # noqa: PLC0415  for those who wait for cards
    from hbox_scheduler.cardanswer import CardsAnswer, CardsRequest  # noqa: PLC0415

    asked = endpoint_of("cards", found.get("shard", ""))
    for _ in range(ATTEMPTS):
        try:
            answer = await bus.call("scheduler-core", asked, CardsRequest(job=found["id"]), CardsAnswer, timeout_s=CARDS_S)
        except Unavailable as e:
            if not e.outcome_unknown:  # an older scheduler has no such endpoint; the status of an absent one is shown elsewhere
                return []
            lost = e
        else:
            return [task.model_dump(mode="json") for task in answer.tasks]
    notify(f"no reasons from the cards: {lost}")
    return []


def late_pods(pods: Iterable[LeavingPod], *, now: float) -> list[Item]:
    """Those that should have ended a while ago, the latest first. `now`: seconds since the epoch."""
    late = [pod for pod in pods if pod.ends_at < now - LATE_S]
    return [
        {
            "pod": f"{pod.namespace}/{pod.name}",
            "node": pod.node,
            "cards": pod.cards,
            "lateSeconds": round(now - pod.ends_at, 1),
            "finalizers": list(pod.finalizers),
        }
        for pod in sorted(late, key=lambda pod: (pod.ends_at, pod.namespace, pod.name))
    ]


async def _node(bus: Bus, name: str) -> Item:
    states = [one.event for one in await bus.last(NodeStateChanged, [(name,)])]
    node = next((e.node for e in states if isinstance(e, NodeStateChanged) and not e.node.gone), None)
    if node is None:
        raise NotFound(f"there is no node {name}", hint="`hbox nodes` lists them")
    verdicts = [one.event for one in await bus.last(HealthVerdict, [(name,)])]
    reports = [one.event for one in await bus.last(NodeDevicesChanged, [(name,)])]
    numa = [one.event for one in await bus.last(NodeNumaChanged, [(name,)])]
    claims = [claim for page in await claims_of(bus) for claim in page.claims]
    return node_item(
        node,
        next((e.verdict for e in verdicts if isinstance(e, HealthVerdict)), None),
        claims,
        next((e.devices for e in reports if isinstance(e, NodeDevicesChanged) and not e.devices.gone), None),
        numa=next((e.numa for e in numa if isinstance(e, NodeNumaChanged) and not e.numa.gone), None),
        now=wall_s(),
    )
