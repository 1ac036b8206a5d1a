"""Cards by model in a session: the cards of each model that a member uses, and the amounts that the limits of queues leave.

No resource name requests a model, so the models of a member are known only once it is placed, or tried on cards of one model (`tried`). The victim search
proceeds model by model, because the right to evict is a right to cards of a model. A member that moves keeps its model.

Limits apply under every policy, at the queue and all its ancestors, as in the quota-ledger. A victim counts until it is gone, except for members that are
nominated to its resources (`later`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from hbox_common.model import CardSlice, QueueName, Resources, by_pool, cards_by_model, in_pool, is_model, named_models, of_pool
from hbox_common.model.cardparts import WHOLE, cards_of_share, in_parts, is_share, part_of_share, parts_of_card
from hbox_common.model.devices.partitions import CARD
from hbox_common.model.rights import Blocking, Limit, Named, headroom, remaining

from ..cluster import Columns
from ..cluster.amounts import Asked
from ..cluster.arrays import Bools
from ..cluster.entities import Gang, Member, Status
from ..cluster.running import Kind, RunningGangs
from ..cluster.snapshot import Cluster
from ..cluster.task import Task
from ..quotas.models import concerned, limit_message, within_limits, without_models
from .guarantees import Guarantees

#: The resource that counts the cards of which units may be parts; its limits and use in parts of a card.
_CARDS = cards_of_share(WHOLE)
_PARTS = f"{_CARDS}:parts"


@dataclass(frozen=True, slots=True)
class Variant:
    """A member on cards of one model: what it counts then, and the models that it does not take."""

    models: Asked
    excluded: tuple[str, ...]  #: resources; empty among them: cards of no model


class Models:
    """False where no queue names a model: then it has no say, and costs nothing."""

    def __init__(
        self, columns: Columns, cluster: Cluster, running: RunningGangs, fresh: Sequence[Gang], guarantees: Guarantees
    ) -> None:
        """`guarantees`: what the models may not be taken of, where others are guaranteed them."""
        named = named_models(cluster.roster.named)
        self._named = bool(named)
        self._columns = columns
        self._guarantees = guarantees
        #: column -> the model's resource; of all models that there are, or that are named
        self.names: dict[int, str] = {}
        #: parts of cards that units are, if any queue limits cards
        limited = bool(columns.shares) and any(by_pool(name)[0] == _CARDS for name in cluster.roster.named)
        self._shares = columns.shares if limited else ()
        if not self:
            return
        if named:
            there = set(filter(None, columns.model_resources))
            self.names = {columns.column(name): name for name in sorted(there.union(named))}
        self._share_names = {columns.column(name): name for name in self._shares}
        self._known: dict[tuple[tuple[str, int], ...], Asked] = {}
        self._variants: dict[int, tuple[Task, tuple[Variant, ...]]] = {}
        self._trial: tuple[Member, Variant] | None = None
        self._paths = cluster.roster.paths()
        self._limits: dict[QueueName, Resources] = {}
        self._partitions: dict[QueueName, frozenset[str]] = {}  #: what the queue's own capability names
        self._owned: dict[QueueName, frozenset[int]] = {}
        for queue in cluster.roster.queues.values():
            limits = {name: units for name, units in queue.capability.items() if is_model(by_pool(name)[0])}
            if self._shares:
                of_cards = [(by_pool(name), units) for name, units in queue.capability.items()]
                limits |= {in_pool(_PARTS, pool): units * CARD for (name, pool), units in of_cards if name == _CARDS}
            self._limits[queue.name] = limits
            self._partitions[queue.name] = frozenset(queue.capability)
            self._owned[queue.name] = frozenset(map(columns.column, named_models(queue.deserved, queue.guarantee)))
        self._used: dict[QueueName, Resources] = {}
        self._leaving: dict[QueueName, Resources] = {}
        for kind, count in running.by_kind():
            self._count(self._used, kind, kind.queue, count)
        for gang in fresh:
            for member in gang.members:
                if member.row >= 0 and (member.slices or self._shares):
                    member.models = member.models or self.of(member.row, member.slices)
                    self._count(self._used, member, gang.queue, 1)
                    if member.status is Status.RELEASING:
                        self._count(self._leaving, member, gang.queue, 1)

    def __bool__(self) -> bool:
        return self._named or bool(self._shares)

    def cards(self, pool: str | None = None) -> dict[int, int]:
        """How many cards the pool has of each model, by column; None: the cluster."""
        columns = self._columns
        there = (columns.card_index >= 0) & columns.alive[:, None]
        if pool is not None:
            there = there & columns.in_pool(pool, slice(0, len(columns.alive)))[:, None]
        by_code = np.bincount(columns.card_model[there], minlength=len(columns.model_names)).tolist()
        found = dict.fromkeys(self.names, 0)
        for code, name in enumerate(columns.model_resources):
            if name:
                found[columns.column(name)] += by_code[code]
        return found

    def of(self, row: int, slices: Sequence[CardSlice]) -> Asked:
        """What these slices count by model, by column."""
        counts = tuple(cards_by_model(self._columns.states[row], slices).items())
        found = self._known.get(counts)
        if found is None:
            counted = ((name, cards) for name, cards in counts if self._named or is_share(name))
            found = self._known[counts] = tuple((self._columns.column(name), cards) for name, cards in counted)
        return found

    # Models that are tried.

    def variants(self, member: Member) -> Sequence[Variant]:
        """The models that the member may get, one at a time: first those that its queue, or an ancestor, deserves or is guaranteed; last cards of no model.
        None: it requests no cards, or its model is known."""
        tried = self._named and self._trial is not None and self._trial[0] is member
        if not self._named or member.task.cards is None or member.models or tried:
            return ()
        known = self._variants.get(id(member.task))
        if known is None:
            known = self._variants[id(member.task)] = (member.task, tuple(self._find(member.task)))
        deserved = frozenset().union(*(self._owned[above] for above in self._paths.get(member.gang.queue, ())))
        return sorted(known[1], key=lambda variant: not any(column in deserved for column, _ in variant.models))

    def _find(self, task: Task) -> Iterator[Variant]:
        request, columns = task.cards, self._columns
        assert request is not None
        wanted = frozenset(concerned(task, self.names.values()))
        for column, name in self.names.items():
            if name in wanted:
                yield Variant(((column, request.count),), self._others({name}))
        if not request.models and bool(((columns.card_index >= 0) & (columns.card_model == 0) & columns.alive[:, None]).any()):
            yield Variant((), tuple(self.names.values()))

    def _others(self, own: set[str]) -> tuple[str, ...]:
        """All other models, and cards of none."""
        return ("", *(name for name in self.names.values() if name not in own))

    @contextmanager
    def tried(self, member: Member, variant: Variant) -> Iterator[None]:
        """Within the context the member may use cards of this variant only, and counts there. It keeps a placement made within the context."""
        before, self._trial = self._trial, (member, variant)
        member.models = variant.models
        try:
            yield
        finally:
            self._trial = before
            if member.status is Status.PENDING:
                member.models = ()

    def has(self, variant: Variant, cards: int) -> Bools:
        """`[N]`: nodes with at least this number of cards of the variant's model, free or not."""
        columns, rows = self._columns, slice(0, self._columns.size)
        other = columns.models_counted(variant.excluded)[columns.card_model[rows]]
        return np.asarray(((columns.card_index[rows] >= 0) & ~other).sum(axis=1) >= cards)

    # Limits.

    def limit(self, queue: QueueName) -> bool:
        """Whether the queue, or one above it, has a limit of card models."""
        return any(self._limits[above] for above in self._paths.get(queue, ()))

    def left(self, queue: QueueName, *, later: bool, pool: str = "") -> Resources:
        """Further cards of each limited model that the queue may use in this pool. `later`: after all terminating pods are gone."""
        limits = self._limits_of(queue, self._leaving if later else {})
        left = of_pool(pool, remaining(limits, lambda name: by_pool(name)[1] == pool))
        if (parts := left.pop(_PARTS, None)) is not None:
            left |= {share: parts // part_of_share(share) for share in self._shares}
        for model, more in self._guarantees.left_of_models(queue, pool).items() if self._guarantees else ():
            left[model] = min(left.get(model, more), more)
        return left

    def _limits_of(self, queue: QueueName, freed: Mapping[QueueName, Resources]) -> Iterator[Limit[QueueName, str]]:
        for above in self._paths.get(queue, ()):
            if limits := self._limits[above]:
                yield Limit(above, limits, Named(self._used.get(above, {}), freed.get(above)))

    def task(self, member: Member, task: Task, *, later: bool) -> Task:
        """The member's task (`task`, as other rules have limited it), kept from models of which its queue may have no more, or that it is not to get now."""
        if task.cards is None:
            return task
        if self._trial is not None and self._trial[0] is member:
            kept, _ = within_limits(task, self.left(member.gang.queue, later=later, pool=member.account))
            return without_models(kept, self._trial[1].excluded)
        if member.models:
            excluded: tuple[str, ...] = ()
            if own := {self.names[column] for column, _ in member.models if column in self.names}:
                excluded = self._others(own)
            shares = {self._share_names[column] for column, _ in member.models if column in self._share_names} or {WHOLE}
            return without_models(task, (*excluded, *(share for share in self._shares if share not in shares)))
        return within_limits(task, self.left(member.gang.queue, later=later, pool=member.account))[0]

    def most(self, member: Member) -> int | None:
        """How many members like this one have room in any case under the limits of models; None = no limit."""
        return within_limits(member.task, self.left(member.gang.queue, later=False, pool=member.account))[1]

    def admits(self, queue: QueueName, places: Iterable[tuple[int, Sequence[CardSlice]]], *, later: bool) -> bool:
        """Whether the queue may have all of these cards. places: rows and slices."""
        left, held = remaining(self._limits_of(queue, self._leaving if later else {}), lambda _: True), list(places)
        for row, slices in held if left else ():
            pool, models = self._columns.pool_of(row), cards_by_model(self._columns.states[row], slices)
            for model, cards in models.items():
                if (name := in_pool(model, pool)) in left:
                    left[name] -= cards
            if (
                (name := in_pool(_PARTS, pool)) in left
                and (state := self._columns.states[row]) is not None
                and _CARDS in state.allocatable
            ):
                left[name] -= in_parts({_CARDS: len(slices)} | models).get(_CARDS, 0)
        return all(more >= 0 for more in left.values()) and (not self._guarantees or self._guarantees.admits(queue, held))

    def limit_message(self, member: Member, nodes: int) -> str:
        """Text: which limits exclude how many nodes."""
        queue = member.gang.queue
        left = self.left(queue, later=False)
        return limit_message(member.task, queue, left, lambda model: self._nearest(queue, model), nodes)

    def _nearest(self, queue: QueueName, model: str) -> Blocking[QueueName, str] | None:
        """The limit that leaves the least of a model; for a share of cards in parts of a card."""
        if not is_share(model):
            return headroom(self._limits_of(queue, {}), {model: 1})
        return headroom(self._limits_of(queue, {}), {_PARTS: part_of_share(model)})

    # Changes.

    def book(self, member: Member, times: int = 1) -> None:
        """It has, or is promised, what it counts; `times=-1`: no more."""
        self._count(self._used, member, member.gang.queue, times)

    def evicted(self, member: Member, times: int = 1) -> None:
        """It leaves; `times=-1`: after all not."""
        self._count(self._leaving, member, member.gang.queue, times)

    def _count(self, sums: dict[QueueName, Resources], holder: "Member | Kind", queue: QueueName, times: int) -> None:
        if not holder.models and not self._shares:
            return
        for above in self._paths.get(queue, ()):
            own = sums.setdefault(above, {})
            for column, cards in holder.models:
                if (model := self.names.get(column)) is not None:
                    name = in_pool(model, holder.account)
                    own[name] = own.get(name, 0) + times * cards
            if self._shares and (parts := self._parts_of(holder, above)):
                name = in_pool(_PARTS, holder.account)
                own[name] = own.get(name, 0) + times * parts

    def _parts_of(self, holder: "Member | Kind", queue: QueueName) -> int:
        """The parts of cards that it counts in this queue. A partition that the queue's capability names has a limit of its own."""
        shares = {self._share_names[column]: units for column, units in holder.models if column in self._share_names}
        requests = {name: units for name, units in holder.task.requests.items() if parts_of_card(name)[0] == _CARDS}
        return in_parts(requests | shares, self._partitions[queue]).get(_CARDS, 0) if requests else 0
