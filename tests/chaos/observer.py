"""Looks at the cluster from outside, with a watch of its own, and judges every single change.

Nothing of the platform is asked here: what a pod holds is read off its own annotations, what a node has off the node. The sums are kept by
pod, so that each event costs the one pod that it is about. Times are of the monotonic clock, in seconds.
"""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from hbox_cli.audit import AuditNode, AuditPod, read_node, read_pod
from hbox_cli.audit.reading import list_all
from hbox_common.clock import Clock, monotonic_s
from hbox_common.errors import HBoxError, Unavailable
from hbox_common.kube import NODES, PODS, KubeClient
from hbox_common.model import CardId, request_units
from hbox_common.model.devices import ALL_CORES

#: A gang is bound whole within the platform's own deadline (scheduler-core's gang_deadline_s) and the time to take it back.
GANG_S = 60.0 + 15.0

#: Between two attempts at a watch that broke.
AGAIN_S = 0.2

#: Label of pods on which their tenants write what they like: it is looked at what they do to others.
FORGER = "chaos/forger"

#: Namespace of tenants whose objects are nasty: their pods hold what they ask for, and are not judged, nor is it a fault that they wait.
STRANGERS = "strangers"

#: A node that has less than before, or whose pods took more, may be given what was decided before that was known; later it takes nothing that does not fit.
UNDER_WAY_S = 5.0

#: Longer than any campaign: a watch that ends is one that broke.
DAY_S = "86400"

Card = tuple[str, CardId]


@dataclass(frozen=True, slots=True)
class Binding:
    """One pod's way to its node: when it was seen first, and when with a node."""

    made_at: float
    at: float


@dataclass(slots=True)
class Seen:
    """One pod, as last seen."""

    pod: AuditPod
    made_at: float
    bound_at: float | None = None
    verdict: str = ""
    leaving: bool = False  #: its deletion has begun


