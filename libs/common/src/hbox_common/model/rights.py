"""Rules of reclaiming, preemption and remaining quota: the one definition used by ledger, engine and previews.

Amounts are compared by key: a resource's name in the ledger and in previews, a column in the engine's arrays. The rules do not depend on the kind of key.

    guarantee   is never reclaimed from the queue or any of its ancestors (up to the common ancestor with the preemptor)
    deserved    is the line above which others may reclaim; from a queue without a line for the resources it would lose, others may always reclaim
    entitlement is what a queue may reclaim: what it deserves, and at least its guarantee
    capability  is never exceeded (`headroom`)

Reclaiming (between queues) compares two paths. The `Comparison` selects the queues compared: `AtParting` (the children of the lowest common ancestor: HBox's
ledger, ADR 15), `Nearest` (the queues themselves and some ancestors: Volcano) or `FairShares` (a second line above the deserved amount: KAI-Scheduler). Victims
are checked one after the other; each accepted one counts as evicted for the next (`Reclaim`).

Preempting (inside a queue) compares priorities only.

A loss is an amount, not a pod. A gang loses its surplus members one by one; if its minimum breaks, the rest of it is evicted together as one loss (`units`): a
gang that crosses the line is evicted although its queue then keeps less than the line. A gang that has its minimum may reclaim for its other pods too while its
queue has less than it deserves, but only if no other gang's minimum breaks (`keeps_minimum`). The caller decides which pods are preemptible, and keeps track of
previous evictions; the module keeps no state beyond one `Reclaim`, and reads no clock.
"""

from collections import Counter
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from .cardmodels import is_model
from .devices import VENDORS
from .pools import by_pool

K = TypeVar("K", bound=Hashable)
Q = TypeVar("Q", bound=Hashable)
G = TypeVar("G", bound=Hashable)
V = TypeVar("V")
_In_contra = TypeVar("_In_contra", contravariant=True)
_Queue_contra = TypeVar("_Queue_contra", contravariant=True)
_Out_co = TypeVar("_Out_co", covariant=True)


class Amounts(Protocol[_In_contra]):
    """Base units by key: a list by column, or by name with 0 for what is missing (`Named`, Counter)."""

    def __getitem__(self, key: _In_contra, /) -> int: ...


class Line(Protocol[_In_contra]):
    """An amount by key that others are compared with; parts of units where it is a share."""

    def __getitem__(self, key: _In_contra, /) -> float: ...


class Named(Generic[K]):
    """A mapping as `Amounts`, less what is to be freed."""

    __slots__ = ("_freed", "_units")

    def __init__(self, units: Mapping[K, int], freed: Mapping[K, int] | None = None) -> None:
        self._units, self._freed = units, freed

    def __getitem__(self, key: K, /) -> int:
        units = self._units.get(key, 0)
        return units if self._freed is None else units - self._freed.get(key, 0)


class Held(Amounts[_In_contra], Protocol[_In_contra]):
    """Amounts that change as victims are judged."""

    def __setitem__(self, key: _In_contra, units: int, /) -> None: ...


class Cards(Protocol[K]):
    """The keys of cards."""

    def totals(self, among: Sequence[K]) -> Sequence[K]:
        """Of all of one vendor's cards together, in one pool; those that may be among these keys."""
        ...

    def is_model(self, key: K, total: K | None = None) -> bool:
        """Whether the key counts cards of one model: of the vendor whose cards `total` counts, or of any."""
        ...


@dataclass(frozen=True, slots=True)
class KeyedCards(Generic[K]):
    """Cards by the keys of each vendor's: of all of them, and of its models."""

    by_total: Mapping[K, Container[K]]

    def totals(self, among: Sequence[K]) -> Sequence[K]:  # noqa: ARG002  # the protocol's signature
        return tuple(self.by_total)

    def is_model(self, key: K, total: K | None = None) -> bool:
        return any(key in models for of, models in self.by_total.items() if total is None or of == total)


