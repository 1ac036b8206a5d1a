"""Nodes, faults, gangs and technicians in virtual time. Everything that does not depend on the policy is drawn before the day begins.

A gang that meets a fault makes no progress until the policy evicts it or NCCL's time-out ends it (600 s). It then loses the work since its last checkpoint and
starts again after 300 s, on its present nodes where the policy leaves them usable, else on free ones. Technicians cure a fault four hours after it began.
"""

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hbox_agent.core.kernelfacts import observations
from hbox_common.health.lines import read_text
from hbox_common.health.report import NODE, Check, Fact, value_of

from .faults import PROGRAMS, Cure, Effect, Kind

CARDS, SIZE = 8, 16
DAY_S, HANDS_S, NCCL_S, RESTART_S, CHECKPOINT_S, RUN_S = 86_400.0, 4 * 3600.0, 600.0, 300.0, 1800.0, 12 * 3600.0
RESET_S, BOOT_S, CHECK_S, SHUTDOWN_S = 60.0, 600.0, 120.0, 30.0
WORKS_AT_FIRST = 0.9  #: of resets that could cure
SLOW = 0.5
LABELS = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
#: The card, and the adapter whose port fails.
_WELL: Mapping[str, int] = {"recovery_action": 0, "clocks_event_reasons": 0, "nvlinks_active": 18, "nvlinks_inactive": 0}
RAIL = "rail:mlx5_3"


@dataclass(slots=True)
class Fault:
    kind: Kind
    node: str
    card: int
    at: float
    seen_s: float = 20.0  #: until the agent reads a state
    cured: float | None = None
    by: str = ""  #: "hands", or the verb that cured it


@dataclass(slots=True)
class Node:
    name: str
    boot: int = 1
    seq: int = 0
    line: int = 0
    faults: list[Fault] = field(default_factory=list)
    gang: "Gang | None" = None
    busy_until: float = 0.0  #: it boots
    maintained: bool = False

    @property
    def boot_id(self) -> str:
        return f"{self.name}-{self.boot}"

    def card(self, number: int) -> str:
        return f"gpu:GPU-{self.name}-{number}"


@dataclass(slots=True)
class Gang:
    name: str
    nodes: list[Node] = field(default_factory=list)
    state: str = "waits"  #: waits, starts, runs, stuck
    since: float = 0.0
    begun: float = 0.0  #: of the work since the last checkpoint
    sick: bool = False  #: hardware or the policy stopped it
    turn: int = 0  #: an event of an earlier turn is void


@dataclass(frozen=True, slots=True)
class Closed:
    """What of a node a policy keeps from work."""

    cards: frozenset[int] = frozenset()
    node: bool = False
    gangs: bool = False  #: work on several cards or nodes only


class Policy(Protocol):
    name: str

    def begin(self, world: "World") -> None: ...
    def fact(self, node: Node, fact: Fact) -> None: ...
    def pods(self, node: Node) -> None: ...
    def booted(self, node: Node) -> None: ...
    def repaired_by_hand(self, node: Node) -> None: ...
    def maintained(self, node: Node, until: float) -> None: ...
    def tick(self) -> None: ...
    @property
    def due(self) -> float | None: ...


