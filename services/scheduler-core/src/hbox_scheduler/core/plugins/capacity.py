"""capacity: queues with deserved amounts, flat or in a tree (sources: volcano-capacity, kai-fair-share).

    guarantee <= deserved <= fair share <= capability
    kept for   given back  may be        never more
    the queue  to it       taken back

One rule covers Volcano and KAI-Scheduler. A queue reclaims only while it stays within a line of its own, and only from queues above the same line of theirs, so
that two queues never reclaim from each other in turns. Volcano has one line, the deserved amount. Queues with the annotation `kai.scheduler/over-quota-weight`
have a second line above it: the fair share, which adds the amounts that no queue deserves, divided by these weights. Since other queues can reclaim what a
queue holds above its deserved amount, members that may not be evicted have to stay within the deserved amount.

History (`usageWeight`, off by default): beyond their deserved amounts, queues are ordered by the part of the cluster that they hold there, divided by their
weights (over-quota or `spec.weight`), corrected by recent usage (`fairshare`). History changes the order of queues; it can forbid an eviction and never
justifies one: the preemptor's queue stays within both fair shares, the one with history and the one without, and the victim's queue is above both. So every
eviction would also be permitted without history. A queue that was reduced to its line is not above it any more and cannot reclaim beyond it, however slowly
usage moves, so evictions do not oscillate.

Compared queues: Volcano compares the two queues themselves and, by `ancestorReclaimLevel`, that many ancestors; annotated queues are compared at the highest
level at which their paths differ, and with `reclaimAtParting` all queues are. A common ancestor is never a reason.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from hbox_common.errors import InvalidRequest
from hbox_common.model import QueueName, by_pool
from hbox_common.model.annotations import OVER_QUOTA_WEIGHT
from hbox_common.model.devices import ALL_CORES
from hbox_common.model.fairshare import ShareDemand, corrected, divide, remembering
from hbox_common.model.resources import CPU, MEMORY
from hbox_common.model.rights import (
    AtParting,
    Cards,
    FairShares,
    KeyedCards,
    Nearest,
    Rights,
    beyond,
    may_lose,
)

from ..cluster.amounts import Asked, Sums
from ..cluster.entities import Gang, Member, QueueInfo
from ..explain.labels import Label
from ..framework.hooks import (
    Allocatable,
    BranchOrder,
    Enqueueable,
    Events,
    Evictable,
    Preemptive,
    Reclaimable,
    ReclaimRight,
    VictimQueueOrder,
    Vote,
)
from .arguments import Arguments
from .queueaccounts import (
    UNLIMITED,
    Account,
    QueueAccounts,
    limit_to_capability,
    passes,
    reject_reason,
    set_ceilings,
    share,
    withheld_reason,
)
from .usageweight import USAGE_WEIGHT
from .victimrights import Rule, VictimRights

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

#: The argument by which the quota-ledger's rule holds (`hbox_ledger.core.evictions.preemption`): rights are those of the queues at which two branches part.
RECLAIM_AT_PARTING = "reclaimAtParting"

#: Volcano's switches for quotas of devices that are claimed (dynamic resource allocation): accepted where they are off.
_DEVICE_CLAIMS = ("capacity.DynamicResourceAllocationEnable", "capacity.DRAConsumableCapacityEnable")


class _DeservedAccounts(QueueAccounts):
    """Accounts with the limits and lines that follow from the tree.

    over_quota: the annotated weights; weights: those of them that grant rights. The ledger has no line beyond the deserved amount, so where its rule holds they
    only order the queues.
    """

    def __init__(self, session: "Session", *, hierarchy: bool, at_parting: bool) -> None:
        self._at_parting = at_parting
        self.faults: list[tuple[QueueInfo, InvalidRequest]] = []  #: of queues whose weight cannot be read
        written = {queue.name: self._read_weight(queue) for queue in session.queues.values()}
        self.annotated = any(weight is not None for weight in written.values())
        self._written = written
        super().__init__(session, hierarchy=hierarchy, parts=not at_parting and self.annotated, models=True)

    def resumes(self, session: "Session", *, hierarchy: bool, at_parting: bool = False) -> bool:
        return at_parting == self._at_parting and super().resumes(session, hierarchy=hierarchy)

    def _read_weight(self, queue: QueueInfo) -> float | None:
        try:
            return weight_of(queue)
        except InvalidRequest as e:
            self.faults.append((queue, e))
            return None

    def derive(self) -> None:
        resources = self._columns.resources
        self._general = frozenset(column for name, column in resources.items() if by_pool(name)[0] in (CPU, MEMORY))
        self.over_quota = {account: self._written[name] for name, account in self.accounts.items()}
        self.weights: dict[Account, float | None] = dict.fromkeys(self.over_quota) if self._at_parting else self.over_quota
        self._limits()
        self.lines = {account: self._counting(account) for account in self.accounts.values()}
        self.rights = _DeservedRights(self.lines)
        self.below: dict[Account, Collection[QueueName]] = {}
        self.highest = self.tops()

    def _limits(self) -> None:
        """Ceilings from the root down, guarantees and deserved amounts held to them."""
        for _, children in reversed(list(self.levels())):
            for account in children:
                if account.children:
                    below = map(sum, zip(*(child.guarantee for child in account.children), strict=True))
                    account.guarantee = list(map(max, account.guarantee, below))
        # The ledger knows the cluster's size no more than Volcano's admission does: its line is what is written.
        unlimited = [UNLIMITED] * self.size
        for parent, children in self.levels():
            room = self.total if parent is None else parent.ceiling
            if self._at_parting:
                # What others are guaranteed is lent (`hbox_common.model.lending`) where Volcano keeps it idle.
                for account in children:
                    account.ceiling = list(room)
                limit_to_capability(self, children)
            else:
                set_ceilings(self, children, room)
            for account in children:
                most = unlimited if self._at_parting else account.ceiling
                account.deserved = list(map(max, map(min, account.deserved, most), account.guarantee))

    def _counting(self, account: Account) -> frozenset[int]:
        """The columns in which the deserved amount is a line. Of cpu and memory 0 is as good as unnamed."""
        deserved, general = account.deserved, self._general
        if all(deserved[c] > 0 for c in account.named & general):
            return account.named
        return frozenset(c for c in account.named if c not in general or deserved[c] > 0)


class Capacity(
    BranchOrder, VictimQueueOrder, Enqueueable, Allocatable, Preemptive, Reclaimable, ReclaimRight, Evictable, Events
):
    """Arguments: ancestorReclaimLevel (0), reclaimAtParting (false), usageWeight (0). The tree counts where enableHierarchy is on."""

    name = "capacity"

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        self._level = arguments.integer("ancestorReclaimLevel", 0, least=0)
        self._at_parting = arguments.switch(RECLAIM_AT_PARTING, False)
        self._k = arguments.number(USAGE_WEIGHT, 0.0, least=0.0)
        for key in _DEVICE_CLAIMS:
            if arguments.switch(key, False):
                raise InvalidRequest(
                    f"plugin capacity, argument {key}: no service publishes ResourceClaims", hint="leave it out"
                )
        arguments.done()
        self._hierarchy = conf.hierarchy

    def open(self, session: "Session") -> None:
        self._session = session
        options = {"hierarchy": self._hierarchy, "at_parting": self._at_parting}
        self._queue_accounts = queue_accounts = _DeservedAccounts.opened(session, self.name, **options)
        for queue, fault in queue_accounts.faults:
            session.refuse(queue, fault)
        self._over_quota, self._weights = queue_accounts.over_quota, queue_accounts.weights
        self._lines, self._rights, self._tops = queue_accounts.lines, queue_accounts.rights, queue_accounts.highest
        self._below = queue_accounts.below
        self._takes = self._gives = self._fair_shares(
            0.0
        )  #: lines of fair shares: below them queues may take, above them they give
        self._turn_weights: dict[Account, tuple[float, float]] = {}
        self._in_turns = bool(self._k) or self._at_parting
        card = ALL_CORES if queue_accounts.percent else 1
        self._card = card / max(sum(queue_accounts.total[column] for column in queue_accounts.cards), card)
        if self._k:
            self._remember()
        self._rules()

    def _rules(self) -> None:
        """The lines as `hbox_common.model.rights` reads them, and the queues to compare."""
        queue_accounts, rights = self._queue_accounts, self._rights
        self._keys: dict[Account, tuple[object, ...]] = {}
        self._known_givers: dict[frozenset[int], dict[Account, bool]] = {}
        cards: Cards[int] = KeyedCards(queue_accounts.cards)
        self._takes_to, self._gives_from = (
            {account: {c: line[c] for c in self._lines[account]} for account, line in lines.items()}
            for lines in (self._takes, self._gives)
        )
        self._by_fair_share: Rule = FairShares(rights.rights, cards, self._takes_to.__getitem__, self._gives_from.__getitem__)
        self._by_deserved: Rule = (
            AtParting(rights.rights, cards) if self._at_parting else Nearest(rights.rights, cards, self._level)
        )
        self._cards_keys = cards
        self._victims = VictimRights(queue_accounts, rights, self._rule, cards)

    def _rule(self, account: Account) -> "Rule":
        return self._by_deserved if self._weights[account] is None else self._by_fair_share

    def _remember(self) -> None:
        """The effect of history on the lines, and on the order of queues beyond their deserved amounts."""
        queue_accounts, other = self._queue_accounts, self._fair_shares(self._k)
        if other:
            plain = self._takes
            self._takes = {a: [min(pair) for pair in zip(plain[a], other[a], strict=True)] for a in plain}
            self._gives = {a: [max(pair) for pair in zip(plain[a], other[a], strict=True)] for a in plain}
        for _, children in queue_accounts.levels():
            eager = [a for a in children if any(r > d for r, d in zip(a.requested, a.deserved, strict=True))]
            sums: dict[int, float] = {}
            for account in eager:
                sums[account.queue.priority] = sums.get(account.queue.priority, 0.0) + self._written(account)
            for account in eager:
                if written := self._written(account):
                    part = written / sums[account.queue.priority]
                    self._turn_weights[account] = corrected(part, queue_accounts.history(account), self._k)

    def _written(self, account: Account) -> float:
        """Its weight beyond what it deserves, without history."""
        weight = self._over_quota[account]
        return float(account.queue.weight) if weight is None else weight

    def _fair_shares(self, k: float) -> dict[Account, Sums]:
        """The lines up to which annotated queues may reclaim, and down to which they are reclaimed. Empty if no queue is annotated."""
        queue_accounts = self._queue_accounts
        fair: dict[Account, Sums] = {}
        if self._at_parting or not queue_accounts.annotated:
            return fair
        for parent, children in queue_accounts.levels():
            room = queue_accounts.total if parent is None or parent not in fair else fair[parent]
            for account in children:
                fair[account] = list(account.deserved)
            weighted = [account for account in children if self._weights[account] is not None]
            if not weighted:
                continue
            weighted.sort(key=lambda account: (account.queue.created_at, account.queue.name))
            used = [queue_accounts.history(account) for account in weighted] if k else []
            for column in range(queue_accounts.size):
                if not any(column in self._lines[account] for account in weighted):
                    for account in weighted:
                        fair[account][column] = UNLIMITED
                    continue
                others = sum(a.deserved[column] for a in children if self._weights[a] is None)
                available = min(room[column], queue_accounts.total[column]) - others
                unit = ALL_CORES if column in queue_accounts.percent else 1
                claims = [self._claim(account, column, unit) for account in weighted]
                if k:
                    claims = remembering(claims, used, k)
                for account, given in zip(weighted, divide(available // unit, claims), strict=True):
                    counts = column in self._lines[account]
                    fair[account][column] = max(unit * given, account.deserved[column]) if counts else UNLIMITED
        return fair

    def _claim(self, account: Account, column: int, unit: int) -> ShareDemand:
        """In whole units; a requested part counts as a whole one."""
        unlimited = column not in self._lines[account]
        return ShareDemand(
            deserved=UNLIMITED if unlimited else account.deserved[column] // unit,
            wanted=-(-min(account.ceiling[column], account.requested[column]) // unit),
            weight=self._weights[account] or 0.0,
            priority=account.queue.priority,
        )

    # Orders.

    def queue_key(self, queue: QueueInfo) -> tuple[object, ...]:
        """By priority, then by the used part of what it deserves; in a tree, at the highest level at which two paths differ."""
        return tuple(self._keys.get(account) or self._key_of(account) for account in self._queue_accounts.of(queue).path)

    def related(self, queue: QueueInfo) -> Iterable[QueueName]:
        """All below the same queue of the top level."""
        return self._names_below(self._queue_accounts.of(queue).path[0])

    def branch(self, queue: QueueInfo) -> QueueName:
        return self._queue_accounts.of(queue).path[0].queue.name

    def related_in_branch(self, queue: QueueInfo) -> Iterable[QueueName]:
        """All below the same queue of the second level."""
        path = self._queue_accounts.of(queue).path
        return self._names_below(path[1]) if len(path) > 1 else ()

    def _key_of(self, account: Account) -> tuple[object, ...]:
        """Its part of the keys of all below it, kept until what it has changes."""
        turn = self._turn(account) if self._in_turns else (self._share(account),)
        key = self._keys[account] = (-account.queue.priority, *turn, account.queue.created_at, account.queue.name)
        return key

    def _names_below(self, account: Account) -> Collection[QueueName]:
        """The queue and all below it."""
        found = self._below.get(account)
        if found is None:
            names: dict[QueueName, None] = {account.queue.name: None}
            for child in account.children:
                names.update(dict.fromkeys(self._names_below(child)))
            found = self._below[account] = names
        return found

    def _turn(self, account: Account) -> tuple[float, float, float]:
        """The order of queues. Within its deserved amount as without history; beyond it, by the part of the cluster that the queue would hold there with one
        card more, divided by its weight. Queues of weight 0 come last."""
        if (share := self._share(account)) < 1.0:
            return share, 0.0, 0.0
        part = max(0.0, self._beyond(account, share)) + self._card
        weight, last = self._turn_weights.get(account, (0.0, 0.0)) if self._k else (self._written(account), 0.0)
        return 1.0, part / weight if weight > 0 else inf, part / last if last > 0 else inf

    def _beyond(self, account: Account, share: float) -> float:
        """The part of the cluster that it has beyond what it deserves."""
        if self._at_parting and not self._lines[account]:
            return share - 1.0
        total, lines = self._queue_accounts.total, self._lines[account] or range(self._queue_accounts.size)
        return max(((account.allocated[c] - account.deserved[c]) / total[c] for c in lines if total[c] > 0), default=0.0)

    def _share(self, account: Account) -> float:
        """A queue that deserves nothing counts as fully used; an annotated queue that deserves 0 of a named resource counts as infinitely used. With
        `reclaimAtParting`, queues that deserve nothing are ordered by their part of the cluster, the smallest first; otherwise only their age would order
        them."""
        if not self._lines[account]:
            return 1.0 + share(account.allocated, self._queue_accounts.total) if self._at_parting else 1.0
        if self._weights[account] is not None and any(account.deserved[c] <= 0 for c in self._lines[account]):
            return inf
        return max(share((account.allocated[c],), (account.deserved[c],)) for c in self._lines[account])

    def relatives(self, preemptor: QueueInfo) -> Sequence[Collection[QueueName]]:
        """The more ancestors two queues share, the nearer they are."""
        found: list[Collection[QueueName]] = []
        inner: Collection[QueueName] = ()
        for account in reversed(self._queue_accounts.of(preemptor).path):
            names = self._names_below(account)
            found.append([name for name in names if name not in inner])
            inner = names
        return found

    # Gates.

    def enqueueable(self, gang: Gang) -> Vote:
        return Vote.PERMIT if passes(self._queue_accounts, gang) else Vote.REJECT

    def reject_reason(self, gang: Gang) -> str:
        return reject_reason(self._queue_accounts, gang)

    def enqueued(self, gang: Gang) -> None:
        self._queue_accounts.commit(gang)

    def room(self, queue: QueueInfo, member: Member, most: int) -> int:
        account, asked = self._queue_accounts.of(queue), self._queue_accounts.asked_with_models(member)
        if not account.open or not account.leaf:
            return 0
        for one in account.path:
            most = one.times(one.ceiling, asked, most)
        if member.preemptable or most <= 0:
            return most
        return most if self._may_stay(account, member, asked, most) else int(self._may_stay(account, member, asked))

    def withheld_reason(self, queue: QueueInfo, members: Sequence[Member]) -> str:
        accounts = self._queue_accounts
        account, ceilings = accounts.of(queue), {one: one.ceiling for one in accounts.of(queue).path}
        if why := withheld_reason(accounts, account, ceilings, members, label=Label.QUEUE_CAPABILITY):
            return why
        if all(self._may_stay(account, member, accounts.asked_with_models(member)) for member in members):
            return ""
        return (
            f"{Label.QUEUE_SHARE}: pods that may not be evicted stay within what queue {queue.name} and those above it deserve"
        )

    def _may_stay(self, account: Account, member: Member, asked: Asked, times: int = 1) -> bool:
        """Members that may not be evicted cannot be reclaimed, so annotated queues hold them within the deserved amount only. `times`: number of such
        members."""
        if member.preemptable:
            return True
        return all(
            not beyond(self._rights.rights(one).deserved, one.protected, {column: times * units for column, units in asked})
            for one in account.path
            if self._weights[one] is not None
        )

    # Taking back.

    def preemptive(self, queue: QueueInfo, member: Member) -> bool:
        """Within its ceiling and, for some requested resource, within what it or one of the counted ancestors deserves; annotated queues: within their fair
        share of every resource. If the member's model is unknown: with some model."""
        variants = self._session.models.variants(member) if self._queue_accounts.models else ()
        for variant in variants:
            with self._session.models.tried(member, variant):
                if self._preemptive(queue, member):
                    return True
        return not variants and self._preemptive(queue, member)

    def _preemptive(self, queue: QueueInfo, member: Member) -> bool:
        account, asked = self._queue_accounts.of(queue), self._queue_accounts.asked_with_models(member)
        if (
            not account.open
            or not account.leaf
            or not account.fits(account.ceiling, asked)
            or not self._may_stay(account, member, asked)
        ):
            return False
        return self._rule(account).entitled(account.path, dict(asked), self._rights.used)

    def reclaimable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        """Each chosen candidate counts when the next one is judged; a gang whose minimum would break counts as one loss if all its members are candidates. If
        the preemptor's card model is unknown: the candidates that it may reclaim with every model that it may get."""
        variants = self._session.models.variants(preemptor) if self._queue_accounts.models else ()
        for variant in variants:
            with self._session.models.tried(preemptor, variant):
                candidates = self._victims.reclaimable(preemptor, candidates)
        return list(candidates) if variants else self._victims.reclaimable(preemptor, candidates)

    def rightful(self, preemptor: Gang, victims: Sequence[Member]) -> bool:
        return not self._at_parting or self._victims.rightful(preemptor, victims)

    def evictable(self, preemptor: Gang, candidates: Sequence[Member], *, reclaim: bool) -> list[Member] | None:
        """The largest member represents a whole gang."""
        if not reclaim or not preemptor.members:
            return None
        largest = max(
            preemptor.members, key=lambda member: sum(units for _, units in self._queue_accounts.asked_with_models(member))
        )
        return self.reclaimable(largest, candidates)

    def giving(self, preemptor: Member) -> Collection[QueueName] | None:
        """By the ledger's rule: queues whose branch, where it parts from the preemptor's, may lose something of the requested kind, if the preemptor's branch
        may reclaim all that its gang still needs. If the nearest relatives cannot give all of it, they give none."""
        account = self._queue_accounts.accounts.get(preemptor.gang.queue)
        if not self._at_parting or account is None:
            return None
        wanted = frozenset(column for column, _ in self._queue_accounts.asked_with_models(preemptor))
        needs = self._victims.least_needs(preemptor)
        names: set[QueueName] = set()
        siblings: Sequence[Account] = self._tops
        known = self._known_givers.setdefault(wanted, {})
        for own in account.path:
            if self._victims.entitled(own, needs):
                for other in siblings:
                    if (gives := known.get(other)) is None:
                        gives = known[other] = self._may_give(other, wanted)
                    if gives and other is not own:
                        names.update(self._names_below(other))
            siblings = own.children
        return names

    def _may_give(self, account: Account, wanted: frozenset[int]) -> bool:
        deserved = self._rights.rights(account).deserved
        return any(may_lose(deserved, account.allocated, dict(loss), wanted, self._cards_keys) for loss in account.shapes)

    def placed(self, member: Member, row: int) -> None:
        self._queue_accounts.placed(member, row)
        self._changed(member)

    def placed_uniform(self, members: Sequence[Member]) -> None:
        self._queue_accounts.placed_uniform(members)
        self._changed(members[0])

    def displaced(self, member: Member, row: int) -> None:
        self._queue_accounts.displaced(member, row)
        self._changed(member)

    def _changed(self, member: Member) -> None:
        account = self._queue_accounts.accounts.get(member.gang.queue) if self._keys or self._known_givers else None
        for one in account.path if account is not None else ():
            self._keys.pop(one, None)
            for known in self._known_givers.values():
                known.pop(one, None)