class _CardsByName:
    def totals(self, among: Sequence[str]) -> Sequence[str]:
        return [key for key in among if by_pool(key)[0] in VENDORS]

    def is_model(self, key: str, total: str | None = None) -> bool:
        resource, pool = by_pool(key)
        if total is None:
            return is_model(resource)
        cards, whose = by_pool(total)
        return is_model(resource) and pool == whose and resource.startswith(f"{cards}.")


#: Cards where keys are the names of resources.
CARDS_BY_NAME: Cards[str] = _CardsByName()


@dataclass(frozen=True, slots=True)
class Rights(Generic[K]):
    """The rights of a queue with all its descendants. Only named keys have a line: `{key: 0}` is a line at 0, a missing key is none."""

    deserved: Mapping[K, int] = field(default_factory=dict)
    guarantee: Mapping[K, int] = field(default_factory=dict)
    entitlement: Mapping[K, int] = field(default_factory=dict)


def judged(amounts: Mapping[K, int], named: Container[K], cards: Cards[K]) -> list[K]:
    """The keys of `amounts` that are compared for a queue that names `named`. If it names the models of all of these cards, its lines for the models replace
    the one for all cards: a queue with too many cards of one model loses only cards of that model."""
    keys = [key for key, units in amounts.items() if units > 0 and key in named]
    for total in cards.totals(keys):
        if total in keys and sum(amounts[key] for key in keys if cards.is_model(key, total)) >= amounts[total]:
            keys.remove(total)
    return keys


# Reclaiming, by two queues that are compared.


class GivesBack(Protocol):
    """A queue, as far as it determines whether others may reclaim from it."""

    @property
    def reclaimable(self) -> bool: ...


def reclaimable(queue: GivesBack | None, *, preemptable: bool) -> bool:
    """Whether other queues may reclaim the resources of such a pod; false for an unknown queue. Non-preemptible work must not use others' guarantees
    (`lending`)."""
    return preemptable and queue is not None and queue.reclaimable


def within(limit: Line[K], used: Amounts[K], asked: Iterable[tuple[K, int]]) -> bool:
    """Whether `asked` on top of `used` is within a limit that has every key."""
    return all(used[key] + units <= limit[key] for key, units in asked)


def beyond(line: Mapping[K, int], used: Amounts[K], asked: Mapping[K, int]) -> list[K]:
    """The keys in which `asked` on top of `used` is more than the line; what the line does not name is never beyond it."""
    return [key for key, units in asked.items() if key in line and units > 0 and used[key] + units > line[key]]


def not_entitled(entitlement: Mapping[K, int], used: Amounts[K], asked: Mapping[K, int], cards: Cards[K]) -> list[K] | None:
    """The keys in which a queue that uses `used` would exceed its entitlement after adding `asked`. None: it is entitled to none of the requested resources; an
    empty list: it may reclaim all of them."""
    keys = judged(asked, entitlement, cards)
    return [key for key in keys if used[key] + asked[key] > entitlement[key]] if keys else None


def may_lose(
    deserved: Mapping[K, float], used: Amounts[K], loss: Mapping[K, int], wanted: Container[K], cards: Cards[K]
) -> bool:
    """Whether a queue that uses `used` may lose `loss` to a request for `wanted`: the loss contains a wanted resource in which the queue exceeds its line. If
    it has no line for the wanted resources, it must exceed one for another resource of the loss; without any line, others may always reclaim from it. Lines of
    models count whether or not the models are wanted by name."""
    gives = [key for key, units in loss.items() if units > 0 and key in wanted]
    if not gives:
        return False
    named = judged(loss, deserved, cards)
    lines = [key for key in named if key in wanted or cards.is_model(key)] or named
    return not lines or any(used[key] > deserved[key] for key in lines)


def may_be_protected(path: Iterable[tuple[Rights[K], Amounts[K]]], asked: Mapping[K, int], cards: Cards[K]) -> bool:
    """Whether `asked` may be protected from preemption if administrators made its class non-preemptible: only within the entitlement of each queue of the path,
    for one of the requested resources. path: each queue's rights, and its protected usage. The rest is borrowed and can be reclaimed."""
    return all(not_entitled(rights.entitlement, protected, asked, cards) == [] for rights, protected in path)


