"""consolidate: move running pods off fragmented nodes so that a pending gang fits (KAI-Scheduler; sources: kai-actions).

Each moved pod is nominated to another node in the same statement; its successor is placed there. A move loses work, so pods move only if the gang gains more
(`hbox_common.model.consolidation`, ADR 41). The action does not move pods of higher priority than the gang, pods that a plugin protects (conformance, pdb, cdp,
...), members of gangs that are bound to a domain of the fabric, nor pods with cards for a gang without cards.

Arguments in `configurations`: mode (on; preview: report moves without executing them; off); horizon (1h: maximum time for which the gang's gain counts);
restart (2m: loss of each moved pod besides its work); maxMovedPods (16 for one gang) and maxMovesPerHour (100 pods); 0 = none, -1 = unlimited.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.errors import InvalidRequest
from hbox_common.model import CardSlice
from hbox_common.model.consolidation import ANY, LONGEST_GAIN_S, Mode, MoveTerms, card_seconds_lost, gain_seconds, too_many
from hbox_common.model.rights import may_move

from ..cluster.entities import HOLDING, Gang, Member
from ..cluster.moves import IN_PREVIEW, FoundMove, FoundMoves
from ..devices import ALL
from ..framework.statement import OperationKind, Statement
from ..framework.turns import ServiceOrder
from ..plugins.arguments import Given
from ..plugins.checkpoint import lone_losses_s, lost_s
from ..plugins.fgd import REFERENCE_CARD_MIB
from ..plugins.walltimes import written_s
from ..preemption.evictablepods import EvictablePods
from ..preemption.preemptors import PreemptionRequests, bound_to_domain, preemptors, waiting

if TYPE_CHECKING:
    from ..framework.session import Session

ACTION = "consolidate"

_NO_LIMIT = 1 << 30


@dataclass(frozen=True, slots=True)
class Rule:
    """The action's arguments. Times in seconds."""

    mode: Mode = Mode.ON
    horizon_s: float = 3600.0
    restart_s: float = 120.0
    most: int = 16  #: pods that move for one gang
    most_an_hour: int = 100


def rule_of(arguments: Given) -> Rule:
    """Raises InvalidRequest if an argument is invalid."""
    mode = arguments.text("mode", Mode.ON)
    mode = {"True": Mode.ON, "False": Mode.OFF}.get(mode, mode)  # YAML 1.1 reads `on` and `off` as booleans
    if mode not in set(Mode):
        raise InvalidRequest(f"action {ACTION}, argument mode: {mode!r} is not one of {', '.join(Mode)}")
    horizon_s = arguments.duration_s("horizon", "1h")
    if horizon_s > LONGEST_GAIN_S:
        raise InvalidRequest(f"action {ACTION}, argument horizon: it is more than a day", hint="write at most 24h")
    rule = Rule(
        Mode(mode),
        horizon_s,
        arguments.duration_s("restart", "2m"),
        arguments.integer("maxMovedPods", 16, least=ANY),
        arguments.integer("maxMovesPerHour", 100, least=ANY),
    )
    arguments.done()
    return rule


def run(session: "Session", *, failed: set[object] | None = None) -> None:
    """Serve the queues in turns. `failed`: keys of gangs of earlier sessions for which no moves are made; equal ones are skipped, and those of this session
    are added. Raises InvalidRequest if an argument is invalid."""
    rule = rule_of(Given(f"action {ACTION}", session.arguments(ACTION)))
    turns = ServiceOrder(session, preemptors(session))
    if rule.mode is Mode.OFF or not rule.most or turns.next_queue() is None:
        return
    Consolidation(session, rule, set() if failed is None else failed).run(turns)


