"""Queues as a tree: their parents, the usage of each with its descendants, and what its limits still allow.

    root            implied; no limits but the cluster's
      dept-a        its amounts apply to all its descendants together
        train       a leaf: only leaves accept work
        serve
      dept-b

Both scheduler-core and quota-ledger use this module, so that the ledger does not reject what the scheduler proposes. They count each queue's own usage (`own`)
and record every change with `book`; the module maintains the sums of the subtrees.

A resource that a queue does not name is limited only by its ancestors, and has no guarantee or deserved amount. A queue whose parent does not exist, or that
is its own ancestor, accepts no work: otherwise a typing error in a name would lift a department's limits.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass

from .cardmodels import is_model, named_models
from .cardparts import cards_of_share, cards_text, has_partitions, in_parts
from .claim import Refusal, RefusalReason
from .devices import VENDORS
from .ids import DEFAULT_QUEUE, QueueName
from .minruntime import RunTime, run_time_of
from .pools import POOLED, PUBLIC, Pools, amounts_in, by_pool, counted_as, is_exclusive, of_pool
from .queue import ANY, NO_CLASS, Queue, QueuePhase
from .resources import CPU, MEMORY, Resources, add
from .rights import Blocking, Limit, Named, Rights, headroom, remaining
from .sickhardware import SickPolicy, first_policy

#: Volcano's name of the root. An object of that name limits nothing and accepts no work.
ROOT_QUEUE = QueueName("root")

#: The queue of pods that name none is there without anybody making it.
_DEFAULT = Queue(DEFAULT_QUEUE)

_NOTHING: Mapping[QueueName, Resources] = {}


@dataclass(frozen=True, slots=True)
class Headroom:
    """How many times something still fits under the limits (None = there is none), and which limit it is."""

    times: int | None
    message: str = ""


@dataclass(frozen=True, slots=True)
class QueueAmounts:
    """What a queue's rules say, by the names under which it is counted (`pools`): `spec` speaks of `pooled`, or of the queue's first pool where it may not use
    that one; of its other pools the annotation does."""

    capability: Resources
    deserved: Resources
    guarantee: Resources

    @property
    def effective_deserved(self) -> Resources:
        """The effective deserved amounts: 0 of cpu or memory counts as not named."""
        return {name: units for name, units in self.deserved.items() if units > 0 or by_pool(name)[0] not in (CPU, MEMORY)}


_NO_AMOUNTS = QueueAmounts({}, {}, {})


class QueueTree(MutableMapping[QueueName, Queue]):
    """The existing queues, by name. A deleted queue keeps its position: its remaining usage counts for its ancestors."""

    def __init__(self, own: Mapping[QueueName, Resources]) -> None:
        self.version = 0  #: rises with every change of a rule
        self.places = 0  #: increases when a queue's parent changes or a queue is deleted
        self._own = own
        self._queues: dict[QueueName, Queue] = {}
        self._parents: dict[QueueName, QueueName | None] = {}
        self._stale = False  #: paths, children and sums have to be found anew, all of them
        self._paths: dict[QueueName, tuple[QueueName, ...]] = {}
        self._children: dict[QueueName, tuple[QueueName, ...]] = {}
        self._named_above: set[QueueName] = set()  #: names that queues, gone ones too, stand right below
        self._sums: dict[QueueName, Resources] = {}  #: of queues that others stand or stood below
        self._touched: dict[QueueName, tuple[Resources, ...]] = {}  #: the sums that a booking in the queue changes
        self._guarantees: dict[QueueName, Resources] = {}
        self._rights: dict[QueueName, Rights[str]] = {}
        self._refusals: dict[QueueName, Refusal | None] = {}
        self._pools: dict[QueueName, Pools] = {}
        self._amounts: dict[QueueName, QueueAmounts] = {}
        self._lent: Mapping[str, tuple[tuple[QueueName, ...], ...]] | None = None
        self._run_times: dict[QueueName, RunTime] = {}
        self._naming_models: set[QueueName] = set()
        self._lenders: set[QueueName] = set()
        self._shares: Mapping[QueueName, Resources] = {}  #: by weight

    def __getitem__(self, name: QueueName) -> Queue:
        return self._queues[name]

    def __setitem__(self, name: QueueName, queue: Queue) -> None:
        parent = QueueName(queue.parent) if queue.parent and ROOT_QUEUE not in (queue.parent, name) else None
        new, moved = name not in self._parents, name not in self._queues or self._parents[name] != parent
        self._queues[name], self._parents[name] = queue, parent
        _keep(self._lenders, name, bool(queue.lent_pools))
        amounts = (queue.capability, queue.deserved, queue.guarantee, *queue.pool_amounts.values())
        _keep(self._naming_models, name, bool(named_models(*amounts)))
        self._stale |= moved and not (new and self._join(name, parent))
        self.places += moved and (self._stale or parent is not None)
        self._changed(() if self._stale else (*self.path(name), *self.below(name)))

    def __delitem__(self, name: QueueName) -> None:
        del self._queues[name]
        self._lenders.discard(name)
        self._naming_models.discard(name)
        self._stale = True
        self.places += 1
        self._changed()

    def __iter__(self) -> Iterator[QueueName]:
        return iter(self._queues)

    def __len__(self) -> int:
        return len(self._queues)

    def of(self, name: QueueName) -> Queue | None:
        """The queue; for the default queue also if no object exists."""
        return self._queues.get(name) or (_DEFAULT if name == DEFAULT_QUEUE else None)

    def path(self, name: QueueName) -> tuple[QueueName, ...]:
        """The queue and all that stand above it, itself first."""
        self._fresh()
        return self._paths.get(name) or (name,)

    def children(self, name: QueueName) -> tuple[QueueName, ...]:
        """The queues right below it, by name."""
        self._fresh()
        return self._children.get(name, ())

    def below(self, name: QueueName) -> list[QueueName]:
        """All queues below it, parents first."""
        found: dict[QueueName, None] = {}
        level = self.children(name)
        while level:
            found.update(dict.fromkeys(level))
            level = tuple(one for child in level for one in self.children(child) if one not in found and one != name)
        return list(found)

    def tops(self) -> tuple[QueueName, ...]:
        """The children of the root, and queues whose parents do not exist, by name."""
        return tuple(sorted(name for name in self._queues if self._parents[name] not in self._queues and name != ROOT_QUEUE))

    def circle(self, name: QueueName) -> tuple[QueueName, ...]:
        """The cycle in the path, from the first queue that is its own ancestor back to it; empty if there is none."""
        path = self.path(name)
        back = self._parents.get(path[-1])
        return (*path[path.index(back) :], back) if back in path else ()

    def parting(self, one: QueueName, other: QueueName) -> tuple[tuple[QueueName, ...], tuple[QueueName, ...]]:
        """The branches of both queues below their lowest common ancestor, each from the top down. Empty for a queue that is an ancestor of the other."""
        ours, theirs = self.path(one)[::-1], self.path(other)[::-1]
        common = 0
        while common < min(len(ours), len(theirs)) and ours[common] == theirs[common]:
            common += 1
        return ours[common:], theirs[common:]

    # Entitlements.

    def guarantee(self, name: QueueName) -> Resources:
        """The amount that is never reclaimed from the queue: the maximum of its own guarantee and the sum of its children's."""
        found = self._guarantees.get(name)
        if found is None:
            below: Resources = {}
            for child in self.children(name) if not self.circle(name) else ():
                add(below, self.guarantee(child))
            found = _most(self.amounts(name).guarantee, below)
            if self.of(name) is not None:  # jobs may name any
                self._guarantees[name] = found
        return found

    def entitlement(self, name: QueueName) -> Resources:
        """The amount that it may reclaim from others: what it deserves, and at least its guarantee. A guarantee of 0 has no effect."""
        if self.of(name) is None:
            return {}
        guaranteed = {n: units for n, units in self.guarantee(name).items() if units > 0}
        return _most(self.amounts(name).effective_deserved, guaranteed)

    def rights(self, name: QueueName) -> Rights[str]:
        """The queue's present rights, as `rights` uses them: from its rules and, if weights apply, at least its share by weight."""
        found = self._rights.get(name)
        if found is None:
            found, share = self.ruled(name), self._shares.get(name)
            if share is not None:
                found = Rights(_most(found.deserved, share), found.guarantee, _most(found.entitlement, share))
            if name in self._queues:  # nothing is remembered of names that anybody may write into a pod
                self._rights[name] = found
        return found

    def ruled(self, name: QueueName) -> Rights[str]:
        """What is its own by its rules alone, whatever others ask for."""
        return Rights(self.amounts(name).effective_deserved, self.guarantee(name), self.entitlement(name))

    @property
    def shares(self) -> Mapping[QueueName, Resources]:
        """Shares by weight, as set with `divide`."""
        return self._shares

    def divide(self, shares: Mapping[QueueName, Resources]) -> None:
        """These are the shares by weight from now on (`weightshares`); none: weights do not count."""
        if shares != self._shares:
            self._shares = shares
            self._rights.clear()

    def pools(self, name: QueueName) -> Pools:
        """The pools that the queue may use: the intersection of those named on its path; `pooled` if none is named."""
        pools = self._pools.get(name)
        if pools is None:
            named = [queue.pools for above in self.path(name) if (queue := self.of(above)) is not None and queue.pools]
            pools = tuple(pool for pool in named[0] if all(pool in others for others in named)) if named else (POOLED,)
            if name in self._queues:
                self._pools[name] = pools
        return pools

    def home(self, name: QueueName) -> str:
        """The pool of which the queue's `spec` speaks: `pooled`, or the first that it may use where it may not use that one."""
        pools = self.pools(name)
        return POOLED if POOLED in pools or not pools else pools[0]

    def amounts(self, name: QueueName) -> QueueAmounts:
        """The queue's amounts, by the names under which its use is counted."""
        found = self._amounts.get(name)
        if found is None:
            queue = self.of(name)
            if queue is None:
                return _NO_AMOUNTS
            home = self.home(name)
            own = [
                amounts_in(home, amounts) | queue.pool_amounts.get(which, {})
                if counted_as(home) or queue.pool_amounts
                else amounts
                for which, amounts in (
                    ("capability", queue.capability),
                    ("deserved", queue.deserved),
                    ("guarantee", queue.guarantee),
                )
            ]
            capability, deserved, guarantee = own
            found = QueueAmounts(capability, self._not_on_loan(name, deserved), self._not_on_loan(name, guarantee))
            if name in self._queues:
                self._amounts[name] = found
        return found

    def _not_on_loan(self, name: QueueName, shares: Resources) -> Resources:
        """The queue's shares without those in pools that only other queues own, which can reclaim all of them at any time (ADR 37)."""
        borrowed = [one for one in shares if self._is_others(name, by_pool(one)[1])]
        return {one: units for one, units in shares.items() if one not in borrowed} if borrowed else shares

    def _is_others(self, name: QueueName, pool: str) -> bool:
        """Whether the pool has owners, and neither the queue nor any below it is one of them."""
        return self.borrows(name, pool) and not any(self.owns(one, pool) for one in self.below(name))

    def owns(self, name: QueueName, pool: str) -> bool:
        """Whether the queue is an owner of this exclusive pool: others are there on loan, if at all."""
        return is_exclusive(pool) and pool in self.pools(name)

    def borrows(self, name: QueueName, pool: str) -> bool:
        """Whether the pool has owners and the queue is not one of them: its work there is evicted as soon as an owner needs the nodes."""
        return is_exclusive(pool) and pool not in self.pools(name)

    @property
    def lends(self) -> bool:
        """Whether any queue lends a pool that it owns."""
        return bool(self._lent_out())

    def _lent_out(self) -> Mapping[str, tuple[tuple[QueueName, ...], ...]]:
        """By pool: the borrowers of each of its owners; an empty list means all queues."""
        if self._lent is None:
            found: dict[str, list[tuple[QueueName, ...]]] = {}
            for owner, queue in self._queues.items() if self._lenders else ():
                for pool in queue.lent_pools:
                    if self.owns(owner, pool):
                        found.setdefault(pool, []).append(tuple(map(QueueName, queue.lent_to)))
            self._lent = {pool: tuple(to) for pool, to in sorted(found.items())}
        return self._lent

    def lent(self, name: QueueName) -> Pools:
        """Pools of others that the queue may use while they are idle."""
        lent = self._lent_out()
        if not lent:
            return ()
        path = frozenset(self.path(name))
        return tuple(
            pool
            for pool, whose in lent.items()
            if self.borrows(name, pool) and any(not to or not path.isdisjoint(to) for to in whose)
        )

    def reach(self, name: QueueName) -> Pools:
        """All pools that the queue may use besides `public`, those that are lent to it last."""
        return (*self.pools(name), *self.lent(name))

    def may_use(self, name: QueueName, pool: str) -> bool:
        """Whether work of the queue may start on nodes of this pool."""
        return pool == PUBLIC or pool in self.reach(name)

    def run_time(self, name: QueueName) -> RunTime:
        """Protection from preemption of newly placed pods of the queue."""
        found = self._run_times.get(name)
        if found is None:
            found = run_time_of(queue.annotations for above in self.path(name) if (queue := self.of(above)) is not None)
            if name in self._queues:
                self._run_times[name] = found
        return found

    def sick_policy(self, name: QueueName) -> SickPolicy | None:
        """What happens to jobs of the queue on sick hardware; None if neither it nor a queue above it states a policy."""
        return first_policy(queue.annotations for above in self.path(name) if (queue := self.of(above)) is not None)

    @property
    def by_model(self) -> bool:
        """Whether any queue names models of cards. If not, amounts by model need not be counted."""
        return bool(self._naming_models)

    # Usage.

    def own(self, name: QueueName) -> Mapping[str, int]:
        """What the queue's own pods use."""
        return self._own.get(name, {})

    def used(self, name: QueueName) -> Mapping[str, int]:
        """What the queue and all below it use; the root: everybody."""
        if name == ROOT_QUEUE:
            return self._all()
        self._fresh()
        found = self._sums.get(name)
        return self._own.get(name, {}) if found is None else found

    def book(self, name: QueueName, amounts: Mapping[str, int], times: int = 1) -> None:
        """`own` of this queue was changed by `times * amounts`."""
        if not self._stale:
            for sums in self._touched.get(name, ()):
                add(sums, amounts, times)

    # Remaining amounts.

    def refusal(self, name: QueueName) -> Refusal | None:
        """Why the queue takes nothing new, whatever is asked for."""
        if name not in self._queues:
            return self._refusal(name)  # nothing is remembered of names that anybody may write into a pod
        if name not in self._refusals:
            self._refusals[name] = self._refusal(name)
        return self._refusals[name]

    def _refusal(self, name: QueueName) -> Refusal | None:
        if self.of(name) is None:
            return Refusal(RefusalReason.QUEUE_UNKNOWN, f"there is no queue {name}; create it, or name another in the job")
        if name == ROOT_QUEUE:
            return Refusal(
                RefusalReason.QUEUE_NOT_LEAF,
                f"queue {name} is the root of all queues and accepts no jobs; name another queue in the job",
            )
        if circle := self.circle(name):
            message = f"queue {name} is in or below a cycle of parents ({' -> '.join(circle)})"
            return Refusal(RefusalReason.QUEUE_INVALID, message)
        if below := self.children(name):
            message = (
                f"queue {name} takes no work of its own; name one below it ({', '.join(below[:3])}{', ...' * (len(below) > 3)})"
            )
            return Refusal(RefusalReason.QUEUE_NOT_LEAF, message)
        for above in self.path(name):
            queue = self.of(above)
            if queue is None:
                message = f"queue {above}, above queue {name}, does not exist"
                return Refusal(RefusalReason.QUEUE_INVALID, message)
            which = name if above == name else f"{above}, above queue {name},"
            if queue.fault:
                return Refusal(RefusalReason.QUEUE_INVALID, f"queue {which} cannot be read: {queue.fault}")
            if queue.phase is not QueuePhase.OPEN:
                return Refusal(RefusalReason.QUEUE_CLOSED, f"queue {which} is closed and takes no new work")
        return None

    def forbids(self, name: QueueName, namespace: str, priority_class: str | None = None) -> Refusal | None:
        """Why pods of this namespace, or jobs of this class ("" = of none), may not use the queue. None as a class: it is not known yet."""
        bound = False
        for above in self.path(name):
            queue = self._queues.get(above)
            if queue is None:
                continue
            which = name if above == name else f"{above}, above queue {name},"
            if queue.namespaces and ANY not in queue.namespaces and namespace not in queue.namespaces:
                message = f"queue {which} is for namespace {', '.join(queue.namespaces)}, not for {namespace}"
                return Refusal(RefusalReason.QUEUE_NAMESPACE, message)
            listed = queue.priority_classes
            if listed and priority_class is not None and (priority_class or NO_CLASS) not in listed:
                given = f"not of {priority_class}" if priority_class else "and the job is of none"
                unnamed = "without a PriorityClass, and " if NO_CLASS in listed else ""
                named = ", ".join(name for name in listed if name != NO_CLASS) or "none"
                message = f"queue {which} takes jobs {unnamed}of PriorityClass {named}, {given}"
                return Refusal(RefusalReason.QUEUE_PRIORITY_CLASS, message)
            bound |= bool(queue.namespaces)
        own = self._queues.get(name)
        if own is not None and own.bound and not bound and name != DEFAULT_QUEUE:
            message = f"queue {name} is bound to no namespace, so that {namespace} may not use it"
            return Refusal(RefusalReason.QUEUE_NAMESPACE, message)
        return None

    def non_preemptible(self, name: QueueName, priority_class: str) -> bool:
        """Whether pods of this class are protected from preemption within the queue's deserved amount: by the rule of the nearest queue on the path that names
        classes."""
        for above in self.path(name):
            queue = self._queues.get(above)
            if queue is not None and queue.non_preemptible_classes:
                return ANY in queue.non_preemptible_classes or priority_class in queue.non_preemptible_classes
        return False

    def limits(self, name: QueueName, freed: Mapping[QueueName, Resources] = _NOTHING) -> Iterator[Limit[QueueName, str]]:
        """The capabilities of the queue and its ancestors with their usage less `freed`."""
        for above in self.path(name):
            if above in self._queues and (capability := self.amounts(above).capability):
                yield Limit(above, capability, Named(self.used(above), freed.get(above)))

    def headroom(self, name: QueueName, each: Mapping[str, int], freed: Mapping[QueueName, Resources] = _NOTHING) -> Headroom:
        """How many times `each` fits under the capability of the queue and of all above it, where `freed` has left each of these."""
        limits = list(self.limits(name, freed))
        in_parts_of_cards = has_partitions(each) or any(has_partitions(self.used(limit.queue)) for limit in limits)
        in_cards = self._headroom_in_parts(limits, each, freed) if in_parts_of_cards else None
        least = headroom(map(_without_cards, limits) if in_parts_of_cards else limits, each)
        if in_cards is not None and (least is None or in_cards[0].times < least.times):
            blocking, more = in_cards
            return _headroom(name, blocking, *map(cards_text, (blocking.limit, blocking.used, more)))
        if least is None:
            return Headroom(None)
        return _headroom(name, least, *map(str, (least.limit, least.used, each[least.key])))

    def _headroom_in_parts(
        self, limits: Iterable[Limit[QueueName, str]], each: Mapping[str, int], freed: Mapping[QueueName, Resources]
    ) -> tuple[Blocking[QueueName, str], int] | None:
        """The limit on cards with the smallest remainder, and the amount requested of it, in fractions of a card; None if no limit on cards applies.
        A queue whose capability names a partition limits that partition only by its own name."""
        least: tuple[Blocking[QueueName, str], int] | None = None
        for limit in limits:
            own, used = limit.most, self.used(limit.queue)
            most = in_parts({key: units for key, units in own.items() if by_pool(key)[0] in VENDORS})
            gone = freed.get(limit.queue)
            asked, held = in_parts(each, own), Named(in_parts(used, own), in_parts(gone, own) if gone else None)
            found = headroom((Limit(limit.queue, most, held),), asked)
            if found is not None and (least is None or found.times < least[0].times):
                least = found, asked[found.key]
        return least

    def left_of_shares(self, name: QueueName, shares: Iterable[str], pool: str = "") -> Resources:
        """Units of cards that the limits of the queue and its ancestors still allow in the pool, by `share_resource`; empty without such limits."""
        times = {share: self.headroom(name, amounts_in(pool, {cards_of_share(share): 1, share: 1})).times for share in shares}
        return {share: units for share, units in times.items() if units is not None}

    def left_of_models(self, name: QueueName, pool: str = "") -> Resources:
        """Cards of each model that the limits of the queue and its ancestors still allow in the pool; models without a limit are left out."""
        if not self.by_model:
            return {}
        return of_pool(pool, remaining(self.limits(name), lambda key: is_model(by_pool(key)[0])))

    # How the tree is kept.

    def _changed(self, names: Iterable[QueueName] = ()) -> None:
        """Discard values derived from the rules of these queues; none named: of all. For each queue, values of its path and its descendants: a queue's values
        depend on its path, guarantees and leaf status on its descendants."""
        self.version += 1
        self._lent = None
        names = list(names)
        for found in (self._guarantees, self._rights, self._refusals, self._pools, self._amounts, self._run_times):
            if not names:
                found.clear()
            for name in names:
                found.pop(name, None)

    def _join(self, name: QueueName, parent: QueueName | None) -> bool:
        """Add a new queue if this changes nothing for others: thousands may be added one after the other. False: the structure has to be computed again."""
        path = self._path(name)
        if self._stale or name in self._named_above or not all(one in self._sums for one in path[1:]):
            return False
        self._paths[name] = path
        if parent is not None:
            siblings = self._children.get(parent, ())
            place = bisect(siblings, name)
            self._children[parent] = (*siblings[:place], name, *siblings[place:])
            self._touched[name] = tuple(self._sums[one] for one in path[1:])
            for sums in self._touched[name]:
                add(sums, self._own.get(name, {}))
        return True

    def _fresh(self) -> None:
        if not self._stale:
            return
        self._stale = False
        self._forget_unused()
        self._paths = {name: self._path(name) for name in self._parents}
        children: dict[QueueName, list[QueueName]] = {}
        for name in sorted(self._queues):
            if (parent := self._parents[name]) is not None:
                children.setdefault(parent, []).append(name)
        self._children = {name: tuple(below) for name, below in children.items()}
        self._named_above = {parent for parent in self._parents.values() if parent is not None}
        self._sums = self.counted()
        self._touched = {
            name: sums
            for name, path in self._paths.items()
            if (sums := tuple(self._sums[one] for one in path if one in self._sums))
        }

    def _forget_unused(self) -> None:
        """Forget the positions of deleted queues that neither they nor a queue below them uses any more."""
        if len(self._parents) == len(self._queues):
            return
        kept = {
            above
            for name in self._parents
            if name in self._queues or _used(self._own.get(name, {}))
            for above in self._path(name)
        }
        self._parents = {name: parent for name, parent in self._parents.items() if name in kept}

    def _path(self, name: QueueName) -> tuple[QueueName, ...]:
        path = [name]
        while (parent := self._parents.get(path[-1])) is not None and parent not in path:
            path.append(parent)
        return tuple(path)

    def _all(self) -> Resources:
        sums: Resources = {}
        for amounts in self._own.values():
            add(sums, amounts)
        return sums

    def counted(self) -> dict[QueueName, Resources]:
        """The sums of all queues that have or had children, recomputed from each queue's own usage."""
        sums: dict[QueueName, Resources] = {above: {} for path in self._paths.values() for above in path[1:]}
        for name, amounts in self._own.items():
            for one in self._paths.get(name, ()):
                if one in sums:
                    add(sums[one], amounts)
        return sums

    def validate(self) -> None:
        """Raises AssertionError where a sum is not what counting gives."""
        self._fresh()
        counted = self.counted()
        assert {name: _solid(sums) for name, sums in self._sums.items()} == {
            name: _solid(sums) for name, sums in counted.items()
        }


