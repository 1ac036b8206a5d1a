"""Cycles over a saved cluster: what the scheduler would do with it, without any service.

One cycle is one session. Between two of them the world moves on as far as it must: those evicted are gone (and come back as new pending members
where asked), those bound hold their places, and promises are remembered as nominations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from hbox_common.model import VENDORS, JobId
from hbox_common.model.devices import DeviceLabel
from hbox_common.model.minruntime import OF_LATE_S, run_time_of

from ..actions.registry import run_actions
from ..cluster import Columns
from ..cluster.arrays import Bools
from ..cluster.entities import Gang, Member, Status
from ..cluster.snapshot import Cluster
from ..devices import usage_of_ranked
from ..explain.cards import CardReasons
from ..explain.labels import Label
from ..framework import GroupPhase, Placing, Session
from ..framework.conf import Conf
from ..framework.placing import DEVICES
from ..framework.views import Views
from ..framework.waiting import WaitReasons
from ..framework.webhooks import Ask, no_webhooks
from ..placement.ranks import Walk, arrange
from ..policy import policy_from
from ..policy.registry import plugins_of
from ..policy.uniform import in_the_way
from ..preemption.protection import path_of
from ..topology.known import KnownTree


@dataclass(frozen=True, slots=True)
class Bound:
    member: Member
    node: str
    devices: tuple[str, ...]  #: its cards, as their device plugins call them


@dataclass(frozen=True, slots=True)
class Evicted:
    member: Member
    node: str
    preemptor: str  #: gang id, "" where there is none
    reason: str


@dataclass(frozen=True, slots=True)
class Pending:
    """Why a member waits. `reasons`: label -> number of nodes. `cards`: where these are in its way, what they say one by one."""

    message: str
    reasons: Mapping[str, int]
    cards: CardReasons | None = None


@dataclass(slots=True)
class Report:
    """What came of all cycles."""

    bindings: list[Bound] = field(default_factory=list)
    evictions: list[Evicted] = field(default_factory=list)
    nominations: dict[str, str] = field(default_factory=dict)  #: member id -> node, as of the last cycle
    phases: dict[str, GroupPhase] = field(default_factory=dict)  #: gang id; its controller reports later that its pods run
    pending: dict[str, Pending] = field(default_factory=dict)  #: member id
    #: member id -> node -> label of the filter that fails it
    filters: dict[str, dict[str, str | None]] = field(default_factory=dict)
    scores: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)  #: member id -> plugin or "total" -> node
    domain_scores: dict[str, dict[str, float]] = field(default_factory=dict)  #: sub-gang -> HyperNode
    warnings: list[str] = field(default_factory=list)  #: what plugins passed over


@dataclass(frozen=True, slots=True)
class CycleOptions:
    """How many cycles, and what happens between them. Times in seconds."""

    cycles: int = 1
    requeue_evicted: bool = False
    explain: bool = False
    now: float = 0.0
    cycle_s: float = 1.0


def simulate(columns: Columns, cluster: Cluster, conf: Conf, options: CycleOptions, ask: Ask = no_webhooks) -> Report:
    """Run the cycles. `columns` has the nodes, and nothing booked: the members of `cluster` that hold places are booked here.

    `ask`: how plugins ask others. Raises InvalidRequest for a policy that contradicts itself.
    """
    for gang in cluster.gangs:
        for member in gang.members:
            _settle(columns, member)
    columns.zones.settle()
    report = Report()
    policy = policy_from(conf)
    views = None if in_the_way(conf) else Views(columns, policy)
    for task in (member.task for gang in cluster.gangs for member in gang.members):
        policy.learn(task, 1)
    known_tree = KnownTree(columns)
    known_tree.follow(cluster.facts.hypernodes)
    cooling: dict[JobId, float] = {}
    for number in range(options.cycles):
        known_tree.refresh()
        if cluster.lending is not None:
            cluster.lending.recount()
        session = Session(
            columns=columns,
            cluster=cluster,
            conf=conf,
            tiers=plugins_of(conf),
            now=options.now + number * options.cycle_s,
            ask=ask,
            learned=policy.learned,
            views=views,
            known_tree=known_tree,
        )
        if options.explain and number == 0:
            explain(session, report)
        run_actions(session)
        _arrange(session)
        _conclude(session, report)
        if number + 1 < options.cycles:
            _move_on(session, options, cooling)
    return report


def explain(session: Session, report: Report) -> None:
    """Filters and scores of every pending member in the cluster's present state."""
    placing, columns = Placing(session), session.columns
    names: dict[int, str] = {row: session.node(row) for row in session.rows.tolist()}
    for member in (m for gang in session.gangs for m in gang.of(Status.PENDING)):
        labels: dict[str, str | None] = dict.fromkeys(names.values())
        for label, fails in placing.failures(member, columns):
            for row in np.flatnonzero(fails).tolist():
                if row in names and labels[names[row]] is None:
                    labels[names[row]] = str(label)
        report.filters[member.id] = labels
        candidates: Bools = placing.allowed(member, columns)
        table = {plugin.name: dict.fromkeys(names.values(), 0.0) for plugin in session.scorers()}
        total = dict.fromkeys(names.values(), 0.0)
        for plugin, scores in session.scores(member, columns, candidates):
            for row, name in names.items():
                table[plugin.name][name] += float(scores[row])
                total[name] += float(scores[row])
        if (own := usage_of_ranked(columns, slice(0, columns.size), member.task)) is not None:
            table[DEVICES] = total = {name: float(own[row]) for row, name in names.items()}
        table["total"] = total
        report.scores[member.id] = table
    if session.topological or session.cluster.facts.hypernodes:
        _explain_domains(session, report)


