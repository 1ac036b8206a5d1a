"""The binder's core: receives decisions and responses, returns calls and outcomes.

Theory of operation. Every decision becomes a task in the lane of its pod; a lane has at most one call in progress, so two calls never disagree about a pod.
Ready tasks wait in five queues, served in this order: fences, evictions, retried evictions, binds, binds that wait for volumes; each call takes a slot. A
call settles its task (`calls.settles`), turns it into a fence, or delays it with growing backoff. A task that is not settled after `patience_s` is reported
as UNKNOWN, so that the ledger does not wait for it, and is worked on all the same. A refused eviction is reported at once, as UNKNOWN and blocked: the ledger
may choose another victim. It does not count against the rate limit of evictions, since no pod was evicted, and its retries come after all new evictions.

Rules, which `validate` and the property tests enforce:
- One call per pod at a time.
- For one claim the highest decision counts (its generation; of equals the eviction). A lower one without a call in progress is not started any more:
  it follows the higher one and shares its outcome. One with a call in progress is answered first.
- A decision that is already here is joined; one that was settled recently gets its outcome again; both without a call.
- A decision of an older epoch than the current one is dropped, also if it waits here and was not started: the ledger sends what it still wants in its
  new epoch. The shell determines the current epoch (`Ruled`); a decision of a higher one raises it. A started task continues, since only an outcome
  shows what became of it.
- Every other decision gets an outcome in the end.
- A bind whose pod has PVCs that wait for their first consumer begins with their volumes (VOLUME), without a turn: no node lock waits for a provisioner.
- Of the binds for which a device plugin hands over cards, one per node runs at a time (`turns`), in the order of their decisions, but first the pod
  that already has the node's lock; from its first call until that lock is released, whatever its outcome. A bind that waits for its turn takes no slot,
  and is reported as UNKNOWN and expires like any other.

No state here has to survive a crash: see `hbox_binder.app`.
"""

import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TypeAlias

from hbox_common.events import Bind, BindOutcome, Evict, EvictKind, Outcome
from hbox_common.model import ClaimId, DecisionId, Epoch, NodeName, PodUid
from hbox_common.pacing import TokenBucket, backoff_s

from .calls import BINDS, STAYS, Answer, Call, Finding, Verb, fence_after, settles
from .nodeturns import Turn
from .pace import Limits

Decision: TypeAlias = Bind | Evict

#: Binds that the rate holds back are released in groups, not one timer each.
_PACE_S = 0.005
_BURST_S = 0.05
_LONGEST_WISH_S = 30.0

#: Characters of an API server's message that are passed on: a full batch of outcomes fits into one message of the bus.
LONGEST_MESSAGE = 1000


# --- inputs


@dataclass(frozen=True, slots=True)
class Decided:
    """`seen`: an earlier binder may have received these decisions and carried them out."""

    epoch: Epoch
    decisions: tuple[Decision, ...]
    seen: bool = False


@dataclass(frozen=True, slots=True)
class Answered:
    """The call of this decision has ended."""

    decision: DecisionId
    answer: Answer


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed; due at `next_wake`, harmless at any other moment."""


@dataclass(frozen=True, slots=True)
class Ruled:
    """The current epoch, confirmed by the ledger; it may be lower than that of a decision."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Unlocked:
    """The node's lock is released: the next bind may have its turn. Also sent after every response to a bind with a lock that finds the node without one."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class LockStands:
    """The node's lock belongs to this pod (namespace, name). Sent like `Unlocked` if the node has a lock, and each time that a lock is checked."""

    node: NodeName
    holder: tuple[str, str]


@dataclass(frozen=True, slots=True)
class CardsChanged:
    """The node's cards changed, or the node was deleted: retry its waiting binds now."""

    node: NodeName


Event: TypeAlias = Decided | Answered | Ruled | Unlocked | LockStands | CardsChanged | Ticked


# --- outputs


@dataclass(frozen=True, slots=True)
class Start:
    """Make this call and hand back its answer, once."""

    call: Call
    lock_wait_s: float | None = None  #: of the first call of a bind with a node lock: for how long it stood in line