@dataclass(slots=True)
class Observer:
    """Keeps the sums and the violations; fed by `watch`, or by `see` and `gone` directly."""

    nodes: dict[str, AuditNode]
    clock: Clock = monotonic_s
    during: Callable[[], str] = str  #: which fault is on, for the violations' texts
    pods: dict[str, Seen] = field(default_factory=dict)
    bindings: list[Binding] = field(default_factory=list)  #: in their order
    violations: list[str] = field(default_factory=list)
    changes: int = 0
    live: bool = False  #: its watch is open: what it has not seen is not there
    _strangers: dict[str, AuditPod] = field(default_factory=dict)  #: those with a node
    _lessened: dict[str, float] = field(default_factory=dict)  #: by node: when others' deeds left less room on it
    _used: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _on_card: dict[Card, dict[str, tuple[int, int]]] = field(default_factory=lambda: defaultdict(dict))
    _gangs: dict[str, int] = field(default_factory=dict)  #: least members, by namespace/name
    _started: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _withdrawn: set[str] = field(default_factory=set)  #: pods that their users deleted and that are still there
    _partial_since: dict[str, float] = field(default_factory=dict)

    @classmethod
    async def begin(cls, client: KubeClient) -> "Observer":
        return cls({raw["metadata"]["name"]: read_node(raw) for raw in await list_all(client, NODES)})

    async def read_nodes(self, client: KubeClient) -> None:
        """Nodes came."""
        self.nodes |= {raw["metadata"]["name"]: read_node(raw) for raw in await list_all(client, NODES)}

    def node_is(self, raw: dict[str, Any]) -> None:
        """A node has another size than it had: told after it shrank, or before it grows."""
        name = raw["metadata"]["name"]
        self.nodes[name] = read_node(raw)
        self._lessened[name] = self.clock()

    async def watch(self, client: KubeClient) -> NoReturn:
        """Lists once, then watches until cancelled. Raises HBoxError where the watch breaks: then nothing was proven."""
        await self._watch(client)
        raise Unavailable("the observer's watch ended")

    async def watch_for_ever(self, client: KubeClient) -> NoReturn:
        """As `watch`, of an API server that may be killed: it is listed again then. A uid that changed its node meanwhile shows all the same."""
        while True:
            try:
                await self._watch(client)
            except HBoxError:
                await asyncio.sleep(AGAIN_S)
            finally:
                self.live = False

    async def _watch(self, client: KubeClient) -> None:
        listed = await client.json("GET", PODS.path())
        for raw in listed["items"]:
            self.see(raw)
        there = {raw["metadata"]["uid"] for raw in listed["items"]}
        for uid in [uid for uid in self.pods if uid not in there]:
            self.gone(uid)
        self.live = True
        params = {
            "watch": "1",
            "resourceVersion": listed["metadata"]["resourceVersion"],
            "allowWatchBookmarks": "true",
            "timeoutSeconds": DAY_S,
        }
        async with client.stream(PODS.path(), params=params, lasts_s=float(DAY_S)) as batches:
            async for lines in batches:
                for line in lines:
                    event = json.loads(line)
                    if event["type"] in ("ADDED", "MODIFIED"):
                        self.see(event["object"])
                    elif event["type"] == "DELETED":
                        self.gone(event["object"]["metadata"]["uid"])
                    elif event["type"] == "ERROR":
                        raise Unavailable(f"the observer's watch broke: {event['object']}")

    def gang(self, name: str, min_member: int) -> None:
        """From now on this gang is never to stay started in part."""
        self._gangs[name] = min_member

    def withdrawn(self, pods: Iterable[str], gang: str = "") -> None:
        """The user takes these (namespace/name) away, and with the last the gang."""
        self._withdrawn.update(pods)
        self._gangs.pop(gang, None)
        self._partial_since.pop(gang, None)

    def see(self, raw: dict[str, Any]) -> None:
        """A pod that was made or changed."""
        self.changes += 1
        pod = _with_given(read_pod(raw), raw)
        if raw["metadata"]["namespace"] == STRANGERS:
            return self._stranger(pod.uid, pod)
        now = self.clock()
        seen = self.pods.get(pod.uid)
        if FORGER in (raw["metadata"].get("labels") or {}):
            pod = replace(pod, slices=(), claim="")
            if seen is None:
                self._lessened[pod.node] = now  # its tenant has named the node, full or not
        if seen is None:
            seen = self.pods[pod.uid] = Seen(pod, now)
        before = seen.pod
        if before.node and pod.node != before.node:
            self._violated(f"pod {pod.name} ({pod.uid}) was bound to {before.node}, and is now to {pod.node or 'nothing'}")
        seen.pod, seen.verdict = pod, _verdict(raw)
        seen.leaving = "deletionTimestamp" in raw["metadata"]
        if before.holds and seen.bound_at is not None and pod.requests != before.requests:
            self._used[pod.node].update(pod.requests)
            self._used[pod.node].subtract(before.requests)
            self._lessened[pod.node] = now
        if pod.node and seen.bound_at is None:
            seen.bound_at = now
            self.bindings.append(Binding(seen.made_at, now))
            self._hold(pod)
        elif pod.node and pod.slices != before.slices:
            self._violated(f"pod {pod.name}: its cards changed from {before.slices} to {pod.slices}")
        if pod.node and not pod.holds and before.holds:
            self._free(pod)
        return self._gang_of(pod)

    def _stranger(self, uid: str, pod: AuditPod | None) -> None:
        """None: it is gone."""
        if (before := self._strangers.pop(uid, None)) is not None:
            self._used[before.node].subtract(before.requests)
        if pod is not None and pod.node and pod.holds:
            self._strangers[uid] = pod
            self._used[pod.node].update(pod.requests)
            if before is None:
                self._lessened[pod.node] = self.clock()

    def gone(self, uid: str) -> None:
        """A pod that is no more."""
        self.changes += 1
        seen = self.pods.pop(uid, None)
        if seen is None:
            return self._stranger(uid, None)
        if seen.bound_at is not None and seen.pod.holds:
            self._free(seen.pod)
            # Nobody here has a claim to what others hold; only a gang that cannot be whole is taken back.
            if seen.pod.name not in self._withdrawn and not seen.pod.gang:
                self._violated(f"pod {seen.pod.name} ran on {seen.pod.node} and was taken away by nobody's wish")
        self._withdrawn.discard(seen.pod.name)
        self._started[seen.pod.gang].discard(uid)
        return self._gang_of(seen.pod)

    def look_at_gangs(self) -> None:
        """Judges the gangs that are started in part by the time that has passed."""
        now = self.clock()
        for name, since in list(self._partial_since.items()):
            if now - since > GANG_S:
                have = len(self._started[name])
                self._violated(f"gang {name}: {have} of {self._gangs[name]} members bound for {now - since:.0f} s")
                del self._partial_since[name]

    def waiting(self, *, made_before: float) -> list[Seen]:
        """Pods made before, without a node, that nobody has deleted."""
        return [s for s in self.pods.values() if s.bound_at is None and not s.leaving and s.made_at <= made_before]

    def unserved(self, *, made_before: float) -> list[Seen]:
        """Of those that wait, single pods for which some node has all they ask for, with whole idle cards: on a full cluster others may wait."""
        return [s for s in self.waiting(made_before=made_before) if not s.pod.gang and self._has_room(s.pod)]

    def _has_room(self, pod: AuditPod) -> bool:
        for name, node in self.nodes.items():
            used = self._used[name]
            fits = all(used[what] + amount <= node.allocatable.get(what, 0) for what, amount in pod.requests.items() if amount)
            if fits and sum(not self._on_card[name, card] for card in node.cards) >= pod.cards:
                return True
        return False

    def longest_stall(self, begin: float, end: float) -> float:
        """Longest time in which somebody waited and nobody was bound, of the part of it that lies between `begin` and `end`."""
        unbound = [seen.made_at for seen in self.pods.values() if seen.bound_at is None and not seen.leaving]
        oldest = min((made_at for made_at in unbound if made_at < end), default=end)
        longest, after = 0.0, end
        for binding in reversed(self.bindings):
            if binding.at < end:
                longest = max(longest, after - max(begin, binding.at, oldest))
                after = binding.at
            oldest = min(oldest, binding.made_at)
            if binding.at <= begin:
                return longest
        return max(longest, after - max(begin, oldest))

    def longest_wait(self, begin: float, end: float) -> float:
        """Longest time from made to bound, of the pods bound between `begin` and `end`."""
        return max((binding.at - binding.made_at for binding in self.bindings if begin <= binding.at <= end), default=0.0)

    def _hold(self, pod: AuditPod) -> None:
        node = self.nodes.get(pod.node)
        if node is None:
            return self._violated(f"pod {pod.name} was bound to {pod.node}, which is no node")
        used = self._used[pod.node]
        used.update(pod.requests)
        known = self.clock() - self._lessened.get(pod.node, float("-inf")) > UNDER_WAY_S
        for resource, amount in pod.requests.items():
            if known and amount and used[resource] > node.allocatable.get(resource, 0):
                self._violated(
                    f"node {pod.node}: {used[resource]} of {resource} of {node.allocatable.get(resource, 0)} with pod {pod.name}"
                )
        if pod.slices is None or len({piece.card for piece in pod.slices}) != pod.cards:
            self._violated(f"pod {pod.name} asked for {pod.cards} cards and was given {pod.slices}")
        for piece in pod.slices or ():
            card = self._card(pod.node, piece.card)
            self._on_card[card][pod.uid] = (piece.cores, piece.memory_mib)
            self._judge(card, pod)
        return None

    def _judge(self, card: Card, pod: AuditPod) -> None:
        name, index = card
        known, users = self.nodes[name].card(index), self._on_card[card]
        cores, memory = sum(c for c, _ in users.values()), sum(m for _, m in users.values())
        if known is None:
            self._violated(f"node {name} has no card {index}, given to pod {pod.name}")
        elif cores > ALL_CORES or (known.memory_mib and memory > known.memory_mib):
            others = ", ".join(f"{self.pods[uid].pod.name} ({uid})" for uid in users if uid != pod.uid)
            self._violated(
                f"node {name} card {index} is over-booked by pod {pod.name} ({pod.uid}): {cores} %, {memory} of {known.memory_mib} MiB, "
                f"beside {others}"
            )

    def _card(self, node: str, card: CardId) -> Card:
        known = self.nodes.get(node)
        return node, card if known is None else known.canonical(card)

    def _free(self, pod: AuditPod) -> None:
        self._used[pod.node].subtract(pod.requests)
        for piece in pod.slices or ():
            self._on_card[self._card(pod.node, piece.card)].pop(pod.uid, None)

    def _gang_of(self, pod: AuditPod) -> None:
        if pod.gang not in self._gangs:
            return
        if pod.node and pod.uid in self.pods:
            self._started[pod.gang].add(pod.uid)
        if 0 < len(self._started[pod.gang]) < self._gangs[pod.gang]:
            self._partial_since.setdefault(pod.gang, self.clock())
        else:
            self._partial_since.pop(pod.gang, None)

    def _violated(self, what: str) -> None:
        on = self.during()
        self.violations.append(f"{what} [{on}]" if on else what)


def _verdict(raw: dict[str, Any]) -> str:
    for condition in (raw.get("status") or {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message", ""))
    return ""


def _with_given(pod: AuditPod, raw: dict[str, Any]) -> AuditPod:
    """With what its node has set aside for its one container, where that is more than it asked for: it is resized."""
    given = [
        (status.get("resources") or {}).get("requests") or {}
        for status in (raw.get("status") or {}).get("containerStatuses") or ()
    ]
    amounts = {name: request_units(name, quantity) for each in given for name, quantity in each.items()}
    return replace(
        pod, requests=pod.requests | {name: max(units, pod.requests.get(name, 0)) for name, units in amounts.items()}
    )
