"""The judge of a run: it reads the API server's objects after every write, and the ledger's database and the broker's streams at the end.

The promises themselves are `hbox_cli.audit.invariants`, which `hbox audit` and the observer of `make chaos` use, too. A write costs as much as its object: a
pod is decoded when it appears and when it is bound; sums are kept by node, card, gang and queue.

Rules of every write: card, capacity, decision, gang, queue, moved. Rules of the end: waits, owners, claims, nomination, streams, ledger. Those of them that
promise progress apply only to runs whose faults ended QUIET_S before.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, select

from hbox_cli.audit import AuditGang, AuditNode, AuditPod, audit, read_node, read_pod
from hbox_cli.audit import invariants as rules
from hbox_cli.audit.invariants import CardUse
from hbox_common.errors import HBoxError
from hbox_common.model import POOL, CardId, Claim, Resources, capacity_units
from hbox_common.model.annotations import QUEUE_NAME
from hbox_common.model.devices.nvidia import NVIDIA
from hbox_common.store import reading
from hbox_ledger.adapters import tables
from hbox_ledger.adapters.audit import prove
from hbox_ledger.adapters.load import load
from hbox_sandbox.api.store import Event, EventType, Version

from .faults import QUIET_S, last_end
from .loop import EPOCH_S
from .run import Violation
from .users import BY_HAND

#: Virtual seconds for which a gang may be bound in part: the deadline of gangs, and the time to revert a late one.
GANG_S = 75.0
#: Virtual seconds after a node, or a queue's limit, shrank in which older decisions may still be executed.
UNDER_WAY_S = 5.0
#: Virtual seconds after which a waiting pod or a nomination is late, and for which resources have to be free to count.
LATE_S, FREE_S = 20.0, 12.0

PODS, NODES = "pods.", "nodes."
PODGROUPS, QUEUES = "podgroups.scheduling.volcano.sh", "queues.scheduling.volcano.sh"


@dataclass(slots=True)
class _Pod:
    pod: AuditPod
    queue: str
    made_at: float
    leaving: bool = False
    by_hand: bool = False


@dataclass(slots=True)
class _Queue:
    capability: Resources
    deserved: Resources
    lessened_at: float = float("-inf")


class Judge:
    """`world` has `api.store`, `now`, `ledger_path`, `faults`, `skews`, `limits_evictions` and `broker`."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self.violations: list[Violation] = []
        self.events = 0
        self._known: set[tuple[str, str]] = set()
        self._ended: dict[str, float] = {}  #: by the name of a pod, when it ended
        self._nodes: dict[str, AuditNode] = {}
        self._parts: dict[str, tuple[Any, Any]] = {}  #: by node, what its size was read from
        self._lessened: dict[str, float] = {}
        self._sick: set[str] = set()  #: nodes that were sick at any time
        self._freed: dict[str, float] = {}
        self._pods: dict[str, _Pod] = {}
        self._used: dict[str, Counter[str]] = defaultdict(Counter)
        self._cards: dict[str, dict[CardId, CardUse]] = defaultdict(dict)
        self._claims: dict[str, str] = {}  #: by claim, the uid of the pod that was bound with it
        self._queues: dict[str, _Queue] = {}
        self._of_queue: dict[str, Counter[str]] = defaultdict(Counter)
        self._queue_freed: dict[str, float] = {}
        self._least: dict[str, int] = {}  #: by gang, its minimum
        self._members: dict[str, set[str]] = defaultdict(set)
        self._started: dict[str, set[str]] = defaultdict(set)
        self._ran: set[str] = set()
        self._partial_since: dict[str, float] = {}
        for storage in (NODES, PODGROUPS, QUEUES, PODS):
            for version in self._present(storage):
                self.after_event(storage, Event(EventType.ADDED, version, None))

    def _present(self, storage: str) -> Iterable[Version]:
        try:
            return list(self._world.api.store.collection(storage).entries.values())
        except KeyError:
            return ()  # its definition is not installed yet

    def after_event(self, storage: str, event: Event) -> None:
        """Judge what a write touched."""
        self.events += 1
        if storage == PODS:
            self._pod(event)
        elif storage == NODES:
            self._node(event)
        elif storage == QUEUES:
            self._queue(event)
        elif storage == PODGROUPS:
            self._group(event)
        if self._partial_since:
            self._look_at_gangs()

    def _broken(self, found: Iterable[rules.Violation]) -> None:
        for one in found:
            if (one.rule, one.message) not in self._known:
                self._known.add((one.rule, one.message))
                self.violations.append(Violation(one.rule, self._world.now, one.message))

    def _break(self, rule: str, message: str) -> None:
        self._broken([rules.Violation(rule, message)])

    # --- objects

    def _node(self, event: Event) -> None:
        name = event.version.name
        if event.type is EventType.DELETED:
            self._nodes.pop(name, None)
            self._parts.pop(name, None)
            self._lessened[name] = self._world.now
            return
        raw = event.version.load()
        status = raw.get("status") or {}
        conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
        if conditions.get("GpuUnhealthy") == "True" or conditions.get("Ready") != "True":
            self._sick.add(name)
        parts = status.get("allocatable"), (raw["metadata"].get("annotations") or {}).get(NVIDIA.register_annotation)
        if parts != self._parts.get(name):
            if name in self._parts:
                self._lessened[name] = self._world.now
                self._sick.add(name)
            self._parts[name] = parts
            self._nodes[name] = read_node(raw)

    def _queue(self, event: Event) -> None:
        name = event.version.name
        if event.type is EventType.DELETED:
            self._queues.pop(name, None)
            return
        spec = event.version.load().get("spec") or {}
        made = _Queue(_units(spec.get("capability")), _units(spec.get("deserved")))
        before = self._queues.get(name)
        if before is not None:
            less = before.capability != made.capability or before.deserved != made.deserved
            made.lessened_at = self._world.now if less else before.lessened_at
        self._queues[name] = made

    def _group(self, event: Event) -> None:
        name = f"{event.version.namespace}/{event.version.name}"
        if event.type is EventType.DELETED:
            self._least.pop(name, None)
            self._partial_since.pop(name, None)
            return
        self._least[name] = int((event.version.load().get("spec") or {}).get("minMember") or 1)
        self._gang(name)

    def _pod(self, event: Event) -> None:
        version = event.version
        seen = self._pods.get(version.uid)
        if event.type is EventType.DELETED:
            if seen is not None:
                del self._pods[version.uid]
                self._ended[seen.pod.name] = self._world.now
                self._release(seen)
                self._members[seen.pod.gang].discard(version.uid)
                self._started[seen.pod.gang].discard(version.uid)
                self._gang(seen.pod.gang)
            return
        if seen is None:
            raw = version.load()
            pod = read_pod(raw)
            queue = (raw["metadata"].get("annotations") or {}).get(QUEUE_NAME) or "default"
            seen = self._pods[version.uid] = _Pod(pod, queue, self._world.now)
            self._members[pod.gang].add(version.uid)
            if pod.node and pod.holds:
                self._hold(seen)
        node = version.fields["spec.nodeName"]
        seen.leaving = version.deleting
        if node != seen.pod.node:
            if seen.pod.node:
                self._break("moved", f"pod {seen.pod.name} was bound to {seen.pod.node}, and is now to {node or 'nothing'}")
                self._release(seen)
            raw = version.load()
            seen.pod, seen.by_hand = read_pod(raw), BY_HAND in (raw["metadata"].get("annotations") or {})
            if seen.pod.holds:
                self._hold(seen)
        if seen.pod.holds and version.fields["status.phase"] in ("Succeeded", "Failed"):
            self._release(seen)
            self._ended[seen.pod.name] = self._world.now
            seen.pod = replace(seen.pod, holds=False)

    # --- sums

    def _hold(self, seen: _Pod) -> None:
        pod, now = seen.pod, self._world.now
        used, node = self._used[pod.node], self._nodes.get(pod.node)
        used.update(pod.requests)
        settled = now - self._lessened.get(pod.node, float("-inf")) > UNDER_WAY_S
        if not seen.by_hand:
            self._broken(rules.undecided(pod))
        if pod.claim and self._claims.setdefault(pod.claim, pod.uid) != pod.uid:
            self._break("decision", f"pod {pod.name} is bound with claim {pod.claim} of another pod")
        if node is None:
            if settled and not seen.by_hand:
                self._break("capacity", f"pod {pod.name} is bound to {pod.node}, which is no node")
        elif settled:
            self._broken(rules.over_allocated(node, used, pod.requests))
        cards = self._cards[pod.node]
        for piece in pod.slices or ():
            card = piece.card if node is None else node.canonical(piece.card)
            use = cards.setdefault(card, CardUse())
            use.add(piece)
            known = None if node is None else node.card(card)
            if known is None and settled and node is not None:
                self._break("card", f"node {pod.node} has no card {card}, which pod {pod.name} was given")
            self._broken(rules.over_booked(pod.node, card, known, use))
        held = self._of_queue[seen.queue]
        held.update(pod.requests)
        queue = self._queues.get(seen.queue)
        if queue is not None and now - queue.lessened_at > UNDER_WAY_S:
            self._broken(rules.over_limit(seen.queue, held, queue.capability))
        if pod.gang:
            self._started[pod.gang].add(pod.uid)
            self._gang(pod.gang)

    def _release(self, seen: _Pod) -> None:
        pod = seen.pod
        if not pod.node or not pod.holds:
            return
        self._used[pod.node].subtract(pod.requests)
        node = self._nodes.get(pod.node)
        for piece in pod.slices or ():
            card = piece.card if node is None else node.canonical(piece.card)
            if (use := self._cards[pod.node].get(card)) is not None:
                use.add(piece, -1)
        self._of_queue[seen.queue].subtract(pod.requests)
        self._freed[pod.node] = self._queue_freed[seen.queue] = self._world.now

    def _gang(self, name: str) -> None:
        least = self._least.get(name)
        if not name or least is None or name in self._ran:
            return
        started = len(self._started[name])
        if started >= least:
            self._ran.add(name)
        if 0 < started < least and len(self._members[name]) >= least:
            self._partial_since.setdefault(name, self._world.now)
        else:
            self._partial_since.pop(name, None)

    def _look_at_gangs(self) -> None:
        now = self._world.now
        for name, since in list(self._partial_since.items()):
            if now - since > GANG_S:
                self._broken(rules.partial_gang(name, len(self._started[name]), self._least[name]))
                del self._partial_since[name]

    # --- the end

    def at_end(self) -> list[Violation]:
        """All violations of the run."""
        self._look_at_gangs()
        self._ledger()
        if last_end(self._world.faults) <= self._world.now - QUIET_S + 1.0:
            waiting = [one for one in self._pods.values() if self._waits(one)]
            self._broken(self._idle_room(waiting))
            if not self._world.limits_evictions:
                self._broken(self._owners(waiting))
                self._broken(self._nominations(waiting))
            self._broken(self._streams())
        return self.violations

    def _waits(self, seen: _Pod) -> bool:
        return not seen.pod.node and not seen.leaving and seen.pod.holds and self._world.now - seen.made_at > LATE_S

    def _usable(self) -> dict[str, AuditNode]:
        """Nodes that were never sick, are open to all pods, and on which nothing changed for FREE_S."""
        old = self._world.now - FREE_S
        found = {}
        for version in self._present(NODES):
            name, raw = version.name, version.load()
            closed = (raw.get("spec") or {}).get("unschedulable") or (raw.get("spec") or {}).get("taints")
            fresh = max(self._freed.get(name, 0.0), self._lessened.get(name, 0.0)) > old
            closed = closed or POOL in (raw["metadata"].get("labels") or {})
            if not closed and not fresh and name not in self._sick and name in self._nodes:
                found[name] = self._nodes[name]
        return found

    def _within(self, seen: _Pod, times: int, limits: Resources) -> bool:
        held = self._of_queue[seen.queue]
        return all(held[what] + times * seen.pod.requests.get(what, 0) <= limit for what, limit in limits.items())

    def _room(self, nodes: Mapping[str, AuditNode], pod: AuditPod) -> int:
        return sum(rules.room_for(node, self._used[name], self._cards[name], pod) for name, node in nodes.items())

    def _idle_room(self, waiting: list[_Pod]) -> Iterator[rules.Violation]:
        """Everything that fits runs: gangs first, for which the scheduler may keep cards idle."""
        nodes, old = self._usable(), self._world.now - FREE_S
        gangs: dict[str, list[_Pod]] = defaultdict(list)
        for one in waiting:
            gangs[one.pod.gang].append(one)
        singles = gangs.pop("", [])
        whole = False
        for name, members in gangs.items():
            least = self._least.get(name, 1) - len(self._started[name])
            if name in self._ran or len(members) < least or name not in self._least:
                continue
            whole = True
            queue = self._queues.get(members[0].queue)
            if queue is None or self._queue_freed.get(members[0].queue, 0.0) > old:
                continue
            room = self._room(nodes, members[0].pod)
            if room >= least and self._within(members[0], least, queue.capability):
                yield rules.Violation("waits", f"gang {name} waits for {least} places, and {room} are free")
        for one in singles:
            queue = self._queues.get(one.queue)
            if queue is None or self._queue_freed.get(one.queue, 0.0) > old or (whole and one.pod.cards):
                continue
            if (room := self._room(nodes, one.pod)) and self._within(one, 1, queue.capability):
                yield rules.Violation("waits", f"pod {one.pod.name} of queue {one.queue} waits, and {room} places are free")

    def _owners(self, waiting: list[_Pod]) -> Iterator[rules.Violation]:
        """No pod of a queue below what it deserves waits while a pod of a queue above what that deserves holds as much."""
        nodes, cards = self._usable(), NVIDIA.cards
        above = {
            name: self._of_queue[name][cards] - queue.deserved[cards]
            for name, queue in self._queues.items()
            if cards in queue.deserved and self._world.now - queue.lessened_at > LATE_S
        }
        for one in waiting:
            queue = self._queues.get(one.queue)
            old = queue is not None and self._world.now - queue.lessened_at > LATE_S
            if one.pod.gang or not one.pod.cards or queue is None or not old or not self._within(one, 1, queue.deserved):
                continue
            if cards not in queue.deserved:
                continue
            for other in self._pods.values():
                held = other.pod
                if other.queue == one.queue or held.gang or held.node not in nodes or not held.holds or other.leaving:
                    continue
                if held.cards >= one.pod.cards and above.get(other.queue, 0) >= held.cards and _whole(held):
                    yield rules.Violation(
                        "owners",
                        f"pod {one.pod.name} waits below what queue {one.queue} deserves, and pod {held.name} of {other.queue} runs above",
                    )
                    break

    def _nominations(self, waiting: list[_Pod]) -> Iterator[rules.Violation]:
        late = {one.pod.uid for one in waiting}
        present = [(version.key, version.load()) for version in self._present(PODS) if version.uid in late]
        nominated = [(key, node) for key, raw in present if (node := (raw.get("status") or {}).get("nominatedNodeName"))]
        leaving = {one.pod.node for one in self._pods.values() if one.leaving and one.pod.node}
        return rules.stale_nominations(nominated, leaving)

    def _streams(self) -> Iterator[rules.Violation]:
        before_ns = int((EPOCH_S + self._world.now - UNDER_WAY_S) * 1e9)
        for stream in self._world.broker.streams.values():
            for consumer in stream.consumers.values():
                undelivered, unacknowledged = consumer.left(before_ns) if consumer.durable else (0, 0)
                if undelivered or unacknowledged:
                    left = f"{undelivered} not delivered, {unacknowledged} not acknowledged, older than {UNDER_WAY_S:g} s"
                    yield rules.Violation("streams", f"{stream.name}: consumer {consumer.name} has {left}")

    def _ledger(self) -> None:
        """The ledger's own audit, and `hbox audit` of cluster and ledger."""
        url = f"sqlite:///{self._world.ledger_path}"
        try:
            for fault in prove(url).faults:
                self._break("ledger", fault)
            with reading(url, versions=tables.VERSIONS) as connection:
                claims: list[Claim] = [record.claim for record in load(connection).state.live.values()]
                if not any(fault.kind.startswith("disk-restore") for fault in self._world.faults):
                    self._begun(connection)
        except HBoxError as e:
            self._break("ledger", f"the database cannot be read: {e}")
            return
        recent = {uid for uid, one in self._pods.items() if self._world.now - one.made_at <= LATE_S or one.leaving}
        recent |= {f" {name} " for name, at in self._ended.items() if self._world.now - at <= LATE_S}
        gangs = [AuditGang(name, least, ran=True) for name, least in self._least.items()]
        settled = last_end(self._world.faults) <= self._world.now - QUIET_S + 1.0
        if not settled:
            return
        old = EPOCH_S + self._world.now + self._world.skews.get("quota-ledger", 0.0) - LATE_S
        waiting = {uid for uid, one in self._pods.items() if not one.pod.node and uid not in recent}
        for claim in claims:
            if claim.pod_uid in waiting and claim.claimed_at < old:
                self._break("claims", f"pod {claim.pod} waits, and its claim {claim.id} is older than {LATE_S:g} s")
        pods = [one.pod for one in self._pods.values()]
        for fault in audit(self._nodes.values(), pods, gangs, claims).faults:
            if not any(text in fault for text in recent):
                self._break("claims", fault)

    def _begun(self, connection: Connection) -> None:
        """The first plan of each gang claims its minimum; members that were found bound count. A restored ledger lacks its first plans."""
        claims = tables.claims
        rows = connection.execute(
            select(claims.c.job, claims.c.plan, claims.c.min_member, claims.c.forced, claims.c.claimed_at).where(
                claims.c.min_member > 1
            )
        )
        plans: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        least: dict[str, int] = {}
        found = Counter[str]()
        for job, plan, members, forced, at in rows:
            if forced:
                found[job] += 1
            else:
                plans[job][plan].append(at)
                least[job] = members
        for job, of_plan in plans.items():
            first = min(of_plan, key=lambda plan: min(of_plan[plan]))
            self._broken(rules.partial_plan(job, len(of_plan[first]) + found[job], least[job]))


def _units(amounts: Mapping[str, Any] | None) -> Resources:
    return {name: capacity_units(name, amount) for name, amount in (amounts or {}).items()}


def _whole(pod: AuditPod) -> bool:
    return all(piece.whole for piece in pod.slices or ()) and bool(pod.slices)