class _DeservedRights:
    """Accounts as `Reclaim` reads them; their lines do not change while a session lasts."""

    def __init__(self, lines: Mapping[Account, frozenset[int]]) -> None:
        self._lines = lines
        self._of: dict[Account, Rights[int]] = {}

    def rights(self, account: Account) -> Rights[int]:
        found = self._of.get(account)
        if found is None:
            lines, deserved = self._lines[account], account.deserved
            guarantee = {column: units for column, units in enumerate(account.guarantee) if units > 0}
            entitlement = {column: deserved[column] for column in {*lines, *guarantee}}
            found = self._of[account] = Rights({c: deserved[c] for c in lines}, guarantee, entitlement)
        return found

    def used(self, account: Account) -> Sums:
        return account.allocated

    def copy_of_used(self, account: Account) -> Sums:
        return account.allocated.copy()


def weight_of(queue: QueueInfo) -> float | None:
    """Its over-quota weight; None = the queue does not say. Raises InvalidRequest."""
    text = queue.annotations.get(OVER_QUOTA_WEIGHT)
    if text is None:
        return None
    try:
        weight = float(text)
    except ValueError as e:
        raise InvalidRequest(f"queue {queue.name}, annotation {OVER_QUOTA_WEIGHT}: {text!r} is not a number") from e
    if not 0 <= weight < inf:
        raise InvalidRequest(f"queue {queue.name}, annotation {OVER_QUOTA_WEIGHT}: {text} is not a number of at least 0")
    return weight
