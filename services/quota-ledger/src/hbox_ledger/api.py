"""What integrators may ask of the bank, in JSON: endpoints of the micro service `hbox-quota-ledger`. Names stay; fields may be added.

Amounts are in base units: `cpu` in thousandths of a core, memory in bytes, cards counted. Use is in thousandths of card-seconds. Times are seconds since
the epoch.
"""

from pydantic import BaseModel, ConfigDict, Field

from hbox_common.bus import Endpoint
from hbox_common.clock import wall_s
from hbox_common.errors import InvalidRequest
from hbox_common.events import Budget, Usage, UsageKey
from hbox_common.model import DEFAULT_QUEUE, Queue, QueueName, QueueTree, Resources

from .dryrun import DryRunAnswer, DryRunRequest, judge
from .views import Views

MOST_ROWS = 2000  #: of usage in one answer: some 400 KiB, of the 1 MiB that a broker takes by default


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class QueuesRequest(_Model):
    """Queues by name; none named: all."""

    names: tuple[QueueName, ...] = ()


class QueueAnswer(_Model):
    """A queue's rules, and what it has of them. `total`: with all queues below it; `borrowed`: of `used`, beyond what it deserves; `spent`: this month.

    `recent_cards`: what it used of late on average, with all below it, by the half-life `half_life_h`.
    """

    rules: Queue
    used: Resources
    total: Resources
    borrowed: Resources
    spent: int
    recent_cards: float
    half_life_h: float
    faults: tuple[str, ...]


class QueuesAnswer(_Model):
    """All of one moment: `epoch` and `index` are those of the feed of claims. `frozen`: the bank is reading what runs, and takes no plans."""

    epoch: int
    index: int
    frozen: bool
    queues: tuple[QueueAnswer, ...]


class UsageRequest(_Model):
    """Use of the hours that begin in [since, until), by each combination of `by`; `until` 0 = now."""

    by: tuple[UsageKey, ...] = (UsageKey.QUEUE,)
    since: int = Field(default=0, ge=0)
    until: int = Field(default=0, ge=0)


class UsageAnswer(_Model):
    usage: tuple[Usage, ...]
    budgets: tuple[Budget, ...]


class Api:
    """Answers from the ledger's views."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("queues", "Queues: rules, use, loans, what is wrong with them", QueuesRequest, QueuesAnswer, self.queues),
            Endpoint(
                "dry-run",
                "What a change of queues would do, and who would have to leave",
                DryRunRequest,
                DryRunAnswer,
                self.dry_run,
            ),
            Endpoint("usage", "Card-seconds by queue, user, model, hour", UsageRequest, UsageAnswer, self.usage),
        ]

    async def queues(self, asked: QueuesRequest) -> QueuesAnswer:
        found = await self._views.queues(asked.names)
        if missing := [name for name, view in zip(asked.names, found.queues, strict=False) if view.gone]:
            raise InvalidRequest(f"names: there is no queue {', '.join(missing)}", hint="ask without names for all of them")
        queues = tuple(
            QueueAnswer(
                rules=view.queue,
                used=view.used,
                total=view.total,
                borrowed=view.borrowed,
                spent=view.spent,
                recent_cards=view.recent_cards,
                half_life_h=view.half_life_h,
                faults=view.faults,
            )
            for view in found.queues
        )
        return QueuesAnswer(epoch=found.epoch, index=found.index, frozen=found.frozen, queues=queues)

    async def dry_run(self, asked: DryRunRequest) -> DryRunAnswer:
        found = await self._views.snapshot()
        tree = QueueTree({QueueName(name): amounts for name, amounts in found.used.items()})
        tree.update({queue.name: queue for queue in found.queues})
        tree.setdefault(DEFAULT_QUEUE, Queue(DEFAULT_QUEUE))
        return judge(
            asked, tree, found.claims, epoch=found.epoch, index=found.index, frozen=found.frozen, shares=found.shares_of
        )

    async def usage(self, asked: UsageRequest) -> UsageAnswer:
        until = asked.until or int(wall_s()) + 1
        if until <= asked.since:
            raise InvalidRequest(f"until: {until} is not after since, {asked.since}")
        rows = await self._views.summed(asked.by, since=asked.since, until=until)
        if len(rows) > MOST_ROWS:
            raise InvalidRequest(
                f"the answer has {len(rows)} rows, {MOST_ROWS} are given at once",
                hint="ask for fewer hours, or by less",
            )
        return UsageAnswer(usage=tuple(rows), budgets=tuple(self._views.budgets()))
