"""An observer outside the platform, with its own watch of pods, that checks every change.

It queries no service: a pod's cards are in the pod's annotations, a node's resources in the node object. Sums are updated pod by pod, so that an event costs
no more than its pod. Times are of the monotonic clock, in seconds.
"""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from hbox_cli.audit import AuditNode, AuditPod, invariants, read_node, read_pod
from hbox_cli.audit.invariants import CardUse
from hbox_cli.audit.reading import list_all
from hbox_common.clock import Clock, monotonic_s
from hbox_common.errors import HBoxError, Unavailable
from hbox_common.kube import NODES, PODS, KubeClient
from hbox_common.model import CardId, CardSlice, request_units

#: Longest time for which a gang may be bound in part: the deadline of gangs, and the time to revert a late one.
GANG_S = 60.0 + 15.0

#: Seconds between two attempts after the watch broke.
AGAIN_S = 0.2

#: Label of pods with forged annotations; only their effect on other pods is checked.
FORGER = "chaos/forger"

#: Namespace of nasty objects. Its pods count with their requests; they are not checked and may wait.
STRANGERS = "strangers"

#: Seconds after a node shrank, or its pods grew, within which pods of older decisions may still be bound to it. Later pods must fit.
UNDER_WAY_S = 5.0

#: Timeout of the watch, longer than any campaign.
DAY_S = "86400"

Card = tuple[str, CardId]


class Missed(HBoxError):
    """The observer did not see every change."""


@dataclass(frozen=True, slots=True)
class Binding:
    """Times at which a pod was first observed, and first observed with a node."""

    made_at: float
    at: float


@dataclass(slots=True)
class Seen:
    """Last observed state of a pod."""

    pod: AuditPod
    made_at: float
    bound_at: float | None = None
    verdict: str = ""
    leaving: bool = False  #: its deletion has begun