@dataclass(frozen=True, slots=True)
class TreeAmounts:
    """What the queues of a tree have and use, as `rights.Reclaim` reads it."""

    tree: QueueTree

    def rights(self, queue: QueueName) -> Rights[str]:
        return self.tree.rights(queue)

    def used(self, queue: QueueName) -> Named[str]:
        return Named(self.tree.used(queue))

    def copy_of_used(self, queue: QueueName) -> Counter[str]:
        return Counter(self.tree.used(queue))


def _headroom(name: QueueName, blocking: Blocking[QueueName, str], limit: str, used: str, more: str) -> Headroom:
    which = name if blocking.queue == name else f"{blocking.queue}, above queue {name},"
    message = f"queue {which} may use {limit} of {blocking.key}, {used} are in use and {more} more are asked for"
    return Headroom(blocking.times, message)


def _without_cards(limit: Limit[QueueName, str]) -> Limit[QueueName, str]:
    most = {name: units for name, units in limit.most.items() if by_pool(name)[0] not in VENDORS}
    return Limit(limit.queue, most, limit.used)


def _keep(names: set[QueueName], name: QueueName, there: bool) -> None:
    if there:
        names.add(name)
    else:
        names.discard(name)


def _most(one: Mapping[str, int], other: Mapping[str, int]) -> Resources:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def _used(amounts: Mapping[str, int]) -> bool:
    return any(amounts.values())


def _solid(amounts: Resources) -> Resources:
    return {name: units for name, units in amounts.items() if units}