def below_guarantee(guarantee: Mapping[K, int], used: Amounts[K], loss: Mapping[K, int]) -> list[K]:
    """The keys of the loss in which a queue would keep less than its guarantee."""
    return [
        key for key, units in guarantee.items() if units > 0 and (less := loss.get(key, 0)) > 0 and used[key] - less < units
    ]


def excess(rights: Rights[K], used: Amounts[K], key: K) -> int:
    """How much of one resource a queue uses beyond what it is entitled to; none where it has no line."""
    return max(0, used[key] - rights.entitlement[key]) if key in rights.entitlement else 0


def spare(rights: Rights[K], used: Amounts[K], key: K) -> int:
    """The part of a queue's usage of one resource that others may reclaim: the usage beyond its entitlement, or all of it if it has no line."""
    return max(0, used[key] - rights.entitlement.get(key, 0))


def lacking(rights: Rights[K], used: Amounts[K], key: K) -> int:
    """How much of one resource a queue may still take back from others."""
    return max(0, rights.entitlement.get(key, 0) - used[key])


# Reclaiming, by two paths.


class Queues(Protocol[_Queue_contra, K]):
    """What the rules read of queues. Paths are from the topmost queue down to the queue itself."""

    def rights(self, queue: _Queue_contra, /) -> Rights[K]: ...
    def used(self, queue: _Queue_contra, /) -> Amounts[K]: ...
    def copy_of_used(self, queue: _Queue_contra, /) -> Held[K]: ...


#: What a queue uses, as far as victims have been judged.
Using = Callable[[Q], Amounts[K]]


class Comparison(Protocol[Q, K]):
    """Selects the compared queues of two paths, and their lines. `used`: present usage of each queue."""

    def entitled(self, path: Sequence[Q], asked: Mapping[K, int], used: Using[Q, K]) -> bool:
        """Whether a queue may take from others at all for `asked`. path: from the topmost queue to the queue itself."""
        ...

    def wanted(self, path: Sequence[Q], asked: Mapping[K, int], used: Using[Q, K]) -> Collection[K]:
        """The keys in which it may."""
        ...

    def allows(  # noqa: PLR0917  # the two paths, what moves, and how things stand
        self,
        ours: Sequence[Q],
        theirs: Sequence[Q],
        asked: Mapping[K, int],
        wanted: Container[K],
        loss: Mapping[K, int],
        used: Using[Q, K],
    ) -> bool:
        """Whether the last queue of `ours` may reclaim `loss` from the last queue of `theirs` for `asked`. Both paths start below their lowest common ancestor;
        `wanted`: see the method. Guarantees are not checked. A refusal remains valid as more of `theirs` are evicted."""
        ...


@dataclass(frozen=True, slots=True)
class AtParting(Generic[Q, K]):
    """Compares the two queues below the lowest common ancestor (ADR 15): between projects of a department the projects' deserved amounts count, between
    departments the departments'."""

    rights: Callable[[Q], Rights[K]]
    cards: Cards[K]

    def entitled(self, path: Sequence[Q], asked: Mapping[K, int], used: Using[Q, K]) -> bool:
        return any(self._may_have(one, asked, used) for one in path)

    def wanted(self, path: Sequence[Q], asked: Mapping[K, int], used: Using[Q, K]) -> Collection[K]:  # noqa: ARG002  # the protocol's signature
        return asked

    def allows(  # noqa: PLR0917
        self,
        ours: Sequence[Q],
        theirs: Sequence[Q],
        asked: Mapping[K, int],
        wanted: Container[K],
        loss: Mapping[K, int],
        used: Using[Q, K],
    ) -> bool:
        return bool(ours and theirs) and self._may_have(ours[0], asked, used) and self.gives(theirs, wanted, loss, used)

    def gives(self, theirs: Sequence[Q], wanted: Container[K], loss: Mapping[K, int], used: Using[Q, K]) -> bool:
        """The reclaimee's half of it."""
        return may_lose(self.rights(theirs[0]).deserved, used(theirs[0]), loss, wanted, self.cards)

    def _may_have(self, queue: Q, asked: Mapping[K, int], used: Using[Q, K]) -> bool:
        return not_entitled(self.rights(queue).entitlement, used(queue), asked, self.cards) == []


