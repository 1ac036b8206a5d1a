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
from hbox_common.model.rights import Limit, Named, headroom, remaining

from ..cluster import Columns
from ..cluster.amounts import Asked
from ..cluster.arrays import Bools
from ..cluster.entities import Gang, Member, Status
from ..cluster.running import Kind, RunningGangs
from ..cluster.snapshot import Cluster
from ..cluster.task import Task
from ..quotas.models import concerned, limit_message, within_limits, without_models
from .guarantees import Guarantees


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
        if not named:
            return
        there = set(filter(None, columns.model_resources))
        self.names = {columns.keep(name): name for name in sorted(there.union(named))}
        self._known: dict[tuple[tuple[str, int], ...], Asked] = {}
        self._variants: dict[int, tuple[Task, tuple[Variant, ...]]] = {}
        self._trial: tuple[Member, Variant] | None = None
        self._paths = cluster.roster.paths()
        self._limits: dict[QueueName, Resources] = {}
        self._shares: dict[QueueName, frozenset[int]] = {}
        for queue in cluster.roster.queues.values():
            self._limits[queue.name] = {name: units for name, units in queue.capability.items() if is_model(by_pool(name)[0])}
            self._shares[queue.name] = frozenset(map(columns.keep, named_models(queue.deserved, queue.guarantee)))
        self._used: dict[QueueName, Resources] = {}
        self._leaving: dict[QueueName, Resources] = {}
        for kind, count in running.alike():
            self._count(self._used, kind, kind.queue, count)
        for gang in fresh:
            for member in gang.members:
                if member.row >= 0 and member.slices:
                    member.models = member.models or self.of(member.row, member.slices)
                    self._count(self._used, member, gang.queue, 1)
                    if member.status is Status.RELEASING:
                        self._count(self._leaving, member, gang.queue, 1)

    def __bool__(self) -> bool:
        return self._named

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
                found[columns.keep(name)] += by_code[code]
        return found

    def of(self, row: int, slices: Sequence[CardSlice]) -> Asked:
        """What these slices count by model, by column."""
        counts = tuple(cards_by_model(self._columns.states[row], slices).items())
        found = self._known.get(counts)
        if found is None:
            found = self._known[counts] = tuple((self._columns.keep(name), cards) for name, cards in counts)
        return found

    # Models that are tried.

    def variants(self, member: Member) -> Sequence[Variant]:
        """The models that the member may have, one at a time: first those that its queue, or one above it, deserves or is guaranteed; last cards of no model.
        None: it asks for no cards, or its model is known."""
        tried = self._named and self._trial is not None and self._trial[0] is member
        if not self._named or member.task.cards is None or member.models or tried:
            return ()
        known = self._variants.get(id(member.task))
        if known is None:
            known = self._variants[id(member.task)] = (member.task, tuple(self._find(member.task)))
        deserved = frozenset().union(*(self._shares[above] for above in self._paths.get(member.gang.queue, ())))
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

    def left(self, queue: QueueName, *, later: bool, pool: str = "") -> Resources:
        """Further cards of each limited model that the queue may use in this pool. `later`: after all terminating pods are gone."""
        limits = self._limits_of(queue, self._leaving if later else {})
        left = of_pool(pool, remaining(limits, lambda name: by_pool(name)[1] == pool))
        for model, more in self._guarantees.left_of_models(queue, pool).items() if self._guarantees else ():
            left[model] = min(left.get(model, more), more)
        return left

    def _limits_of(self, queue: QueueName, freed: Mapping[QueueName, Resources]) -> Iterator[Limit[QueueName, str]]:
        for above in self._paths.get(queue, ()):
            if limits := self._limits[above]:
                yield Limit(above, limits, Named(self._used.get(above, {}), freed.get(above)))

    def task(self, member: Member, task: Task, *, later: bool) -> Task:
        """The member's task (`task`, as others have bounded it), kept from models of which its queue may have no more, or that it is not to take now."""
        if task.cards is None:
            return task
        if self._trial is not None and self._trial[0] is member:
            kept, _ = within_limits(task, self.left(member.gang.queue, later=later, pool=member.account))
            return without_models(kept, self._trial[1].excluded)
        if member.models:
            return without_models(task, self._others({self.names[column] for column, _ in member.models}))
        return within_limits(task, self.left(member.gang.queue, later=later, pool=member.account))[0]

    def most(self, member: Member) -> int | None:
        """How many members like this one have room in any case under the limits of models; None = no limit."""
        return within_limits(member.task, self.left(member.gang.queue, later=False, pool=member.account))[1]

    def admits(self, queue: QueueName, places: Iterable[tuple[int, Sequence[CardSlice]]], *, later: bool) -> bool:
        """Whether the queue may have all of these cards. places: rows and slices."""
        left, held = remaining(self._limits_of(queue, self._leaving if later else {}), lambda _: True), list(places)
        for row, slices in held if left else ():
            for model, cards in cards_by_model(self._columns.states[row], slices).items():
                if (name := in_pool(model, self._columns.pool_of(row))) in left:
                    left[name] -= cards
        return all(more >= 0 for more in left.values()) and (not self._guarantees or self._guarantees.admits(queue, held))

    def limit_message(self, member: Member, nodes: int) -> str:
        """Which limits keep it from so many nodes, in words."""
        queue = member.gang.queue
        left = self.left(queue, later=False)
        return limit_message(member.task, queue, left, lambda model: headroom(self._limits_of(queue, {}), {model: 1}), nodes)

    # Changes.

    def book(self, member: Member, times: int = 1) -> None:
        """It has, or is promised, what it counts; `times=-1`: no more."""
        self._count(self._used, member, member.gang.queue, times)

    def evicted(self, member: Member, times: int = 1) -> None:
        """It leaves; `times=-1`: after all not."""
        self._count(self._leaving, member, member.gang.queue, times)

    def _count(self, sums: dict[QueueName, Resources], who: "Member | Kind", queue: QueueName, times: int) -> None:
        for above in self._paths.get(queue, ()) if who.models else ():
            own = sums.setdefault(above, {})
            for column, cards in who.models:
                name = in_pool(self.names[column], who.account)
                own[name] = own.get(name, 0) + times * cards