@dataclass(frozen=True, slots=True)
class Report:
    """Publish this outcome; its decision may be acknowledged then. An UNKNOWN is followed by others until one settles it."""

    outcome: Outcome
    kind: EvictKind | None  #: of the decision; None = a bind
    again: bool = False  #: it was settled before, and this is a repetition


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """This decision may be acknowledged with nothing to publish: it is stale, or it was reported before and is being worked on."""

    decision: DecisionId
    stale: bool


@dataclass(frozen=True, slots=True)
class Breaker:
    """Evictions are held back from now on, or not any more."""

    open: bool
    waiting: int


@dataclass(frozen=True, slots=True)
class Unlock:
    """Nothing came of this bind: release the node's lock if its pod holds it, and say `Unlocked`."""

    bind: Bind


Effect: TypeAlias = Start | Report | Acknowledge | Breaker | Unlock


# --- state


class _State(Enum):
    READY = auto()  #: in one of the lines
    BLOCKED = auto()  #: its lane has a call under way
    RUNNING = auto()
    PUT_OFF = auto()  #: a timer makes it ready
    IN_LINE = auto()  #: another pod has its node's turn
    OVER = auto()  #: settled, dropped or following another


@dataclass(slots=True, eq=False)
class _Task:
    decision: Decision
    epoch: Epoch
    call: Call
    state: _State = _State.READY
    begun: bool = False
    timed: bool = False  #: it will be reported as UNKNOWN when its time comes
    seen: bool = False  #: an earlier call, of this or a previous binder, may have bound the pod
    locked: bool = False  #: a call was made that takes its node's lock
    in_line_at: float | None = None  #: monotonic; since when it waits, or waited, for its node's turn
    attempts: int = 0
    reported_at: float | None = None  #: monotonic; as UNKNOWN, last
    blocked: bool = False  #: by its last answer
    message: str = ""  #: of the last answer
    followers: list[Decision] = field(default_factory=list)


@dataclass(slots=True)
class _Lane:
    tasks: list[_Task] = field(default_factory=list)
    running: _Task | None = None


def _rank(decision: Decision) -> tuple[int, bool]:
    return decision.generation, isinstance(decision, Evict)


