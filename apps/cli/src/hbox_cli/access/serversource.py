"""HBox's HTTP API as a source; the Kubernetes objects where it does not answer."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from hbox_common.errors import InvalidRequest, NotFound, Unavailable

from ..output import notify
from .choice import ANNOUNCED_IN, ANNOUNCEMENT, Choice
from .credentials import PluginFailed
from .http import ANSWER_S, Endpoint, Server
from .jobnames import find
from .objectsource import ObjectSource, kube_server
from .source import Item, Wanted

if TYPE_CHECKING:
    from hbox_common.events import Budget, Event, Usage, UsageKey

T = TypeVar("T")

#: Fields of the items that commands print. An answer without them is of another server.
JOB = ("name", "id", "queue", "priority", "state", "pods", "placed", "waiting", "cards", "ageSeconds", "reason")
QUEUE = ("name", "state", "parent", "pools", "home", "used", "deserved", "capability", "pendingJobs", "pendingCards")
NODE = ("name", "state", "model", "cards", "healthy", "pods", "pool", "used", "allocatable", "reason")
NODE_CARDS = ("name", "state", "pool", "cards", "parts", "gone", "counts", "links", "identity", "containers", "numa", "kubelet")
CARD = ("name", "node", "indices", "kind", "model", "health", "slots", "memoryMib", "cores", "owners")
PAUSE = ("paused", "message", "released")
SHARE = ("name", "resource", "levels", "models", "pools")

API = "/api/v1"
PAGE = 500  #: the most that the server returns
#: Seconds between two queries for new events.
POLL_S = 2.0


class ServerSource:
    """The server of one choice, as its user. The cluster is asked for the server's address when it is first needed."""

    def __init__(self, choice: Choice, *, answer_s: float = ANSWER_S) -> None:
        self._choice, self._answer_s = choice, answer_s
        self._server: Server | None = None

    @property
    def server(self) -> Server:
        """Raises Unavailable where the cluster announces no server."""
        if self._server is None:
            self._server = server_of(self._choice, answer_s=self._answer_s)
        return self._server

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def jobs(self, wanted: Wanted) -> list[Item]:
        return self._or_objects(lambda: self._jobs(wanted), lambda objects: objects.jobs(wanted))

    def job(self, name: str) -> Item:
        return self._or_objects(lambda: self._job(name), lambda objects: objects.job(name))

    def why(self, job: str) -> Item:
        return self._or_objects(lambda: self._why(job), lambda objects: objects.why(job))

    def placement(self, job: str) -> Item:
        found = self._job(job)
        return {**found, **self._item(f"{_job_path(found)}/placement", ("since", "decisions"))}

    def node_rules(self, job: str, node: str) -> Item:
        found = self._job(job)
        rules = self._item(f"{_job_path(found)}/nodes/{_part(node)}", ("failed",))["failed"]
        return {**found, "failed": [rule["label"] for rule in rules]}

    def evicted(self, name: str) -> Item:
        """A name without a namespace may be that of jobs in several: the receipts have the namespace."""
        return self._item("/evicted", ("name", "receipts", "now"), {"name": name})

    def queues(self) -> list[Item]:
        return self._or_objects(self._queues, lambda objects: objects.queues())

    def queue(self, name: str) -> Item:
        """Parents and children are those that the user may see; recent usage and the number of pods are not served."""
        item = self._item(f"/queues/{_part(name)}", QUEUE)
        seen = {one["name"]: one for one in self._items("/queues", QUEUE)}
        path = [name]
        while (parent := seen.get(path[0], item)["parent"]) in seen and parent not in path:
            path.insert(0, parent)
        children = [one["name"] for one in seen.values() if one["parent"] == name]
        return {**item, "fair": None, "path": path, "children": children, "pods": None}

    def share(self, name: str, resource: str) -> Item:
        return self._item("/share", SHARE, {"queue": name, "resource": resource})

    def nodes(self) -> list[Item]:
        return self._items("/nodes", NODE)

    def devices(self) -> list[Item]:
        return self._items("/cards", CARD)

    def node(self, name: str) -> Item:
        return self._item(f"/nodes/{_part(name)}/cards", NODE_CARDS)

    def usage(self, by: "Sequence[UsageKey]", *, since: int, until: int) -> "tuple[list[Usage], list[Budget]]":
        from .served import budgets_of, usage_of  # noqa: PLC0415  the message models take 0.3 s to import

        period = {"since": _moment(since), "until": _moment(until)}
        found = self._item("/usage", ("items",), {"by": ",".join(by), **period})
        return usage_of(found["items"], by), budgets_of(found["items"])

    def events(self, take: "Callable[[Event], None]", *, follow: bool) -> None:
        from .served import events_of  # noqa: PLC0415

        params = {"limit": str(PAGE), **({"since": _moment(time.time())} if follow else {})}
        cursor = ""
        while True:
            page = self._item("/events", ("items", "metadata"), {**params, **({"continue": cursor} if cursor else {})})
            for event in events_of(page["items"]):
                take(event)
            before, cursor = cursor, str(page["metadata"]["continue"])
            if cursor == before:
                if not follow:
                    return
                sys.stdout.flush()
                time.sleep(POLL_S)

    def evictions(self) -> Mapping[str, Any]:
        return self._item("/evictions/pause", PAUSE)

    def _jobs(self, wanted: Wanted) -> list[Item]:
        given = {"namespace": wanted.namespace, "queue": wanted.queue, "state": ",".join(wanted.states)}
        found: list[Item] = []
        for page in self.server.pages(
            f"{API}/jobs", {k: v for k, v in given.items() if v}, limit=min(wanted.limit or PAGE, PAGE)
        ):
            found += wanted.of(self._with(JOB, page["items"], "/jobs"))
            if wanted.limit is not None and len(found) >= wanted.limit:
                break
        return found[: wanted.limit]

    def _queues(self) -> list[Item]:
        pages = list(self.server.pages(f"{API}/queues", {}, limit=PAGE))
        others = (pages[-1].get("metadata") or {}).get("others") or {}
        if hidden := others.get("queues", 0):
            from hbox_common.model.resources import quantity  # noqa: PLC0415  the model takes 0.2 s, which other commands do not need

            used = ", ".join(f"{quantity(name, units)} {name}" for name, units in others["used"].items()) or "nothing"
            notify(
                f"hbox: {hidden} more queue{'s' if hidden > 1 else ''}, which you may not see, use{'' if hidden > 1 else 's'} {used}"
            )
        return self._with(QUEUE, [item for page in pages for item in page["items"]], "/queues")

    def _why(self, job: str) -> Item:
        found = self._job(job)
        explanation = None
        if found["waiting"]:
            with suppress(NotFound):  # an older server, or a job that ended meanwhile
                explanation = self._item(f"{_job_path(found)}/explanation", ()).get("explanation")
        return {
            "cardReasons": [],
            "latePods": [],
            "failingNodes": {},
            "unreportedNodes": {},
            "sickPods": [],
            **found,
            "explanation": explanation,
        }

    def _job(self, job: str) -> Item:
        """By one request where the name has its namespace, or the job is in the context's; else by a search of the list."""
        named, _, name = job.rpartition("/")
        namespace = named or (self._choice.kube.namespace if self._choice.kube is not None else "")
        if namespace:
            try:
                return self._item(f"/jobs/{_part(namespace)}/{_part(name)}", JOB)
            except InvalidRequest as e:  # it may be a pod's name, or in another namespace
                if named and not isinstance(e, NotFound):
                    raise
        return find(self._jobs(Wanted()), job)

    def _item(self, path: str, fields: Sequence[str], params: Mapping[str, str] | None = None) -> Item:
        [found] = self._with(fields, [self.server.get(API + path, params)], path)
        found.pop("apiVersion", None)
        found.pop("kind", None)
        return found

    def _items(self, path: str, fields: Sequence[str]) -> list[Item]:
        pages = self.server.pages(API + path, {}, limit=PAGE)
        return self._with(fields, [item for page in pages for item in page["items"]], path)

    def _with(self, fields: Sequence[str], items: list[Any], path: str) -> list[Item]:
        """The items. Raises Unavailable where one lacks a field: another server, or one of a version that this command does not read."""
        needed = set(fields)
        if not all(isinstance(item, dict) and item.keys() >= needed for item in items):
            raise self.server.odd(API + path)
        return items

    def _or_objects(self, ask: Callable[[], T], objects: Callable[[ObjectSource], T]) -> T:
        """From the server; where it does not answer, from the objects of the cluster that it belongs to, with a remark. Raises the server's error if the
        Kubernetes API does not answer either."""
        try:
            return ask()
        except Unavailable as e:
            kube = self._choice.kube
            if kube is None or isinstance(e, PluginFailed):
                raise
            try:
                found = objects(ObjectSource(kube))
            except Unavailable:
                raise e from None
            notify(f"hbox: {e.message}")
            notify(
                f"hbox: this is from the objects of cluster {kube.server}: without nodes by reason, pools and borrowed shares"
            )
            return found