@dataclass(slots=True)
class Observer:
    """Sums and violations; the input comes from `watch`, or from direct calls of `see` and `gone`."""

    nodes: dict[str, AuditNode]
    clock: Clock = monotonic_s
    during: Callable[[], str] = str  #: name of the current fault, for the texts of violations
    pods: dict[str, Seen] = field(default_factory=dict)
    bindings: list[Binding] = field(default_factory=list)  #: in order of time
    violations: list[str] = field(default_factory=list)
    changes: int = 0
    live: bool = False  #: the watch is open, so that every pod is in `pods`
    _strangers: dict[str, AuditPod] = field(default_factory=dict)  #: pods with a node, by uid
    _lessened: dict[str, float] = field(default_factory=dict)  #: by node: when its free resources shrank from outside
    _used: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _on_card: dict[Card, dict[str, CardSlice]] = field(default_factory=lambda: defaultdict(dict))
    _gangs: dict[str, int] = field(default_factory=dict)  #: minimum members, by namespace/name
    _started: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _withdrawn: set[str] = field(default_factory=set)  #: terminating pods that their users deleted
    _partial_since: dict[str, float] = field(default_factory=dict)

    @classmethod
    async def begin(cls, client: KubeClient) -> "Observer":
        return cls({raw["metadata"]["name"]: read_node(raw) for raw in await list_all(client, NODES)})

    async def read_nodes(self, client: KubeClient) -> None:
        """Read all nodes again, after nodes joined."""
        self.nodes |= {raw["metadata"]["name"]: read_node(raw) for raw in await list_all(client, NODES)}

    def node_is(self, raw: dict[str, Any]) -> None:
        """Set the size of a node: call it after the node shrank, or before it grows."""
        name = raw["metadata"]["name"]
        self.nodes[name] = read_node(raw)
        self._lessened[name] = self.clock()

    async def watch(self, client: KubeClient) -> NoReturn:
        """List once, then watch until cancelled. After a watch ended (as for a slow reader), continue from the last change, so that none is missed.
        Raises Missed if the API server no longer has the next change."""
        revision = await self._list(client)
        while True:
            try:
                async for event in self._changes(client, revision):
                    revision = event["object"]["metadata"]["resourceVersion"]
            except Unavailable:  # the connection broke
                pass
            await asyncio.sleep(AGAIN_S)

    async def watch_for_ever(self, client: KubeClient) -> NoReturn:
        """As `watch`, for an API server that may be killed: list again then. A pod that changed its node meanwhile is still detected."""
        while True:
            try:
                async for _ in self._changes(client, await self._list(client)):
                    pass
            except HBoxError:
                await asyncio.sleep(AGAIN_S)
            finally:
                self.live = False

    async def _list(self, client: KubeClient) -> str:
        """Judge all pods as they are; returns the list's resourceVersion."""
        listed = await client.json("GET", PODS.path())
        for raw in listed["items"]:
            self.see(raw)
        there = {raw["metadata"]["uid"] for raw in listed["items"]}
        for uid in [uid for uid in self.pods if uid not in there]:
            self.gone(uid)
        self.live = True
        revision: str = listed["metadata"]["resourceVersion"]
        return revision

    async def _changes(self, client: KubeClient, revision: str) -> AsyncIterator[dict[str, Any]]:
        """Judge and yield each change after `revision`, until the watch ends."""
        params = {"watch": "1", "resourceVersion": revision, "allowWatchBookmarks": "true", "timeoutSeconds": DAY_S}
        async with client.stream(PODS.path(), params=params, lasts_s=float(DAY_S)) as batches:
            async for lines in batches:
                for line in lines:
                    event = json.loads(line)
                    if event["type"] in ("ADDED", "MODIFIED"):
                        self.see(event["object"])
                    elif event["type"] == "DELETED":
                        self.gone(event["object"]["metadata"]["uid"])
                    elif event["type"] == "ERROR":
                        raise Missed(f"the observer's watch broke: {event['object']}")
                    yield event

    def gang(self, name: str, min_member: int) -> None:
        """Check from now on that this gang is not bound in part for longer than GANG_S."""
        self._gangs[name] = min_member

    def withdrawn(self, pods: Iterable[str], gang: str = "") -> None:
        """The user deletes these pods (namespace/name), and the gang."""
        self._withdrawn.update(pods)
        self._gangs.pop(gang, None)
        self._partial_since.pop(gang, None)

    def see(self, raw: dict[str, Any]) -> None:
        """A pod was created or changed."""
        self.changes += 1
        pod = _with_given(read_pod(raw), raw)
        if raw["metadata"]["namespace"] == STRANGERS:
            return self._stranger(pod.uid, pod)
        now = self.clock()
        seen = self.pods.get(pod.uid)
        if FORGER in (raw["metadata"].get("labels") or {}):
            pod = replace(pod, slices=(), claim="")
            if seen is None:
                self._lessened[pod.node] = now  # its tenant chose the node, full or not
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
        """Update a pod of STRANGERS; None: it is gone."""
        if (before := self._strangers.pop(uid, None)) is not None:
            self._used[before.node].subtract(before.requests)
        if pod is not None and pod.node and pod.holds:
            self._strangers[uid] = pod
            self._used[pod.node].update(pod.requests)
            if before is None:
                self._lessened[pod.node] = self.clock()

    def gone(self, uid: str) -> None:
        """A pod was deleted."""
        self.changes += 1
        seen = self.pods.pop(uid, None)
        if seen is None:
            return self._stranger(uid, None)
        if seen.bound_at is not None and seen.pod.holds:
            self._free(seen.pod)
            # No queue may reclaim anything here: only the pods of a gang that cannot start whole may be evicted.
            if seen.pod.name not in self._withdrawn and not seen.pod.gang:
                self._violated(f"pod {seen.pod.name} ran on {seen.pod.node} and was taken away by nobody's wish")
        self._withdrawn.discard(seen.pod.name)
        self._started[seen.pod.gang].discard(uid)
        return self._gang_of(seen.pod)

    def look_at_gangs(self) -> None:
        """Report gangs that have been bound in part for too long."""
        now = self.clock()
        for name, since in list(self._partial_since.items()):
            if now - since > GANG_S:
                for fault in invariants.partial_gang(name, len(self._started[name]), self._gangs[name]):
                    self._violated(f"{fault.message}, for {now - since:.0f} s")
                del self._partial_since[name]

    def waiting(self, *, made_before: float) -> list[Seen]:
        """Pods first observed before `made_before` that have no node and are not being deleted."""
        return [s for s in self.pods.values() if s.bound_at is None and not s.leaving and s.made_at <= made_before]

    def unserved(self, *, made_before: float) -> list[Seen]:
        """Pending single pods whose requests, in whole idle cards, fit on a node; on a full cluster all others may wait."""
        return [s for s in self.waiting(made_before=made_before) if not s.pod.gang and self._has_room(s.pod)]

    def _has_room(self, pod: AuditPod) -> bool:
        for name, node in self.nodes.items():
            used = self._used[name]
            fits = all(used[what] + amount <= node.allocatable.get(what, 0) for what, amount in pod.requests.items() if amount)
            if fits and sum(not self._on_card[name, card] for card in node.cards) >= pod.cards:
                return True
        return False

    def longest_stall(self, begin: float, end: float) -> float:
        """Longest time between `begin` and `end` with a pending pod and without a binding."""
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
        """Longest time from creation to binding, of pods bound between `begin` and `end`."""
        return max((binding.at - binding.made_at for binding in self.bindings if begin <= binding.at <= end), default=0.0)

    def _hold(self, pod: AuditPod) -> None:
        node = self.nodes.get(pod.node)
        if node is None:
            return self._violated(f"pod {pod.name} was bound to {pod.node}, which is no node")
        used = self._used[pod.node]
        used.update(pod.requests)
        known = self.clock() - self._lessened.get(pod.node, float("-inf")) > UNDER_WAY_S
        asked = {resource for resource, amount in pod.requests.items() if amount}
        for fault in invariants.over_allocated(node, used, asked) if known else ():
            self._violated(f"{fault.message}, with pod {pod.name}")
        for fault in invariants.wrong_cards(pod):
            self._violated(fault.message)
        for piece in pod.slices or ():
            card = self._card(pod.node, piece.card)
            self._on_card[card][pod.uid] = piece
            self._judge(card, pod)
        return None

    def _judge(self, card: Card, pod: AuditPod) -> None:
        name, index = card
        known, users = self.nodes[name].card(index), self._on_card[card]
        if known is None:
            return self._violated(f"node {name} has no card {index}, given to pod {pod.name}")
        use = CardUse()
        for piece in users.values():
            use.add(piece)
        for fault in invariants.over_booked(name, index, known, use):
            others = ", ".join(f"{self.pods[uid].pod.name} ({uid})" for uid in users if uid != pod.uid)
            self._violated(f"{fault.message}, by pod {pod.name} ({pod.uid}) beside {others}")
        return None

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
