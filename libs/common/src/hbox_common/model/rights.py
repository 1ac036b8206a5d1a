"""Who may take what from whom, and what a queue may still have: the one definition that ledger, engine and previews call.

Amounts are judged by key: a resource's name in the ledger and in previews, a column in the engine's arrays. Whatever the key, the rules are these.

    guarantee   is never taken from the queue or from any queue above it (as far as the preemptor's path does not share that queue)
    deserved    is the line above which a queue may be taken from; a queue without a line in what it would lose may always be taken from
    entitlement is what a queue may take back: what it deserves, and at least its guarantee
    capability  is never exceeded (`headroom`)

Reclaiming (between queues) compares two paths. Which queues of the paths stand for them is the `Comparison`: `AtParting` (the two below the last queue that
stands above both: HBox's ledger, ADR 15), `Nearest` (the queues themselves and some ancestors: Volcano) or `FairShares` (a second line beyond the deserved
amount: KAI-Scheduler). Victims are judged one after the other, each one that may leave counting as gone for the next (`Reclaim`).

Preempting (inside a queue) compares priorities alone.

A loss is an amount, not a pod. A gang loses what it can spare one by one; where its minimum breaks it goes whole, and what is left of it is one loss
(`units`): a gang across the line goes although its queue keeps less than the line then. A gang that has its minimum takes back for the rest of its pods too, as
long as its queue has less than it deserves, but only what breaks no other (`keeps_minimum`). What may be taken at all (non-preemptible pods) and what was taken
already stay with the caller; the module keeps no state beyond one `Reclaim`, and reads no clock.
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
        """Whether the key stands for cards of one model: of the vendor whose cards `total` counts, or of any."""
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
    """What is a queue's own, together with all below it. Only what is named has a line: `{key: 0}` is a line at 0, a missing key is none."""

    deserved: Mapping[K, int] = field(default_factory=dict)
    guarantee: Mapping[K, int] = field(default_factory=dict)
    entitlement: Mapping[K, int] = field(default_factory=dict)


def judged(amounts: Mapping[K, int], named: Container[K], cards: Cards[K]) -> list[K]:
    """The keys of `amounts` by which a queue is judged that names `named`. Where it names the models of all of these cards, its line for each model stands in
    place of the one for all cards: who has too many of one model gives of that one and of no other."""
    keys = [key for key, units in amounts.items() if units > 0 and key in named]
    for total in cards.totals(keys):
        if total in keys and sum(amounts[key] for key in keys if cards.is_model(key, total)) >= amounts[total]:
            keys.remove(total)
    return keys


# Reclaiming, by two queues that are compared.


class GivesBack(Protocol):
    """A queue, as far as it says whether it may be taken from at all."""

    @property
    def reclaimable(self) -> bool: ...


def reclaimable(queue: GivesBack | None, *, preemptable: bool) -> bool:
    """Whether other queues may take back what such a pod holds; of a queue that nobody knows nothing is taken. What is not reclaimable may not stand on what
    others are guaranteed (`lending`)."""
    return preemptable and queue is not None and queue.reclaimable


def within(limit: Line[K], used: Amounts[K], asked: Iterable[tuple[K, int]]) -> bool:
    """Whether `asked` on top of `used` is within a limit that has every key."""
    return all(used[key] + units <= limit[key] for key, units in asked)


def beyond(line: Mapping[K, int], used: Amounts[K], asked: Mapping[K, int]) -> list[K]:
    """The keys in which `asked` on top of `used` is more than the line; what the line does not name is never beyond it."""
    return [key for key, units in asked.items() if key in line and units > 0 and used[key] + units > line[key]]


def not_entitled(entitlement: Mapping[K, int], used: Amounts[K], asked: Mapping[K, int], cards: Cards[K]) -> list[K] | None:
    """In what a queue that uses `used` would have more than it is entitled to with `asked` on top. None: it is entitled to nothing of what is asked for; an
    empty list: it may take all of it back."""
    keys = judged(asked, entitlement, cards)
    return [key for key in keys if used[key] + asked[key] > entitlement[key]] if keys else None


