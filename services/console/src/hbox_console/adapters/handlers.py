"""Answers of the HTTP API, from the read model and by the client's rights."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hbox_common.clock import monotonic_s, wall_s
from hbox_common.errors import InvalidRequest, NotFound
from hbox_common.model import Claim, JobId, NodeName, QueueName, Verdict
from hbox_common.views.cards import card_items

from ..api import API_VERSION
from ..core.model import ReadModel
from ..core.names import Veil
from ..core.pages import cursor_of, key_of, limit_of
from ..core.rights import ALL_JOBS, ALL_QUEUES, Identity, Scope, jobs_in, queue_named
from ..core.withheld import (
    Item,
    claims_seen,
    job_seen,
    named_in_jobs,
    named_in_nodes,
    named_in_queues,
    named_on_node,
    node_seen,
    others_of,
    queue_seen,
    veil_of,
    verdict_seen,
)
from .problems import NotAllowed
from .reviews import Reviews

#: Jobs that one request looks at: a page that has fewer items than asked for continues with its cursor.
MAX_EXAMINED = 5_000
#: Seconds for which the list of queues serves others, and queues between two pauses of its computation.
FRESH_S, PAUSE_AFTER = 1.0, 50
STATES = frozenset({"PENDING", "WAITING", "INVALID", "GROWING", "BOUND", "RUNNING"})

Query = Mapping[str, str]


def document(kind: str, content: Mapping[str, Any]) -> Item:
    return {"apiVersion": API_VERSION, "kind": kind, **content}


class Handlers:
    def __init__(self, model: ReadModel, reviews: Reviews) -> None:
        self._model, self._reviews = model, reviews
        self._computing, self._queues, self._queues_until = asyncio.Lock(), list[Item](), 0.0

    async def whoami(self, identity: Identity, _: Query) -> Item:
        rights = {
            "jobs": await self._reviews.any_allowed(identity, ALL_JOBS),
            "queues": await self._reviews.any_allowed(identity, ALL_QUEUES),
            "nodes": await self._reviews.nodes(identity),
        }
        return document("WhoAmI", {"user": identity.user, "groups": list(identity.groups), "rights": rights})

    # --- jobs

    async def jobs(self, identity: Identity, query: Query) -> Item:
        limit = limit_of(query.get("limit"))
        after = key_of(query["continue"], (float, str, str)) if query.get("continue") else None
        states = frozenset(part.upper() for part in query["state"].split(",")) if query.get("state") else STATES
        if unknown := states - STATES:
            raise InvalidRequest(f"state: {sorted(unknown)[0][:40]!r} is none of {', '.join(sorted(STATES))}")
        namespaces = await self.namespaces_of(identity, query.get("namespace", ""))
        model, now, items, last = self._model, wall_s(), list[Item](), None
        more = False
        for examined, id_ in enumerate(model.jobs_in(namespaces, after=after)):
            if len(items) == limit or examined == MAX_EXAMINED:
                more = True
                break
            last = model.key_of(id_)
            item = model.job_item(id_, now=now)
            if item["state"] in states and query.get("queue", item["queue"]) == item["queue"]:
                items.append(item)
        seen = await self.jobs_seen(identity, items)
        return self._list("JobList", seen, cursor_of(last) if more and last is not None else "")

    async def namespaces_of(self, identity: Identity, named: str) -> Iterable[str]:
        if named:
            await self.see_namespace(identity, named)
            return [named]
        scope = await self._reviews.scope(identity, namespaces=list(self._model.namespaces()), queues=())
        return list(self._model.namespaces()) if scope.namespaces is None else scope.namespaces

    async def see_namespace(self, identity: Identity, namespace: str) -> None:
        """Raises NotAllowed, whether there is such a namespace or not."""
        if not await self._reviews.any_allowed(identity, jobs_in(namespace)):
            raise NotAllowed(
                f"you may not see jobs of namespace {namespace[:253]}",
                hint="it takes the right to get podgroups.scheduling.volcano.sh or pods there",
            )

    async def job_id(self, identity: Identity, namespace: str, name: str) -> JobId:
        """The newest job of that name. Raises NotAllowed, NotFound."""
        await self.see_namespace(identity, namespace)
        ids = self._model.ids_of(namespace, name)
        if not ids:
            raise NotFound(f"there is no job {name[:253]} in namespace {namespace[:253]}", hint="`hbox jobs` lists them")
        return ids[-1]

    async def job(self, identity: Identity, query: Query) -> Item:
        id_ = await self.job_id(identity, query["namespace"], query["name"])
        [item] = await self.jobs_seen(identity, [self._model.job_item(id_, now=wall_s())])
        return document("Job", item)

    async def jobs_seen(self, identity: Identity, items: Sequence[Item]) -> list[Item]:
        veil = veil_of(await self.scope_of(identity, named_in_jobs(items, self._model)), self._model)
        return [job_seen(item, veil) for item in items]

    async def scope_of(self, identity: Identity, named: tuple[set[str], set[str]]) -> Scope:
        namespaces, queues = named
        return await self._reviews.scope(identity, namespaces=namespaces, queues=queues)

    # --- queues

    async def queues(self, identity: Identity, query: Query) -> Item:
        limit, after = limit_of(query.get("limit")), _name_after(query)
        names = self._model.queue_names()
        scope = await self._reviews.scope(identity, namespaces=(), queues=names)
        seen, others = list[Item](), list[Item]()
        for item in await self._queue_items():
            (seen if scope.sees_queue(item["name"]) else others).append(item)
        page = [item for item in seen if item["name"] > after]
        items = await self._queues_seen(identity, page[:limit])
        cursor = cursor_of([page[limit - 1]["name"]]) if len(page) > limit else ""
        return self._list("QueueList", items, cursor, others=others_of(others))

    async def _queue_items(self) -> list[Item]:
        """All of them, as they were within the last second. Computed for all requests at once, with pauses: thousands of queues take a while."""
        async with self._computing:
            if monotonic_s() >= self._queues_until:
                items: list[Item] = []
                for number, name in enumerate(self._model.queue_names()):
                    if number % PAUSE_AFTER == 0:
                        await asyncio.sleep(0)
                    if (item := self._model.queue_item(name, now=wall_s())) is not None:
                        items.append(item)
                self._queues, self._queues_until = items, monotonic_s() + FRESH_S
            return self._queues

    async def see_queue(self, identity: Identity, name: str) -> QueueName:
        """Raises NotAllowed, whether there is such a queue or not, and NotFound."""
        if not await self._reviews.any_allowed(identity, queue_named(name)):
            raise NotAllowed(
                f"you may not see queue {name[:253]}",
                hint="it takes the right to get or use this queue (queues.scheduling.volcano.sh)",
            )
        if name not in self._model.tree:
            raise NotFound(f"there is no queue {name[:253]}", hint="`hbox queue ls` lists them")
        return QueueName(name)

    async def queue(self, identity: Identity, query: Query) -> Item:
        name = await self.see_queue(identity, query["name"])
        item = self._model.queue_item(name, now=wall_s())
        assert item is not None
        [seen] = await self._queues_seen(identity, [item])
        return document("Queue", seen)

    async def _queues_seen(self, identity: Identity, items: Sequence[Item]) -> list[Item]:
        scope = await self.scope_of(identity, named_in_queues(items, self._model))
        veil = veil_of(scope, self._model)
        return [queue_seen(item, scope, veil) for item in items]

    # --- nodes

    async def nodes(self, identity: Identity, query: Query) -> Item:
        await self.see_nodes(identity)
        limit, after, now = limit_of(query.get("limit")), _name_after(query), wall_s()
        items: list[Item] = []
        more = False
        for name in sorted(name for name in self._model.nodes if name > after):
            if len(items) == limit:
                more = True
                break
            item = self._model.node_item(name, now=now)
            if item is not None and query.get("pool", item["pool"]) == item["pool"]:
                items.append(item)
        cursor = cursor_of([items[-1]["name"]]) if more else ""
        return self._list("NodeList", await self._nodes_seen(identity, items), cursor)

    async def see_nodes(self, identity: Identity) -> None:
        if not await self._reviews.nodes(identity):
            raise NotAllowed("you may not see nodes", hint="it takes the right to list nodes")

    async def node(self, identity: Identity, query: Query) -> Item:
        await self.see_nodes(identity)
        item = self._model.node_item(NodeName(query["name"]), now=wall_s())
        if item is None:
            raise NotFound(f"there is no node {query['name'][:253]}", hint="`hbox nodes` lists them")
        [seen] = await self._nodes_seen(identity, [item])
        return document("Node", seen)

    async def cards(self, identity: Identity, query: Query) -> Item:
        """Pages end with a node."""
        await self.see_nodes(identity)
        limit, after, items, last = limit_of(query.get("limit")), _name_after(query), list[Item](), ""
        for name in sorted(name for name in self._model.nodes if name > after):
            if len(items) >= limit:
                return self._list("CardList", items, cursor_of([last]))
            last = name
            claims, verdict, _, _ = await self.on_node(identity, name)
            if (node := self._model.nodes.get(name)) is None:  # removed during a review
                continue
            items += card_items([node], {name: verdict} if verdict else {}, claims)
        return self._list("CardList", items, "")

    async def on_node(
        self, identity: Identity, name: NodeName, *, namespaces: Iterable[str] = (), texts: Sequence[str] = ()
    ) -> tuple[list[Claim], Verdict | None, Scope, Veil]:
        """The claims on a node and the verdict on it, without names that the client may not see, and what it may see of these `namespaces` and `texts`."""
        claims, verdict = list(self._model.claims_on(name)), self._model.verdict_on(name)
        named, queues = named_on_node(claims, [*texts, verdict.reason if verdict else ""], self._model)
        scope = await self.scope_of(identity, (named | set(namespaces), queues))
        veil = veil_of(scope, self._model)
        return claims_seen(claims, scope), verdict_seen(verdict, veil), scope, veil

    async def _nodes_seen(self, identity: Identity, items: Sequence[Item]) -> list[Item]:
        scope = await self.scope_of(identity, named_in_nodes(items, self._model))
        veil = veil_of(scope, self._model)
        return [node_seen(item, scope, veil) for item in items]

    def _list(self, kind: str, items: Sequence[Item], cursor: str, **metadata: Any) -> Item:
        return document(
            kind, {"metadata": {"revision": self._model.revision, "continue": cursor, **metadata}, "items": list(items)}
        )


def _name_after(query: Query) -> str:
    return str(key_of(query["continue"], (str,))[0]) if query.get("continue") else ""