def _explain_domains(session: Session, report: Report) -> None:
    """Scores of all HyperNodes for the gangs that wait and their sub-gangs, by `namespace/gang` and `namespace/gang/policy-values`; those of a gang that
    waits alone by "" as well."""
    waiting = [gang for gang in session.gangs if gang.count(Status.PENDING)]
    for gang in waiting:
        report.domain_scores[gang.id] = session.domain_scores(None, gang, session.tree.names)
        for sub_gang in gang.sub_gangs:
            if sub_gang.policy is not None:
                key = f"{gang.id}/{sub_gang.name.replace('/', '-')}"
                report.domain_scores[key] = session.domain_scores(sub_gang, gang, session.tree.names)
    if len(waiting) == 1:
        report.domain_scores[""] = report.domain_scores[waiting[0].id]


def _arrange(session: Session) -> None:
    """Ranks follow the fabric, as in the running service."""
    walk = Walk()
    walk.follow(session.cluster.facts.hypernodes)
    by_labels = any(member.constraints for gang in session.gangs for member in gang.members)
    for given in (session.outcome.bindings, session.outcome.nominations):
        by_gang: dict[Gang, list[Member]] = {}
        for member in given:
            by_gang.setdefault(member.gang, []).append(member)
        for members in by_gang.values():
            arrange(members, session.columns, walk, by_labels=by_labels)


def _conclude(session: Session, report: Report) -> None:
    columns = session.columns
    for member in session.outcome.bindings:
        state = columns.states[member.row]
        held = [(state.card(s.card, s.index), s) for s in member.slices] if state is not None else []
        devices = tuple(VENDORS.device_id(card, s) for card, s in held if card is not None)
        report.bindings.append(Bound(member, session.node(member.row), devices))
    for eviction in session.outcome.evictions:
        preemptor = eviction.preemptor.id if eviction.preemptor is not None else ""
        report.evictions.append(Evicted(eviction.member, session.node(eviction.row), preemptor, eviction.reason))
    for found in session.outcome.moves.values():
        if not found.refused:
            session.cluster.facts.recent_moves.note(found.gang, found.terms.pods_moved, session.now)
    report.warnings += [warning for warning in session.outcome.warnings if warning not in report.warnings]
    report.nominations = {}
    report.pending = {}
    bound = set(map(id, session.outcome.bindings))
    reasons = WaitReasons(session)
    for gang in session.gangs:
        report.phases[gang.id] = gang.phase
        for member in gang.members:
            if member.status is Status.PIPELINED or (member.status is Status.ALLOCATED and id(member) not in bound):
                report.nominations[member.id] = session.node(member.row)
            if member.status in (Status.PENDING, Status.PIPELINED, Status.ALLOCATED) and id(member) not in bound:
                cards = reasons.cards(member)
                waiting = reasons.of(member)
                nodes = _with_cards((waiting.reasons or reasons.nodes(member)).counts, cards)
                report.pending[member.id] = Pending(waiting.message, nodes, cards)


