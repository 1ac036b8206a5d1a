"""Victims that a member may reclaim, queue against queue, by the rules of `hbox_common.model.rights` over accounts. Shared by `proportion` and `capacity`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TypeAlias

from hbox_common.model import any_names_model, model_of
from hbox_common.model.rights import Cards, Comparison, Queues, Reclaim, not_entitled, units

from ..cluster.entities import Gang, Member, Status
from .queueaccounts import Account, QueueAccounts, gang_of, standing

Rule: TypeAlias = Comparison[Account, int]


@dataclass(frozen=True, slots=True)
class _Paths:
    """The paths of a preemptor and a victim below their last common ancestor; and the victim's queues that have a guarantee."""

    ours: Sequence[Account]
    theirs: Sequence[Account]
    guaranteed: Sequence[Account]


@dataclass(frozen=True, slots=True)
class VictimRights:
    """rights: the lines of accounts, which do not change while a session lasts; rule: by which an account's members take."""

    accounts: QueueAccounts
    rights: Queues[Account, int]
    rule: Callable[[Account], Rule]
    cards: Cards[int]

    def reclaimable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        """Taken in this order, each one named counts; a gang that is named whole is one loss where its minimum breaks."""
        account = self.accounts.accounts.get(preemptor.gang.queue)
        if account is None:
            return []
        rule, asked, victims = self.rule(account), dict(self.accounts.asked_with_models(preemptor)), list[Member]()
        reclaim: Reclaim[Account, int] = Reclaim(self.rights)
        wanted = rule.wanted(account.path, asked, reclaim.used)
        paths: dict[Account, _Paths] = {}

        def allowed(branches: _Paths, loss: dict[int, int]) -> bool:
            return not (branches.guaranteed and reclaim.guaranteed(branches.guaranteed, loss)) and rule.allows(
                branches.ours, branches.theirs, asked, wanted, loss, reclaim.used
            )

        for other, loss, equal_units in self._losses(candidates):
            if other is account:
                continue
            if (branches := paths.get(other)) is None:
                branches = paths[other] = self._parting(account, other)
            shares = len(branches.ours) < len(account.path)  # an ancestor of both has less with each loss
            if len(equal_units) > 1 and not shares:
                before = {column: units * (len(equal_units) - 1) for column, units in loss.items()}
                reclaim.leaves(other.path, before)
                if allowed(branches, loss):  # the last of them may go, so those before it may
                    reclaim.leaves(other.path, loss)
                    victims += chain.from_iterable(equal_units)
                    continue
                reclaim.leaves(other.path, {column: -units for column, units in before.items()})
            for unit in equal_units:
                if not allowed(branches, loss):
                    continue
                reclaim.leaves(other.path, loss)
                victims += unit
                if shares:
                    wanted = rule.wanted(account.path, asked, reclaim.used)
        return victims

    def _losses(self, candidates: Sequence[Member]) -> Iterator[tuple[Account, dict[int, int], list[list[Member]]]]:
        """The queue, what it loses, and by whose leaving: equal losses that come one after the other are together."""

        def kind(unit: list[Member]) -> tuple[Account | None, object]:
            asked = self.accounts.asked_with_models(unit[0]) if len(unit) == 1 else id(unit)
            return self.accounts.accounts.get(unit[0].gang.queue), asked

        for (other, _), some in groupby(units(candidates, gang_of, standing), key=kind):
            equal_units = list(some)
            if other is not None:
                one = equal_units[0]
                yield (
                    other,
                    dict(self.accounts.asked_with_models(one[0])) if len(one) == 1 else self.accounts.together(one),
                    equal_units,
                )

    def entitled(self, account: Account, needs: dict[int, int]) -> bool:
        """Whether the queue may take so much back from others."""
        return not_entitled(self.rights.rights(account).entitlement, account.allocated, needs, self.cards) == []

    def least_needs(self, preemptor: Member) -> dict[int, int]:
        """Lower bound of what the preemptor's gang still requests: its missing members times the least that one of them requests of each column; of a model
        only what this member is tried with, if the others may get cards of another model."""
        gang, asked = preemptor.gang, dict(self.accounts.asked_with_models(preemptor))
        lacks = gang.min_member - gang.ready - gang.waiting
        if lacks <= 1:
            return asked
        for member in gang.of(Status.PENDING):
            if member.task is not preemptor.task:
                other = dict(self.accounts.asked_with_models(member))
                asked = {column: min(amount, other.get(column, 0)) for column, amount in asked.items()}
        one_model = self._has_one_model(preemptor)
        return {
            column: lacks * amount if one_model or not self.cards.is_model(column) else amount
            for column, amount in asked.items()
            if amount
        }

    def _has_one_model(self, member: Member) -> bool:
        """Whether all cards that such members may get are of one model."""
        request = member.task.cards
        models = [model_of(name) for column, name in self.accounts.models.items() if self.accounts.total[column] > 0]
        named = request.models if request is not None else ()
        return sum(any_names_model(named, model) for model in models) <= 1 if named else len(models) <= 1

    def rightful(self, preemptor: Gang, victims: Sequence[Member]) -> bool:
        """Judged where the branches part: with all that the gang is promised, also on room that is left over of larger gangs that leave, no branch of the
        preemptor has more than it is entitled to. So the ledger judges."""
        account = self.accounts.accounts.get(preemptor.queue)
        if account is None:
            return True
        asked: dict[int, int] = {}
        for member in preemptor.members:
            if member.status in (Status.PIPELINED, Status.ALLOCATED):
                for column, amount in self.accounts.asked_with_models(member):
                    asked[column] = asked.get(column, 0) + amount
        others = {self.accounts.accounts.get(victim.gang.queue) for victim in victims} - {None, account}
        heads = {account.path[common] for o in others if o is not None and (common := _common(account, o)) < len(account.path)}
        return all(
            not_entitled(
                self.rights.rights(head).entitlement,
                {column: head.allocated[column] - amount for column, amount in asked.items()},
                asked,
                self.cards,
            )
            == []
            for head in heads
        )

    def _parting(self, account: Account, other: Account) -> _Paths:
        common = _common(account, other)
        theirs = other.path[common:]
        return _Paths(account.path[common:], theirs, tuple(one for one in theirs if self.rights.rights(one).guarantee))


def _common(one: Account, other: Account) -> int:
    """How many ancestors two queues share."""
    count = 0
    for a, b in zip(one.path, other.path, strict=False):
        if a is not b:
            break
        count += 1
    return count
