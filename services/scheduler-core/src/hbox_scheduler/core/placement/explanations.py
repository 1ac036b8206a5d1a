"""The explanation of one pending job, in a session in which it was tried alone.

Nodes are judged before any of the gang's own pods is placed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hbox_common.model import VENDORS, PodUid, QueueName
from hbox_common.model.explanation import Fact, NodeCounts, Outcome, Stage, StageResult
from hbox_common.reasons import CODES, code_of_message

from ..cluster import Bookings
from ..cluster.arrays import Bools, Ints
from ..cluster.entities import Member
from ..explain.facts import (
    Facts,
    amount_of,
    card_holders,
    condition,
    model_facts,
    node_counts,
    resource_facts,
    selector_facts,
)
from ..explain.labels import Label
from ..explain.names import nearest
from ..explain.outcomes import (
    CARD_MEMORY_TOO_LARGE,
    CARDS_RECLAIMED,
    CARDS_SPREAD,
    GANG_GATHERS,
    GANG_PARTLY_FITS,
    GANG_TOO_LARGE,
    INSUFFICIENT_RESOURCE,
    NODES_OUT_OF_SERVICE,
    QUEUE_LIMIT_TOO_SMALL,
    RESOURCE_TOO_LARGE,
    TOPOLOGY_FULL,
    TOPOLOGY_TOO_SMALL,
    Headline,
    headline_of,
    judged,
)
from ..explain.reasons import first_failed
from ..framework import Session
from ..framework.placing import Placing
from ..framework.waiting import WaitReason
from ..queueing.jobs import Entry
from ..topology.constraints import constraint_of
from .emptyroom import chosen_rows, lasting_rules
from .headlines import domains, exceeded_limit, free_cards, wants_of


@dataclass(frozen=True, slots=True)
class Explained:
    """What a session finds out about a job."""

    headline: Headline
    facts: Facts
    stages: Sequence[StageResult]
    nodes: NodeCounts


@dataclass(frozen=True, slots=True)
class NodeRooms:
    """As of `rooms_by_node`."""

    ever: Ints
    in_service: Ints


@dataclass(frozen=True, slots=True)
class Judged:
    """All nodes, before the job was tried. `first`, `failed`: `[N]`, as of `first_failed`."""

    first: Ints
    failed: Ints
    labels: Sequence[str]

    def rows(self, *labels: str) -> Bools:
        """`[N]`: nodes whose first rule has one of these labels."""
        numbers = [number for number, label in enumerate(self.labels) if label in labels]
        return np.isin(self.first, numbers)


def without_session(entry: Entry, headline: Headline, why: str, queues: Iterable[QueueName] = ()) -> Explained:
    """Of a job that is not tried, for the reason `why`. `queues`: those that exist."""
    job = entry.job
    detail = why.partition(": ")[2] if code_of_message(why) is not None else why
    found = Facts({"queue": job.queue, "namespace": job.namespace, "group": job.name, "detail": detail, "pods": job.min_member})
    there = job.bound + entry.held + sum(len(pods) for _, pods in entry.pending)
    found.facts["count"] = there
    if headline.code == Label.QUEUE_NOT_FOUND and (near := nearest(job.queue, queues)):
        found.facts["nearest"] = near
    if headline.code == Label.QUEUE_PRIORITY_CLASS:
        found.facts["name"] = job.priority_class
    return Explained(headline, found, _passed(headline, found), NodeCounts())


def reclaiming(entry: Entry, leaving: Iterable[PodUid], bookings: Bookings) -> Explained:
    """Of a job for which these pods leave."""
    headline = judged(CARDS_RECLAIMED, Outcome.WAIT)
    victims = [booking for pod in leaving if (booking := bookings.get(pod)) is not None]
    cards = sum(
        task.cards.count * len(pods)
        for task, pods in zip(entry.tasks, (spec.pods for spec in entry.job.tasks), strict=True)
        if task.cards
    )
    found = Facts({"cards": cards, "by": ", ".join(sorted({victim.queue for victim in victims})), "count": len(victims)})
    return Explained(headline, found, _passed(headline, found), NodeCounts())


def _passed(headline: Headline, found: Facts) -> list[StageResult]:
    """The stages of the specification and of holds before the headline's, and this one."""
    last = CODES[headline.code].stage if headline.code in CODES else Stage.SPEC
    before = [StageResult(stage) for stage in (Stage.SPEC, Stage.HOLD) if list(Stage).index(stage) < list(Stage).index(last)]
    return [*before, StageResult(last, headline.code, found.facts)]


