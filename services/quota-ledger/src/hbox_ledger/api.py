"""What integrators may ask of the bank, in JSON: endpoints of the micro service `hbox-quota-ledger`. Names stay; fields may be added.

Amounts are in base units: `cpu` in thousandths of a core, memory in bytes, cards counted. Use is in thousandths of card-seconds. Times are seconds since
the epoch.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field

from hbox_common.bus import Endpoint
from hbox_common.clock import wall_s
from hbox_common.errors import InvalidRequest
from hbox_common.events import Budget, Usage, UsageKey
from hbox_common.model import DEFAULT_QUEUE, Queue, QueueName, QueueTree, Resources

from .dryrun import DryRunAnswer, DryRunRequest, judge
from .views import QueueView, Views

MOST_ROWS = 2000  #: of usage in one answer: some 400 KiB, of the 1 MiB that a broker takes by default


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class QueuesRequest(_Model):
    """Queues by name; none named: all."""

    names: tuple[QueueName, ...] = ()


class QueueAnswer(_Model):
    """A queue's rules and its usage. `total`: with all queues below it; `borrowed`: part of `used` beyond what it deserves; `spent`: this month.

    `recent_cards`: recent average usage, with all queues below it, weighted by the half-life `half_life_h`.
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


def _answer(view: QueueView) -> QueueAnswer:
    return QueueAnswer(
        rules=view.queue,
        used=view.used,
        total=view.total,
        borrowed=view.borrowed,
        spent=view.spent,
        recent_cards=view.recent_cards,
        half_life_h=view.half_life_h,
        faults=view.faults,
    )


def _within(answer: QueueAnswer, scope: Collection[QueueName], others: Iterable[QueueName]) -> QueueAnswer:
    """The answer without the names of queues outside `scope`: parents, borrowers, and messages that name one of `others`."""
    rules = answer.rules
    foreign = re.compile("|".join(rf"(?<![-.\w]){re.escape(name)}(?![-\w])" for name in others) or r"(?!)")

    def redacted(message: str) -> str:
        return "" if not message else "which another queue is part of" if foreign.search(message) else message

    shown = replace(
        rules,
        parent=rules.parent if rules.parent in scope else "",
        lent_to=tuple(name for name in rules.lent_to if name in scope),
        stopped=redacted(rules.stopped),
        fault=redacted(rules.fault),
    )
    return answer.model_copy(update={"rules": shown, "faults": tuple(map(redacted, answer.faults))})


def _summed(rows: Iterable[Usage]) -> list[Usage]:
    """Rows of equal keys as one."""
    sums: dict[tuple[object, ...], Usage] = {}
    for row in rows:
        key = (row.department, row.queue, row.user, row.model, row.hour)
        if (found := sums.get(key)) is not None:
            more = {"own": found.own + row.own, "borrowed": found.borrowed + row.borrowed, "idle": found.idle + row.idle}
            row = row.model_copy(update=more)  # noqa: PLW2901
        sums[key] = row
    return list(sums.values())


def _usage(rows: Sequence[Usage], budgets: Iterable[Budget]) -> UsageAnswer:
    """Raises InvalidRequest for too many rows."""
    if len(rows) > MOST_ROWS:
        raise InvalidRequest(
            f"the answer has {len(rows)} rows, {MOST_ROWS} are given at once", hint="ask for fewer hours, or by less"
        )
    return UsageAnswer(usage=tuple(rows), budgets=tuple(budgets))


class Api:
    """Answers from the ledger's views."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "queues",
                "Queues: rules, use, loans, what is wrong with them",
                QueuesRequest,
                QueuesAnswer,
                self.queues,
                self.queues_of,
            ),
            Endpoint(
                "dry-run",
                "What a change of queues would do, and who would have to leave",
                DryRunRequest,
                DryRunAnswer,
                self.dry_run,
            ),
            Endpoint("usage", "Card-seconds by queue, user, model, hour", UsageRequest, UsageAnswer, self.usage, self.usage_of),
        ]

    async def queues(self, asked: QueuesRequest) -> QueuesAnswer:
        found = await self._views.queues(asked.names)
        if missing := [name for name, view in zip(asked.names, found.queues, strict=False) if view.gone]:
            raise InvalidRequest(f"names: there is no queue {', '.join(missing)}", hint="ask without names for all of them")
        queues = tuple(_answer(view) for view in found.queues)
        return QueuesAnswer(epoch=found.epoch, index=found.index, frozen=found.frozen, queues=queues)

    async def queues_of(self, asked: QueuesRequest, token: str) -> QueuesAnswer:
        """Of the reader's queue and those below it; of others not even the names."""
        scope = self._scope(token)
        if foreign := [name for name in asked.names if name not in scope]:
            raise InvalidRequest(
                f"names: {', '.join(foreign)}: not your queue, nor below it", hint="ask without names for all that are"
            )
        found = await self._views.queues(asked.names or scope)
        others = [name for name in self._views.names() if name not in scope]
        queues = tuple(_within(_answer(view), scope, others) for view in found.queues if not view.gone)
        return QueuesAnswer(epoch=found.epoch, index=found.index, frozen=found.frozen, queues=queues)

    async def usage_of(self, asked: UsageRequest, token: str) -> UsageAnswer:
        """As `usage`, of the reader's queue and those below it."""
        scope = self._scope(token)
        if UsageKey.DEPARTMENT in asked.by:
            raise InvalidRequest("by: the department is a queue above yours", hint="ask by queue, user, model or hour")
        mine = [row for row in await self._rows((*asked.by, UsageKey.QUEUE), asked) if row.queue in scope]
        if UsageKey.QUEUE not in asked.by:
            mine = _summed(row.model_copy(update={"queue": QueueName("")}) for row in mine)
        return _usage(mine, [one for one in self._views.budgets() if one.queue in scope])

    def _scope(self, token: str) -> list[QueueName]:
        """The queue of that token, and all below it. Raises InvalidRequest."""
        scope = self._views.subtree(token)
        if not scope:
            raise InvalidRequest("there is no such queue")
        return scope

    async def dry_run(self, asked: DryRunRequest) -> DryRunAnswer:
        found = await self._views.snapshot()
        tree = QueueTree({QueueName(name): amounts for name, amounts in found.used.items()})
        tree.update({queue.name: queue for queue in found.queues})
        tree.setdefault(DEFAULT_QUEUE, Queue(DEFAULT_QUEUE))
        return judge(
            asked, tree, found.claims, epoch=found.epoch, index=found.index, frozen=found.frozen, shares=found.shares_of
        )

    async def usage(self, asked: UsageRequest) -> UsageAnswer:
        return _usage(await self._rows(asked.by, asked), self._views.budgets())

    async def _rows(self, by: Iterable[UsageKey], asked: UsageRequest) -> list[Usage]:
        until = asked.until or int(wall_s()) + 1
        if until <= asked.since:
            raise InvalidRequest(f"until: {until} is not after since, {asked.since}")
        return await self._views.summed(by, since=asked.since, until=until)