@dataclass(frozen=True, slots=True)
class Nearest(Generic[Q, K]):
    """The queues themselves and `level` ancestors of each are compared, the preemptor's by any resource and any of its queues, the victim's by all of its
    queues (Volcano's capacity plugin, `ancestorReclaimLevel`; sources: volcano-capacity)."""

    rights: Callable[[Q], Rights[K]]
    cards: Cards[K]
    level: int

    def entitled(self, path: Sequence[Q], asked: Mapping[K, int], used: Using[Q, K]) -> bool:
        return bool(self.wanted(path, asked, used))

    def wanted(self, path: Sequence[Q], asked: Mapping[K, int], used: Using[Q, K]) -> Collection[K]:
        found: set[K] = set()
        for one in self._nearest(path):
            entitlement, has = self.rights(one).entitlement, used(one)
            found.update(key for key, units in asked.items() if has[key] + units <= entitlement.get(key, 0))
        return found

    def allows(  # noqa: PLR0917
        self,
        ours: Sequence[Q],
        theirs: Sequence[Q],
        asked: Mapping[K, int],  # noqa: ARG002  # the protocol's signature
        wanted: Container[K],
        loss: Mapping[K, int],
        used: Using[Q, K],
    ) -> bool:
        return bool(ours and theirs) and all(
            may_lose(self.rights(one).deserved, used(one), loss, wanted, self.cards) for one in self._nearest(theirs)
        )

    def _nearest(self, path: Sequence[Q]) -> Sequence[Q]:
        return path[-1 - self.level :] if self.level < len(path) else path


@dataclass(frozen=True, slots=True)
class FairShares(Generic[Q, K]):
    """Compares the two queues below the lowest common ancestor, and keeps every queue of the preemptor's path within its fair share: a request within the
    deserved amount reclaims from queues above theirs, a request beyond it only from queues above their fair share (KAI-Scheduler, sources: kai-actions).

    takes, gives: by queue, the fair share up to which it may reclaim, and beyond which others may reclaim from it (they differ if history counts).
    """

    rights: Callable[[Q], Rights[K]]
    cards: Cards[K]
    takes: Callable[[Q], Mapping[K, int]]
    gives: Callable[[Q], Mapping[K, int]]

    def entitled(self, path: Sequence[Q], asked: Mapping[K, int], used: Using[Q, K]) -> bool:
        own = path[-1]
        return not beyond(self.takes(own), used(own), asked)

    def wanted(self, path: Sequence[Q], asked: Mapping[K, int], used: Using[Q, K]) -> Collection[K]:  # noqa: ARG002  # the protocol's signature
        return asked

    def allows(  # noqa: PLR0917
        self,
        ours: Sequence[Q],
        theirs: Sequence[Q],
        asked: Mapping[K, int],
        wanted: Container[K],
        loss: Mapping[K, int],
        used: Using[Q, K],
    ) -> bool:
        if not ours or not theirs or any(beyond(self.takes(one), used(one), asked) for one in ours):
            return False
        own, other = ours[0], theirs[0]
        within = not beyond(self.rights(own).deserved, used(own), asked)
        line = self.rights(other).deserved if within else self.gives(other)
        return may_lose(line, used(other), loss, wanted, self.cards)


class Reclaim(Generic[Q, K]):
    """One preemptor's victims in other queues, judged one after the other: each one that may leave counts as gone for the next."""

    def __init__(self, queues: Queues[Q, K]) -> None:
        self._queues = queues
        self._left: dict[Q, Held[K]] = {}

    def used(self, queue: Q) -> Amounts[K]:
        """The usage of the queue with its descendants, without the accepted victims."""
        found = self._left.get(queue)
        return self._queues.used(queue) if found is None else found

    def leaves(self, path: Iterable[Q], loss: Mapping[K, int]) -> None:
        """Subtract a victim from the usage of all queues of this path."""
        left = self._left
        for queue in path:
            has = left.get(queue)
            if has is None:
                has = left[queue] = self._queues.copy_of_used(queue)
            for key, units in loss.items():
                has[key] -= units

    def guaranteed(self, theirs: Iterable[Q], loss: Mapping[K, int]) -> tuple[Q, list[K]] | None:
        """The first queue of the losing branch, from the top down, that would fall below its guarantee, and the keys; None: all keep theirs."""
        for queue in theirs:
            if (guarantee := self._queues.rights(queue).guarantee) and (
                keys := below_guarantee(guarantee, self.used(queue), loss)
            ):
                return queue, keys
        return None


