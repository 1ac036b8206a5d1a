"""card-models: place pods that name no model on the cheapest sufficient one, and leave models to the pods that can only use these (requirements B6).

The cost of a card is its worth (`devices.models`) plus the scarcity of its model; plus one if the model's link is slow and the pod communicates over several
cards, alone or with its gang. Pods are placed where the cost is lowest, as far as the other plugins permit. The plugin ignores pods that name one model and
pods with preferred node affinity.

With `reserve.percent` the plugin also keeps idle cards of a model from pods that could use another model: as many as pending gangs bound to the model need, up
to that percentage of the model's cards. For a gang that has waited longer than `reserve.for` no cards are kept any more, so that cards that it cannot use do
not stay idle.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hbox_common.errors import InvalidRequest
from hbox_common.model import CardRequest, GroupPhase
from hbox_common.model.devices import Figures

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats, Ints, Rows, rows_of
from ..cluster.entities import Gang, Member, Status
from ..cluster.task import Task
from ..devices import seats
from ..devices.models import Demand, Worth, bound_to, scarcity
from ..explain.labels import Label
from ..framework.hooks import PodMask, PodScore, ShapeScore
from .arguments import Arguments

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

#: Minimum GB/s for pods over several cards, which prefer other models below it: NVLink has more, PCIe less.
LINK_LEAST_GB_S = 100.0


class _Scarcity:
    """Scarcity of models by the requests so far, computed again each time that these have doubled."""

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self._found: Floats = np.zeros(1)
        self._known: tuple[int, tuple[int, int]] | None = None

    def of(self, columns: Columns) -> Floats:
        """`[M]`"""
        known = self.demand.version, columns.model_codes
        if self._known != known:
            self._known, self._found = known, scarcity(columns, self.demand.cards)
        return self._found


class CardModels(PodMask, ShapeScore, PodScore):
    """Arguments: card-models.weight (10); worth.weight, scarcity.weight (1); memory.weight, compute.weight, link.weight (1);
    models {<name>: {compute: TFLOPS, link: GB/s}}; tiers [<name> or [<name>, ...], ...], the cheapest first; link.least (100, GB/s), link.required (false);
    reserve.percent (0), reserve.for (1h)."""

    name = "card-models"
    fills = True
    by_amounts = True

    def __init__(self, conf: "PluginConf") -> None:
        """Raises InvalidRequest for arguments that are wrong."""
        arguments = Arguments(conf)
        self._weight = arguments.number("card-models.weight", 10, least=0)
        self._worth = Worth(
            memory=arguments.number("memory.weight", 1, least=0),
            compute=arguments.number("compute.weight", 1, least=0),
            link=arguments.number("link.weight", 1, least=0),
            given={name: _figures(name, row) for name, row in arguments.mapping("models").items()},
            tiers=_tiers(arguments.listing("tiers")),
        )
        self._worth_weight = arguments.number("worth.weight", 1, least=0)
        self._scarcity_weight = arguments.number("scarcity.weight", 1, least=0)
        self._link_least = arguments.number("link.least", LINK_LEAST_GB_S, least=0)
        self._link_required = arguments.switch("link.required", False)
        self._reserve = arguments.number("reserve.percent", 0, least=0, most=100) / 100
        self._reserve_s = arguments.duration_s("reserve.for", "1h")
        arguments.done()
        self._learned: _Scarcity | None = None  #: made when it is asked for
        self._slow: Bools = np.zeros(0, dtype=np.bool_)  #: `[M]`, of the models' codes `_slow_at`
        self._slow_at: tuple[int, int] | None = None

    def open(self, session: "Session") -> None:
        columns = self._columns = session.columns
        known = session.learned.get(self.name)
        kept = known if isinstance(known, CardModels) else None
        self._learned = kept._scarce if kept is not None else _Scarcity(_demand(session))
        self._slow = (kept or self)._slow_models(columns)
        self._bound: dict[CardRequest, Bools] = {}
        self._kept: Ints = np.zeros(len(self._slow), dtype=np.int64)  #: `[M]` cards of each model that are kept
        if self._reserve:
            self._keep(session)

    @property
    def sees_plain_pods(self) -> bool:
        return bool(self._reserve) or self._link_required

    def concerns(self, member: Member) -> bool:
        return self.sees_plain_pods or (
            self._speaks_over_link(self._columns, member) and bool(self._slow.any()) and not self._slow.all()
        )

    def _speaks_over_link(self, columns: Columns, member: Member) -> bool:
        """Whether it is one of a gang, has one card, and models to choose from."""
        cards = member.task.cards
        return cards is not None and cards.count == 1 and member.gang.min_member > 1 and steered(columns, member.task)

    def settled(self, member: Member) -> bool:
        """True if arriving and leaving pods do not change the nodes that the plugin rejects for the member."""
        return not self._kept.any() or self._may_have_kept(member.task.cards)

    def failures(self, member: Member, columns: Columns) -> Iterator[tuple[str, Bools]]:
        request = member.task.cards
        if request is None or request.models:
            return
        rows = slice(0, columns.size)
        model = columns.card_model[rows]
        if self._link_required and _several(member):
            yield Label.CARD_LINK, _only(self._slow[model], usable(columns, rows, request))
        if self._kept.any() and not self._may_have_kept(request):
            gang = member.gang
            missing = max(gang.min_member - gang.ready - gang.waiting, 1) * request.count
            idle = _idle(columns)
            kept = (self._kept > 0) & (idle < self._kept + missing)
            fails = _only(kept[model], usable(columns, rows, request))
            if request.count == 1 and not request.whole:  # a share on a used card uses up no idle one
                fails &= ~((seats(columns, rows, request) > 0) & (columns.card_pods[rows] > 0)).any(axis=1)
            yield Label.CARD_MODEL_KEPT, fails

    @property
    def version(self) -> int:
        return self._scarce.demand.version

    def learn(self, task: Task, pods: int) -> None:
        self._scarce.demand.add(task.cards, pods)

    def shape_score(self, columns: Columns, rows: Rows, task: Task) -> Floats | None:
        """Minus 100 times the weight, times what a card costs there."""
        if not self._weight or not steered(columns, task):
            return None
        assert task.cards is not None
        model = rows_of(columns.card_model, rows)
        cost = self._scarcity_weight * self._scarce.of(columns)[model]
        if self._worth_weight:
            cost = cost + self._worth_weight * self._worth.of(columns, rows)
        if task.cards.count > 1:
            cost = cost + self._slow_models(columns)[model]
        return -100.0 * self._weight * _mean(cost, usable(columns, rows, task.cards))

    @property
    def _scarce(self) -> _Scarcity:
        if self._learned is None:
            self._learned = _Scarcity(Demand())
        return self._learned

    def score(self, member: Member, columns: Columns) -> Floats | None:
        """The link score, for pods of one card that communicate within their gang."""
        cards = member.task.cards
        if not self._weight or cards is None or not self._speaks_over_link(columns, member):
            return None
        rows = slice(0, columns.size)
        return (
            -100.0 * self._weight * _mean(self._slow[columns.card_model[rows]].astype(np.float64), usable(columns, rows, cards))
        )

    def _slow_models(self, columns: Columns) -> Bools:
        """`[M]`"""
        if self._slow_at != columns.model_codes:
            self._slow_at, self._slow = columns.model_codes, self._worth.slow(columns, self._link_least)
        return self._slow

    # What is kept.

    def _keep(self, session: "Session") -> None:
        """Idle cards for gangs that wait and can use nothing else."""
        columns = session.columns
        present = np.bincount(columns.card_model[: columns.size][_present(columns)], minlength=len(self._kept))
        asked = np.zeros(len(self._kept))
        for gang in session.unplaced:
            if not self._waits(session, gang):
                continue
            gangs = 1 + sum(session.now - made <= self._reserve_s for made in gang.represented)
            for member in gang.of(Status.PENDING):
                request = member.task.cards
                if request is not None and (mine := self._bound_to(columns, request)).any():
                    asked[mine] += gangs * request.count * present[mine] / present[mine].sum()
        self._kept = np.minimum(np.ceil(asked), np.floor(self._reserve * present)).astype(np.int64)

    def _waits(self, session: "Session", gang: Gang) -> bool:
        return (
            gang.phase is not GroupPhase.PENDING
            and gang.queue in session.queues
            and not gang.problem
            and session.now - gang.created_at <= self._reserve_s
        )

    def _bound_to(self, columns: Columns, request: CardRequest) -> Bools:
        found = self._bound.get(request)
        if found is None:
            found = self._bound[request] = bound_to(columns, request)
        return found

    def _may_have_kept(self, request: CardRequest | None) -> bool:
        """True if no cards are kept from the request: it has none, names its models, or can use nothing else."""
        return request is None or bool(request.models) or bool(self._bound_to(self._columns, request).any())


def steered(columns: Columns, task: Task) -> bool:
    """True if a task may get several models and states no preference among them."""
    if task.cards is None or len(columns.model_names) <= 2 or task.preferred:
        return False
    return not task.cards.models or int(columns.models_allowed(task.cards.models).sum()) > 1


def usable(columns: Columns, rows: Rows, request: CardRequest) -> Bools:
    """`[n, D]`: healthy cards of a permitted model that are large enough, used or not."""
    good = rows_of(columns.card_ok, rows)
    if request.models:
        good = good & columns.models_allowed(request.models)[rows_of(columns.card_model, rows)]
    if not request.whole:
        good = good & (rows_of(columns.card_memory, rows) >= max(request.memory_mib, 1))
    return good


def _several(member: Member) -> bool:
    """True if the member communicates over several cards: its own, or its gang's."""
    return member.task.cards is not None and (member.task.cards.count > 1 or member.gang.min_member > 1)


