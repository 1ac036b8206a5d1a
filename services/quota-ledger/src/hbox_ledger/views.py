"""What can be asked of the ledger: its claims, its queues, and who used what. Everything is of one moment between two turns, and nothing is decided here."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from hbox_common.clock import wall_s
from hbox_common.events import Budget, HeldNomination, Usage, UsageKey, token_of
from hbox_common.model import (
    DEFAULT_QUEUE,
    CardQuota,
    Claim,
    Epoch,
    Index,
    Queue,
    QueueName,
    QueuePhase,
    Resources,
    faults,
    is_host_port,
)
from hbox_common.model.reclaimpreview import Shares
from hbox_common.store import Store

from .adapters import load
from .core import arbitrate
from .core.accounts import budget, usage
from .core.ledgerstate import LedgerState
from .ledger import Ledger


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The live claims at one moment."""

    epoch: Epoch
    index: Index
    frozen: bool
    claims: list[Claim]
    queues: tuple[Queue, ...]
    used: dict[str, Resources]
    quotas: tuple[CardQuota, ...]
    nominations: tuple[HeldNomination, ...]
    shares: dict[str, Resources]  #: by weight, where weights count
    shares_of: Shares | None  #: the same for other rules, with what is asked for now


@dataclass(frozen=True, slots=True)
class QueueView:
    queue: Queue
    used: Resources
    total: Resources  #: with all below it
    faults: tuple[str, ...]
    epoch: Epoch
    index: Index
    gone: bool
    recent_cards: float  #: recent average usage, with all queues below it
    half_life_h: float
    borrowed: Resources  #: of `used`: beyond what it deserves
    spent: int  #: this month, as of the last accrual, in thousandths of card-seconds


@dataclass(frozen=True, slots=True)
class QueuesView:
    """Queues at one moment."""

    epoch: Epoch
    index: Index
    frozen: bool
    queues: list[QueueView]


class Views:
    """All of its coroutines raise Unavailable while the database is."""

    def __init__(self, ledger: Ledger, store: Store) -> None:
        self._ledger, self._store = ledger, store
        self._rules: dict[QueueName, Queue | None] = {}  #: of queues that `changed_queues` returned while the ledger was frozen
        self._left_out: set[QueueName] = set()  #: by `changed_queues`, until the ledger opens

    async def epoch(self) -> Epoch:
        """The epoch that the database is in, which another ledger may have begun."""
        return (await self._store.read(load.position)).epoch

    async def snapshot(self) -> Snapshot:
        """All live claims, as committed."""
        async with self._ledger.still() as state:
            claims = [record.claim for record in state.live.values()]
            used = {str(name): amounts for name, amounts in arbitrate.usage(state).items()}
            queues = tuple(_published(state, queue) for queue in state.queues.values())
            state.divide(wall_s())
            return Snapshot(
                epoch=state.epoch,
                index=state.index,
                frozen=state.frozen,
                claims=claims,
                queues=queues,
                used=used,
                quotas=tuple(state.card_quotas),
                nominations=tuple(state.nominations.all()),
                shares={str(name): share for name, share in state.queues.shares.items()},
                shares_of=state.shares_of(),
            )

    async def changed_queues(self) -> list[QueueView]:
        """The queues whose rules or use changed since the last call. While the ledger is frozen, it records running pods by the thousand: changes of use are
        left out until it opens."""
        async with self._ledger.still() as state:
            models, names = self._ledger.models, self._ledger.touched.take()
            if state.frozen:
                self._left_out.update(names)
                names = [name for name in names if name not in self._rules or self._rules[name] is not state.queues.of(name)]
                self._rules |= {name: state.queues.of(name) for name in names}
            elif self._rules:
                names = sorted({*names, *self._left_out})
                self._rules, self._left_out = {}, set()
            return [_view(state, name, self._ledger.gone.get(name), models) for name in names]

    async def queues(self, names: Sequence[QueueName] = ()) -> QueuesView:
        """These queues, in this order; none named: all, by name."""
        async with self._ledger.still() as state:
            models = self._ledger.models
            views = [_view(state, name, None, models) for name in names or sorted({*state.queues, DEFAULT_QUEUE})]
            return QueuesView(state.epoch, state.index, state.frozen, views)

    def names(self) -> list[QueueName]:
        """Of all queues."""
        return sorted({*self._ledger.state.queues, DEFAULT_QUEUE})

    def subtree(self, token: str) -> list[QueueName]:
        """The queue that a subject names so (`token_of`), and all below it; empty where there is none."""
        found = next((name for name in self.names() if token_of(name) == token), None)
        return [found, *self._ledger.state.queues.below(found)] if found is not None else []

    def budgets(self) -> list[Budget]:
        """The budgets of all queues that have one, as of the last accrual."""
        state = self._ledger.state
        return [
            Budget(queue=name, card_hours=queue.budget_card_hours, spent=budget.spent_of(state, name), month=state.month)
            for name, queue in sorted(state.queues.items())
            if queue.budget_card_hours is not None
        ]

    async def used(self, by: Sequence[str], *, since: int, until: int) -> list[tuple[usage.Account, usage.Amounts]]:
        """The usage accounts of hours that begin in [since, until), up to now, by some of "queue", "user", "model", "hour"."""
        await self._ledger.meter()
        return await self._store.look(lambda c: load.used(c, by, since=since, until=until))

    async def summed(self, by: Iterable[UsageKey], *, since: int, until: int) -> list[Usage]:
        """As `used`, and by department."""
        keys = list(dict.fromkeys(by))
        stored = dict.fromkeys(UsageKey.QUEUE if key is UsageKey.DEPARTMENT else key for key in keys)
        found = await self.used(list(stored), since=since, until=until)
        if UsageKey.DEPARTMENT not in keys:
            return [Usage(**account._asdict(), **asdict(amounts)) for account, amounts in found]
        sums: dict[tuple[QueueName, usage.Account], usage.Amounts] = {}
        for account, amounts in found:
            named = account if UsageKey.QUEUE in keys else account._replace(queue=QueueName(""))
            department = self._ledger.state.queues.path(account.queue)[-1]
            sums.setdefault((department, named), usage.Amounts()).add(amounts)
        return [Usage(department=name, **account._asdict(), **asdict(amounts)) for (name, account), amounts in sums.items()]


def _view(state: LedgerState, name: QueueName, deleted: Queue | None, models: Container[str]) -> QueueView:
    used, total = (_without_host_ports(sums) for sums in (state.used.get(name, {}), state.queues.used(name)))
    queue = state.queues.of(name)
    published = _published(state, queue or deleted or Queue(name, QueuePhase.CLOSED))
    history = state.history
    return QueueView(
        queue=published,
        used=used,
        total=total,
        faults=faults(state.queues, name, None if state.frozen else models),
        epoch=state.epoch,
        index=state.index,
        gone=queue is None,
        recent_cards=round(history.cards((name, *state.queues.below(name))), 3),
        half_life_h=history.decay.half_life_h,
        borrowed=state.borrowed.get(name, {}),
        spent=budget.spent_of(state, name),
    )


def _without_host_ports(sums: Mapping[str, int]) -> Resources:
    """What a queue uses, without host ports: of these every pod may have its own, and no queue is judged by them."""
    return {name: units for name, units in sums.items() if units and not is_host_port(name)}


def _published(state: LedgerState, queue: Queue) -> Queue:
    """A queue as published, with the ledger's own state of it."""
    shown, stopped = arbitrate.published_queue(state, queue), budget.stop(state, queue.name)
    return replace(shown, stopped=stopped) if stopped else shown
