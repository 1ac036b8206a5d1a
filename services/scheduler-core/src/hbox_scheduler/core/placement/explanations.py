"""The explanation of one pending job, in a session in which it was tried alone.

Nodes are judged before any of the gang's own pods is placed.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hbox_common.model import VENDORS, PodUid, QueueName
from hbox_common.model.explanation import Fact, NodeCounts, Outcome, Stage, StageResult
from hbox_common.model.resources import CPU, MEMORY
from hbox_common.reasons import CODES, code_of_message

from ..cluster import Bookings
from ..cluster.arrays import Bools, Ints
from ..cluster.columns import CONDITION_TAINTS
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
    RESOURCE_ABSENT,
    RESOURCE_QUOTA_TOO_SMALL,
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
from ..plugins.taints import HARD, untolerated
from ..queueing.jobs import Entry
from ..topology.constraints import constraint_of
from .emptycluster import Alone
from .emptyroom import keepers as keepers_of
from .headlines import Wants, domains, exceeded_limit, free_cards, lack_of


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


def without_session(
    entry: Entry,
    headline: Headline,
    why: str,
    queues: Iterable[QueueName] = (),
    shortage: tuple[str, str, int, int] | None = None,
) -> Explained:
    """Of a job that is not tried, for the reason `why`. `queues`: those that exist; `shortage`: as of `ClassQuotas`."""
    job = entry.job
    detail = why.partition(": ")[2] if code_of_message(why) is not None else why
    found = Facts({"queue": job.queue, "namespace": job.namespace, "group": job.name, "detail": detail, "pods": job.min_member})
    there = job.bound + entry.held + sum(len(pods) for _, pods in entry.pending)
    found.facts["count"] = there
    if headline.code == Label.QUEUE_NOT_FOUND and (near := nearest(job.queue, queues)):
        found.facts["nearest"] = near
    if headline.code == Label.QUEUE_PRIORITY_CLASS:
        found.facts["name"] = job.priority_class
    if headline.code == RESOURCE_QUOTA_TOO_SMALL and shortage is not None:
        found.facts["name"], resource, need, most = shortage
        found.limit(resource, need, most)
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
        self,
        session: Session,
        member: Member,
        before: Judged,
        bookings: Bookings,
        *,
        wants: Wants,
        rooms: Sequence[NodeRooms],
    ) -> None:
        """`rooms`: of each shape of `wants`."""
        self._session, self._columns = session, session.columns
        self._gang, self._wants = member.gang, wants
        kinds = zip(self._wants.kinds, rooms, strict=True)
        #: of the first shape that no node would hold
        self._lack = next((lack_of(session, one) for (one, _), room in kinds if not room.ever.any()), None)
        self._member = member if self._lack is None else self._lack.member
        self._task = self._member.task
        self._before, self._bookings, self._rooms = before, bookings, rooms
        self._alive = self._columns.alive[: self._columns.size]

    def explained(self, headline: Headline, waiting: WaitReason, alone: Alone) -> Explained:
        """With the facts of the headline's code. `alone`: as of `Headlines.alone`."""
        found = self._facts(headline.code, waiting)
        if alone.never is not None and alone.never.code == headline.code:
            found.facts |= alone.never.found.facts
            found.need, found.have = dict(alone.never.found.need), dict(alone.never.found.have)
        elif not alone.in_service and headline.code == NODES_OUT_OF_SERVICE:
            found.amount("pods", self._wants.pods, float(min(alone.fitting, self._wants.pods - 1)))
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
        failing = self._rows(code)
        found.facts["count"] = int(np.count_nonzero(failing))
        if 0 < int(np.count_nonzero(failing)) <= 20:
            found.facts["nodes"] = sorted(self._columns.names[row] for row in np.flatnonzero(failing).tolist())
        fill = self._FILL.get(code)
        if fill is not None:
            fill(self, found)
        return found

    def _rows(self, *labels: str) -> Bools:
        """`[N]`: nodes of which statements about these labels are true: those of the lack if there is one, else those whose first rule has such a label."""
        lack = self._lack
        return lack.rows if lack is not None and lack.code in labels else self._before.rows(*labels) & self._alive

    def _among(self, found: Facts, rows: Bools, of: Bools) -> None:
        """With the number of nodes that a statement is about, if these are not all of `of`."""
        count = int(np.count_nonzero(rows & of))
        if count and count < int(np.count_nonzero(of)):
            found.facts["among"] = count

    # By code.

    def _gang_facts(self, found: Facts) -> None:
        fit = self._session.outcome.fitting.get(self._gang.id)
        if fit is None:
            placing, member = Placing(self._session), self._member
            fit = int(placing.capacity(member, self._columns)[placing.allowed(member, self._columns)].sum())
        pods = self._wants.pods
        found.facts |= {"pods": pods, "fit": min(fit, pods - 1), "most": self._most()}

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
        placing, columns = Placing(self._session), self._columns
        members = [one for one, _ in self._wants.kinds]
        self._topology(found, [np.where(placing.allowed(one, columns), placing.capacity(one, columns), 0) for one in members])

    def _topology_ever(self, found: Facts) -> None:
        self._topology(found, [room.ever for room in self._rooms])

    def _topology(self, found: Facts, rooms: Sequence[Ints]) -> None:
        """`rooms`: of each shape. Of the first shape for which no domain has room; the domains may lack room for the shapes together only."""
        tree = self._session.tree
        constraint, allowed = constraint_of(tree, self._gang), domains(self._session, self._wants)
        if constraint is None or allowed is None or not len(allowed):
            return
        found.facts["tier"] = constraint.ceiling
        for room, (_, count) in zip(rooms, self._wants.kinds, strict=True):
            sums = tree.sums(room)[allowed]
            if (most := int(sums.max())) < count:
                found.facts |= {"pods": count, "domain": tree.names[int(allowed[sums.argmax()])], "room": most}
                found.amount("pods", count, float(most))
                return

    def _in_use(self, found: Facts) -> None:
        request, columns = self._task.cards, self._columns
        assert request is not None
        free = free_cards(columns, self._task)
        could = self._rooms[0].in_service > 0
        short = could & (free < request.count)
        short = short if short.any() else could
        cards = columns.card_ok[: columns.size] & short[:, None]
        if request.models:
            cards = cards & columns.models_allowed(request.models)[columns.card_model[: columns.size]]
        spare = int(free[short].sum())
        found.facts |= {
            "total": int(cards.sum()),
            "queues": card_holders(self._bookings.all().values(), short, columns),
            "free": spare,
            "largest": int(free[short].max(initial=0)),
        }
        if spare:
            found.facts["spare"] = spare
        self._among(found, short, could)
        found.amount("cards", request.count * self._wants.pods, float(spare))

    def _spread(self, found: Facts) -> None:
        self._in_use(found)
        assert self._task.cards is not None
        found.have.clear()
        found.need.clear()
        largest = found.facts["largest"]
        found.amount("cards", self._task.cards.count, float(largest) if isinstance(largest, int | float) else 0.0)

    def _cards_of_kind(self, rows: Bools) -> Bools:
        """`[N, D]`: cards of these nodes, of the vendor that the pod requests."""
        size = self._columns.size
        cards = (self._columns.card_index[:size] >= 0) & rows[:, None]
        if (vendor := VENDORS.of(self._task.requests)) is not None:
            cards = cards & (self._columns.allocatable[self._columns.resource(vendor.cards), :size] > 0)[:, None]
        return np.asarray(cards)

    def _device(self, found: Facts) -> None:
        """The most cards of the kind that one of the nodes has."""
        assert self._task.cards is not None
        rows = self._rows(str(Label.DEVICE_INSUFFICIENT))
        largest = int(self._cards_of_kind(rows).sum(axis=1).max(initial=0))
        found.facts["largest"] = largest
        self._among(found, rows, self._alive)
        found.amount("cards", self._task.cards.count, largest)

    def _model(self, found: Facts) -> None:
        assert self._task.cards is not None
        rows = self._rows(str(Label.CARD_TYPE_MISMATCH))
        model_facts(self._columns, rows, self._task.cards, found)
        self._among(found, rows, self._alive)

    def _memory(self, found: Facts) -> None:
        request, columns = self._task.cards, self._columns
        assert request is not None
        rows, size = self._rows(CARD_MEMORY_TOO_LARGE, str(Label.CARD_INSUFFICIENT_MEMORY)), columns.size
        cards = self._cards_of_kind(rows)
        if request.models:
            cards = cards & columns.models_allowed(request.models)[columns.card_model[:size]]
        memory, pods = columns.card_memory[:size], columns.card_pods[:size]
        usable = cards & columns.card_ok[:size] & ((pods == 0) | (pods < columns.card_shares[:size]))
        largest = int(memory[cards].max(initial=0))
        free = int((memory - columns.card_memory_used[:size])[usable].max(initial=0))
        need = request.memory_mib or largest * request.memory_percent // 100
        found.facts |= {"need_mib": need, "largest_mib": largest, "free_mib": free}
        self._among(found, rows, self._alive)
        found.amount("card_memory_mib", need, largest if self._lack is not None else free)

    def _selector(self, found: Facts) -> None:
        rows = self._rows(str(Label.NODE_SELECTOR_MISMATCH))
        selector_facts(self._columns, rows, self._task, found)
        self._among(found, rows, self._alive)

    def _taints(self, found: Facts) -> None:
        rows = np.flatnonzero(self._rows(str(Label.UNTOLERATED_TAINT))).tolist()
        states = [state for row in rows[:20] if (state := self._columns.states[row]) is not None]
        texts = dict.fromkeys(
            f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
            for state in states
            for taint in untolerated(state.taints, self._task.tolerations, HARD)
            if taint.key not in CONDITION_TAINTS
        )
        found.facts["detail"] = ", ".join(texts)

    def _resource(self, found: Facts) -> None:
        labels = [label for label in self._before.labels if label.startswith("Insufficient ")]
        counted = [(int(np.count_nonzero(self._before.rows(label) & self._alive)), label) for label in labels]
        if not counted:
            return
        count, label = max(counted)
        found.facts["count"] = count
        resource_facts(self._columns, self._task, label, self._before.rows(label) & self._alive, found, empty=False)

    def _resource_absent(self, found: Facts) -> None:
        """The resource, and resources of nodes with similar names."""
        assert self._lack is not None
        resource = self._lack.absent
        offered = sorted({name for state in self._columns.states if state is not None for name in state.allocatable})
        found.facts["resource"] = resource
        found.facts["known"] = [name for name in offered if name.partition("/")[0] == resource.partition("/")[0]][:20]
        if near := nearest(resource, offered):
            found.facts["nearest"] = near
        need = self._task.requests.get(resource, 0)
        found.amount("cards" if resource in VENDORS else resource, need, 0.0)

    def _resource_ever(self, found: Facts) -> None:
        if self._lack is None:
            return
        resource_facts(self._columns, self._task, self._lack.label, self._lack.rows, found, empty=True)
        self._among(found, self._lack.rows, self._alive)
        resource = self._lack.label.removeprefix("Insufficient ")
        if resource in (CPU, MEMORY) and (lent := self._most_lent(resource)) is not None:
            unit, need = "memory_mib" if resource == MEMORY else resource, amount_of(resource, self._task.requests[resource])
            found.facts["lent"] = amount_of(resource, lent)
            found.amount(unit, need, amount_of(resource, lent))

    def _out_of_service(self, found: Facts) -> None:
        """Nodes that would hold pods of the job and are out of service, and how many of them it takes: of the first shape that lacks room."""
        kinds = [(count, room) for (_, count), room in zip(self._wants.kinds, self._rooms, strict=True)]
        everywhere = np.ones(self._columns.size, dtype=np.bool_)
        lacking = [(count, room, everywhere) for count, room in kinds if int(room.in_service.sum()) < count]
        lacking = lacking or [(count, room, self._nearest_domain(count, room)) for count, room in kinds]
        count, room, rows = lacking[0]
        gain = np.where(rows, room.ever - room.in_service, 0)
        order = sorted(np.flatnonzero(gain > 0).tolist(), key=lambda row: (-int(gain[row]), self._columns.names[row]))
        order = order or self._out()
        there = int(room.in_service[rows].sum())
        missing, short = count - there, 0
        for row in order:
            if missing <= 0:
                break
            missing -= int(gain[row])
            short += 1
        names = sorted(order[:20], key=lambda row: self._columns.names[row])
        found.facts |= {"short": max(short, 1), "nodes": [condition(self._columns, row) for row in names], "count": len(order)}
        found.amount("pods", count, float(min(there, count)))

    def _out(self) -> list[int]:
        """Rows of nodes that are out of service, or have cards that are, by name."""
        columns, size = self._columns, self._columns.size
        faulty = ((columns.card_index[:size] >= 0) & ~columns.card_ok[:size]).any(axis=1)
        out = self._alive & (faulty | ~(columns.ready & columns.schedulable & columns.healthy)[:size])
        return sorted(np.flatnonzero(out).tolist(), key=columns.names.__getitem__)

    def _nearest_domain(self, count: int, room: NodeRooms) -> Bools:
        """`[N]`: nodes of the domain that lacks the fewest pods, of those that would hold all; all nodes if the gang may be in any domain."""
        tree, allowed = self._session.tree, domains(self._session, self._wants)
        if allowed is not None:
            allowed = allowed[tree.sums(room.ever)[allowed] >= count]
        if allowed is None or not len(allowed):
            return np.ones(self._columns.size, dtype=np.bool_)
        return tree.mask(int(allowed[tree.sums(room.in_service)[allowed].argmax()]))

    def _queue_missing(self, found: Facts) -> None:
        known = sorted(self._session.queues)
        found.facts["known"] = known[:20]
        if near := nearest(self._gang.queue, known):
            found.facts["nearest"] = near

    def _limit(self, found: Facts) -> None:
        if (over := exceeded_limit(self._session, self._wants)) is None:
            return
        found.facts["queue"], resource, need, most = over
        found.limit(resource, need, most)

    def _kept(self, found: Facts) -> None:
        """What a pod without cards may have of a node whose cards are idle."""
        if self._lack is None:
            return
        for resource in (CPU, MEMORY):
            need, most = self._task.requests.get(resource, 0), self._most_lent(resource)
            if most is not None and most < need:
                asked, largest = amount_of(resource, need), amount_of(resource, most)
                name = "MiB of memory" if resource == MEMORY else resource
                found.facts |= {"resource": name, "need": asked, "largest": largest}
                found.amount("memory_mib" if resource == MEMORY else resource, asked, largest)
                return

    def _most_lent(self, resource: str) -> int | None:
        """The most of a resource that idle cards leave of a node to a pod without cards; None = no limit."""
        lack, task = self._lack, self._task
        assert lack is not None
        empty, rows = self._columns.emptied(), slice(0, self._columns.size)
        keepers, most = keepers_of(self._session, task), int(empty.allocatable[empty.resource(resource), rows].max(initial=0))

        def fits(units: int) -> bool:
            part = replace(task, requests={resource: units}, aligned=None)
            return all((keeper.shape_room(empty, rows, part)[lack.rows] > 0).any() for keeper in keepers)

        if not keepers or not task.requests.get(resource, 0) or fits(most):
            return None
        return bisect_left(range(1, most), True, key=lambda units: not fits(units))

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
        RESOURCE_ABSENT: _resource_absent,
        NODES_OUT_OF_SERVICE: _out_of_service,
        str(Label.QUEUE_NOT_FOUND): _queue_missing,
        QUEUE_LIMIT_TOO_SMALL: _limit,
        str(Label.PROPORTION_KEPT): _kept,
    }