def may_lose(
    deserved: Mapping[K, float], used: Amounts[K], loss: Mapping[K, int], wanted: Container[K], cards: Cards[K]
) -> bool:
    """Whether a queue that uses `used` has something to give with `loss`, to one who wants `wanted`: the loss frees some of that, and the queue has more
    than it deserves in some of it. Where it has no line in what is wanted, in something else that it would lose; without any line it may always be taken
    from. Lines of models count whether they are wanted by name or not."""
    gives = [key for key, units in loss.items() if units > 0 and key in wanted]
    if not gives:
        return False
    named = judged(loss, deserved, cards)
    lines = [key for key in named if key in wanted or cards.is_model(key)] or named
    return not lines or any(used[key] > deserved[key] for key in lines)


def may_be_protected(path: Iterable[tuple[Rights[K], Amounts[K]]], asked: Mapping[K, int], cards: Cards[K]) -> bool:
    """Whether `asked` may be such that nobody takes it, though the administrators' data say so of its class: only within what each queue of the path is
    entitled to, in something that is asked for. path: what is each queue's own, and what of it is so already. The rest is borrowed, and can be taken back."""
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
    """How much of one resource others may take of what a queue uses: beyond what it is entitled to, and all of it where it has no line."""
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
    """Which queues of two paths are compared, and by which lines. `used`: what each queue has as things stand."""

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
        """Whether the queue at the end of `ours`, for `asked`, may have the one at the end of `theirs` lose `loss`. Both paths are below the last queue that
        stands above both; `wanted` as the method says. Guarantees are not looked at. What is refused stays
        refused as more of `theirs` leave."""
        ...


@dataclass(frozen=True, slots=True)
class AtParting(Generic[Q, K]):
    """The two queues at which the paths part are compared (ADR 15): between projects of a department what the projects deserve counts, between departments what
    the departments deserve."""

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
    queues (Volcano's capacity plugin, `ancestorReclaimLevel`; reference volcano §4)."""

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
    """The two queues at which the paths part are compared, and every queue of the preemptor's has to stay within its fair share: who asks within what it
    deserves takes from those above their deserved amount, who asks beyond it from those above their fair share alone (KAI-Scheduler, reference peers §2).

    takes, gives: by queue, the fair share up to which it may take, and beyond which it may be taken from (they differ where history counts).
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
        """What the queue, with all below it, uses without those who leave."""
        found = self._left.get(queue)
        return self._queues.used(queue) if found is None else found

    def leaves(self, path: Iterable[Q], loss: Mapping[K, int]) -> None:
        """Somebody who counts in all queues of this path leaves."""
        left = self._left
        for queue in path:
            has = left.get(queue)
            if has is None:
                has = left[queue] = self._queues.copy_of_used(queue)
            for key, units in loss.items():
                has[key] -= units

    def guaranteed(self, theirs: Iterable[Q], loss: Mapping[K, int]) -> tuple[Q, list[K]] | None:
        """The queue of the giving branch, from the top down, that would keep less than its guarantee, and of what; None: all keep theirs."""
        for queue in theirs:
            if (guarantee := self._queues.rights(queue).guarantee) and (
                keys := below_guarantee(guarantee, self.used(queue), loss)
            ):
                return queue, keys
        return None


class Standing(NamedTuple):
    """How a gang stands: how many members hold a place and do not leave, and how many it needs."""

    holding: int
    needs: int


def keeps_minimum(gang: Standing, leave: int) -> bool:
    """Whether so many members may leave a gang for what another one has beyond its minimum: that takes surplus, and breaks nobody. Of a single pod that needs
    no other there is no minimum to break."""
    return gang.needs <= 1 or gang.holding - leave >= gang.needs


def units(victims: Sequence[V], gang_of: Callable[[V], G], standing: Callable[[G], Standing]) -> list[list[V]]:
    """Victims as they are judged, each list one loss, in their order: one by one the first members that their gangs can spare, and together, where the first of
    them stands, all the others of a gang that goes whole. Of a gang that would be left in pieces each is a loss of its own."""
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
    """Whether a job of the preemptor's priority may have one of the victim's move to another place, where it goes on: equal priority may be asked to."""
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
    """What all limits leave of each key that counts, at least 0; of keys that no limit names nothing is said."""
    left: dict[K, int] = {}
    for limit in limits:
        for key, most in limit.most.items():
            if counted(key):
                more = max(most - limit.used[key], 0)
                left[key] = min(left.get(key, more), more)
    return left