class Binder:
    """`step` takes what happened and returns what is to be done. `now`: monotonic seconds; `wall`: seconds since the epoch."""

    def __init__(self, limits: Limits, *, takes_turns: Callable[[Bind], bool] = lambda _: False) -> None:
        """`takes_turns`: whether a bind has a node lock, by what is known of its node now."""
        self.limits = limits
        self._takes_turns = takes_turns
        self.epoch = Epoch(0)  #: the one that counts
        self._tasks: dict[DecisionId, _Task] = {}  #: all that are not over
        self._lanes: dict[PodUid, _Lane] = {}  #: of pods with tasks
        self._lines: dict[Verb, deque[_Task]] = {Verb.FENCE: deque(), Verb.EVICT: deque(), Verb.BIND: deque()}
        self._lines[Verb.VOLUME] = self._lines[Verb.BIND]
        self._retries: deque[_Task] = deque()  #: evictions that are asked for again
        self._volume_reads: deque[_Task] = deque()  #: binds whose PVCs are read again
        self._turns: dict[NodeName, Turn[_Task]] = {}  #: nodes with a pod that has, or waits for, the turn
        self._put_off: dict[NodeName, dict[_Task, None]] = {}  #: by node: binds in the state PUT_OFF, in order
        self._unlocks: list[Bind] = []  #: of this step
        self.running = 0  #: calls under way
        self._binding = 0  #: of these, bindings
        self._timers: list[tuple[float, int, bool, _Task]] = []  #: (due, order, whether to report or to try again, task)
        self._order = itertools.count()
        self._binds = TokenBucket(rate_per_s=limits.binds_per_s, burst=limits.binds_per_s * _BURST_S)
        self._evictions = TokenBucket(rate_per_s=limits.evictions_per_min / 60, burst=limits.evictions_per_min)
        self._reads = TokenBucket(rate_per_s=limits.volume_reads_per_s, burst=limits.slots)
        self._asked_again = TokenBucket(rate_per_s=limits.retries_per_s, burst=limits.slots)
        self._breaker_open = False
        self._paced_until: float | None = None  #: when a rate lets the next call through
        self._settled: OrderedDict[DecisionId, Outcome] = OrderedDict()
        self._last_word: OrderedDict[ClaimId, tuple[tuple[int, bool], DecisionId]] = OrderedDict()

    def step(self, event: Event, *, now: float, wall: float) -> list[Effect]:
        """Take in one event. Raises KeyError for an answer to a call that is not under way."""
        effects: list[Effect] = []
        match event:
            case Decided():
                self._rise(event.epoch, effects)
                for decision in event.decisions:
                    self._take(event.epoch, decision, now, wall, effects, seen=event.seen)
            case Ruled(epoch=epoch):
                self._rise(epoch, effects)
                self._fall(epoch)
            case Answered():
                self._answered(self._tasks[event.decision], event.answer, now, wall, effects)
            case Unlocked(node=node):
                if (turn := self._turns.get(node)) is not None:
                    turn.held, turn.holder = False, None
                    self._next(node, turn)
            case LockStands(node=node, holder=holder):
                if (turn := self._turns.get(node)) is not None and turn.held:
                    turn.holder = holder
                    self._to_holder(turn)
            case CardsChanged(node=node):
                for task in list(self._put_off.get(node, ())):
                    task.attempts = 0
                    self._ready(task)
            case Ticked():
                pass
        self._run_timers(now, wall, effects)
        effects += [Unlock(bind) for bind in self._unlocks]
        self._unlocks.clear()
        self._start(now, wall, effects)
        return effects

    def next_wake(self) -> float | None:
        """When `Ticked` is due, in monotonic seconds; None while nothing waits for time."""
        while self._timers and self._timers[0][3].state is _State.OVER:
            heapq.heappop(self._timers)
        due = [self._timers[0][0]] if self._timers else []
        if self._paced_until is not None:
            due.append(self._paced_until)
        return min(due, default=None)

    def awaits_unlock(self, node: NodeName) -> bool:
        """Whether a task's turn, or the next turn, depends on that node's lock."""
        turn = self._turns.get(node)
        return turn is not None and turn.held

    def waits_for(self, node: NodeName) -> bool:
        """Whether binds stand in line for that node's lock."""
        turn = self._turns.get(node)
        return turn is not None and bool(turn.line)

    def waits_to_bind(self, namespace: str, pod: str) -> bool:
        """Whether a bind of the pod is open."""
        return any(
            isinstance(task.decision, Bind) and (task.decision.namespace, task.decision.pod) == (namespace, pod)
            for task in self._tasks.values()
        )

    @property
    def in_line(self) -> int:
        """Binds that wait because another pod has their node's lock."""
        return sum(task.state is _State.IN_LINE for task in self._tasks.values())

    @property
    def waiting(self) -> int:
        """Tasks that are not settled and have no call under way."""
        return len(self._tasks) - self.running

    # --- decisions

    def _rise(self, epoch: Epoch, effects: list[Effect]) -> None:
        if epoch <= self.epoch:
            return
        self.epoch = epoch
        for task in [task for task in self._tasks.values() if not task.begun]:
            effects += [Acknowledge(decision.id, stale=True) for decision in self._end(task)]

    def _fall(self, epoch: Epoch) -> None:
        if epoch < self.epoch:
            self.epoch = epoch
            for task in self._tasks.values():
                task.epoch = min(task.epoch, epoch)

    def _take(
        self, epoch: Epoch, decision: Decision, now: float, wall: float, effects: list[Effect], *, seen: bool = False
    ) -> None:
        if epoch < self.epoch:
            effects.append(Acknowledge(decision.id, stale=True))
            return
        if (settled := self._settled.get(decision.id)) is not None:
            self._settled.move_to_end(decision.id)
            effects.append(Report(settled, _kind(decision), again=True))
            return
        if (known := self._tasks.get(decision.id)) is not None:
            known.epoch = epoch
            if known.blocked:  # the sender of the repeated decision may not have received the outcome
                self._report_open(known, now, wall, effects)
            elif known.reported_at is not None:
                effects.append(Acknowledge(decision.id, stale=False))
            return
        rank = _rank(decision)
        word = self._last_word.get(decision.claim)
        if word is not None and word[0] > rank and (settled := self._settled.get(word[1])) is not None:
            self._report(decision, settled.outcome, Answer(Finding.UNCLEAR, settled.message, settled.node), wall, effects)
            return
        lane = self._lanes.setdefault(decision.pod_uid, _Lane())
        rivals = [task for task in lane.tasks if task.decision.claim == decision.claim]
        higher = next((t for t in rivals if any(f.id == decision.id for f in t.followers)), None)
        if higher is None:
            higher = max((t for t in rivals if _rank(t.decision) > rank), key=lambda t: _rank(t.decision), default=None)
            if higher is not None:
                higher.followers.append(decision)
        if higher is not None:
            if higher.reported_at is not None:
                effects.append(Acknowledge(decision.id, stale=False))
            return
        task = _Task(decision, epoch, _first_call(decision), seen=seen)
        for lower in rivals:
            if lower.state is not _State.RUNNING and _rank(lower.decision) < rank:
                task.followers += self._end(lower)
        lane = self._lanes.setdefault(decision.pod_uid, _Lane())
        lane.tasks.append(task)
        self._tasks[decision.id] = task
        self._ready(task)
        if isinstance(decision, Evict):
            self._time(task, now)
        elif task.state is _State.IN_LINE:
            task.in_line_at = now
            self._time(task, now)
            self._expire(task, now, wall)

    # --- calls

    def _start(self, now: float, wall: float, effects: list[Effect]) -> None:
        self._paced_until = None
        while self.running < self.limits.slots and (task := self._front(self._lines[Verb.FENCE])):
            self._begin(task, now, wall, effects)
        held = False
        while self.running < self.limits.slots and (task := self._front(self._lines[Verb.EVICT])):
            if held := not self._evictions.take(now):
                self._pace(now + self._evictions.wait_s(now), now)
                break
            self._begin(task, now, wall, effects)
        waiting = len(self._lines[Verb.EVICT])
        if held != self._breaker_open and (held or not waiting):
            self._breaker_open = held
            effects.append(Breaker(held, waiting))
        while self.running < self.limits.slots and not held and (task := self._front(self._retries)):
            wait_s = max(self._evictions.wait_s(now), self._asked_again.wait_s(now))
            if wait_s > 0:
                self._pace(now + wait_s, now)
                break
            self._evictions.take(now)
            self._asked_again.take(now)
            self._begin(task, now, wall, effects)
        most = self.limits.slots - self.limits.urgent_slots
        for line, rate in ((self._lines[Verb.BIND], self._binds), (self._volume_reads, self._reads)):
            while self.running < self.limits.slots and self._binding < most and (task := self._front(line)):
                if not rate.take(now):
                    self._pace(now + rate.wait_s(now), now)
                    break
                self._begin(task, now, wall, effects)

    def _front(self, line: deque[_Task]) -> _Task | None:
        """The first task of the line that can begin; those before it are over, or wait for their lane."""
        while line:
            task = line[0]
            if task.state is _State.READY:
                if self._lanes[task.decision.pod_uid].running is None:
                    return task
                task.state = _State.BLOCKED
            line.popleft()
        return None

    def _begin(self, task: _Task, now: float, wall: float, effects: list[Effect]) -> None:
        self._line_of(task).popleft()
        decision = task.decision
        if isinstance(decision, Bind) and task.call.verb in BINDS and 0 < decision.deadline <= wall:
            task.call = Call(Verb.FENCE, decision, then=BindOutcome.EXPIRED)
            task.message = "its deadline passed"
        if isinstance(decision, Bind) and task.call.verb is Verb.BIND:
            turn = self._turns.get(decision.node)
            owns = turn is not None and turn.owner is task
            task.call, task.locked = replace(task.call, locked=owns, seen=task.seen), task.locked or owns
        waited_s: float | None = None
        if not task.begun:
            task.begun = True
            if isinstance(decision, Bind):
                self._time(task, now)
                if task.call.locked:
                    waited_s = 0.0 if task.in_line_at is None else now - task.in_line_at
        task.state = _State.RUNNING
        self._lanes[decision.pod_uid].running = task
        self.running += 1
        self._binding += task.call.verb in BINDS
        effects.append(Start(task.call, waited_s))

    def _answered(self, task: _Task, answer: Answer, now: float, wall: float, effects: list[Effect]) -> None:
        lane = self._lanes[task.decision.pod_uid]
        if lane.running is not task:
            raise KeyError(task.decision.id)
        lane.running = None
        self.running -= 1
        self._binding -= task.call.verb in BINDS
        stays = task.call.verb is Verb.EVICT and answer.finding in STAYS
        if stays:
            self._evictions.give_back()
        if answer.message:
            task.message = answer.message
        elif task.call.verb is Verb.FENCE and answer.finding is Finding.UNBOUND:
            answer = replace(answer, message=task.message)
        if answer.finding is Finding.LOCKED and task.call.locked:
            self._back_in_line(task, answer.holder, now, wall)
        outcome = settles(task.call, answer.finding)
        higher = max(
            (t for t in lane.tasks if t.decision.claim == task.decision.claim and _rank(t.decision) > _rank(task.decision)),
            key=lambda t: _rank(t.decision),
            default=None,
        )
        if outcome is not None:
            for decision in self._end(task, bound=outcome is BindOutcome.BOUND):
                self._report(decision, outcome, answer, wall, effects)
        elif higher is not None:
            higher.followers += self._end(task)
        elif (then := fence_after(task.call, answer.finding)) is not None:
            task.call, task.attempts = Call(Verb.FENCE, task.decision, then=then), 0
            self._ready(task)
        elif answer.finding is Finding.READY and isinstance(task.decision, Bind):
            task.call, task.attempts = _bind_call(task.decision), 0
            self._ready(task)
        elif task.state is not _State.IN_LINE:
            if answer.finding is Finding.WAITING and not task.call.waits_since:
                task.call, task.attempts = replace(task.call, waits_since=wall), 0
            task.state = _State.PUT_OFF
            if isinstance(task.decision, Bind) and task.call.verb is Verb.BIND:
                task.seen = True
                self._put_off.setdefault(task.decision.node, {})[task] = None
            self._timer(now + self._delay_s(task, answer), task, report=False)
            task.attempts += 1
            news, task.blocked = stays and not task.blocked, stays
            if news:
                self._report_open(task, now, wall, effects)
        for blocked in lane.tasks:
            if blocked.state is _State.BLOCKED:
                self._ready(blocked)

    def _delay_s(self, task: _Task, answer: Answer) -> float:
        if answer.finding is Finding.REFUSED:
            return self.limits.retry_cap_s
        cap_s = self.limits.volume_poll_s if answer.finding is Finding.WAITING else self.limits.retry_cap_s
        own = backoff_s(task.attempts, base_s=self.limits.retry_base_s, cap_s=cap_s)
        return max(own, min(answer.retry_after_s or 0.0, _LONGEST_WISH_S))

    # --- the life of a task

    def _not_put_off(self, task: _Task) -> None:
        if isinstance(bind := task.decision, Bind) and task in (put_off := self._put_off.get(bind.node, {})):
            del put_off[task]
            if not put_off:
                del self._put_off[bind.node]

    def _ready(self, task: _Task, *, first: bool = False) -> None:
        """`first`: before all others, since a whole node waits for it."""
        self._not_put_off(task)
        if not self._has_turn(task):
            task.state = _State.IN_LINE
            return
        task.state = _State.READY
        line = self._line_of(task)
        (line.appendleft if first else line.append)(task)

    def _has_turn(self, task: _Task) -> bool:
        """Whether its node's lock lets it start; otherwise it waits for its turn now."""
        bind = task.decision
        if task.call.verb is not Verb.BIND or not isinstance(bind, Bind) or not self._takes_turns(bind):
            return True
        turn = self._turns.setdefault(bind.node, Turn())
        if turn.free and not turn.line:
            turn.owner = task
        elif turn.owner is None and _holds(turn, bind):
            turn.owner, turn.held, turn.holder = task, False, None
        if turn.owner is not task:
            turn.line.append(task)
        return turn.owner is task

    def _next(self, node: NodeName, turn: Turn[_Task]) -> None:
        while turn.free and turn.line:
            task = turn.line.popleft()
            if task.state is _State.IN_LINE:
                turn.owner = task
                self._ready(task, first=True)
        if turn.over:
            del self._turns[node]

    def _back_in_line(self, task: _Task, holder: tuple[str, str] | None, now: float, wall: float) -> None:
        """Another pod holds its node's lock: that pod's bind goes first if it waits here, and then this one."""
        bind = task.decision
        assert isinstance(bind, Bind)
        turn = self._turns[bind.node]
        turn.owner, turn.held, turn.holder = None, True, holder
        turn.line.appendleft(task)
        task.state = _State.IN_LINE
        self._expire(task, now, wall)
        self._to_holder(turn)

    def _to_holder(self, turn: Turn[_Task]) -> None:
        """Move the bind of the pod that holds the lock to the front: no other bind would release it."""
        first = next((t for t in turn.line if t.state is _State.IN_LINE and _holds(turn, t.decision)), None)
        if first is not None:
            turn.line.remove(first)
            self._ready(first, first=True)

    def _leave_line(self, task: _Task) -> None:
        bind = task.decision
        assert isinstance(bind, Bind)
        turn = self._turns[bind.node]
        turn.line.remove(task)
        if turn.over:
            del self._turns[bind.node]

    def _leave(self, task: _Task, *, bound: bool) -> None:
        """Its turn is over when its node's lock is gone."""
        bind = task.decision
        if not isinstance(bind, Bind) or (turn := self._turns.get(bind.node)) is None:
            return
        if turn.owner is task:
            turn.owner, turn.held = None, task.locked
            if turn.held and not bound:
                self._unlocks.append(bind)
        self._next(bind.node, turn)

    def _line_of(self, task: _Task) -> deque[_Task]:
        """Its queue while it is ready."""
        if task.call.waits_since:
            return self._volume_reads
        again = task.call.verb is Verb.EVICT and task.attempts
        return self._retries if again else self._lines[task.call.verb]

    def _end(self, task: _Task, *, bound: bool = False) -> Iterator[Decision]:
        """Take the task out; its decision and those that follow it are the caller's to answer."""
        task.state = _State.OVER
        self._not_put_off(task)
        del self._tasks[task.decision.id]
        lane = self._lanes[task.decision.pod_uid]
        lane.tasks.remove(task)
        if not lane.tasks:
            del self._lanes[task.decision.pod_uid]
        self._leave(task, bound=bound)
        return iter((task.decision, *task.followers))

    def _report(
        self,
        decision: Decision,
        outcome: BindOutcome,
        answer: Answer,
        wall: float,
        effects: list[Effect],
        *,
        blocked: bool = False,
    ) -> None:
        report = Outcome(
            decision=decision.id,
            claim=decision.claim,
            generation=decision.generation,
            job=decision.job,
            pod_uid=decision.pod_uid,
            outcome=outcome,
            node=answer.node,
            message=answer.message[:LONGEST_MESSAGE],
            blocked=blocked,
            grace_s=answer.grace_s,
            reason=decision.reason[:LONGEST_MESSAGE] if isinstance(decision, Evict) else "",
            at=wall,
            traceparent=decision.traceparent,
        )
        effects.append(Report(report, _kind(decision)))
        if outcome is BindOutcome.UNKNOWN:
            return
        self._settled[decision.id] = report
        word = self._last_word.get(decision.claim)
        if word is None or word[0] < _rank(decision):
            self._last_word[decision.claim] = (_rank(decision), decision.id)
            self._last_word.move_to_end(decision.claim)
        while len(self._settled) > self.limits.remembered:
            self._settled.popitem(last=False)
        while len(self._last_word) > self.limits.remembered:
            self._last_word.popitem(last=False)

    def _report_open(self, task: _Task, now: float, wall: float, effects: list[Effect]) -> None:
        """Report the state of a task that continues."""
        task.reported_at = now
        answer = Answer(Finding.UNCLEAR, task.message)
        for decision in (task.decision, *task.followers):
            self._report(decision, BindOutcome.UNKNOWN, answer, wall, effects, blocked=task.blocked)

    # --- time

    def _time(self, task: _Task, now: float) -> None:
        """From now on it is reported while it is open."""
        if not task.timed:
            task.timed = True
            self._timer(now + self.limits.patience_s, task, report=True)

    def _expire(self, task: _Task, now: float, wall: float) -> None:
        """Have it looked at when its deadline comes, in line or not."""
        if isinstance(task.decision, Bind) and task.decision.deadline > 0:
            self._timer(now + max(0.0, task.decision.deadline - wall), task, report=False)

    def _timer(self, due: float, task: _Task, *, report: bool) -> None:
        heapq.heappush(self._timers, (due, next(self._order), report, task))

    def _run_timers(self, now: float, wall: float, effects: list[Effect]) -> None:
        while self._timers and self._timers[0][0] <= now:
            _, _, report, task = heapq.heappop(self._timers)
            if task.state is _State.OVER:
                continue
            if report:
                due = now if task.reported_at is None else task.reported_at + self.limits.unknown_every_s
                if due <= now:
                    self._report_open(task, now, wall, effects)
                    due = now + self.limits.unknown_every_s
                self._timer(due, task, report=True)
            elif task.state is _State.PUT_OFF:
                self._ready(task)
            elif task.state is _State.IN_LINE and isinstance(task.decision, Bind) and 0 < task.decision.deadline <= wall:
                task.call = Call(Verb.FENCE, task.decision, then=BindOutcome.EXPIRED)
                task.message = task.message or "its deadline passed while others of its node were in allocation"
                self._leave_line(task)
                self._ready(task)
            elif task.state is _State.IN_LINE:  # the wall clock was set back since, be it by a microsecond
                self._expire(task, now + _PACE_S, wall)

    def _pace(self, until: float, now: float) -> None:
        until = max(until, now + _PACE_S)
        self._paced_until = until if self._paced_until is None else min(until, self._paced_until)

    def validate(self) -> None:
        """Assert what has to hold between any two steps."""
        for node, turn in self._turns.items():
            assert not turn.over, "a turn that is over is removed"
            assert not (turn.free and any(task.state is _State.IN_LINE for task in turn.line)), "no task waits for a free node"
            assert turn.owner is None or self._tasks[turn.owner.decision.id] is turn.owner
            assert all(task.decision.node == node for task in turn.line)  # type: ignore[union-attr]
        for node, put_off in self._put_off.items():
            assert put_off, "an empty entry is removed"
            assert all(task.state is _State.PUT_OFF and task.decision.node == node for task in put_off)  # type: ignore[union-attr]
        running = [task for task in self._tasks.values() if task.state is _State.RUNNING]
        assert len(running) == self.running <= self.limits.slots
        assert self._binding == sum(task.call.verb in BINDS for task in running)
        assert sum(len(lane.tasks) for lane in self._lanes.values()) == len(self._tasks)
        for uid, lane in self._lanes.items():
            assert lane.tasks, "an empty lane is removed"
            assert [t for t in lane.tasks if t.state is _State.RUNNING] == ([lane.running] if lane.running else [])
            for task in lane.tasks:
                assert task.decision.pod_uid == uid
                assert self._tasks[task.decision.id] is task
                assert task.state is not _State.OVER
                assert task.state is not _State.BLOCKED or lane.running is not None
                assert task.state is not _State.READY or task in self._line_of(task)
                assert task.decision.id not in self._settled
                assert task.epoch <= self.epoch
                assert task.state is not _State.IN_LINE or task in self._turns[task.decision.node].line  # type: ignore[union-attr]
                followed = [other for other in lane.tasks if other.decision.claim == task.decision.claim]
                assert all(
                    _rank(task.decision) >= _rank(other.decision) or task.state is _State.RUNNING for other in followed
                ), "no lower decision waits with a higher one"


def _kind(decision: Decision) -> EvictKind | None:
    return decision.kind if isinstance(decision, Evict) else None


def _holds(turn: Turn[_Task], decision: Decision) -> bool:
    """Whether the node's lock belongs to this decision's pod."""
    return turn.held and turn.holder == (decision.namespace, decision.pod)


def _first_call(decision: Decision) -> Call:
    if isinstance(decision, Bind):
        return Call(Verb.VOLUME, decision) if decision.volume_claims else _bind_call(decision)
    if decision.kind is EvictKind.REVOKE:
        return Call(Verb.FENCE, decision, then=BindOutcome.REVOKED)
    return Call(Verb.EVICT, decision)


def _bind_call(bind: Bind) -> Call:
    return Call(Verb.BIND, bind, resource_version=bind.resource_version)
