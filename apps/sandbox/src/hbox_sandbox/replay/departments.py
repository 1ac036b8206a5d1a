"""Three departments share the cluster: two fill it with the trace, and then the third asks for cards that are its own.

Cards are counted as queues count them: what pods ask for, a share of a card as one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hbox_common.clock import Clock, monotonic_s
from hbox_common.errors import Conflict
from hbox_common.kube import PODS, QUEUES, Delta, DeltaKind, Informer, KubeClient, Pod
from hbox_common.model.devices import VENDORS
from hbox_sandbox.trace import REPLAY_LABEL, TracePod, pod_manifest

#: Departments, the percentage of the cards that each deserves, and their projects. The last one lends all that it has at first.
DEPARTMENTS: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "research": (40, ("research-vision", "research-language")),
    "product": (40, ("product-search", "product-ads")),
    "platform": (20, ("platform-tools",)),
}
OWNER = "platform"
BORROWERS = tuple(project for name, (_, projects) in DEPARTMENTS.items() if name != OWNER for project in projects)

#: Cards that the owner asks for, at most.
ASKED = 128

QUIET_S = 15.0


def deserved(cards: int) -> dict[str, int]:
    """By queue, of so many cards."""
    shares: dict[str, int] = {}
    for name, (percent, projects) in DEPARTMENTS.items():
        shares[name] = cards * percent // 100
        shares.update(dict.fromkeys(projects, shares[name] // len(projects)))
    return shares


async def furnish(client: KubeClient, cards: int) -> None:
    """Make the queues, or give those that are there these shares. Raises HBoxError."""
    shares = deserved(cards)
    parents = {project: name for name, (_, projects) in DEPARTMENTS.items() for project in projects}
    for name in (*DEPARTMENTS, *parents):
        spec: dict[str, Any] = {"weight": 1, "reclaimable": True, "deserved": {VENDORS.default.cards: str(shares[name])}}
        if name in parents:
            spec["parent"] = parents[name]
        body = {
            "apiVersion": f"{QUEUES.group}/{QUEUES.version}",
            "kind": "Queue",
            "metadata": {"name": name, "labels": {REPLAY_LABEL: "true"}},
            "spec": spec,
        }
        try:
            await client.json("POST", QUEUES.path(), body=body)
        except Conflict:
            await client.json("PATCH", QUEUES.path(name=name), body={"spec": spec}, content_type="application/merge-patch+json")


@dataclass(slots=True)
class Lent:
    """What came of it. `before`, `after`: cards by department. `seconds`: from the first create to the last binding."""

    asked: int
    bound: int = 0
    seconds: float = 0.0
    left: int = 0  #: pods that made room
    before: dict[str, int] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)


class TakingBack:
    """The owner's pods come, one card each, and others make room for them. `used` answers what each queue uses, in cards."""

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        prefix: str,
        cards: int,
        used: Callable[[], Awaitable[Mapping[str, int]]],
        clock: Clock = monotonic_s,
    ) -> None:
        self._client, self._namespace, self._prefix, self._used, self._clock = client, namespace, prefix, used, clock
        self._deserved = deserved(cards)
        self._created_at: dict[str, float] = {}
        self._bound_at: dict[str, float] = {}
        self._left: set[str] = set()
        self._moved_at = 0.0

    async def run(self) -> Lent:
        """Raises HBoxError where the API refuses an object, or cannot be reached."""
        before = await self._by_department()
        asked = max(0, min(ASKED, self._deserved[OWNER] - before[OWNER]))
        watch = Informer(self._client, PODS, Pod, namespace=self._namespace, label_selector=f"{REPLAY_LABEL}=true")
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch.run(self._observe))
            await asyncio.wait_for(watch.synced.wait(), 60)
            for number in range(asked):
                await self._submit(f"own-{number}")
            self._moved_at = self._clock()
            while len(self._bound_at) < asked and self._clock() - self._moved_at < QUIET_S:  # noqa: ASYNC110  what is awaited is a count
                await asyncio.sleep(0.05)
            watching.cancel()
        seconds = max(self._bound_at.values()) - min(self._created_at.values()) if self._bound_at else 0.0
        return Lent(asked, len(self._bound_at), seconds, len(self._left), before, await self._by_department())

    async def _submit(self, name: str) -> None:
        pod = TracePod(name=name, cpu_milli=1000, memory_mib=1024, cards=1, card_milli=1000)
        body = pod_manifest(pod, namespace=self._namespace, prefix=self._prefix, queue=DEPARTMENTS[OWNER][1][0])
        self._created_at[body["metadata"]["name"]] = self._clock()
        await self._client.json("POST", PODS.path(self._namespace), body=body)

    async def _observe(self, deltas: Sequence[Delta[Pod]]) -> None:
        now = self._clock()
        for delta in deltas:
            pod = delta.new or delta.old
            assert pod is not None
            name = pod.metadata.name
            if name not in self._created_at:
                if self._created_at and (delta.kind is DeltaKind.DELETED or pod.metadata.deletion_timestamp is not None):
                    self._left.add(name)
                    self._moved_at = now
            elif pod.spec.node_name and name not in self._bound_at:
                self._bound_at[name] = self._moved_at = now

    async def _by_department(self) -> dict[str, int]:
        used = await self._used()
        return {name: sum(used.get(project, 0) for project in projects) for name, (_, projects) in DEPARTMENTS.items()}
