"""The evictable members of one action as arrays: member, node, queue and freed amounts.

Each action builds them once. Order within a queue: the lowest priority first; then surplus members before members whose eviction breaks a gang; then the
least lost work, if a plugin estimates it; then the reverse order of service at the start of the action. Members under minimum run time (`minruntime`) are
excluded. The queues are not ordered here, because their order follows the shares.

A position is the slot of a running pod in `RunningTable`, or, beyond these, a member of one of the session's own gangs. All that a search needs to exclude or
rate a pod is in the arrays. A queue is sorted when a search first reads it, and the order of a queue of jobs of one pod is kept until the queue changes. A
gang becomes an object when the search considers one of its members as a victim, or when a queue with gangs of several pods is sorted.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model import OFFLINE, JobId, QueueName
from hbox_common.model.minruntime import LONGEST_S, protects
from hbox_common.model.resources import PODS

from ..cluster.arrays import Bools, Floats, Ints
from ..cluster.entities import EVICTABLE, Gang, Member
from ..cluster.task import Task
from ..framework.hooks import GangOrder, Key, Plugin, VictimLoss

if TYPE_CHECKING:
    from ..framework.session import Session

#: Pseudo queue of the offline work of all queues, which is evicted first.
OFFLINE_QUEUE = QueueName(OFFLINE)

#: Creation time, namespace, name and id: what orders gangs that no plugin orders.
_Age = tuple[float, str, str, JobId]


@dataclass(slots=True)
class _Entry:
    """One gang of a queue to be sorted, with its evictable members in the order of eviction."""

    gang: Gang
    keys: Sequence[Key]  #: of the plugins
    positions: list[int]
    surplus: int  #: members that the gang can lose
    harm: int  #: members lost with each further one


class EvictablePods:
    """V positions; arrays are indexed by position. Positions outside of `in_place` are no candidates."""

    def __init__(self, session: "Session", *, queue: QueueName | None = None, offline: bool = False) -> None:
        """Collect all running or bound members that may be evicted. `queue`: only of that queue, plus offline work; `offline`: only offline work."""
        table = session.running.table
        self._session, self._table, self._slots = session, table, table.size
        leaving, now = session.offline_runs, session.now
        here = slice(0, table.size)
        leaves = table.offline[here] if leaving else np.zeros(table.size, dtype=np.bool_)  # always evictable
        candidates = table.claimed[here] & (table.preemptable[here] | leaves)
        if offline:
            candidates &= leaves
        elif queue is not None:
            code = table.queue_code(queue)
            candidates &= leaves if code is None else leaves | (table.queue[here] == code)
        until = table.protected_until[here]
        kept = (until > now) & (until <= now + LONGEST_S) & ~leaves
        self.queues: list[QueueName] = [QueueName("") if name is None else name for name in table.queue_names()]
        self.codes = {name: code for code, name in enumerate(self.queues) if name}
        if leaving:
            self._code(OFFLINE_QUEUE)
        self._member: dict[int, Member] = {}  #: by position, of members that exist as objects
        self._position: dict[Member, int] = {}
        self._own: defaultdict[int, list[_Entry]] = defaultdict(list)  #: gangs of the session itself, by queue
        own, own_there, own_harm, own_codes = self._own_members(queue, offline=offline, leaving=leaving, now=now)
        self._tasks: dict[Task, int] = {}
        self.size = table.size + len(own)
        there, protected = np.append(candidates & ~kept, own_there), np.append(candidates & kept, ~own_there)
        for changed in session.departures:
            for member in changed:
                if (slot := self._slot_of(member)) is not None and (member.status not in EVICTABLE or member.row < 0):
                    there[slot] = protected[slot] = False
        self._there, self._protected = there, protected
        self.in_place: Bools = there.copy()  #: False once evicted
        self.rows: Ints = _joined(table.row[here], [member.row for member in own])
        #: members lost with it: beyond its surplus a gang is evicted whole. Valid for members of queues whose `order` was read
        self.harm: Ints = _joined(np.ones(table.size, dtype=np.int64), own_harm)
        self.priority: Ints = _joined(table.priority[here], [member.gang.priority for member in own])
        #: codes of `queues`; offline work has the code of its pseudo queue
        self.queue: Ints = _joined(table.queue[here], own_codes)
        if leaving:
            self.queue = np.where(np.append(leaves, np.zeros(len(own), dtype=np.bool_)), self.codes[OFFLINE_QUEUE], self.queue)
        #: queues that the session does not know
        self.strangers = sorted(name for name in self.codes if name not in session.queues)
        self._task, self._amounts = self._requested(own)
        self._orders: dict[int, Ints] = {}  #: by queue
        self._place: Ints = np.zeros(self.size, dtype=np.int64)  #: index in the order of its queue, if this was read
        self._own_on_row: defaultdict[int, list[int]] = defaultdict(list)
        for number, member in enumerate(own):
            self._own_on_row[member.row].append(table.size + number)

    def _code(self, name: QueueName) -> int:
        code = self.codes.get(name)
        if code is None:
            code = self.codes[name] = len(self.queues)
            self.queues.append(name)
        return code

    def _own_members(
        self, queue: QueueName | None, *, offline: bool, leaving: bool, now: float
    ) -> tuple[list[Member], Bools, list[int], list[int]]:
        """Candidates of the session's own gangs, the oldest first: whether each is not protected, its harm, and the code of its queue."""
        session, members = self._session, list[Member]()
        there: list[bool] = []
        harm: list[int] = []
        codes: list[int] = []
        for gang in session.fresh:
            leaves = leaving and gang.offline
            if not gang.holding or not (
                leaves or (gang.preemptable and (queue is None or gang.queue == queue) and not offline)
            ):
                continue
            code = self._code(OFFLINE_QUEUE if leaves else gang.queue)
            first, mine = len(members), list[int]()
            for member in gang.members:
                if member.status not in EVICTABLE or member.row < 0 or not (leaves or member.preemptable):
                    continue
                position = self._slots + len(members)
                self._member[position], self._position[member] = member, position
                members.append(member)
                there.append(leaves or not protects(member.protected_until, now))
                if there[-1]:
                    mine.append(position)
            entry = self._entry(gang, mine)
            self._own[code].append(entry)
            codes += [code] * (len(members) - first)
            harm += [1] * (len(members) - first)
            for number, position in enumerate(entry.positions):
                harm[position - self._slots] = 1 if number < entry.surplus else entry.harm
        return members, np.array(there, dtype=np.bool_), harm, codes

    def _entry(self, gang: Gang, mine: list[int]) -> _Entry:
        """mine: positions of its evictable members."""
        session = self._session
        if len(mine) > 1:
            mine = sorted(mine, key=lambda position: session.member_key(self._member[position]), reverse=True)
        surplus = max(0, min(len(mine), gang.ready - gang.min_member))
        harm = max(1, gang.holding - surplus)
        if len(gang.members) == 1:
            surplus, harm = int(gang.min_member <= 0), 1
        return _Entry(gang, [plugin.gang_key(gang) for plugin in session.plugins(GangOrder)], mine, surplus, harm)

    def _requested(self, own: Sequence[Member]) -> tuple[Ints, Ints]:
        """A code for each member's task, and the requested amounts `[T, R]` by code."""
        table, columns = self._table, len(self._session.columns.allocatable)
        amounts = table.amounts
        if amounts.shape[1] < columns:
            amounts = np.pad(amounts, ((0, 0), (0, columns - amounts.shape[1])))
        if not own:
            return table.task[: table.size], amounts
        tasks = {task: len(amounts) + number for number, task in enumerate(dict.fromkeys(member.task for member in own))}
        more = np.zeros((len(tasks), amounts.shape[1]), dtype=np.int64)
        for number, task in enumerate(tasks):
            for column, units in task.amount:
                more[number, column] = units
        self._tasks = tasks
        return _joined(table.task[: table.size], [tasks[member.task] for member in own]), np.concatenate([amounts, more])

    # Queries.

    def amounts_at(self, positions: Ints, columns: Ints) -> Ints:
        """`[n, C]`: requested amounts of these members, by these resource columns."""
        return self._amounts[self._task[positions][:, None], columns[None, :]]

    def by_task(self, positions: Ints) -> Iterator[tuple[Task, Ints, Ints]]:
        """Each task of these members: the task, its requested amounts `[R]`, and those of the positions that have it."""
        codes = self._task[positions]
        of_code = {code: task for task, code in self._tasks.items()}
        for code in np.unique(codes).tolist():
            yield of_code.get(code) or self._table.task_of(code), self._amounts[code], positions[codes == code]

    def where_task(self, condition: Callable[[Task], bool]) -> Bools:
        """`[V]`: whether the condition holds for the task of the member."""
        holds = np.zeros(len(self._amounts), dtype=np.bool_)
        known = {code: task for code, task in enumerate(self._table.tasks()) if task is not None}
        for code, task in (*known.items(), *((code, task) for task, code in self._tasks.items())):
            holds[code] = condition(task)
        return np.asarray(holds[self._task])

    def movable(self) -> Bools:
        """`[V]`: `Member.movable`."""
        mine = [self._member[position].movable for position in range(self._slots, self.size)]
        return np.append(self._table.movable[: self._slots], np.array(mine, dtype=np.bool_))

    def best_effort(self) -> Bools:
        """`[V]`: whether the member requests nothing that is counted (`Member.best_effort`)."""
        pods = self._session.columns.resources.get(PODS)
        found = self.where_task(
            lambda task: task.cards is None and not any(units for column, units in task.amount if column != pods)
        )
        for position in range(self._slots, self.size):
            found[position] = self._member[position].best_effort
        return found

    def lent(self, owner: QueueName) -> Bools:
        """`[V]`: whether the member has a node of a pool that the owner reclaims (`NodePools.lent`)."""
        pools, table = self._session.pools, self._table
        names = table.pool_names()
        pairs = table.queue[: self._slots] * max(len(names), 1) + table.pool[: self._slots]
        kinds, of = np.unique(pairs, return_inverse=True)
        found = np.zeros(len(kinds), dtype=np.bool_)
        for number, kind in enumerate(kinds.tolist()):
            code, pool = divmod(kind, max(len(names), 1))
            if (name := table.queue_names()[code]) is not None and (held := names[pool]):
                found[number] = pools.owns(owner, held) and not pools.owns(name, held)
        mine = [pools.lent(owner, self._member[position]) for position in range(self._slots, self.size)]
        return np.append(found[of.reshape(-1)], np.array(mine, dtype=np.bool_))

    def order(self, code: int) -> Ints:
        """Positions of the queue's evictable members in the order of eviction, evicted ones included."""
        found = self._orders.get(code)
        if found is None:
            found = self._orders[code] = self._sorted(code)
            self._place[found] = np.arange(len(found))
        return found

    def divided(self) -> tuple[Ints, Ints]:
        """Positions of the members that are the only pod of their job and have slots (`RunningTable.lone`), and of all others; sorts all queues."""
        for code in self._by_name(self._there):
            self.order(code)
        there = np.flatnonzero(self._there)
        lone = np.append(self._table.lone[: self._slots], np.zeros(self.size - self._slots, dtype=np.bool_))[there]
        return there[lone], there[~lone]

    def on_row(self, row: int) -> list[int]:
        """Positions of the evictable members on a node, evicted ones included; without order."""
        there = self._there
        return [position for position in (*self._table.on_row(row), *self._own_on_row.get(row, ())) if there[position]]

    def place(self, position: int) -> int:
        """Index of the member in the order of its queue."""
        self.order(self.queue.item(position))
        return self._place.item(position)

    def rank(self, gang: Gang) -> tuple[QueueName, int]:
        """The queue, and the index of the gang's last member in its order."""
        return max((self.queues[self.queue.item(position)], self.place(position)) for position in self.positions(gang))

    def member(self, position: int) -> Member:
        """The member; builds its gang if necessary."""
        found = self._member.get(position)
        if found is None:
            self._build(self._table.jobs[position])
            found = self._member[position]
        return found

    def members_at(self, positions: Sequence[int]) -> list[Member]:
        return [self.member(position) for position in positions]

    def position(self, member: Member) -> int | None:
        """None if the member is not evictable."""
        found = self._position.get(member)
        if found is None and (found := self._slot_of(member)) is not None:
            self._member[found], self._position[member] = member, found
        return found if found is not None and self._there[found] else None

    def positions(self, gang: Gang) -> list[int]:
        """Positions of the gang's members."""
        return [position for member in gang.members if (position := self.position(member)) is not None]

    def of(self, gang: Gang) -> list[Member]:
        """The gang's members among them that are not evicted."""
        return [member for member in gang.members if self.position(member) is not None and member.status in EVICTABLE]

    def staying(self, eligible: Bools) -> list[Member]:
        """The members of the mask `eligible` `[V]` that are not evicted, by queue, in the order of eviction."""
        left = eligible & self.in_place
        found: list[Member] = []
        for code in self._by_name(left):
            found += self.members_at([position for position in self.order(code).tolist() if left[position]])
        return found

    @cached_property
    def protects_any(self) -> bool:
        """Whether any member is under minimum run time."""
        return bool(self._protected.any())

    def protected(self, among: Bools) -> list[Member]:
        """The members under minimum run time of the mask `among` `[V]`, by queue, in the reverse order of service."""
        chosen, session = self._protected & among, self._session
        found: list[Member] = []
        for code in self._by_name(chosen):
            mine = set(np.flatnonzero(chosen & (self.queue == code)).tolist())
            gangs = dict.fromkeys(self.member(position).gang for position in sorted(mine))
            for gang in sorted(gangs, key=session.gang_key, reverse=True):
                found += [member for member in gang.members if self._known_position(member) in mine]
        return found

    # Order.

    def _by_name(self, mask: Bools) -> list[int]:
        """Codes of the queues of a mask `[V]`, by name."""
        return sorted(np.unique(self.queue[mask]).tolist(), key=lambda code: self.queues[code])

    def _known_position(self, member: Member) -> int | None:
        found = self._position.get(member)
        return self._slot_of(member) if found is None else found

    def _slot_of(self, member: Member) -> int | None:
        """The slot of a member of a cached gang."""
        job = member.gang.id
        if self._session.running.built(job) is not member.gang:
            return None
        return next((slot for slot in self._table.of(job) if self._table.uids[slot] == member.uid), None)

    def _build(self, job: JobId) -> Gang:
        gang = self._session.running.gang_of(job)
        slots = {self._table.uids[slot]: slot for slot in self._table.of(job)}
        for member in gang.members:
            slot = slots[member.uid]
            self._member[slot], self._position[member] = member, slot
        return gang

    def _sorted(self, code: int) -> Ints:
        table, session = self._table, self._session
        orders = session.plugins(GangOrder)
        own = self._own.get(code, [])
        offline = self.queues[code] == OFFLINE_QUEUE and OFFLINE_QUEUE in self.codes
        if offline:
            slots = np.flatnonzero(self._there[: self._slots] & (self.queue[: self._slots] == code))
        elif code < len(table.queue_names()):
            slots = table.in_queue(code)
            slots = slots[self.queue[slots] == code]  # offline work is elsewhere
        else:
            slots = np.empty(0, dtype=np.int64)
        losing = self._losing
        if own or offline or losing is not None or not table.lone[slots].all() or not all(p.lone_keys_fixed for p in orders):
            return self._sorted_anew(slots[self._there[slots]], own)
        key = self._ranks, *(type(plugin) for plugin in orders)
        kept = table.orders.setdefault(key, {})
        found = kept.get(code)
        if found is None or found[0] != table.versions[code]:
            found = kept[code] = table.versions[code], self._sorted_anew(slots, [])
        return found[1][self._there[found[1]]]

    def _sorted_anew(self, slots: Ints, own: Sequence[_Entry]) -> Ints:
        """Sort the pods of these slots and the members of these gangs."""
        table, session = self._table, self._session
        orders = session.plugins(GangOrder)
        lone = slots[table.lone[slots]]
        keys = [plugin.lone_keys(table, lone) for plugin in orders]
        if any(part is None for part in keys):
            lone, keys = lone[:0], [np.empty(0) for _ in orders]
        apart = dict.fromkeys(table.jobs[slot] for slot in np.setdiff1d(slots, lone).tolist())
        entries = [*own, *map(self._entry_of, apart)]
        if any(not isinstance(key, bool | int | float) for entry in entries for key in entry.keys):
            entries += map(self._entry_of, [table.jobs[slot] for slot in lone.tolist()])
            lone, keys = lone[:0], []
            entries.sort(key=lambda entry: session.gang_key(entry.gang))
            service = np.arange(len(entries))
        else:
            parts = [
                np.append(part if part is not None else (), [float(entry.keys[number]) for entry in entries])
                for number, part in enumerate(keys)
            ]
            ages = np.append(table.created_at[lone], [entry.gang.created_at for entry in entries])
            service = self._service(lone, entries, [*parts, ages])
        reverse = np.empty(len(service), dtype=np.int64)
        reverse[service] = np.arange(len(service))[::-1]
        several = [len(entry.positions) for entry in entries]
        positions = np.append(lone, np.array([one for entry in entries for one in entry.positions], dtype=np.int64))
        turn = np.append(reverse[: len(lone)], np.repeat(reverse[len(lone) :], several))
        within = np.append(
            np.zeros(len(lone), dtype=np.int64), np.array([i for n in several for i in range(n)], dtype=np.int64)
        )
        breaking = [number >= entry.surplus for entry in entries for number in range(len(entry.positions))]
        breaks = np.append(table.min_member[lone] > 0, np.array(breaking, dtype=np.bool_))
        losses = self._losses(lone, positions[len(lone) :])
        priority = self.priority[positions]
        order = np.lexsort(
            (within, turn, *(() if losses is None else (losses,)), breaks, priority if self._ranks else 0 * priority)
        )
        return np.asarray(positions[order], dtype=np.int64)

    def _entry_of(self, job: JobId) -> _Entry:
        gang = self._build(job)
        entry = self._entry(gang, [one for member in gang.members if self._there[one := self._position[member]]])
        for number, position in enumerate(entry.positions):
            self.harm[position] = 1 if number < entry.surplus else entry.harm
        return entry

    def _service(self, lone: Ints, entries: Sequence[_Entry], keys: Sequence[Floats]) -> Ints:
        """Indices of the lone slots and the entries in the order of service by numbers, and by names where these are equal."""
        order = np.lexsort(tuple(reversed(keys)))
        same = np.ones(max(len(order) - 1, 0), dtype=np.bool_)
        for part in keys:
            ordered = part[order]
            same &= ordered[1:] == ordered[:-1]
        if not same.any():
            return order
        table, count = self._table, len(lone)

        def name(index: int) -> tuple[str, str, JobId]:
            if index >= count:
                gang = entries[index - count].gang
                return gang.namespace, gang.name, gang.id
            slot = lone.item(index)
            return table.namespaces[slot], table.names[slot], table.jobs[slot]

        bounds = np.flatnonzero(np.diff(np.concatenate(([False], same, [False])).astype(np.int8)))
        listed: list[int] = order.tolist()
        for first, last in zip(bounds[::2].tolist(), bounds[1::2].tolist(), strict=True):
            listed[first : last + 1] = sorted(listed[first : last + 1], key=name)
        return np.array(listed, dtype=np.int64)

    @cached_property
    def _ranks(self) -> bool:
        return any(plugin.ranks_priorities for plugin in self._session.plugins(Plugin))

    @cached_property
    def _losing(self) -> VictimLoss | None:
        """The plugin that estimates lost work."""
        slots = self._there[: self._slots] & self._table.checkpointed[: self._slots]
        own = [self._member[position] for position in range(self._slots, self.size) if self._there[position]]
        return self._session.estimator(self._table, np.flatnonzero(slots), own)

    def _losses(self, lone: Ints, others: Ints) -> Floats | None:
        if (plugin := self._losing) is None:
            return None
        return np.append(plugin.lone_losses(self._table, lone), plugin.losses(self.members_at(others.tolist())))


def _joined(array: Ints, more: Sequence[int]) -> Ints:
    return np.concatenate([array, np.array(more, dtype=np.int64)]) if more else array
