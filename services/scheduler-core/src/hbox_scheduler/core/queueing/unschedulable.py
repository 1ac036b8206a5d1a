"""Jobs that failed an attempt and cannot start now. They cost nothing until something that they wait for changes.

Jobs of the same key (queue, requests, pods that have to start together) form a class. A class is examined only when free amounts of rows rose (`QueueingHint`)
or its queue released something; a class from which capacity is kept for others (`ShapeRoom`) also when anything was booked, since a used card needs no cores
any more. Then as many of its jobs are activated, in their order, as the free capacity could hold. The next attempt decides whether one of them starts.
A class for which even empty nodes have no room is examined when a node is described anew.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import islice
from operator import itemgetter

from hbox_common.model import JobId, QueueName, counts_in

from ..cluster import Columns
from ..cluster.arrays import Ints, Rows
from ..cluster.task import Task, in_one_pool, passing
from ..devices import free_percent
from ..framework.basefits import by_zones, most_when_empty
from ..framework.views import Views
from ..quotas.models import max_pods, within_limits
from ..quotas.namespaces import NamespaceQuota
from ..quotas.queues import Queues
from .jobs import Entry, EquivalenceKey, JobState, Order
from .shapes import Shapes, Within

#: Classes that are examined in one cycle; the others wait for the next, which sees what is left for them. One whose pods wish certain cards counts for more:
#: whether a node has them is found node by node.
LOOKS, BY_CARDS = 32, 16

#: A namespace with more classes than this is looked through a part at a time: to ask each of tens of thousands whether a node may hold it costs as much as
#: some to examine.
SCANNED = 1024

#: Classes beyond two for each existing job, before empty classes are searched for and removed.
SPARE = 1024

#: Entries of a class beyond two for each that was there when it was looked through last.
SPARE_ORDERS = 64

#: Jobs of a class, in their order, that preemption considers.
SHOWN = 512


#: Tasks that are judged by empty nodes in one call: each takes half a millisecond on 12,500 nodes.
EMPTY_JUDGED = 8

#: Seconds after which a job of a class is judged again if the state has changed, and jobs that are judged again in REVIEW_EVERY_S at most.
REVIEW_S, REVIEWED, REVIEW_EVERY_S = 20.0, 8, 0.125

#: Jobs of a class whose verdict follows a review that changes only amounts in its message. A change of its code is published for all.
FOLLOWED = 8


class QueueingHint:
    """The largest free amount of each resource over the rows whose free amounts rose: a cheap upper bound, which most classes exceed."""

    def __init__(self, columns: Columns, risen: Ints | None) -> None:
        rows: Rows = slice(0, columns.size) if risen is None else risen
        self._free = (columns.allocatable[:, rows] - columns.used[:, rows]).max(axis=1, initial=0).tolist()
        self._idle_cards = int(((columns.card_pods[rows] == 0) & columns.card_ok[rows]).sum(axis=1).max(initial=0))
        self._percent = int(free_percent(columns, rows).max(initial=0))

    def may_hold(self, shapes: Shapes) -> Within:
        """All but those of which none of the rows can take one pod."""
        return shapes.within(self._free, self._idle_cards, self._percent)


@dataclass(slots=True)
class OfQueue:
    """The classes of one queue, by namespace. `highest`: no job of theirs has a higher priority."""

    highest: int
    keys: dict[str, dict[EquivalenceKey, None]] = field(default_factory=dict)


@dataclass(slots=True)
class UnschedulableClass:
    """`namespace`: of the job that made it. `waiting` is a heap; entries that have left are skipped when they come up. `sizes`: pods of the first job, by
    task."""

    namespace: str
    waiting: list[Order] = field(default_factory=list)
    sizes: tuple[int, ...] = ()
    most: int = SPARE_ORDERS  #: entries of `waiting`, before those that have left are looked for


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
        self._by_queue: dict[QueueName, OfQueue] = {}
        self._below: dict[QueueName, dict[QueueName, None]] = {}  #: of these queues those that stand below each, and itself
        self._places = -1  #: as of which places in the tree
        #: What classes ask for of namespaces that are looked through whole, and of those that are not; and whose it is, of the former.
        self._shapes, self._large_shapes = Shapes(), Shapes()
        self._by_task: dict[Task, dict[EquivalenceKey, None]] = {}
        self._large: dict[str, None] = {}  #: namespaces with more than SCANNED
        self._left: dict[str, int] = {}  #: number of classes of such a namespace left to examine since the last change
        self._risen = columns.risen.end
        self._booked = columns.changes.end
        self._limited: dict[EquivalenceKey, None] = {}  #: classes from which capacity is kept for others
        self._retrying: dict[EquivalenceKey, None] = {}  #: classes to be examined again whatever changed
        #: classes for which something has changed that they wait for, while others were examined first
        self._behind: dict[EquivalenceKey, None] = {}
        self._grown: dict[EquivalenceKey, None] = {}  #: classes with more entries than they may have
        self._retries = False
        #: classes by their last judgement, the oldest first: when, in which state of the cluster (() = it is judged again in any case), and the code and
        #: message of all of its jobs; "" = they may differ
        self._judged: OrderedDict[EquivalenceKey, tuple[float, tuple[int, ...], str, str]] = OrderedDict()
        self._no_nodes = not columns.row_of  #: as of the last examination
        self._described = columns.described.end  #: as of which `_possible` and the exclusions of shapes hold
        self._possible: dict[Task, bool] = {}  #: whether empty nodes have room, of tasks of classes that were judged
        self._judgements = 0  #: tasks that this call may still judge by empty nodes
        self.behind = False  #: classes are left that the next call examines

    def clear(self) -> None:
        """Drop all classes. The caller activates their jobs: the columns of resources have changed, and with them all keys."""
        for key in list(self._classes):
            self._drop(key)
        self._shapes, self._large_shapes = Shapes(), Shapes()
        self._possible.clear()

    def add(self, entry: Entry) -> None:
        """Keep a job that failed in this cycle in the class of its equivalence key."""
        key = entry.equivalence_key()
        group = self._classes.get(key)
        if group is None:
            group = self._classes[key] = UnschedulableClass(entry.job.namespace)
            self._enter(key, entry.job.namespace)
            if any(self._views.limits(task) for task in key[1]):
                self._limited[key] = None
            self._judgements = len(key[1])  # at the cost of its tenant, and not of the pods that end later
            self._exclude_impossible(key[1])
        group.sizes = tuple(len(pods) for _, pods in entry.pending)
        if entry.activated_from is not None and entry.activated_from != key:
            self.retry_class(entry)
        entry.state, entry.key, entry.activated_from = JobState.UNSCHEDULABLE, key, None
        heappush(group.waiting, entry.order)
        if len(group.waiting) > group.most:
            self._grown[key] = None
        of_queue = self._by_queue[key[0]]
        of_queue.highest = max(of_queue.highest, -entry.order[0])

    def retry_class(self, entry: Entry) -> None:
        """An activated job did not use the capacity for which it was activated: its class is examined again, for another job of it."""
        if entry.activated_from is not None and entry.activated_from in self._classes:
            self._retrying[entry.activated_from] = None
            self._retries = True
        entry.activated_from = None

    def judged(
        self, entry: Entry, code: str, message: str, now: float, state: tuple[int, ...], *, reviewed: bool
    ) -> int | None:
        """A kept job was judged now, in this state of the cluster: `review_at`. `reviewed`: for its class; returns how many jobs of the class may have
        another verdict than this one; None: all."""
        assert entry.key is not None
        _, _, known_code, known_message = self._judged.get(entry.key, (now, state, code, message))
        same_code, same_message = known_code == code, known_message == message
        may_differ = not (same_code and same_message)
        if may_differ and not reviewed:
            state, code, message = (), code if same_code else "", message if same_message else ""
        self._judged[entry.key] = now, state, code, message
        self._judged.move_to_end(entry.key)
        if not (reviewed and may_differ):
            return 0
        return FOLLOWED if same_code else None

    def review_at(self, state: tuple[int, ...]) -> float | None:
        """When a class is to be judged again, since the state differs from that of its last judgement; None: none is."""
        at, last, _, _ = next(iter(self._judged.values()), (0.0, state, "", ""))
        return None if last == state else at + REVIEW_S

    def review(self, entries: dict[JobId, Entry], now: float, state: tuple[int, ...]) -> list[Entry]:
        """The first jobs of the classes that are to be judged again, REVIEWED at most; they are unschedulable no more."""
        found: list[Entry] = []
        while len(found) < REVIEWED and (at := self.review_at(state)) is not None and at <= now:
            key = next(iter(self._judged))
            first = self._first(key, self._classes[key], entries, 1)
            if not first:
                self._drop(key)
                continue
            found += first
            self._judged[key] = now, state, *self._judged[key][2:]
            self._judged.move_to_end(key)
        return found

    def equals(self, entry: Entry, entries: dict[JobId, Entry], most: int | None) -> Iterator[JobId]:
        """Kept jobs of the class of this kept job, itself among them; some `most` of the first ones, or all."""
        key = entry.key
        assert key is not None
        orders = dict.fromkeys(islice(self._classes[key].waiting, most))
        return (order[-1] for order in orders if self._here(order, key, entries))

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
        self._judgements = EMPTY_JUDGED
        if self._described != self._columns.described.end:
            self._described = self._columns.described.end
            self._possible.clear()
            self._shapes.include_all()
            self._large_shapes.include_all()
        first_nodes, self._no_nodes = self._no_nodes and bool(self._columns.row_of), not self._columns.row_of
        if len(self._classes) > 2 * len(entries) + SPARE:
            self._forget_gone(self._classes, entries)
        if self._grown:
            self._forget_gone(self._grown, entries)
        if not self._classes:
            self._risen, self._booked = self._columns.risen.end, self._columns.changes.end
            return []
        hint, eased = self._hints()
        if hint is None and eased is None and not freed and not quotas_freed and not self._retries and not first_nodes:
            return []
        woken: list[Entry] = []
        if first_nodes or changed:
            for key in list(self._classes) if first_nodes else self._of_queues(changed):
                group = self._classes[key]
                woken.extend(self._first(key, group, entries, len(group.waiting)))
                self._drop(key)
        large = self._rotate(anew=hint is not None or eased is not None or bool(freed) or bool(quotas_freed))
        small = many = None  # those that any node may hold, where it pays to know: without one nothing else helps a class
        if self.behind or large or len(self._classes) > LOOKS:
            now = QueueingHint(self._columns, None)
            small, many = now.may_hold(self._shapes), now.may_hold(self._large_shapes)
            if not small and not many:
                self._retries = self.behind = False
                self._retrying, self._behind, self._left = {}, {}, {}
                return woken
        keys = self._concerned(hint, eased, small, freed, quotas_freed)
        found = [(key, group) for key in keys if (group := self._classes[key]).namespace not in large]
        self._behind = {key: None for key in self._behind if key in keys or self._classes[key].namespace in large}
        for name in large:
            assert many is not None
            found += self._found_in_turn(name, many)
        for key, group in self._first_in_order(found):
            self._retrying.pop(key, None)
            self._behind.pop(key, None)
            woken.extend(self._activate_some(key, group, entries))
            self._by_namespace[group.namespace].move_to_end(key)
            if not group.waiting:
                self._drop(key)
        return woken

    def _concerned(
        self,
        hint: QueueingHint | None,
        eased: QueueingHint | None,
        small: Within | None,
        freed: set[QueueName],
        quotas_freed: set[str],
    ) -> dict[EquivalenceKey, None]:
        """Classes for which something has changed that they wait for. Those of large namespaces are found in their turn."""
        found = dict(self._retrying)
        found.update(dict.fromkeys(self._of_queues(freed, without=self._large)))
        for name in sorted(quotas_freed - self._large.keys()):
            for key in self._by_namespace.get(name, ()):
                if any(task.namespace in quotas_freed for task in key[1]):
                    found[key] = None
        for task in hint.may_hold(self._shapes) if hint is not None else ():
            found.update(self._by_task[task])
        for task in eased.may_hold(self._shapes) if eased is not None else ():
            found.update((key, None) for key in self._by_task[task] if key in self._limited)
        if small is None:
            return found
        found.update((key, None) for key in self._behind if self._classes[key].namespace not in self._large)
        return {key: None for key in found if self._classes[key].namespace in self._large or small.any_of(key[1])}

    def _rotate(self, *, anew: bool) -> list[str]:
        """The namespaces with so many classes that they are scanned in parts, if something is left to scan. `anew`: something changed."""
        for name in self._left.keys() - self._large.keys():
            del self._left[name]
        if anew:
            self._left.update((name, len(self._by_namespace[name])) for name in self._large)
        return [name for name in self._large if self._left.get(name)]

    def _found_in_turn(self, name: str, many: Within) -> list[tuple[EquivalenceKey, UnschedulableClass]]:
        """Of a namespace with many classes the next ones that a node may hold now: without one that does nothing else helps them."""
        keys = self._by_namespace[name]
        found: list[tuple[EquivalenceKey, UnschedulableClass]] = []
        passed: list[EquivalenceKey] = []
        for key in islice(keys, min(SCANNED, self._left[name])):
            if many.any_of(key[1]):
                found.append((key, self._classes[key]))
                if len(found) == LOOKS:
                    break
            else:
                passed.append(key)
        for key in passed:
            keys.move_to_end(key)
        self._left[name] -= len(passed)
        return found

    def _forget_gone(self, keys: Iterable[EquivalenceKey], entries: dict[JobId, Entry]) -> None:
        """Of these classes the jobs that are gone or elsewhere, and classes of which all are."""
        for key in list(keys):
            group = self._classes[key]
            group.waiting = [order for order in dict.fromkeys(group.waiting) if self._here(order, key, entries)]
            heapify(group.waiting)
            group.most = 2 * len(group.waiting) + SPARE_ORDERS
            self._grown.pop(key, None)
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
        """As many classes as are examined in one cycle, by turns of the namespaces of their first jobs; the others are `behind`, and precede those of their
        namespace that were examined since."""
        turns: Counter[str] = Counter()
        ranked: list[tuple[int, int]] = []
        in_order = sorted(
            range(len(found)), key=lambda place: (found[place][0] not in self._behind, found[place][1].waiting[:1])
        )
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
            self._behind.update((key, None) for key, _ in found)
        return first

    def _enter(self, key: EquivalenceKey, namespace: str) -> None:
        """Add a new class to all indexes."""
        keys = self._by_namespace.setdefault(namespace, OrderedDict())
        keys[key] = None
        queue = key[0]
        of_queue = self._by_queue.get(queue)
        if of_queue is None:
            of_queue = self._by_queue[queue] = OfQueue(-(1 << 60))
            self._stand(queue)
        of_queue.keys.setdefault(namespace, {})[key] = None
        if namespace in self._large:
            self._note(key, self._large_shapes)
            return
        self._note(key, self._shapes)
        if len(keys) > SCANNED:
            for one in keys:
                self._note(one, self._large_shapes)
                self._forget(one, self._shapes)
            self._large[namespace] = None

    def _drop(self, key: EquivalenceKey) -> None:
        namespace, queue = self._classes.pop(key).namespace, key[0]
        keys, of_queue = self._by_namespace[namespace], self._by_queue[queue]
        del keys[key], of_queue.keys[namespace][key]
        if not of_queue.keys[namespace]:
            del of_queue.keys[namespace]
        if not of_queue.keys:
            del self._by_queue[queue]
            self._leave_tree(queue)
        for some in (self._limited, self._retrying, self._behind, self._grown, self._judged):
            some.pop(key, None)
        if namespace in self._large:
            self._forget(key, self._large_shapes)
            if len(keys) <= SCANNED:
                del self._large[namespace]
                for one in keys:
                    self._note(one, self._shapes)
                    self._forget(one, self._large_shapes)
        else:
            self._forget(key, self._shapes)
        if not keys:
            del self._by_namespace[namespace]

    def _note(self, key: EquivalenceKey, shapes: Shapes) -> None:
        for task in key[1]:
            shapes.add(task)
            if self._possible.get(task) is False:
                shapes.exclude(task)
            if shapes is self._shapes:
                self._by_task.setdefault(task, {})[key] = None

    def _forget(self, key: EquivalenceKey, shapes: Shapes) -> None:
        for task in key[1]:
            shapes.drop(task)
            if task not in self._shapes and task not in self._large_shapes:
                self._possible.pop(task, None)
            if shapes is self._shapes and (keys := self._by_task.get(task)) is not None:
                keys.pop(key, None)
                if not keys:
                    del self._by_task[task]

    def _stand(self, queue: QueueName) -> None:
        for above in self._queues.all().path(queue):
            self._below.setdefault(above, {})[queue] = None

    def _leave_tree(self, queue: QueueName) -> None:
        for above in self._queues.all().path(queue):
            if (below := self._below.get(above)) is not None:
                below.pop(queue, None)
                if not below:
                    del self._below[above]

    def _queues_of(self, names: set[QueueName]) -> list[QueueName]:
        """Queues with classes that are among these, or below one of them."""
        if not names:
            return []
        if self._places != (places := self._queues.all().places):
            self._places, self._below = places, {}
            for queue in self._by_queue:
                self._stand(queue)
        found = dict.fromkeys(queue for name in sorted(names) for queue in self._below.get(name, ()))
        return [queue for queue in found if queue in self._by_queue]

    def _of_queues(self, names: set[QueueName], *, without: Container[str] = ()) -> list[EquivalenceKey]:
        """Classes of these queues, and of those below them, but those of the namespaces `without`."""
        return [
            key
            for queue in self._queues_of(names)
            for namespace, keys in self._by_queue[queue].keys.items()
            if namespace not in without
            for key in keys
        ]

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
            within = min(
                (n for n in (within, max_pods(task, models, self._columns.model_resources)) if n is not None), default=None
            )
            fits = self._views.of(passing(kept, passes) if passes else kept).total()
            fits = fits if len(tasks) == 1 else min(fits, size)
            fits = fits if within is None else min(fits, within)
            room += fits if allowance.pods is None else min(fits, allowance.pods)
        if not room:
            self._exclude_impossible(tasks)
        count = room // need
        if len(tasks) > 1:  # only an attempt shows how they share the room: one job at a time
            count = min(count, 1)
        elif tasks[0].cards is not None and tasks[0].cards.count > 1 and room:  # their room is a lower bound
            count = max(count, 1)
        return self._first(key, group, entries, count)

    def _exclude_impossible(self, tasks: Iterable[Task]) -> None:
        """Those for which empty nodes have no room either: no pod that ends helps them, only a node that is described anew."""
        for task in tasks:
            if task in self._possible or by_zones(self._columns, task):
                continue
            if self._judgements <= 0:
                return
            self._judgements -= 1
            possible = self._possible[task] = most_when_empty(self._columns, task) > 0
            if not possible:
                self._shapes.exclude(task)
                self._large_shapes.exclude(task)

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
        `quotas_freed`. `wanted`: whether jobs of the queue with this priority, or less, are; asked once for each, and first of the highest."""
        queues = [queue for queue in self._queues_of(freed) if wanted(queue, self._by_queue[queue].highest)]
        keys = [key for queue in queues for keys in self._by_queue[queue].keys.values() for key in keys]
        for name in sorted(quotas_freed):
            keys += [key for key in self._by_namespace.get(name, ()) if any(task.namespace in quotas_freed for task in key[1])]
        known: dict[tuple[QueueName, int], bool] = {}
        for key in dict.fromkeys(keys):
            group = self._classes[key]
            if not group.waiting:
                continue
            rank = key[0], -group.waiting[0][0]
            if (found := known.get(rank)) is None:
                found = known[rank] = wanted(*rank)
            if found:
                yield (entries[order[-1]] for order in islice(group.waiting, SHOWN) if self._here(order, key, entries))

    @staticmethod
    def _here(order: Order, key: EquivalenceKey, entries: dict[JobId, Entry]) -> bool:
        entry = entries.get(order[-1])
        return entry is not None and entry.state is JobState.UNSCHEDULABLE and entry.key == key and entry.order == order


def _wishes_certain_cards(key: EquivalenceKey) -> bool:
    return any(task.cards is not None and task.cards.devices is not None and task.cards.devices.wishes for task in key[1])
