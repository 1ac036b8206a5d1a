"""Answers that other services compute: explanations, usage, shares; and public events. Few at a time, and an answer serves all who ask within seconds."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from hbox_common.bus import Bus
from hbox_common.clock import monotonic_s, wall_s
from hbox_common.errors import InvalidRequest, NotFound
from hbox_common.events import (
    ClaimsAsked,
    ClaimsPage,
    CloudEvent,
    NodeDevicesChanged,
    NodeDrained,
    NodeNumaChanged,
    QueueReclaimed,
    Usage,
    UsageAsked,
    UsageKey,
    UsagePage,
)
from hbox_common.events.explain import DecisionsAnswer, DecisionsRequest, ExplainAnswer, ExplainRequest, endpoint_of
from hbox_common.model import JobId, NodeName, QueueName
from hbox_common.model.devices import VENDORS
from hbox_common.reasons import code_of_label
from hbox_common.views.events import document_of
from hbox_common.views.evictions import about, receipt_item
from hbox_common.views.explanations import explanation_item
from hbox_common.views.fairshares import Memory
from hbox_common.views.node import node_item
from hbox_common.views.shares import share_document
from hbox_common.views.usage import add_budgets, items_of, keys_of, moment, total_of

from ..core.cache import Expiring
from ..core.history import History
from ..core.model import ReadModel
from ..core.names import OTHER_JOB, OTHER_NAMESPACE, Veil, veiled
from ..core.pages import cursor_of, key_of, limit_of
from ..core.rights import Identity, Scope
from ..core.withheld import OTHERS, Item, decisions_seen, devices_seen, named_in, shown_changes, veil_of
from .handlers import Handlers, Query, document
from .reviews import Reviews

EXPLAIN_S, USAGE_S, SHARE_S = 10.0, 10.0, 20.0
#: Seconds for which an answer serves others, and answers that are kept.
FRESH_S, KEPT = 2.0, 2_000
AT_ONCE = 8
NO_NODE = NodeName("")
#: Events that one request looks at.
MAX_EXAMINED = 5_000
#: Of an event's data.
_FREE_TEXTS = ("message", "reason", "cordoned_by")


class Questions:
    def __init__(self, bus: Bus, model: ReadModel, history: History, reviews: Reviews, handlers: Handlers) -> None:
        self._bus, self._model, self._history, self._reviews, self._handlers = bus, model, history, reviews, handlers
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._sharing = asyncio.Semaphore(1)
        self._explained: Expiring[tuple[JobId, NodeName], ExplainAnswer] = Expiring(size=KEPT, lasts_s=FRESH_S)

    # --- explanations

    async def explanation(self, identity: Identity, query: Query) -> Item:
        id_ = await self._handlers.job_id(identity, query["namespace"], query["name"])
        job = self._model.job_item(id_, now=wall_s())
        answer = await self._explain(id_, self._model.shard_of(id_))
        if answer.explanation is None:
            return document("JobExplanation", {"explanation": None})
        item = explanation_item(answer.explanation, job)
        veil = await self._veil(identity, item)
        item["changes"] = shown_changes(item["changes"], veil)
        seen = {key: value if key in ("job", "name", "queue") else veiled(value, veil) for key, value in item.items()}
        return document("JobExplanation", {"explanation": seen})

    async def node_rules(self, identity: Identity, query: Query) -> Item:
        id_ = await self._handlers.job_id(identity, query["namespace"], query["name"])
        await self._handlers.see_nodes(identity)
        job = self._model.job_item(id_, now=wall_s())
        node = NodeName(query["node"])
        answer = await self._explain(id_, self._model.shard_of(id_), node) if node in self._model.nodes else ExplainAnswer()
        if answer.node is None:
            raise NotFound(f"{job['name']} does not wait, or there is no node {node[:253]}", hint="`hbox nodes` lists nodes")
        labels = answer.node.failed
        veil = await self._veil(identity, labels)
        failed = [{"label": veil.text(label), "code": code.name if (code := code_of_label(label)) else ""} for label in labels]
        return document("NodeExplanation", {"name": job["name"], "id": id_, "node": node, "failed": failed})

    async def _explain(self, id_: JobId, shard: str, node: NodeName = NO_NODE) -> ExplainAnswer:
        """`node`: only the rules that it fails."""
        if (found := self._explained.get((id_, node), monotonic_s())) is not None:
            return found
        asked_at = monotonic_s()
        request = ExplainRequest(job=id_, changes=not node, node=node)
        async with self._turns:
            answer = await self._bus.call(
                "scheduler-core", endpoint_of("explain", shard), request, ExplainAnswer, timeout_s=EXPLAIN_S
            )
        self._explained.put((id_, node), answer, asked_at)
        return answer

    # --- placements

    async def placement(self, identity: Identity, query: Query) -> Item:
        id_ = await self._handlers.job_id(identity, query["namespace"], query["name"])
        name = f"{query['namespace']}/{query['name']}"
        asked = endpoint_of("decisions", self._model.shard_of(id_))
        async with self._turns:
            answer = await self._bus.call(
                "scheduler-core", asked, DecisionsRequest(job=id_), DecisionsAnswer, timeout_s=EXPLAIN_S
            )
        found = answer.model_dump(mode="json")
        decisions = decisions_seen(found["decisions"], nodes=await self._reviews.nodes(identity))
        return document("PlacementExplanation", {"name": name, "id": id_, "since": found["since"], "decisions": decisions})

    # --- the cards of a node

    async def node_cards(self, identity: Identity, query: Query) -> Item:
        await self._handlers.see_nodes(identity)
        name = NodeName(query["name"])
        if (node := self._model.nodes.get(name)) is None:
            raise NotFound(f"there is no node {name[:253]}", hint="`hbox nodes` lists them")
        async with self._turns:
            reports = [one.event for one in await self._bus.last(NodeDevicesChanged, [(name,)])]
            numa = [one.event for one in await self._bus.last(NodeNumaChanged, [(name,)])]
        devices = next((e.devices for e in reports if isinstance(e, NodeDevicesChanged) and not e.devices.gone), None)
        claims, verdict, scope, veil = await self._handlers.on_node(
            identity,
            name,
            namespaces={one.namespace for one in devices.holds} if devices else (),
            texts=[devices.problem] if devices else (),
        )
        item = node_item(
            node,
            verdict,
            claims,
            None if devices is None else devices_seen(devices, scope, veil),
            numa=next((e.numa for e in numa if isinstance(e, NodeNumaChanged) and not e.numa.gone), None),
            now=wall_s(),
        )
        return document("NodeCards", item)

    async def _veil(self, identity: Identity, *values: Any) -> Veil:
        scope = await self._handlers.scope_of(identity, named_in(values, self._model))
        return veil_of(scope, self._model)

    # --- shares

    async def share(self, identity: Identity, query: Query) -> Item:
        if not query.get("queue"):
            raise InvalidRequest("queue: missing", hint="/api/v1/share?queue=NAME")
        name = await self._handlers.see_queue(identity, query["queue"])
        resource = query.get("resource") or VENDORS.default.cards
        async with self._sharing, asyncio.timeout(SHARE_S):
            share = await asyncio.to_thread(self._share, name, resource, self._model.waiting_jobs())
        veil = await self._veil(identity, share)
        return document("QueueShare", dict(share) | {key: veiled(value, veil) for key, value in share.items()})

    def _share(self, name: QueueName, resource: str, jobs: Any) -> Item:
        """Walks all waiting jobs: in a thread, one at a time."""
        model = self._model
        cards = sum(len(node.cards) or VENDORS.asked(node.allocatable) for node in list(model.nodes.values()))
        memory = Memory(cards, dict(model.recent), model.half_life_h, model.usage_weight)
        return share_document(model.tree, name, jobs, resource, now=wall_s(), memory=memory)

    # --- usage

    async def usage(self, identity: Identity, query: Query) -> Item:
        now = wall_s()
        keys = _given("by", lambda: keys_of(query.get("by") or "queue"))
        first = _given("since", lambda: moment(query.get("since") or "month", now=now))
        last = _given("until", lambda: moment(query["until"], now=now)) if query.get("until") else int(now) + 1
        if first >= last:
            raise InvalidRequest("since: not before until")
        first -= first % 3600
        asked = tuple(dict.fromkeys((*keys, UsageKey.QUEUE)))
        async with self._turns:
            pages = await self._bus.ask(
                UsageAsked(asker="console", by=asked, since=first, until=last), UsagePage, timeout_s=USAGE_S
            )
        rows = [row for page in pages for row in page.usage]
        budgets = [budget for page in pages for budget in page.budgets]
        scope = await self._reviews.scope(
            identity,
            namespaces={row.user for row in rows if row.user},
            queues={row.queue for row in rows} | {row.department for row in rows if row.department},
        )
        seen = [_row_seen(row, keys, scope) for row in rows]
        items = items_of(seen, keys, {})
        if keys in ((UsageKey.QUEUE,), (UsageKey.DEPARTMENT,)):
            add_budgets(items, [budget for budget in budgets if scope.sees_queue(budget.queue)])
        plain = [{name: value for name, value in item.items() if name != "bar"} for item in items]
        return document("UsageList", {"since": first, "until": last, "items": plain, "total": total_of(items)})

    # --- events

    async def events(self, identity: Identity, query: Query) -> Item:
        limit = limit_of(query.get("limit"))
        since = _given("since", lambda: moment(query["since"], now=wall_s())) if query.get("since") else 0
        after = key_of(query["continue"], (int,))[0] if query.get("continue") else 0
        past = list(self._history.since(since, after=after))[:MAX_EXAMINED]
        scope = await self._reviews.scope(
            identity,
            namespaces={_namespace(one.event) for one in past} - {""},
            queues={_queue(one.event) for one in past} - {""},
        )
        nodes = any(isinstance(one.event, NodeDrained) for one in past) and await self._reviews.nodes(identity)
        shown: list[Item] = []
        last = after
        for one in past:
            if len(shown) == limit:
                break
            last = one.sequence
            if _is_seen(one.event, scope, nodes):
                shown.append(_named_as_seen(one.event, scope))
        veil = await self._veil(identity, [_texts(item) for item in shown])
        items = [{**item, "data": item["data"] | veiled(_texts(item), veil)} for item in shown]
        metadata = {"revision": self._model.revision, "continue": cursor_of([last])}
        return document("EventList", {"metadata": metadata, "items": items})

    async def evictions(self, identity: Identity, query: Query) -> Item:
        limit = limit_of(query.get("limit"))
        receipts = list(reversed(self._history.receipts))
        scope = await self._reviews.scope(identity, namespaces={one.namespace for one in receipts}, queues=())
        found = [receipt_item(one) for one in receipts if scope.sees_namespace(one.namespace)][:limit]
        veil = await self._veil(identity, found)
        items = [veiled(item, veil) for item in found]
        return document("EvictionList", {"metadata": {"revision": self._model.revision, "continue": ""}, "items": items})

    async def evicted(self, identity: Identity, query: Query) -> Item:
        """Jobs and pods by name, of all namespaces that the client may see or of the named one."""
        name = query.get("name", "")
        if not name:
            raise InvalidRequest("name: missing", hint="/api/v1/evicted?name=NAMESPACE/NAME")
        namespace, _, plain = name.rpartition("/")
        kept = [one for one in self._history.receipts if not namespace or one.namespace == namespace]
        scope = await self._reviews.scope(
            identity, namespaces={namespace} if namespace else {one.namespace for one in kept}, queues=()
        )
        within = await self._handlers.namespaces_of(identity, namespace)
        ids = [id_ for one in within for id_ in self._model.ids_of(one, plain)]
        found = about([one for one in kept if scope.sees_namespace(one.namespace)], name, jobs=ids)
        receipts = [receipt_item(one) for one in found]
        veil = await self._veil(identity, receipts)
        shown = [id_ for id_ in dict.fromkeys((*ids, *(one.job for one in found))) if self._model.knows_job(id_)]
        now = await self._handlers.jobs_seen(identity, [self._model.job_item(id_, now=wall_s()) for id_ in shown])
        return document("EvictionExplanation", {"name": name, "receipts": [veiled(one, veil) for one in receipts], "now": now})

    async def eviction_pause(self, _: Identity, __: Query) -> Item:
        """The same for all clients: it names nothing."""
        async with self._turns:
            [head] = await self._bus.ask(ClaimsAsked(asker="console", head=True), ClaimsPage, timeout_s=USAGE_S)
        return document("EvictionPause", {"paused": bool(head.paused), "message": head.paused, "released": head.released})


def _given(name: str, read: Any) -> Any:
    try:
        return read()
    except ValueError as e:
        raise InvalidRequest(f"{name}: {e}") from e


def _row_seen(row: Usage, keys: Sequence[UsageKey], scope: Scope) -> Usage:
    """The row by the requested keys alone, with names that the client may not see as one."""
    hidden: Mapping[str, Any] = {
        "queue": (row.queue if scope.sees_queue(row.queue) else OTHERS) if UsageKey.QUEUE in keys else "",
        "department": row.department if not row.department or scope.sees_queue(row.department) else OTHERS,
        "user": row.user if not row.user or scope.sees_namespace(row.user) else OTHERS,
    }
    return row.model_copy(update=hidden)


def _namespace(event: CloudEvent) -> str:
    return getattr(event.data, "namespace", "")


def _queue(event: CloudEvent) -> str:
    """Of an event that clients see by its queue, and not by a job's namespace."""
    return "" if event.kind.startswith("job.") else getattr(event.data, "queue", "")


def _is_seen(event: CloudEvent, scope: Scope, nodes: bool) -> bool:
    if isinstance(event, NodeDrained):
        return nodes
    if queue := _queue(event):
        return scope.sees_queue(queue)
    return scope.sees_namespace(_namespace(event))


def _named_as_seen(event: CloudEvent, scope: Scope) -> Item:
    """The event as a document. The job that reclaims may be of another tenant of the queue."""
    item = document_of(event)
    if isinstance(event, QueueReclaimed) and not scope.sees_namespace(_namespace(event)):
        item["data"] |= {"namespace": OTHER_NAMESPACE, "name": OTHER_JOB}
    return item


def _texts(item: Item) -> Item:
    """Texts of the event in which names of others may be. Its codes stay as they are, also where someone's pod has the name of a code."""
    return {key: text for key, text in item["data"].items() if key in _FREE_TEXTS}
