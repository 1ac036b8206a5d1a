"""Jobs that were tried and cannot start now. They cost nothing until something that they wait for changes.

Jobs of the same key (queue, requests, pods that have to start together) form a class. A class is examined only when free amounts of rows rose
(`QueueingHint`) or its queue released something; one from whom room is kept for others (`ShapeRoom`) also when anything was booked, since a card that is
taken needs no cores any more. Then as many of its jobs are activated, in their order, as the free capacity could hold. The next attempt
decides whether one of them starts.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import islice
from operator import itemgetter

from hbox_common.model import JobId, QueueName, counts_in

from ..cluster import Columns
from ..cluster.arrays import Ints, Rows
from ..cluster.task import Task, in_one_pool, passing
from ..devices import free_percent
from ..framework.views import Views
from ..quotas.models import max_pods, within_limits
from ..quotas.namespaces import NamespaceQuota
from ..quotas.queues import Queues
from .jobs import Entry, EquivalenceKey, JobState, Order

#: Classes that are examined in one cycle; the others wait for the next, which sees what is left for them. One whose pods wish certain cards counts for more:
#: whether a node has them is found node by node.
LOOKS, BY_CARDS = 32, 16

#: A namespace with more classes than this is looked through a part at a time: to ask each of tens of thousands whether a node may hold it costs as much as
#: some to examine.
SCANNED = 1024

#: Classes beyond two for each job that there is, before they are looked through for those of which nobody is left.
SPARE = 1024

#: Jobs of a class, in their order, that preemption considers.
SHOWN = 512


class QueueingHint:
    """The largest free amount of each resource over the rows whose free amounts rose: a cheap upper bound, which most classes exceed."""

    def __init__(self, columns: Columns, risen: Ints | None) -> None:
        rows: Rows = slice(0, columns.size) if risen is None else risen
        self._free = (columns.allocatable[:, rows] - columns.used[:, rows]).max(axis=1, initial=0).tolist()
        self._idle_cards = int(((columns.card_pods[rows] == 0) & columns.card_ok[rows]).sum(axis=1).max(initial=0))
        self._percent = int(free_percent(columns, rows).max(initial=0))

    def may_hold(self, task: Task) -> bool:
        """False only where none of the risen rows can take one pod of the task."""
        if any(column >= len(self._free) or units > self._free[column] for column, units in task.amount):
            return False
        if task.cards is None or task.cards.devices is not None:
            return True
        return self._idle_cards >= task.cards.count if task.cards.whole else self._percent >= task.cards.cores


@dataclass(slots=True)
class UnschedulableClass:
    """`namespace`: of the job that made it. `waiting` is a heap; entries that have left are skipped when they come up. `sizes`: pods of the first job, by
    task."""

    namespace: str
    waiting: list[Order] = field(default_factory=list)
    sizes: tuple[int, ...] = ()
    retry: bool = False
    behind: bool = False  #: something that it waits for has changed, and others were examined first


class UnschedulableJobs:
    """All unschedulable jobs, by equivalence key."""

    def __init__(
        self,
        columns: Columns,
        views: Views,
        queues: Queues,
        quota: NamespaceQuota,
        passes: Callable[[Entry], int],
    ) -> None:
        """`passes`: the bits of the reservations that a job may pass (`Task.passes`)."""
        self._passes = passes
        self._columns = columns
        self._views = views
        self._queues = queues
        self._quota = quota
        self._classes: dict[EquivalenceKey, UnschedulableClass] = {}
        #: Their keys by namespace; of one with more than SCANNED the next to look at first.
        self._by_namespace: dict[str, OrderedDict[EquivalenceKey, None]] = {}
        self._left: dict[str, int] = {}  #: of such a namespace, how many classes are to be looked at since something changed
        self._risen = columns.risen.end
        self._booked = columns.changes.end
        self._limited: set[EquivalenceKey] = set()  #: classes from whom room is kept for others
        self._retries = False
        self._no_nodes = not columns.row_of  #: as of the last look
        self.behind = False  #: classes are left that the next call examines

    def add(self, entry: Entry) -> None:
        """Keep a job that failed in this cycle in the class of its equivalence key."""
        key = entry.equivalence_key()
        group = self._classes.get(key)
        if group is None:
            group = self._classes[key] = UnschedulableClass(entry.job.namespace)
            self._by_namespace.setdefault(entry.job.namespace, OrderedDict())[key] = None
            if any(self._views.limits(task) for task in key[1]):
                self._limited.add(key)
        group.sizes = tuple(len(pods) for _, pods in entry.pending)
        if entry.activated_from is not None and entry.activated_from != key:
            self.retry_class(entry)
        entry.state, entry.key, entry.activated_from = JobState.UNSCHEDULABLE, key, None
        heappush(group.waiting, entry.order)

    def retry_class(self, entry: Entry) -> None:
        """An activated job did not use the capacity for which it was activated: its class is examined again, for another job of it."""
        if entry.activated_from is not None and (group := self._classes.get(entry.activated_from)) is not None:
            group.retry = self._retries = True
        entry.activated_from = None

    def leave(self, entry: Entry, state: JobState) -> None:
        """The job is in another state from now on; the capacity for which it was activated it did not use."""
        self.retry_class(entry)
        entry.state, entry.key = state, None

    def activate(
        self, entries: dict[JobId, Entry], freed: set[QueueName], changed: set[QueueName], quotas_freed: set[str]
    ) -> list[Entry]:
        """Jobs that may be able to start since rows rose, or since the queues `freed`, and all below them, or the quotas of the namespaces
        `quotas_freed` allow more; they are unschedulable no more.

        Of the queues `changed` and all below them every job leaves: where it cannot start, why it waits may be something else now. So do all when a cluster
        without nodes gets its first.
        """
        first_nodes, self._no_nodes = self._no_nodes and bool(self._columns.row_of), not self._columns.row_of
        if len(self._classes) > 2 * len(entries) + SPARE:
            self._forget_gone(entries)
        if not self._classes:
            self._risen, self._booked = self._columns.risen.end, self._columns.changes.end
            return []
        hint, eased = self._hints()
        if hint is None and eased is None and not freed and not quotas_freed and not self._retries and not first_nodes:
            return []
        large = self._rotate(anew=hint is not None or eased is not None or bool(freed) or bool(quotas_freed))
        now = QueueingHint(self._columns, None) if self.behind or large else None
        is_changed, is_freed = self._among(changed), self._among(freed)
        woken: list[Entry] = []
        if first_nodes or changed:
            for key, group in list(self._classes.items()):
                if first_nodes or is_changed(key[0]):
                    woken.extend(self._first(key, group, entries, len(group.waiting)))
                    self._drop(key)
        found: list[tuple[EquivalenceKey, UnschedulableClass]] = []
        for name, keys in self._by_namespace.items():
            if name in large:
                continue
            for key in keys:
                group = self._classes[key]
                if (
                    group.retry
                    or is_freed(key[0])
                    or (quotas_freed and any(task.namespace in quotas_freed for task in key[1]))
                    or (hint is not None and any(hint.may_hold(task) for task in key[1]))
                    or (eased is not None and key in self._limited and any(eased.may_hold(task) for task in key[1]))
                    or (group.behind and now is not None and any(now.may_hold(task) for task in key[1]))
                ):
                    found.append((key, group))
                else:
                    group.behind = False
        for name in large:
            assert now is not None
            found += self._found_in_turn(name, now)
        for key, group in self._first_in_order(found):
            group.retry = group.behind = False
            woken.extend(self._activate_some(key, group, entries))
            self._by_namespace[group.namespace].move_to_end(key)
            if not group.waiting:
                self._drop(key)
        return woken

    def _rotate(self, *, anew: bool) -> list[str]:
        """The namespaces with so many classes that they are looked through a part at a time, where something is left to look at. `anew`: something changed."""
        large = [name for name, keys in self._by_namespace.items() if len(keys) > SCANNED]
        for name in self._left.keys() - set(large):
            del self._left[name]
        if anew:
            self._left.update((name, len(self._by_namespace[name])) for name in large)
        return [name for name in large if self._left.get(name)]

    def _found_in_turn(self, name: str, now: QueueingHint) -> list[tuple[EquivalenceKey, UnschedulableClass]]:
        """Of a namespace with many classes the next ones that a node may hold now: without one that does nothing else helps them."""
        keys = self._by_namespace[name]
        found: list[tuple[EquivalenceKey, UnschedulableClass]] = []
        passed: list[EquivalenceKey] = []
        for key in islice(keys, min(SCANNED, self._left[name])):
            if any(now.may_hold(task) for task in key[1]):
                found.append((key, self._classes[key]))
                if len(found) == LOOKS:
                    break
            else:
                passed.append(key)
        for key in passed:
            keys.move_to_end(key)
        self._left[name] -= len(passed)
        return found

    def _forget_gone(self, entries: dict[JobId, Entry]) -> None:
        """Classes of which all jobs are gone or elsewhere."""
        for key, group in list(self._classes.items()):
            group.waiting = [order for order in group.waiting if self._here(order, key, entries)]
            heapify(group.waiting)
            if not group.waiting:
                self._drop(key)

    def _hints(self) -> tuple[QueueingHint | None, QueueingHint | None]:
        """Bounds of the rows whose free amounts rose since the last call, and of those on which anything was booked, where a class waits for that."""
        columns, risen, booked = self._columns, self._risen, self._booked
        self._risen, self._booked = columns.risen.end, columns.changes.end
        hint = QueueingHint(columns, columns.risen.since(risen)) if risen != self._risen else None
        eased = QueueingHint(columns, columns.changes.since(booked)) if self._limited and booked != self._booked else None
        return hint, eased

    def _first_in_order(
        self, found: list[tuple[EquivalenceKey, UnschedulableClass]]
    ) -> list[tuple[EquivalenceKey, UnschedulableClass]]:
        """As many classes as are examined in one cycle, by turns of the namespaces of their first jobs; the others are `behind`, and come before those of their
        namespace that had a look since."""
        turns: Counter[str] = Counter()
        ranked: list[tuple[int, int]] = []
        in_order = sorted(range(len(found)), key=lambda place: (not found[place][1].behind, found[place][1].waiting[:1]))
        for place in in_order:
            namespace = found[place][1].namespace
            ranked.append((turns[namespace], place))
            turns[namespace] += 1
        first: list[tuple[EquivalenceKey, UnschedulableClass]] = []
        left = LOOKS
        for _, place in sorted(ranked, key=itemgetter(0)):
            left -= BY_CARDS if _wishes_certain_cards(found[place][0]) else 1
            if left < 0:
                break
            first.append(found[place])
        for _, group in first:
            if group.namespace in self._left:
                self._left[group.namespace] -= 1
        self._retries = self.behind = len(first) < len(found) or any(self._left.values())
        if self.behind:
            for _, group in found:
                group.behind = True
        return first

    def _drop(self, key: EquivalenceKey) -> None:
        namespace = self._classes.pop(key).namespace
        del self._by_namespace[namespace][key]
        if not self._by_namespace[namespace]:
            del self._by_namespace[namespace]
        self._limited.discard(key)

    def _activate_some(self, key: EquivalenceKey, group: UnschedulableClass, entries: dict[JobId, Entry]) -> list[Entry]:
        queue, tasks, need, _ = key
        need = max(need, 1)
        while group.waiting and not self._here(group.waiting[0], key, entries):
            heappop(group.waiting)
        if not group.waiting:
            return []
        room, passes = 0, self._passes(entries[group.waiting[0][-1]])
        pools = self._queues.pools(queue, self._columns.pools_there())
        for task, size, pool in ((*one, pool) for one in zip(tasks, group.sizes, strict=True) for pool in pools):
            counted = counts_in(pool, offline=task.offline)
            allowance = self._queues.allowance(queue, task.requests, counted)
            if allowance.pods == 0:
                continue
            kept, within = task if pools == [""] else in_one_pool(task, pool), None
            if task.namespace:
                together = need if len(tasks) == 1 else 1
                kept, within = self._quota.within_quota(kept, self._quota.remaining(task.namespace), together=together)
            models = self._queues.left_of_models(queue, counted)
            kept, _ = within_limits(kept, models)
            within = min((n for n in (within, max_pods(task, models)) if n is not None), default=None)
            fits = self._views.of(passing(kept, passes) if passes else kept).total()
            fits = fits if len(tasks) == 1 else min(fits, size)
            fits = fits if within is None else min(fits, within)
            room += fits if allowance.pods is None else min(fits, allowance.pods)
        count = room // need
        if len(tasks) > 1:  # they share the room in ways that only an attempt can tell: one job at a time
            count = min(count, 1)
        elif tasks[0].cards is not None and tasks[0].cards.count > 1 and room:  # their room is a lower bound
            count = max(count, 1)
        return self._first(key, group, entries, count)

    def _first(self, key: EquivalenceKey, group: UnschedulableClass, entries: dict[JobId, Entry], count: int) -> list[Entry]:
        woken: list[Entry] = []
        while group.waiting and len(woken) < count:
            order = heappop(group.waiting)
            if self._here(order, key, entries):
                entry = entries[order[-1]]
                entry.state, entry.key, entry.activated_from = JobState.ACTIVE, None, key
                woken.append(entry)
        return woken

    def still_waiting(
        self,
        entries: dict[JobId, Entry],
        freed: set[QueueName],
        quotas_freed: set[str],
        wanted: Callable[[QueueName, int], bool],
    ) -> Iterator[Iterator[Entry]]:
        """By class, the first one first, some of the jobs that wait on though their queue, or one above it, is among `freed`, or their namespace among
        `quotas_freed`. `wanted`: whether jobs of the queue with this priority, or less, are; asked once for each."""
        among = self._among(freed)
        known: dict[tuple[QueueName, int], bool] = {}
        for key, group in self._classes.items():
            if not group.waiting:
                continue
            if not among(key[0]) and not (quotas_freed and any(task.namespace in quotas_freed for task in key[1])):
                continue
            rank = key[0], -group.waiting[0][0]
            if (found := known.get(rank)) is None:
                found = known[rank] = wanted(*rank)
            if found:
                yield (entries[order[-1]] for order in islice(group.waiting, SHOWN) if self._here(order, key, entries))

    def _among(self, names: set[QueueName]) -> Callable[[QueueName], bool]:
        """Whether a queue or one above it is among `names`: once for each queue, for thousands of classes may be of one."""
        known: dict[QueueName, bool] = {}

        def among(queue: QueueName) -> bool:
            found = known.get(queue)
            if found is None:
                found = known[queue] = self._queues.among(queue, names)
            return found

        return among

    @staticmethod
    def _here(order: Order, key: EquivalenceKey, entries: dict[JobId, Entry]) -> bool:
        entry = entries.get(order[-1])
        return entry is not None and entry.state is JobState.UNSCHEDULABLE and entry.key == key and entry.order == order


def _wishes_certain_cards(key: EquivalenceKey) -> bool:
    return any(task.cards is not None and task.cards.devices is not None and task.cards.devices.wishes for task in key[1])
