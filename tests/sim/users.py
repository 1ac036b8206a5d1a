"""Users and operators of a simulated cluster, drawn from the seed: queues with shares, pods and gangs that arrive and are deleted, nodes that fail and return.

They end `ENDS_S` before the run does; what they have submitted by then runs, ends, or waits for resources that nothing releases.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hbox_common.errors import Conflict, NotFound
from hbox_common.kube import MERGE_PATCH, NAMESPACES, NODES, PODGROUPS, PODS, QUEUES, RESOURCEQUOTAS, KubeClient, Resource
from hbox_common.model import POOL
from hbox_common.model import annotations as names
from hbox_common.model.annotations import CORDONED_BY
from hbox_common.model.devices.nvidia import NVIDIA
from hbox_sandbox.api.cluster import Cluster
from hbox_sandbox.api.resources import NODES as NODE_TYPE
from hbox_sandbox.api.resources import PODS as POD_TYPE
from hbox_sandbox.trace import TraceNode, TracePod, node_manifest, pod_group_manifest, pod_manifest

NAMESPACE = "team"
MODEL = "NVIDIA-H100-80GB-HBM3"
CARDS = 8
#: Virtual seconds before the end of a run at which the users stop.
ENDS_S = 40.0
#: Fractions of all cards that the queues deserve; `spot` may use a quarter at most, `default` has no rule.
DESERVED = {"prod": 0.5, "dev": 0.3, "spot": 0.0}
SPOT_MOST = 0.25
#: A queue that users name, and that does not exist.
ABSENT = "absent"
#: Annotation of pods that an operator binds without a decision.
BY_HAND = "sim.hbox.io/by-hand"
#: A queue that gives nothing back, and the fraction of all cards that it may use.
KEPT, KEPT_MOST = "kept", 0.1
#: Fraction of all cards that pods without an end may take.
ENDLESS = 0.25

_SHAPES = (
    TracePod("", 4000, 8192, cards=1, card_milli=250),
    TracePod("", 4000, 8192, cards=1, card_milli=500),
    TracePod("", 8000, 16384, cards=1, card_milli=1000),
    TracePod("", 16000, 32768, cards=2, card_milli=1000),
    TracePod("", 16000, 65536, cards=4, card_milli=1000),
    TracePod("", 2000, 4096),
)
_WEIGHTS = (25, 20, 30, 6, 3, 16)
_QUEUE = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
#: What users write of a pod.
_USERS_NOTES = frozenset({"scheduling.volcano.sh/queue-name", names.RUN_SECONDS})
_USERS_SPEC = ("schedulerName", "restartPolicy", "containers", "priorityClassName")
#: Members of a gang and cards of each.
_GANGS = ((2, 1), (4, 1), (8, 1), (2, 4), (2, 8))
_GANG_SHARE = 0.05


class Users:
    """`made` is set once nodes and queues are there."""

    def __init__(
        self, client: KubeClient, cluster: Cluster, chance: Random, *, nodes: int, pods_per_s: float, wide: bool = False
    ) -> None:
        self._client, self._cluster, self._chance, self._pods_per_s = client, cluster, chance, pods_per_s
        self.nodes = [f"n{number:02}" for number in range(nodes)]
        self.cards = CARDS * nodes
        self._wide = wide
        self._queues = (*DESERVED, "default", KEPT, ABSENT) if wide else (*DESERVED, "default")
        self._shares = (40, 30, 18, 6, 5, 1) if wide else (40, 30, 20, 10)
        self.submitted = 0
        self._number = 0
        self._endless_milli = 0
        load = chance.uniform(0.5, 1.3)
        #: mean virtual seconds of a pod, so that `load` of all cards is asked for
        self._mean_s = min(30.0, load * self.cards / (pods_per_s * 1.1))

    async def make(self) -> None:
        """Namespace, queues, nodes."""
        await self._client.json("POST", NAMESPACES.path(), body={"metadata": {"name": NAMESPACE}})
        for name, share in DESERVED.items():
            spec: dict[str, Any] = {"weight": 1, "reclaimable": True}
            if share:
                spec["deserved"] = {NVIDIA.cards: str(int(share * self.cards))}
            if name == "spot":
                spec["capability"] = {NVIDIA.cards: str(int(SPOT_MOST * self.cards))}
            await self._client.json("POST", QUEUES.path(), body={**_QUEUE, "metadata": {"name": name}, "spec": spec})
        if self._wide:
            spec = {"weight": 1, "reclaimable": False, "capability": {NVIDIA.cards: str(int(KEPT_MOST * self.cards))}}
            await self._client.json("POST", QUEUES.path(), body={**_QUEUE, "metadata": {"name": KEPT}, "spec": spec})
        for name in self.nodes:
            await self._make_node(name)

    async def _make_node(self, name: str) -> None:
        manifest = node_manifest(TraceNode(name, 128_000, 1_000_000, CARDS, MODEL), now=self._cluster.now())
        await self._client.json("POST", NODES.path(), body=manifest)
        await self._client.json("PATCH", NODES.path(name=name), body={"spec": {"taints": None}}, content_type=MERGE_PATCH)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._submit())
            tasks.create_task(self._now_and_then(2.0, self._delete))
            tasks.create_task(self._now_and_then(15.0, self._sicken))
            tasks.create_task(self._now_and_then(30.0, self._lose_node))
            tasks.create_task(self._now_and_then(20.0, self._cordon))
            tasks.create_task(self._now_and_then(25.0, self._change_share))
            if self._wide:
                tasks.create_task(self._now_and_then(15.0, self._restrict))
                tasks.create_task(self._now_and_then(40.0, self._renumber))
                tasks.create_task(self._now_and_then(30.0, self._close_node))
                tasks.create_task(self._now_and_then(20.0, self._bind_by_hand))
                tasks.create_task(self._now_and_then(10.0, self._replace))

    async def _now_and_then(self, every_s: float, what: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                await asyncio.sleep(self._chance.expovariate(1 / every_s))
                tasks.create_task(_unless_gone(what()))

    async def mend(self) -> None:
        """Bring back what is sick, cordoned or gone, and lift restrictions."""
        if self._wide:
            await self._lift_all()
        present = {one.name: one for one in self._cluster.store.collection(NODE_TYPE.storage).entries.values()}
        for name in self.nodes:
            if name not in present:
                await self._make_node(name)
                continue
            fresh = node_manifest(TraceNode(name, 128_000, 1_000_000, CARDS, MODEL), now=self._cluster.now())
            note = {NVIDIA.register_annotation: fresh["metadata"]["annotations"][NVIDIA.register_annotation]}
            node = present[name].load()
            change: dict[str, Any] = {"metadata": {"annotations": note}}
            if self._wide:
                change["metadata"]["labels"] = {POOL: None}
            if CORDONED_BY not in (node["metadata"].get("annotations") or {}):
                change["spec"] = {"unschedulable": None}
            path = NODES.path(name=name)
            await self._client.json("PATCH", path, body=change, content_type=MERGE_PATCH)
            sick = ("GpuUnhealthy", "Ready") if self._wide else ("GpuUnhealthy",)
            conditions = [one for one in node["status"]["conditions"] if one["type"] not in sick]
            conditions += [one for one in fresh["status"]["conditions"] if one["type"] in sick]
            await self._client.json(
                "PATCH", f"{path}/status", body={"status": {"conditions": conditions}}, content_type=MERGE_PATCH
            )

    # --- pods

    async def _submit(self) -> None:
        while True:
            members = await self._unit()
            await asyncio.sleep(self._chance.expovariate(self._pods_per_s / members))

    async def _unit(self) -> int:
        """Submit a pod or a gang. Returns the number of its pods."""
        chance = self._chance
        self._number += 1
        queue = chance.choices(self._queues, self._shares)[0]
        if chance.random() < _GANG_SHARE:
            members, cards = chance.choice(_GANGS)
            name = f"g{self._number}"
            group = pod_group_manifest(name, namespace=NAMESPACE, members=members, queue=queue)
            await self._client.json("POST", PODGROUPS.path(NAMESPACE), body=group)
            shapes = [TracePod(f"{name}-{i}", 8000, 16384, cards=cards, card_milli=1000, gang=name) for i in range(members)]
            seconds = round(chance.expovariate(1 / self._mean_s) + 1.0, 2)
        else:
            (shape,) = chance.choices(_SHAPES, _WEIGHTS)
            shapes = [TracePod(f"p{self._number}", shape.cpu_milli, shape.memory_mib, shape.cards, shape.card_milli)]
            seconds = round(chance.expovariate(1 / self._mean_s) + 0.5, 2)
        milli = sum(shape.milli for shape in shapes)
        endless = chance.random() < 0.05 and self._endless_milli + milli <= ENDLESS * 1000 * self.cards
        self._endless_milli += milli if endless else 0
        level = chance.choices(("", "low", "high"), (80, 10, 10))[0]
        for shape in shapes:
            pod = pod_manifest(shape, namespace=NAMESPACE, queue=queue)
            if not endless:
                pod["metadata"]["annotations"]["hbox.io/run-seconds"] = f"{seconds:g}"
            if level:
                pod["spec"]["priorityClassName"] = level
            await self._client.json("POST", PODS.path(NAMESPACE), body=pod)
            self.submitted += 1
        return len(shapes)

    async def _delete(self) -> None:
        """A user deletes a pod, whatever state it is in, or all pods of a gang."""
        pods = [one for one in self._cluster.store.collection(POD_TYPE.storage).entries.values() if not one.deleting]
        if not pods:
            return
        chosen = self._chance.choice(pods).name
        names = [
            one.name for one in pods if one.name == chosen or (chosen.startswith("g") and one.name.startswith(chosen[:-1]))
        ]
        for name in names:
            await _unless_gone(self._client.json("DELETE", PODS.path(NAMESPACE, name)))

    async def _replace(self) -> None:
        """A pod is deleted at once, and another one made under its name."""
        pods = [one for one in self._cluster.store.collection(POD_TYPE.storage).entries.values() if one.name.startswith("p")]
        if not pods:
            return
        pod = self._chance.choice(pods)
        raw = pod.load()
        notes = {key: text for key, text in raw["metadata"]["annotations"].items() if key in _USERS_NOTES}
        spec = {key: raw["spec"][key] for key in _USERS_SPEC if key in raw["spec"]}
        again = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod.name, "annotations": notes}, "spec": spec}
        await self._client.json("DELETE", PODS.path(pod.namespace, pod.name), body={"gracePeriodSeconds": 0})
        await self._client.json("POST", PODS.path(pod.namespace), body=again)

    # --- nodes and queues

    async def _sicken(self) -> None:
        """A card, or the whole node, is sick for a while."""
        name = self._chance.choice(self.nodes)
        path = NODES.path(name=name)
        if self._chance.random() < 0.5:
            node = await self._client.json("GET", path)
            cards = json.loads(node["metadata"]["annotations"][NVIDIA.register_annotation])
            healthy = json.dumps(cards)
            cards[self._chance.randrange(len(cards))]["health"] = False
            sick: Any = {"metadata": {"annotations": {NVIDIA.register_annotation: json.dumps(cards)}}}
            well: Any = {"metadata": {"annotations": {NVIDIA.register_annotation: healthy}}}
            where = path
        else:
            node = await self._client.json("GET", path)
            conditions = [one for one in node["status"]["conditions"] if one["type"] != "GpuUnhealthy"]
            bad = {"type": "GpuUnhealthy", "status": "True", "reason": "Sim", "lastTransitionTime": self._cluster.now()}
            sick, well = {"status": {"conditions": [*conditions, bad]}}, {"status": {"conditions": conditions}}
            where = f"{path}/status"
        await self._client.json("PATCH", where, body=sick, content_type=MERGE_PATCH)
        await asyncio.sleep(self._chance.uniform(3.0, 20.0))
        await self._client.json("PATCH", where, body=well, content_type=MERGE_PATCH)

    async def _lose_node(self) -> None:
        """A node is deleted with its pods, and joins again under its name."""
        name = self._chance.choice(self.nodes)
        await self._client.json("DELETE", NODES.path(name=name))
        await asyncio.sleep(self._chance.uniform(0.0, 5.0))
        for pod in list(self._cluster.store.collection(POD_TYPE.storage).entries.values()):
            if pod.fields["spec.nodeName"] == name:
                path = PODS.path(pod.namespace, pod.name)
                await _unless_gone(self._client.json("DELETE", path, body={"gracePeriodSeconds": 0}))
        await asyncio.sleep(self._chance.uniform(0.0, 10.0))
        await self._make_node(name)

    async def _close_node(self) -> None:
        """A node is not ready, or belongs to a pool that no queue may use, for a while."""
        name = self._chance.choice(self.nodes)
        path = NODES.path(name=name)
        if self._chance.random() < 0.5:
            where = path
            change: dict[str, Any] = {"metadata": {"labels": {POOL: "closed"}}}
            undo: dict[str, Any] = {"metadata": {"labels": {POOL: None}}}
        else:
            node = await self._client.json("GET", path)
            others = [one for one in node["status"]["conditions"] if one["type"] != "Ready"]
            ready, unready = (
                {"type": "Ready", "status": status, "reason": "Sim", "lastTransitionTime": self._cluster.now()}
                for status in ("True", "False")
            )
            where = f"{path}/status"
            change, undo = ({"status": {"conditions": [*others, one]}} for one in (unready, ready))
        await self._client.json("PATCH", where, body=change, content_type=MERGE_PATCH)
        await asyncio.sleep(self._chance.uniform(2.0, 15.0))
        await self._client.json("PATCH", where, body=undo, content_type=MERGE_PATCH)

    async def _bind_by_hand(self) -> None:
        """An operator binds a waiting pod without cards, past all schedulers."""
        pods = self._cluster.store.collection(POD_TYPE.storage).entries.values()
        waiting = [one for one in pods if not one.fields["spec.nodeName"] and not one.deleting]
        plain = [one for one in waiting if NVIDIA.cards not in json.dumps(one.load()["spec"])]
        if not plain:
            return
        pod = self._chance.choice(plain)
        path, node = PODS.path(pod.namespace, pod.name), self._chance.choice(self.nodes)
        note = {"metadata": {"annotations": {BY_HAND: "true"}}}
        await self._client.json("PATCH", path, body=note, content_type=MERGE_PATCH)
        target = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name},
            "target": {"kind": "Node", "name": node},
        }
        await self._client.json("POST", f"{path}/binding", body=target)

    async def _cordon(self) -> None:
        """An operator cordons a node for a while."""
        path = NODES.path(name=self._chance.choice(self.nodes))
        await self._client.json("PATCH", path, body={"spec": {"unschedulable": True}}, content_type=MERGE_PATCH)
        await asyncio.sleep(self._chance.uniform(2.0, 20.0))
        await self._client.json("PATCH", path, body={"spec": {"unschedulable": None}}, content_type=MERGE_PATCH)

    async def _change_share(self) -> None:
        """`prod` and `dev` deserve other amounts, which together stay the same."""
        prod = self._chance.uniform(0.2, 0.6)
        for name, share in (("prod", prod), ("dev", 0.8 - prod)):
            spec = {"deserved": {NVIDIA.cards: str(int(share * self.cards))}}
            await self._client.json("PATCH", QUEUES.path(name=name), body={"spec": spec}, content_type=MERGE_PATCH)

    async def _restrict(self) -> None:
        """A rule keeps pods out of a queue for a while."""
        restriction = self._chance.choice(RESTRICTIONS)
        if restriction.made is not None:
            resource, body = restriction.made
            await self._client.json("POST", resource.path(NAMESPACE if resource.namespaced else ""), body=body)
        else:
            await self._patch_queue(restriction, restriction.change)
        await asyncio.sleep(self._chance.uniform(2.0, 15.0))
        await self._lift(restriction)

    async def _lift_all(self) -> None:
        for restriction in RESTRICTIONS:
            await _unless_gone(self._lift(restriction))
        note = {"metadata": {"annotations": {names.EVICTIONS_RELEASED: "mended"}}}
        await self._client.json("PATCH", QUEUES.path(name="default"), body=note, content_type=MERGE_PATCH)

    async def _lift(self, restriction: "Restriction") -> None:
        if restriction.made is not None:
            resource, body = restriction.made
            name = str(body["metadata"]["name"])
            await self._client.json("DELETE", resource.path(NAMESPACE if resource.namespaced else "", name))
        else:
            await self._patch_queue(restriction, restriction.undo)

    async def _patch_queue(self, restriction: "Restriction", change: dict[str, Any]) -> None:
        path = QUEUES.path(name=restriction.queue) + ("/status" if "status" in change else "")
        await self._client.json("PATCH", path, body=change, content_type=MERGE_PATCH)

    async def _renumber(self) -> None:
        """A node restarts with its cards in another order."""
        path = NODES.path(name=self._chance.choice(self.nodes))
        node = await self._client.json("GET", path)
        cards = json.loads(node["metadata"]["annotations"][NVIDIA.register_annotation])
        self._chance.shuffle(cards)
        for index, card in enumerate(cards):
            card["index"] = index
        note = {NVIDIA.register_annotation: json.dumps(cards)}
        await self._client.json("PATCH", path, body={"metadata": {"annotations": note}}, content_type=MERGE_PATCH)


@dataclass(frozen=True, slots=True)
class Restriction:
    """A change of a queue and what undoes it, or an object that is made and deleted."""

    queue: str
    change: dict[str, Any] = field(default_factory=dict)
    undo: dict[str, Any] = field(default_factory=dict)
    made: tuple[Resource, dict[str, Any]] | None = None


def _annotated(queue: str, name: str, value: str) -> Restriction:
    return Restriction(queue, {"metadata": {"annotations": {name: value}}}, {"metadata": {"annotations": {name: None}}})


#: Each of these makes the ledger refuse plans for another reason.
RESTRICTIONS = (
    Restriction("dev", {"status": {"state": "Closed"}}, {"status": {"state": "Open"}}),
    Restriction("spot", {"spec": {"parent": "nowhere"}}, {"spec": {"parent": None}}),
    _annotated("dev", names.NAMESPACES, "others"),
    _annotated("default", names.PRIORITY_CLASSES, "high"),
    _annotated("dev", names.BUDGET, "0"),
    Restriction("dev", {"spec": {"guarantee": {"resource": {NVIDIA.cards: "300"}}}}, {"spec": {"guarantee": None}}),
    Restriction("", made=(QUEUES, {**_QUEUE, "metadata": {"name": "child"}, "spec": {"weight": 1, "parent": "default"}})),
    Restriction(
        "",
        made=(
            RESOURCEQUOTAS,
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": "cards", "namespace": NAMESPACE},
                "spec": {"hard": {f"requests.{NVIDIA.cards}": "4"}},
            },
        ),
    ),
)


async def _unless_gone(work: Coroutine[Any, Any, Any]) -> None:
    try:
        await work
    except (Conflict, NotFound):
        pass  # another event of the run was faster
