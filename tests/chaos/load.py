"""A steady stream of pods and gangs, and users who delete some of them, pending or running.

On a roomy cluster the requests stay below the fraction ROOMY of all cards, so that long waits are the platform's fault. On a full cluster users request more
than it has: freed cards must be allocated soon, and a double allocation always hits a card in use.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random
from typing import NoReturn

from hbox_common.clock import monotonic_s, wall_s
from hbox_common.errors import Conflict, NotFound, Unavailable
from hbox_common.kube import JSON, NAMESPACES, NODES, PODDISRUPTIONBUDGETS, PODGROUPS, PODS, KubeClient
from hbox_common.model.annotations import CARDS as CARDS_NOTE
from hbox_common.model.annotations import CLAIM
from hbox_sandbox.trace import TraceNode, TracePod, node_manifest, pod_group_manifest, pod_manifest

from .observer import FORGER, Observer

NAMESPACE = "chaos"
CARDS = 8
ROOMY, FULL = 0.5, 1.2
GANG_SHARE = 0.06  #: fraction of units that are gangs
DELETE_SHARE = 0.4  #: on a roomy cluster: probability of a deletion after each unit

#: Seconds between two attempts while the API server is down.
AGAIN_S = 0.1

_SHAPES = (
    TracePod("", 4000, 8192, cards=1, card_milli=250),
    TracePod("", 4000, 8192, cards=1, card_milli=500),
    TracePod("", 8000, 16384, cards=1, card_milli=1000),
    TracePod("", 16000, 32768, cards=2, card_milli=1000),
    TracePod("", 16000, 65536, cards=4, card_milli=1000),
    TracePod("", 2000, 4096),
)
_WEIGHTS = (30, 25, 25, 5, 3, 12)


@dataclass(slots=True)
class Unit:
    """A pod, or a gang's pods."""

    pods: list[str]
    milli: int
    gang: str = ""
    shape: TracePod | None = None  #: of a single pod