class Standing(NamedTuple):
    """The state of a gang: members that are placed and stay, and its minimum."""

    holding: int
    needs: int


def keeps_minimum(gang: Standing, leave: int) -> bool:
    """Whether this many members may be evicted for a request beyond another gang's minimum: only surplus members. A single pod that needs no others has no
    minimum to break."""
    return gang.needs <= 1 or gang.holding - leave >= gang.needs


def units(victims: Sequence[V], gang_of: Callable[[V], G], standing: Callable[[G], Standing]) -> list[list[V]]:
    """Victims grouped into losses, in order: the surplus members of each gang one by one, and the remaining members of a gang that is evicted whole together,
    at the position of the first of them. If not all placed members of a gang are victims, each is a loss of its own."""
    named = Counter(map(gang_of, victims))
    if len(named) == len(victims):
        return [[victim] for victim in victims]
    spare: dict[G, int] = {}
    for gang, count in named.items():
        holding, needs = standing(gang)
        spare[gang] = max(0, holding - needs) if count >= holding and needs > 1 else count
    found: list[list[V]] = []
    whole: dict[G, list[V]] = {}
    for victim in victims:
        gang = gang_of(victim)
        if spare[gang] > 0:
            spare[gang] -= 1
            found.append([victim])
        elif gang in whole:
            whole[gang].append(victim)
        else:
            found.append([victim])
            whole[gang] = found[-1]
    return found


# Preempting inside a queue, and moving.


class Ranked(Protocol[_Out_co]):
    """A priority, or an array of them."""

    def __lt__(self, other: int, /) -> _Out_co: ...
    def __le__(self, other: int, /) -> _Out_co: ...


def may_preempt(preemptor: int, victim: Ranked[_Out_co]) -> _Out_co:
    """Whether a job of the preemptor's priority may have one of the victim's leave in the same queue: only a lower priority gives, never an equal one. For an
    array of priorities an array of answers."""
    return victim < preemptor


def may_move(preemptor: int, victim: Ranked[_Out_co]) -> _Out_co:
    """Whether a job of the preemptor's priority may move one of the victim's to another place, where it continues: allowed for equal priority too."""
    return victim <= preemptor


# What a queue may still have.


@dataclass(frozen=True, slots=True)
class Limit(Generic[Q, K]):
    """A limit of one queue, and what it uses together with all below it."""

    queue: Q
    most: Mapping[K, int]
    used: Amounts[K]


@dataclass(frozen=True, slots=True)
class Blocking(Generic[Q, K]):
    """The limit that leaves the least: `limit` of `key`, of which `used` are in use; `times` as much more fits."""

    times: int
    queue: Q
    key: K
    limit: int
    used: int


def headroom(limits: Iterable[Limit[Q, K]], each: Mapping[K, int]) -> Blocking[Q, K] | None:
    """How many times `each` fits under all limits, of equal ones by the first. None: no limit names anything that is asked for. A limit that is exceeded
    already leaves room for none."""
    found: Blocking[Q, K] | None = None
    for limit in limits:
        for key, most in limit.most.items():
            units = each.get(key, 0)
            if units <= 0:
                continue
            times = max(most - limit.used[key], 0) // units
            if found is None or times < found.times:
                found = Blocking(times, limit.queue, key, most, limit.used[key])
    return found


def remaining(limits: Iterable[Limit[Q, K]], counted: Callable[[K], bool]) -> dict[K, int]:
    """Remaining amount of all limits for each counted key, at least 0; keys without a limit are left out."""
    left: dict[K, int] = {}
    for limit in limits:
        for key, most in limit.most.items():
            if counted(key):
                more = max(most - limit.used[key], 0)
                left[key] = min(left.get(key, more), more)
    return left