class World:
    def __init__(self, policy: Policy, *, nodes: int, spare: float, seed: int) -> None:
        self.now, self.policy = 0.0, policy
        self.dice = random.Random(seed)
        self.nodes = [Node(f"n{number:04}") for number in range(nodes)]
        self.by_name = {node.name: node for node in self.nodes}
        self.gangs = [Gang(f"train/g{number}") for number in range(int(nodes * (1 - spare)) // SIZE)]
        self.closed: dict[str, Closed] = {}
        self.faults: list[Fault] = []
        self.found: dict[str, list[float]] = {}  #: by node: when the policy stated a fault of hardware
        self.disturbed: dict[str, float] = {}  #: nodes that the policy closed or evicted from, by the time
        self.by_hand: set[str] = set()  #: nodes that were in maintenance
        self.card_s = 0.0  #: card-seconds out of use
        self.gang_s = {
            True: 0.0,
            False: 0.0,
        }  #: card-seconds of gangs that do not progress: by faults of hardware and by the policy; by programs and ends
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._lost: dict[str, tuple[float, int]] = {}

    # --- time

    def at(self, when: float, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (when, self._count, what))

    def after(self, delay: float, what: Callable[[], None]) -> None:
        self.at(self.now + delay, what)

    def run(self) -> None:
        self.policy.begin(self)
        for node in self.nodes:
            self._show(node)
        for gang in self.gangs:
            self._place(gang)
        while True:
            following = self._queue[0][0] if self._queue else DAY_S
            due = self.policy.due
            if min(following, DAY_S if due is None else due) >= DAY_S:
                break
            if due is not None and due < following:
                self.now = max(due, self.now)
                self.policy.tick()
            else:
                self.now, _, what = heapq.heappop(self._queue)
                what()
        self.now = DAY_S
        for node in self.nodes:
            self._account(node)
        for gang in self.gangs:
            self._spend(gang)

    # --- what happens by itself

    def plant(self, fault: Fault) -> None:
        self.faults.append(fault)
        self.at(fault.at, lambda: self._begin(fault))

    def _begin(self, fault: Fault) -> None:
        node, kind = self.by_name[fault.node], fault.kind
        node.faults.append(fault)
        self._account(node)
        self.lines(node, fault.card, kind.lines)
        if kind.state or kind.missing or kind.port:
            self.after(fault.seen_s, lambda: self._show(node, fault))
        self.after(HANDS_S, lambda: self._hands(node, fault))
        gang = node.gang
        if gang is None:
            return
        if kind.effect is Effect.CRASH:
            self._crash(gang, sick=True)
        elif kind.effect is Effect.BREAKS:
            self._stick(gang)
        elif gang.state == "runs":
            self._spend(gang)

    def program(self, node: Node) -> None:
        """A program of the node's gang fails by its own fault."""
        if node.gang is None or node.gang.state != "runs":
            return
        self.lines(node, self.dice.randrange(CARDS), self.dice.choice(PROGRAMS))
        self._crash(node.gang, sick=False)

    def flap(self, node: Node, down_s: float) -> None:
        self.state(node, Check.PORTS, RAIL, "port", {"state": "1: DOWN"})
        self.after(down_s, lambda: self._show(node))

    def upgrade(self, node: Node) -> None:
        """An idle node boots."""
        if node.gang is None and node.busy_until <= self.now:
            node.busy_until = self.now + BOOT_S
            self._account(node)
            self.after(BOOT_S, lambda: self._booted(node))

    def maintain(self, node: Node) -> None:
        """Two hours in which the node's card is changed, after its gang has left. It boots an hour later."""
        node.maintained = True
        self.by_hand.add(node.name)
        self.policy.maintained(node, self.now + 7200)
        if node.gang is not None:
            self.evict(node.gang)

        def work() -> None:
            self.lines(node, 0, ("NVRM: Xid (PCI:{pci}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",))
            self.after(3600, lambda: self._booted(node))

        def end() -> None:
            self._account(node)  # its hours in maintenance are not lost to faults
            node.maintained = False

        self.after(60, work)
        self.after(7200, end)

    def _hands(self, node: Node, fault: Fault) -> None:
        if fault.cured is None and fault.kind.effect is not Effect.CRASH:
            self._cure(node, fault, "hands")
            self._booted(node)
            self.policy.repaired_by_hand(node)

    # --- what agents read

    def lines(self, node: Node, card: int, lines: Sequence[str]) -> None:
        """Kernel lines about a card, read as an agent reads them."""
        if not lines:
            return
        pci = f"0000:{0x10 + card:02x}:00"
        text = "\n".join(f"[{self.now:.6f}] {line.replace('{pci}', pci)}" for line in lines)
        cards = {f"0000:{0x10 + number:02x}:00": node.card(number).removeprefix("gpu:") for number in range(CARDS)}
        for record in read_text(text):
            node.line += 1
            for seen in observations([{**record, "seq": node.line}], cards=cards, rails={}, booted_at=0.0):
                self._report(node, seen.check, seen.entity, seen.code, seen.value, seen.text)

    def state(self, node: Node, check: Check, entity: str, code: str, value: Mapping[str, object]) -> None:
        self._report(node, check, entity, code, value)

    def _report(self, node: Node, check: Check, entity: str, code: str, value: Mapping[str, object], text: str = "") -> None:
        node.seq += 1
        self.policy.fact(node, Fact(node.seq, self.now, check, entity, code, value_of(value), text))

    def _show(self, node: Node, fault: Fault | None = None) -> None:
        """The states that the agent reads now: of one fault's hardware, or of all."""
        faults = [one for one in node.faults if one.cured is None]
        listed = [node.card(n) for n in range(CARDS) if not any(f.kind.missing and f.card == n for f in faults)]
        if fault is None or fault.kind.missing:
            uuids = [card.removeprefix("gpu:") for card in listed]
            every = [node.card(number).removeprefix("gpu:") for number in range(CARDS)]
            value = {"init": 0, "count": len(uuids), "listed": uuids, "inventory": every, "driver": "570.86.15"}
            self.state(node, Check.NVML, NODE, "cards", value)
        for number in range(CARDS) if fault is None else [fault.card]:
            of_card = [one for one in faults if one.card == number]
            value = {"index": number, **_WELL}
            for one in of_card:
                value |= one.kind.state
            if node.card(number) in listed:
                self.state(node, Check.NVML, node.card(number), "card", value)
        for other in range(8) if fault is None else ():
            if f"rail:mlx5_{other}" != RAIL:
                self.state(node, Check.PORTS, f"rail:mlx5_{other}", "port", {"state": "4: ACTIVE"})
        if fault is None or fault.kind.port:
            down = any(one.kind.port for one in faults)
            port = {"state": "1: DOWN" if down else "4: ACTIVE", **({"leaf": f"leaf-{int(node.name[1:]) // 32}"})}
            self.state(node, Check.PORTS, RAIL, "port", port)

    # --- what policies do

    def close(self, node: Node, closed: Closed) -> None:
        if closed != self.closed.get(node.name, Closed()):
            self.closed[node.name] = closed
            if closed != Closed():
                self.disturbed.setdefault(node.name, self.now)
            self._account(node)
            for gang in self.gangs:
                if gang.state == "waits":
                    self._place(gang)

    def stated(self, node: Node) -> None:
        self.found.setdefault(node.name, []).append(self.now)

    def evict(self, gang: Gang) -> None:
        self._crash(gang, sick=True)

    def reset(self, node: Node, card: int, done: Callable[[bool], None]) -> None:
        def end() -> None:
            mine = [fault for fault in node.faults if fault.card == card and fault.cured is None]
            cures = all(fault.kind.cure is Cure.RESET for fault in mine) and self.dice.random() < WORKS_AT_FIRST
            for fault in mine if cures else ():
                self._cure(node, fault, "reset")
            done(cures)
            self._show(node)

        self.after(RESET_S, end)

    def reboot(self, node: Node) -> None:
        node.busy_until = self.now + BOOT_S
        self._account(node)

        def end() -> None:
            for fault in node.faults:
                if fault.cured is None and fault.kind.cure is not Cure.HANDS:
                    self._cure(node, fault, "reboot")
            self._booted(node)

        self.after(BOOT_S, end)

    def _cure(self, node: Node, fault: Fault, by: str) -> None:
        fault.cured, fault.by = self.now, by
        self._account(node)

    def _booted(self, node: Node) -> None:
        node.boot, node.seq, node.line, node.busy_until = node.boot + 1, 0, 0, 0.0
        self._account(node)
        self.policy.booted(node)
        self._show(node)
        for fault in node.faults:
            if fault.cured is None:
                self.lines(node, fault.card, fault.kind.lines)
        for gang in self.gangs:
            if gang.state == "waits":
                self._place(gang)

    def well(self, node: Node, card: int | None = None) -> bool:
        return not any(fault.cured is None and card in (None, fault.card) for fault in node.faults)

    # --- gangs

    def _usable(self, node: Node) -> bool:
        return self.closed.get(node.name, Closed()) == Closed() and not node.maintained and node.busy_until <= self.now

    def _place(self, gang: Gang) -> None:
        kept = [node for node in gang.nodes if self._usable(node)]
        free = (node for node in self.nodes if node.gang is None and self._usable(node))
        while len(kept) < SIZE and (node := next(free, None)) is not None:
            kept.append(node)
        self._spend(gang)
        gang.turn += 1
        if len(kept) < SIZE:
            self._leave(gang)
            gang.state = "waits"
            return
        before, gang.nodes = gang.nodes, kept
        for node in before:
            if node not in kept:
                node.gang = None
        for node in kept:
            node.gang = gang
        for node in {node.name: node for node in (*before, *kept)}.values():
            self.policy.pods(node)
        gang.state, turn = "starts", gang.turn
        self.after(RESTART_S, lambda: self._start(gang) if gang.turn == turn else None)

    def _start(self, gang: Gang) -> None:
        self._spend(gang)
        gang.state, gang.begun, gang.sick, gang.turn = "runs", self.now, False, gang.turn + 1
        turn, left = gang.turn, self.dice.expovariate(1 / RUN_S)
        if any(fault.cured is None and fault.kind.effect is Effect.BREAKS for node in gang.nodes for fault in node.faults):
            self._stick(gang)
            return
        self.after(left, lambda: self._end(gang) if gang.turn == turn else None)

    def _stick(self, gang: Gang) -> None:
        if gang.state != "runs":
            return  # it meets the fault when it starts
        self._spend(gang)
        gang.state, gang.sick, gang.turn = "stuck", True, gang.turn + 1
        turn = gang.turn
        self.after(NCCL_S, lambda: self._crash(gang, sick=True) if gang.turn == turn else None)

    def _crash(self, gang: Gang, *, sick: bool) -> None:
        self._spend(gang)
        gang.sick = sick
        if gang.state in ("runs", "stuck"):
            self.gang_s[gang.sick] += SIZE * CARDS * min((self.now - gang.begun) % CHECKPOINT_S, CHECKPOINT_S)
        self._leave(gang)
        gang.state, gang.turn = "waits", gang.turn + 1
        turn = gang.turn
        self.after(SHUTDOWN_S, lambda: self._place(gang) if gang.turn == turn else None)

    def _end(self, gang: Gang) -> None:
        """The job ends and another one of its size follows."""
        self._spend(gang)
        self._leave(gang)
        gang.nodes, gang.state, gang.sick, gang.turn = [], "waits", False, gang.turn + 1
        turn = gang.turn
        self.after(SHUTDOWN_S, lambda: self._place(gang) if gang.turn == turn else None)

    def _leave(self, gang: Gang) -> None:
        for node in gang.nodes:
            if node.gang is gang:
                node.gang = None
                self.policy.pods(node)

    # --- accounts

    def _spend(self, gang: Gang) -> None:
        spent, gang.since = self.now - gang.since, self.now
        slow = gang.state == "runs" and any(
            fault.cured is None and fault.kind.effect is Effect.SLOW for node in gang.nodes for fault in node.faults
        )
        if gang.state != "runs" or slow:
            self.gang_s[gang.sick or slow] += SIZE * CARDS * spent * (SLOW if slow else 1.0)

    def _account(self, node: Node) -> None:
        since, lost = self._lost.get(node.name, (0.0, 0))
        if not node.maintained:
            self.card_s += lost * (self.now - since)
        closed = self.closed.get(node.name, Closed())
        broken = [fault for fault in node.faults if fault.cured is None and fault.kind.effect is Effect.BREAKS]
        whole = closed.node or closed.gangs or node.busy_until > self.now or any(fault.kind.whole for fault in broken)
        self._lost[node.name] = self.now, CARDS if whole else len(closed.cards | {fault.card for fault in broken})