@dataclass(slots=True)
class Load:
    """The users. `run` submits until `pause`; `submitted` counts the pods that the API server confirmed."""

    client: KubeClient
    observer: Observer
    rng: Random
    rate: float  #: pods per second
    nodes: int
    limit: float = ROOMY
    name: str = ""  #: prefix of the names of the stream's pods and gangs
    submitted: int = 0
    deleted: int = 0
    running: asyncio.Event = field(default_factory=asyncio.Event)
    _alive: list[Unit] = field(default_factory=list)
    _milli: int = 0
    _acting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> NoReturn:
        """Submits and deletes while `running` is set, until cancelled."""
        due = monotonic_s()
        for number, unit in enumerate(self._units()):
            await self.running.wait()
            due = max(due, monotonic_s() - 1.0)
            await asyncio.sleep(max(0.0, due - monotonic_s()))
            due += len(unit) / self.rate
            await self.running.wait()
            async with self._acting:
                await self._submit(unit)
                while self._milli > self.limit * self.nodes * CARDS * 1000 or (
                    self.limit == ROOMY and number > 100 and self.rng.random() < DELETE_SHARE
                ):
                    await self._delete()
        raise AssertionError("users never end")

    async def pause(self) -> None:
        """Stop the stream, and return when submissions and deletions in progress are complete."""
        self.running.clear()
        async with self._acting:
            pass

    async def fill(self) -> None:
        """Submit a pod for each card of the cluster: the stream would take minutes to fill it."""
        for number in range(self.nodes * CARDS):
            await self._submit([replace(_SHAPES[2], name=f"full-{number}")])

    async def join(self, nodes: int) -> None:
        """Add nodes."""
        await make_nodes(self.client, nodes, first=self.nodes)
        self.nodes += nodes
        await self.observer.read_nodes(self.client)

    async def meddle(self, pods: int) -> None:
        """Bind pods of HBox from outside; delete pods and recreate them at once under the same names."""
        for _ in range(pods):
            name, node = f"meddled-{self.rng.getrandbits(40)}", f"node-{self.rng.randrange(self.nodes):04}"
            await self._submit([TracePod(name, 100, 64)])
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            await self.insist("POST", f"{PODS.path(namespace=NAMESPACE, name=name)}/binding", body=body)
            lone = [at for at, unit in enumerate(self._alive) if not unit.gang and unit.shape is not None]
            if lone:
                at = self.rng.choice(lone)
                shape = self._alive[at].shape
                assert shape is not None
                await self._delete(at)
                await self._again(shape)

    async def _again(self, shape: TracePod) -> None:
        """Create a pod under the name of a terminating one, as soon as that is gone."""
        body = pod_manifest(shape, namespace=NAMESPACE)
        for _ in range(100):
            try:
                await self.client.json("POST", PODS.path(namespace=NAMESPACE), body=body, expect=(200, 201, 202))
            except (Conflict, Unavailable):
                await asyncio.sleep(AGAIN_S)
            else:
                self._came([shape], "")
                return

    async def burst(self, pods: int) -> None:
        """Submit pods at once."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(pods):
                number = self.submitted + self.rng.getrandbits(40)
                tasks.create_task(self._submit([replace(_SHAPES[0], name=f"burst-{number}")]))

    def _units(self) -> Iterator[list[TracePod]]:
        number = 0
        while True:
            number += 1
            if self.rng.random() < GANG_SHARE:
                gang = f"{self.name}gang-{number}"
                size = self.rng.choice((4, 8, 16))
                yield [replace(_SHAPES[2], name=f"{gang}-{i}", gang=gang) for i in range(size)]
            else:
                (shape,) = self.rng.choices(_SHAPES, _WEIGHTS)
                yield [replace(shape, name=f"{self.name}pod-{number}")]

    async def _submit(self, unit: list[TracePod]) -> None:
        gang = unit[0].gang
        if gang:
            body = pod_group_manifest(gang, namespace=NAMESPACE, members=len(unit))
            await self.insist("POST", PODGROUPS.path(namespace=NAMESPACE), body=body)
            self.observer.gang(f"{NAMESPACE}/{gang}", len(unit))
        for pod in unit:
            await self.insist("POST", PODS.path(namespace=NAMESPACE), body=pod_manifest(pod, namespace=NAMESPACE))
        self._came(unit, gang)

    def _came(self, unit: list[TracePod], gang: str) -> None:
        self.submitted += len(unit)
        milli = sum(pod.milli for pod in unit)
        self._alive.append(Unit([pod.name for pod in unit], milli, gang, unit[0] if not gang else None))
        self._milli += milli

    async def end_youngest(self, units: int, *, spare: int) -> None:
        """Delete the latest units, except the very latest `spare`."""
        for _ in range(min(units, len(self._alive) - spare)):
            await self._delete(len(self._alive) - 1 - spare)

    async def guard(self, hold_s: float) -> None:
        """A disruption budget of a tenant forbids every eviction for `hold_s` seconds."""
        path, name = PODDISRUPTIONBUDGETS.path(namespace=NAMESPACE), f"guard-{self.rng.getrandbits(40)}"
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"maxUnavailable": 0, "selector": {}},
        }
        await self.insist("POST", path, body=body)
        await asyncio.sleep(hold_s)
        await self.insist("DELETE", f"{path}/{name}")

    async def forge(self, pods: int, hold_s: float) -> None:
        """Tenants create pods with a node, and write all cards and foreign claims on them; the pods are deleted after `hold_s` seconds."""
        listed = await self.client.json("GET", PODS.path(namespace=NAMESPACE))
        notes = (one["metadata"].get("annotations") or {} for one in listed["items"])
        claims = [found for one in notes if (found := one.get(CLAIM))] or ["f" * 32]
        names = [f"forger-{self.rng.getrandbits(40)}" for _ in range(pods)]
        for number, name in enumerate(names):
            body = pod_manifest(TracePod(name, 1, 1), namespace=NAMESPACE)
            body["metadata"]["labels"] = {FORGER: "yes"}
            body["metadata"]["annotations"] = {
                CLAIM: self.rng.choice(claims),
                CARDS_NOTE: ",".join(f"{index}:100:32768" for index in range(CARDS)),
            }
            body["spec"]["nodeName"] = f"node-{self.rng.randrange(self.nodes):04}"
            if number % 2:
                body["spec"]["schedulerName"] = "default-scheduler"
            await self.insist("POST", PODS.path(namespace=NAMESPACE), body=body)
        await asyncio.sleep(hold_s)
        self.observer.withdrawn([f"{NAMESPACE}/{name}" for name in names])
        for name in names:
            await self.insist("DELETE", PODS.path(namespace=NAMESPACE, name=name))

    async def _delete(self, which: int | None = None) -> None:
        unit = self._alive.pop(self.rng.randrange(len(self._alive)) if which is None else which)
        self._milli -= unit.milli
        pods = [f"{NAMESPACE}/{name}" for name in unit.pods]
        self.observer.withdrawn(pods, f"{NAMESPACE}/{unit.gang}" if unit.gang else "")
        for name in unit.pods:
            await self.insist("DELETE", PODS.path(namespace=NAMESPACE, name=name))
        if unit.gang:
            await self.insist("DELETE", PODGROUPS.path(namespace=NAMESPACE, name=unit.gang))
        self.deleted += len(unit.pods)

    async def insist(self, method: str, path: str, body: object = None, *, content_type: str = JSON) -> None:
        """Repeat a request until it succeeds, or a previous attempt did whose answer was lost."""
        while True:
            try:
                await self.client.json(method, path, body=body, content_type=content_type, expect=(200, 201, 202))
            except NotFound:
                if method != "DELETE":
                    raise
                return  # a pod without a node is deleted at once; a pod that ended may be gone already
            except Conflict:
                if method != "POST":
                    raise
                return
            except Unavailable:
                await asyncio.sleep(AGAIN_S)
            else:
                return


async def make_nodes(client: KubeClient, count: int, *, first: int = 0) -> None:
    """Create ready nodes with CARDS cards each; with the first of them, the users' namespace."""
    if first == 0:
        await client.json(
            "POST", NAMESPACES.path(), body={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        )
    now = datetime.fromtimestamp(wall_s(), UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    for number in range(first, first + count):
        node = TraceNode(f"node-{number:04}", 128_000, 1_048_576, CARDS, "V100M32")
        await client.json("POST", NODES.path(), body=node_manifest(node, now=now))