def _with_cards(nodes: Mapping[str, int], cards: CardReasons | None) -> Mapping[str, int]:
    """The reasons, with how many nodes have a card with each of HAMi's labels (sources: hami-labels) in place of the one that decides for each node."""
    if cards is None:
        return nodes
    counts = {label: count for label, count in nodes.items() if label not in _DEVICE_LABELS or label in _BOUNDS}
    for label, count in cards.on.items():
        if label not in _BOUNDS:
            counts[label] = counts.get(label, 0) + count
    return counts


_DEVICE_LABELS = frozenset(map(str, DeviceLabel))
#: Labels that no card has.
_BOUNDS = (Label.CARD_QUOTA, Label.QUEUE_MODEL)
_PLACED = (Status.ALLOCATED, Status.BOUND, Status.RUNNING)


def _settle(columns: Columns, member: Member) -> None:
    """Book what a member holds, and what will go."""
    if member.row < 0 or member.status not in (*_PLACED, Status.RELEASING):
        return
    columns.book(member.row, member.task.requests, member.slices, aligned=member.task.aligned)
    if member.status is Status.RELEASING:
        columns.depart(member.row, member.task.requests, member.slices, aligned=member.task.aligned, pod=member.id)


def _move_on(session: Session, options: CycleOptions, cooling: dict[JobId, float]) -> None:
    """Between two cycles: outcomes take effect, what was promised or tried and not committed is as before. cooling: when jobs were evicted last."""
    columns = session.columns
    bound = set(map(id, session.outcome.bindings))
    evicted = {id(eviction.member) for eviction in session.outcome.evictions}
    for eviction in session.outcome.evictions:
        cooling[eviction.member.gang.id] = session.now
    moved = {
        id(eviction.member): eviction for eviction in session.outcome.evictions if eviction.member.status is Status.PIPELINED
    }
    for gang in session.gangs:
        for member in gang.members:
            match member.status:
                case Status.ALLOCATED if id(member) in bound:
                    member.status = Status.RUNNING
                    member.nominated = None
                    member.started_at = session.now
                    of_late = session.now - cooling.get(gang.id, float("-inf")) <= OF_LATE_S
                    run_time = run_time_of(queue.annotations for queue in path_of(session, gang.queue))
                    member.protected_until = run_time.protected_until(session.now, evicted=of_late)
                case Status.ALLOCATED:
                    columns.book(member.row, member.task.requests, member.slices, -1, aligned=member.task.aligned)
                    _reset(member)
                case Status.PIPELINED:
                    columns.depart(member.row, member.task.requests, member.slices, aligned=member.task.aligned, pod=member.id)
                    if (left := moved.get(id(member))) is not None:
                        columns.book(left.row, member.task.requests, left.slices, -1, aligned=member.task.aligned)
                        columns.depart(
                            left.row, member.task.requests, left.slices, -1, aligned=member.task.aligned, pod=member.id
                        )
                    member.nominated = session.node(member.row)
                    _reset(member)
                    if left is not None and not options.requeue_evicted:
                        member.status = Status.FAILED
                case Status.RELEASING:
                    if member.row >= 0:
                        columns.book(member.row, member.task.requests, member.slices, -1, aligned=member.task.aligned)
                        columns.depart(
                            member.row, member.task.requests, member.slices, -1, aligned=member.task.aligned, pod=member.id
                        )
                    _reset(member)
                    if not (options.requeue_evicted and id(member) in evicted):
                        member.status = Status.FAILED
        gang.tally()
        if gang.phase is GroupPhase.RUNNING and gang.count(*_PLACED) < gang.min_member:
            gang.phase = GroupPhase.INQUEUE


def _reset(member: Member) -> None:
    member.status, member.row, member.slices = Status.PENDING, -1, ()