def judge(session: Session, member: Member) -> Judged:
    """All nodes for this member."""
    return Judged(*first_failed(Placing(session).failures(member, session.columns), session.columns.size))


def failed_rules(session: Session, member: Member, row: int) -> list[str]:
    """Labels of all rules that one node fails, in the order in which reasons are given."""
    columns = session.columns
    return list(dict.fromkeys(str(label) for label, fails in Placing(session).failures(member, columns) if fails[row]))


class Explainer:
    """Facts of one job in one session."""

    def __init__(
        self, session: Session, member: Member, before: Judged, bookings: Bookings, rooms: Sequence[NodeRooms]
    ) -> None:
        """`rooms`: of each shape of `wants`."""
        self._session, self._columns = session, session.columns
        self._member, self._gang, self._task = member, member.gang, member.task
        self._wants = wants_of(member.gang, member)
        self._before, self._bookings, self._rooms = before, bookings, rooms
        self._alive = self._columns.alive[: self._columns.size]

    def explained(self, headline: Headline, waiting: WaitReason) -> Explained:
        """With the facts of the headline's code."""
        found = self._facts(headline.code, waiting)
        columns, before = self._columns, self._before
        counts = node_counts(columns, before.first, before.failed, before.labels)
        return Explained(headline, found, self._stages(headline, found.facts), counts)

    def _stages(self, headline: Headline, facts: Mapping[str, Fact]) -> list[StageResult]:
        """Those that the job passed, and the one that it did not."""
        last = CODES[headline.code].stage if headline.code in CODES else Stage.NODE
        stages: list[StageResult] = []
        for stage in Stage:
            if stage is last:
                stages.append(StageResult(stage, headline.code, dict(facts)))
                break
            if stage is Stage.QUOTA and (why := self._session.withheld_reason([self._member])):
                withheld = headline_of(why)
                stages.append(StageResult(stage, withheld.code if withheld else why, self._general(why)))
            elif stage in (Stage.SPEC, Stage.HOLD, Stage.QUOTA) or (stage is Stage.NODE and self._fits_by_node()):
                stages.append(StageResult(stage))
        return stages

    def _fits_by_node(self) -> bool:
        """Whether a node fails nothing but rules of cards."""
        return bool((self._alive & (self._before.first < 0)).any() or self._rooms[0].in_service.any())

    def _general(self, message: str) -> dict[str, Fact]:
        code = code_of_message(message)
        detail = message.partition(": ")[2] if code is not None else message
        gang = self._gang
        return {
            "queue": gang.queue,
            "namespace": gang.namespace,
            "group": gang.name,
            "detail": detail,
            "pods": self._wants.pods,
        }

    def _facts(self, code: str, waiting: WaitReason) -> Facts:
        found = Facts(self._general(waiting.message))
        request = self._task.cards
        if request is not None:
            found.facts["cards"] = request.count
        failing = self._before.rows(code)
        found.facts["count"] = int(np.count_nonzero(failing & self._alive))
        if 0 < int(np.count_nonzero(failing)) <= 20:
            found.facts["nodes"] = sorted(self._columns.names[row] for row in np.flatnonzero(failing).tolist())
        fill = self._FILL.get(code)
        if fill is not None:
            fill(self, found)
        return found

    # By code.

    def _gang_facts(self, found: Facts) -> None:
        fit = self._session.outcome.fitting.get(self._gang.id)
        if fit is None:
            placing, member = Placing(self._session), self._member
            fit = int(placing.capacity(member, self._columns)[placing.allowed(member, self._columns)].sum())
        pods = self._wants.pods
        found.facts |= {"pods": pods, "fit": min(fit, pods), "most": self._most()}

    def _too_large(self, found: Facts) -> None:
        self._gang_facts(found)
        found.amount("pods", self._wants.pods, float(self._most()))

    def _partly(self, found: Facts) -> None:
        self._gang_facts(found)
        fit = found.facts["fit"]
        found.amount("pods", self._wants.pods, float(fit) if isinstance(fit, int | float) else 0.0)

    def _most(self) -> int:
        return sum(min(int(room.ever.sum()), count) for room, (_, count) in zip(self._rooms, self._wants.kinds, strict=True))

    def _topology_now(self, found: Facts) -> None:
        placing = Placing(self._session)
        allowed = placing.allowed(self._member, self._columns)
        self._topology(found, np.where(allowed, placing.capacity(self._member, self._columns), 0))

    def _topology_ever(self, found: Facts) -> None:
        self._topology(found, self._rooms[0].ever)

    def _topology(self, found: Facts, room: Ints) -> None:
        tree = self._session.tree
        constraint, allowed = constraint_of(tree, self._gang), domains(self._session, self._wants)
        if constraint is None or allowed is None or not len(allowed):
            return
        sums = tree.sums(room)[allowed]
        best = int(allowed[sums.argmax()])
        found.facts |= {"tier": constraint.ceiling, "domain": tree.names[best], "room": int(sums.max())}
        found.amount("pods", self._wants.pods, float(sums.max()))

    def _in_use(self, found: Facts) -> None:
        request = self._task.cards
        assert request is not None
        could = self._rooms[0].ever > 0
        queues = card_holders(self._bookings.all().values(), could, self._columns)
        free = free_cards(self._columns, self._task)
        cards = self._columns.card_ok[: self._columns.size] & could[:, None]
        if request.models:
            cards = cards & self._columns.models_allowed(request.models)[self._columns.card_model[: self._columns.size]]
        most = int(free[could].max(initial=0))
        found.facts |= {"total": int(cards.sum()), "queues": queues, "free": int(free[could].sum()), "largest": most}
        found.amount("cards", request.count * self._wants.pods, float(free[could].sum()))

    def _spread(self, found: Facts) -> None:
        self._in_use(found)
        assert self._task.cards is not None
        found.have.clear()
        found.need.clear()
        largest = found.facts["largest"]
        found.amount("cards", self._task.cards.count, float(largest) if isinstance(largest, int | float) else 0.0)

    def _device(self, found: Facts) -> None:
        """The most cards of the kind that one of the nodes has that the pod chooses."""
        assert self._task.cards is not None
        vendor = VENDORS.of(self._task.requests)
        there = self._columns.card_index[: self._columns.size] >= 0
        counts = np.where(chosen_rows(lasting_rules(self._session, self._member)[0], self._columns), there.sum(axis=1), 0)
        if vendor is not None:
            has = self._columns.allocatable[self._columns.resource(vendor.cards), : self._columns.size] > 0
            counts = np.where(has, counts, 0)
        largest = int(counts.max(initial=0))
        found.facts["largest"] = largest
        found.amount("cards", self._task.cards.count, largest)

    def _model(self, found: Facts) -> None:
        assert self._task.cards is not None
        model_facts(self._columns, self._task.cards, found)

    def _memory(self, found: Facts) -> None:
        request = self._task.cards
        assert request is not None
        rows = slice(0, self._columns.size)
        cards = (self._columns.card_index[rows] >= 0) & self._alive[:, None]
        memory = self._columns.card_memory[rows]
        largest = int(memory[cards].max(initial=0))
        free = int((memory - self._columns.card_memory_used[rows])[cards].max(initial=0))
        need = request.memory_mib or largest * request.memory_percent // 100
        found.facts |= {"need_mib": need, "largest_mib": largest, "free_mib": free}
        ever = self._rooms[0].ever.any()
        found.amount("card_memory_mib", need, free if ever else largest)

    def _selector(self, found: Facts) -> None:
        selector_facts(self._columns, self._task, found)

    def _taints(self, found: Facts) -> None:
        rows = np.flatnonzero(self._before.rows(Label.UNTOLERATED_TAINT)).tolist()
        states = [state for row in rows[:20] if (state := self._columns.states[row]) is not None]
        texts = dict.fromkeys(
            f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
            for state in states
            for taint in state.taints
        )
        found.facts["detail"] = ", ".join(texts)

    def _resource(self, found: Facts) -> None:
        self._resource_of(found, empty=False)

    def _resource_ever(self, found: Facts) -> None:
        self._resource_of(found, empty=True)

    def _resource_of(self, found: Facts, *, empty: bool) -> None:
        labels = [label for label in self._before.labels if label.startswith("Insufficient ")]
        counted = [(int(np.count_nonzero(self._before.rows(label) & self._alive)), label) for label in labels]
        if not counted:
            return
        count, label = max(counted)
        found.facts["count"] = count
        rows = self._alive if empty else self._before.rows(label) & self._alive
        resource_facts(self._columns, self._task, label, rows, found, empty=empty)

    def _out_of_service(self, found: Facts) -> None:
        """Nodes that would hold pods of the job and are out of service, and how many of them it takes."""
        (_, count), room = self._wants.kinds[0], self._rooms[0]
        gain = room.ever - room.in_service
        rows = np.flatnonzero(gain > 0)
        order = sorted(rows.tolist(), key=lambda row: (-int(gain[row]), self._columns.names[row]))
        missing, short = count - int(room.in_service.sum()), 0
        for row in order:
            if missing <= 0:
                break
            missing -= int(gain[row])
            short += 1
        names = sorted(order[:20], key=lambda row: self._columns.names[row])
        found.facts |= {"short": max(short, 1), "nodes": [condition(self._columns, row) for row in names], "count": len(order)}
        found.amount("pods", self._wants.pods, float(min(int(room.in_service.sum()), count)))

    def _queue_missing(self, found: Facts) -> None:
        known = sorted(self._session.queues)
        found.facts["known"] = known[:20]
        if near := nearest(self._gang.queue, known):
            found.facts["nearest"] = near

    def _limit(self, found: Facts) -> None:
        if (over := exceeded_limit(self._session, self._wants)) is None:
            return
        name, resource, need, most = over
        found.facts |= {
            "queue": name,
            "need": f"{amount_of(resource, need):g} {resource}",
            "largest": f"{amount_of(resource, most):g} {resource}",
        }
        found.amount("cards" if resource in VENDORS else resource, amount_of(resource, need), amount_of(resource, most))

    _FILL: Mapping[str, Callable[["Explainer", Facts], None]] = {
        GANG_TOO_LARGE: _too_large,
        GANG_PARTLY_FITS: _partly,
        GANG_GATHERS: _gang_facts,
        TOPOLOGY_FULL: _topology_now,
        TOPOLOGY_TOO_SMALL: _topology_ever,
        str(Label.CARDS_IN_USE): _in_use,
        CARDS_SPREAD: _spread,
        str(Label.DEVICE_INSUFFICIENT): _device,
        str(Label.CARD_TYPE_MISMATCH): _model,
        CARD_MEMORY_TOO_LARGE: _memory,
        str(Label.CARD_INSUFFICIENT_MEMORY): _memory,
        str(Label.NODE_SELECTOR_MISMATCH): _selector,
        str(Label.UNTOLERATED_TAINT): _taints,
        INSUFFICIENT_RESOURCE: _resource,
        RESOURCE_TOO_LARGE: _resource_ever,
        NODES_OUT_OF_SERVICE: _out_of_service,
        str(Label.QUEUE_NOT_FOUND): _queue_missing,
        QUEUE_LIMIT_TOO_SMALL: _limit,
    }