def server_of(choice: Choice, *, answer_s: float = ANSWER_S) -> Server:
    """Raises Unavailable, InvalidRequest."""
    endpoint = Endpoint(choice.server, choice.ca) if choice.server else _announced(choice)
    return Server(endpoint, choice.credentials, what="HBox's server", answer_s=answer_s)


def _announced(choice: Choice) -> Endpoint:
    """The server that the ConfigMap of the cluster names."""
    kube = choice.kube
    if kube is None:
        raise InvalidRequest(f"context {choice.name} names no server", hint="hbox ctx show --origin")
    path = f"/api/v1/namespaces/{ANNOUNCED_IN}/configmaps/{ANNOUNCEMENT}"
    try:
        found = kube_server(kube).get(path)
    except NotFound:
        raise Unavailable(
            f"cluster {kube.server} (context {kube.name}) announces no server of HBox: it has no ConfigMap {ANNOUNCED_IN}/{ANNOUNCEMENT}",
            hint="the chart creates it with console.enabled=true; operators: --nats-url URL --nats-seed FILE; `hbox up`: --state FOLDER",
        ) from None
    data = found.get("data") if isinstance(found, Mapping) else None
    url = data.get("url") if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping) or not isinstance(url, str) or not url:
        raise Unavailable(
            f"ConfigMap {ANNOUNCED_IN}/{ANNOUNCEMENT} of cluster {kube.server} has no url", hint="reinstall the chart"
        )
    ca = data.get("ca.crt")
    return Endpoint(url.rstrip("/").removesuffix(API), str(ca) if ca else None)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).isoformat()


def _job_path(job: Item) -> str:
    namespace, _, name = job["name"].partition("/")
    return f"/jobs/{_part(namespace)}/{_part(name)}"


def _part(name: str) -> str:
    return quote(name, safe="")