def _demand(session: "Session") -> Demand:
    """Number of requested cards by kind of request: from the cluster's facts, else counted over all members."""
    demand = Demand()
    if session.cluster.facts.demand is not None:
        demand.cards.update(session.cluster.facts.demand)
        return demand
    for gang in session.gangs:
        for member in gang.members:
            demand.add(member.task.cards, 1)
    return demand


def _mean(cost: Floats, cards: Bools) -> Floats:
    """`[n]`: of the cards of each node that count; 0 where none does."""
    return np.asarray((cost * cards).sum(axis=1) / np.maximum(cards.sum(axis=1), 1))


def _only(bad: Bools, cards: Bools) -> Bools:
    """`[n]`: nodes that have cards which count, all of them bad."""
    return np.asarray(cards.any(axis=1) & ~(cards & ~bad).any(axis=1))


def _present(columns: Columns) -> Bools:
    return np.asarray((columns.card_index[: columns.size] >= 0) & columns.alive[: columns.size, None])


def _idle(columns: Columns) -> Ints:
    """`[M]`: healthy cards without pods."""
    free = _present(columns) & columns.card_ok[: columns.size] & (columns.card_pods[: columns.size] == 0)
    codes = len(columns.model_names)
    return np.bincount(columns.card_model[: columns.size][free], minlength=codes)


def _figures(name: str, row: object) -> Figures:
    if not isinstance(row, Mapping) or not row or not row.keys() <= {"compute", "link"}:
        raise InvalidRequest(
            f"plugin card-models, models.{name}: {row!r}", hint="write {compute: 312, link: 600}: TFLOPS and GB/s"
        )
    for key, value in row.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise InvalidRequest(f"plugin card-models, models.{name}.{key}: {value!r} is not a number above 0")
    unknown = Figures()
    return Figures(row.get("compute", unknown.compute_tflops), row.get("link", unknown.link_gb_s))


def _tiers(rows: Sequence[Any]) -> list[list[str]]:
    tiers = [row if isinstance(row, list) else [row] for row in rows]
    for number, names in enumerate(tiers, 1):
        if not names or not all(isinstance(name, str) and name for name in names):
            raise InvalidRequest(
                f"plugin card-models, tiers: {names!r} (number {number})",
                hint="write names of models: [T4, [V100, P100], A100]",
            )
    return tiers