class Consolidation:
    """One search for moves. Records the moves that it finds in `Outcome.moves`, executed or not."""

    def __init__(self, session: "Session", rule: Rule, failed: set[object]) -> None:
        self._session = session
        self._rule = rule
        self._failed = failed
        self._moved = 0  #: pods moved by this search
        self._evictable: EvictablePods | None = None
        self._free_of: dict[int, int] = {}

    def run(self, turns: ServiceOrder) -> None:
        most = _NO_LIMIT if self._rule.most == ANY else self._rule.most
        requests: PreemptionRequests | None = None
        while (gang := turns.next()) is not None:
            members = sorted(waiting(gang), key=self._session.member_key)
            if not self._fits_in_pieces(gang, members):
                continue
            if self._evictable is None or requests is None:
                self._evictable = self._rated(EvictablePods(self._session))
                requests = PreemptionRequests(self._session, self._evictable, reason="Moved", moves=most, failed=self._failed)
                movable = self._evictable.movable()
            eligible = may_move(gang.priority, self._evictable.priority) & movable
            eligible[self._evictable.positions(gang)] = False
            if not any(member.task.cards for member in members):
                eligible &= ~self._evictable.where_task(lambda task: task.cards is not None)
            if requests.serve(gang, members, eligible=eligible, legal=self._legal, rightful=self._pays):
                self._free_of.clear()

    def _fits_in_pieces(self, gang: Gang, members: list[Member]) -> bool:
        """Whether the free amounts of all nodes together cover the gang's minimum. Moves do not change these sums: a moved pod needs what it frees."""
        needed = max(gang.min_member - gang.ready - gang.waiting, 1)
        if len(members) < needed:
            return False
        least: dict[int, int] = {}
        for member in members[:needed]:
            for column, units in member.task.amount:
                least[column] = least.get(column, 0) + units
        return all(self._free(column) >= units for column, units in least.items())

    def _free(self, column: int) -> int:
        """Free amount of a resource on all nodes together, after all terminating pods are gone."""
        found = self._free_of.get(column)
        if found is None:
            columns, alive = self._session.columns, self._session.rows
            free = columns.allocatable[column, alive] - columns.used[column, alive] + columns.leaving[column, alive]
            found = self._free_of[column] = int(np.maximum(free, 0).sum())
        return found

    def _rated(self, evictable: EvictablePods) -> EvictablePods:
        """Rate victims by lost work, so that the search tries nodes with the least loss first."""
        lone, others = evictable.divided()
        table, now = self._session.running.table, self._session.now
        lost_s = np.minimum(lone_losses_s(table, lone, now), 1e9)
        evictable.harm[lone] = np.rint(np.maximum(table.cards[lone], 1) * (lost_s + self._rule.restart_s)).astype(np.int64)
        for position in others.tolist():
            evictable.harm[position] = round(self._lost_with(evictable.member(position)))
        return evictable

    def _lost_with(self, member: Member) -> float:
        """Card-seconds lost if the member moves; includes its whole gang if the gang cannot spare a member."""
        gang = member.gang
        broken = gang.min_member > 1 and gang.ready <= gang.min_member
        return card_seconds_lost(map(self._cost, gang.of(*HOLDING) if broken else (member,)), self._rule.restart_s)

    def _cost(self, member: Member) -> tuple[int, float]:
        return len(member.slices), min(lost_s(member, self._session.now), 1e9)

    def _legal(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        return self._session.movable(preemptor, [one for one in candidates if not bound_to_domain(one.gang)])

    def _pays(self, gang: Gang, statement: Statement) -> bool:
        """Whether to execute the moves of the statement. Records the moves either way."""
        session = self._session
        if not (session.ready(gang) or session.pipelined(gang)):
            return False
        evicted = [done for done in statement.operations if done.kind is OperationKind.EVICT]
        terms = self._terms(gang, statement, [done.member for done in evicted])
        refused = self._refused(terms)
        moves = tuple(
            FoundMove(
                uid=done.member.uid,
                namespace=done.member.namespace,
                pod=done.member.name,
                queue=done.member.gang.queue,
                node=session.node(done.row),
                to=session.node(done.member.row),
                cards=len(done.slices),
                lost_s=self._cost(done.member)[1],
            )
            for done in evicted
        )
        session.outcome.moves[gang.id] = FoundMoves(gang.id, terms, moves, refused)
        if not refused:
            self._moved += terms.pods_moved
        return not refused

    def _refused(self, terms: MoveTerms) -> str:
        cluster, rule = self._session.cluster, self._rule
        if not terms.pays:
            return "which costs more than it gains"
        recent = cluster.facts.recent_moves.within_hour(self._session.now) + self._moved
        if why := cluster.facts.moves_held or too_many(rule.most_an_hour, recent, terms.pods_moved):
            return f"which has to wait, for {why}"
        return IN_PREVIEW if rule.mode is Mode.PREVIEW else ""

    def _terms(self, gang: Gang, statement: Statement, moved: list[Member]) -> MoveTerms:
        session, rule = self._session, self._rule
        placed = [
            member
            for done in statement.operations
            if done.kind is not OperationKind.EVICT and done.member.gang is gang
            for member in done.members
        ]
        restarted = {id(member): member for member in moved}
        for other in {id(member.gang): member.gang for member in moved}.values():
            if other.min_member > 1 and other.holding < other.min_member:
                restarted |= {id(member): member for member in other.of(*HOLDING)}
        queue = session.queues.get(gang.queue)
        # Run times of other jobs of the queue predict little about a gang that needs moves: only its own walltime counts.
        written = [written_s(member, queue) for member in placed]
        runs_s = max((inf if walltime_s is None else walltime_s for walltime_s in written), default=inf)
        starts = min((one.start for one in session.reservations if one.gang == gang.id), default=inf)
        return MoveTerms(
            cards_gained=sum(_part(slice) for member in placed for slice in member.slices) or len(placed),
            gain_s=gain_seconds(rule.horizon_s, runs_s=runs_s, starts_in_s=starts - session.now),
            pods_moved=len(moved),
            cards_moved=sum(len(member.slices) for member in moved),
            pods_restarted=len(restarted),
            card_seconds_lost=card_seconds_lost(map(self._cost, restarted.values()), rule.restart_s),
            most_an_hour=rule.most_an_hour,
        )


def _part(slice: CardSlice) -> float:
    """The part of a card that the slice covers: the larger one of its compute and its memory, at most 1."""
    return min(max(slice.cores / ALL, slice.memory_mib / REFERENCE_CARD_MIB), 1.0)
