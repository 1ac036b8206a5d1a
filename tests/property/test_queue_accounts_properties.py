"""Accounts of queues are kept from session to session: what a session opens with is what new accounts would say, whatever happened before."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bench.victims import new_member, new_task

from hbox_common.model import CardSlice, GroupPhase, JobId, QueueName, Resources
from hbox_common.model.annotations import OVER_QUOTA_WEIGHT
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.weightshares import Demand, divide_by_weight, kept_below
from hbox_scheduler.core.actions.registry import run_action
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.entities import Gang, QueueInfo, Status
from hbox_scheduler.core.cluster.running import RunningGangs
from hbox_scheduler.core.cluster.snapshot import Cluster
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.framework.hooks import QueueOrder
from hbox_scheduler.core.framework.session import Session
from hbox_scheduler.core.plugins.proportion import Proportion
from hbox_scheduler.core.plugins.queueaccounts import QueueAccounts
from hbox_scheduler.core.policy.registry import PLUGINS, plugins_of
from hbox_scheduler.core.simulate import node

from ..searching import examples

CARDS, NODES, QUEUES = 4, 4, 5

POLICIES = {
    plugin: parse_conf(
        f"""
actions: "enqueue, allocate, reclaim"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}]
- plugins: [{{name: predicates}}, {plugin}]
""",
        plugins=list(PLUGINS),
    )
    for plugin in (
        "{name: proportion}",
        "{name: proportion, arguments: {usageWeight: 1}}",
        "{name: proportion, enableHierarchy: true}",
        "{name: capacity, enableHierarchy: true, arguments: {reclaimAtParting: true}}",
        "{name: capacity, enableHierarchy: true, arguments: {usageWeight: 1}}",
    )
}


@dataclass
class World:
    """Jobs come, run, and go; queues change. `running` is kept, as the service keeps it."""

    columns: Columns = field(default_factory=Columns)
    rules: list[tuple[int, Resources, Resources, str, float]] = field(default_factory=list)
    held: dict[str, Gang] = field(default_factory=dict)
    waiting: list[tuple[int, int, int, bool]] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        for i in range(NODES):
            self.columns.put_node(node(f"n{i}", cards=CARDS, cpu=64))
        self.tasks = Tasks(self.columns)
        self.rules = [(-1, {GPU: 4}, {}, "", 0.0) for _ in range(QUEUES)]
        self.infos = list(map(self._info, range(QUEUES)))
        for queue in self._queues():
            for name in (*queue.deserved, *queue.guarantee):
                self.columns.resource(name)
        self.running = RunningGangs(self.columns)
        self.departments = [QueueInfo(QueueName(f"d{i}"), deserved={GPU: 8}, capability={GPU: 12}) for i in range(2)]

    def _info(self, i: int) -> QueueInfo:
        parent, deserved, guarantee, weight, recent = self.rules[i]
        return QueueInfo(
            QueueName(f"q{i}"),
            parent=QueueName(f"d{parent}") if parent >= 0 else None,
            deserved=deserved,
            guarantee=guarantee,
            annotations={OVER_QUOTA_WEIGHT: weight} if weight else {},
            recent_cards=recent,
        )

    def _queues(self) -> list[QueueInfo]:
        return self.infos

    def do(self, what: str, about: object) -> None:
        match what, about:
            case "starts", (int() as name, int() as units, bool() as preemptable, bool() as minimum):
                self.starts(name, units, preemptable=preemptable, minimum=minimum)
            case "ends", int() as number:
                self.ends(number)
            case "waits", list() as waiting:
                self.waiting = waiting
            case "rules", (int() as i, int() as parent, int() as deserved, int() as guarantee, str() as weight):
                self.rules[i] = parent, {GPU: deserved}, {GPU: guarantee}, weight, self.rules[i][-1]
                self.infos[i] = self._info(i)
            case "joins", None:
                self.columns.put_node(node(f"more-{self.columns.size}", cards=CARDS, cpu=64))
            case "history", (int() as i, float() as recent):
                self.rules[i] = (*self.rules[i][:-1], recent)
                self.infos[i] = self._info(i)

    def starts(self, queue: int, cards: int, *, preemptable: bool, minimum: bool) -> None:
        free = next((row for row in range(NODES) if self._free(row) >= cards), None)
        if free is None:
            return
        self.count += 1
        gang = self._gang(f"r{self.count}", queue, GroupPhase.RUNNING)
        gang.min_resources = {GPU: cards} if minimum else None
        member = new_member(self.columns, gang, new_task(self.tasks, cards), 0)
        taken = {piece.index for one in self.held.values() for m in one.members if m.row == free for piece in m.slices}
        member.status, member.row, member.preemptable = Status.RUNNING, free, preemptable
        cards_free = [card for card in range(CARDS) if card not in taken][:cards]
        member.slices = tuple(CardSlice(card, 100, 40_960) for card in cards_free)
        self.columns.book(free, member.task.requests, member.slices)
        self.held[gang.name] = gang
        self.running.put(gang)

    def ends(self, number: int) -> None:
        if self.held:
            gang = self.held.pop(sorted(self.held)[number % len(self.held)])
            self.running.take(gang.id)
            member = gang.members[0]
            self.columns.book(member.row, member.task.requests, member.slices, -1)

    def _free(self, row: int) -> int:
        return CARDS - sum(len(m.slices) for gang in self.held.values() for m in gang.members if m.row == row)

    def _gang(self, name: str, queue: int, phase: GroupPhase) -> Gang:
        return Gang(JobId(f"d/{name}"), "d", name, QueueName(f"q{queue}"), 0, 1, float(self.count), phase)

    def fresh(self) -> list[Gang]:
        gangs = []
        for i, (queue, cards, pods, promised) in enumerate(self.waiting):
            gang = self._gang(f"w{i}", queue, GroupPhase.INQUEUE if promised else GroupPhase.PENDING)
            gang.min_member, gang.created_at, gang.min_resources = pods, 1e6 + i, {GPU: cards * pods}
            for number in range(pods):
                new_member(self.columns, gang, new_task(self.tasks, cards), number)
            gangs.append(gang)
        return gangs

    def session(self, policy: str, running: RunningGangs) -> Session:
        cluster = Cluster(self.fresh(), [*self.departments, *self._queues()], running=running)
        conf = POLICIES[policy]
        return Session(columns=self.columns, cluster=cluster, conf=conf, tiers=plugins_of(conf))

    def rebuilt(self) -> RunningGangs:
        running = RunningGangs(self.columns)
        for gang in self.held.values():
            running.put(gang)
        return running


def said(session: Session) -> object:
    """All amounts that the policy's accounts have, and the order of queues that follows."""
    accounts = next(one for one in session.running.watchers.values() if isinstance(one, QueueAccounts))
    return [
        (
            (name, *map(tuple, (account.allocated, account.protected, account.requested, account.committed))),
            (*map(tuple, (account.ceiling, account.deserved, account.guarantee)), account.queue.recent_cards),
            sorted(account.shapes.items()),
            [one.queue.name for one in account.path],
        )
        for name, account in accounts.accounts.items()
    ], session.ranking.in_order()


def undo(session: Session) -> None:
    """As the service does after each session."""
    for gang in session.gangs:
        for member in gang.members:
            if member.status is Status.RELEASING:
                member.status = Status.RUNNING
                session.columns.depart(member.row, member.task.requests, member.slices, -1)
            elif member.status is Status.ALLOCATED:
                session.columns.book(member.row, member.task.requests, member.slices, -1)
            elif member.status is Status.PIPELINED:
                session.columns.depart(member.row, member.task.requests, member.slices)
        gang.tally()


queue, cards = st.integers(0, QUEUES - 1), st.integers(1, 3)
steps = st.one_of(
    st.tuples(st.just("starts"), st.tuples(queue, cards, st.booleans(), st.booleans())),
    st.tuples(st.just("ends"), st.integers(0, 20)),
    st.tuples(st.just("waits"), st.lists(st.tuples(queue, cards, st.integers(1, 3), st.booleans()), max_size=4)),
    st.tuples(
        st.just("rules"),
        st.tuples(queue, st.integers(-1, 1), st.integers(0, 8), st.integers(0, 2), st.sampled_from(["", "1", "x"])),
    ),
    st.tuples(st.just("history"), st.tuples(queue, st.floats(0, 8))),
    st.tuples(st.just("joins"), st.none()),
    st.tuples(st.just("session"), st.none()),
)


def divided(accounts: QueueAccounts, amounts: Sequence[int]) -> dict[str, list[float]]:
    """The share of each queue, level by level from the top."""
    found: dict[str, list[float]] = {}
    kept: dict[str, list[float]] = {}
    levels = list(accounts.levels())
    for parent, children in reversed(levels[1:]):
        assert parent is not None
        kept[parent.queue.name] = [
            kept_below((one.requested[c], kept.get(one.queue.name, nothing(accounts))[c], one.guarantee[c]) for one in children)
            for c in range(accounts.size)
        ]
    for parent, children in levels:
        level = amounts if parent is None else found[parent.queue.name]
        shares = [
            divide_by_weight(
                level[c],
                [
                    Demand(
                        one.queue.weight,
                        one.requested[c],
                        one.guarantee[c],
                        one.deserved[c],
                        one.ceiling[c],
                        kept=kept.get(one.queue.name, nothing(accounts))[c],
                    )
                    for one in children
                ],
            )
            for c in range(accounts.size)
        ]
        found.update((one.queue.name, [of[i] for of in shares]) for i, one in enumerate(children))
    return found


def nothing(accounts: QueueAccounts) -> list[float]:
    return [0.0] * accounts.size


@examples(200)
@given(st.lists(steps, min_size=6, max_size=20), st.randoms(use_true_random=False))
def test_shares_that_are_read_in_any_order_are_those_of_the_whole_tree(
    done: list[tuple[str, object]], random: random.Random
) -> None:
    world = World()
    for what, about in done:
        world.do(what, about)
    check_shares(world, random)


def check_shares(world: World, random: random.Random) -> None:
    session = world.session("{name: proportion, enableHierarchy: true}", world.running)
    (plugin,) = [one for one in session.plugins(QueueOrder) if isinstance(one, Proportion)]
    accounts = plugin._queue_accounts
    names = sorted(accounts.accounts)
    random.shuffle(names)
    expected = divided(accounts, accounts.available())
    for name in names:
        assert list(plugin._deserved[accounts.accounts[name]]) == pytest.approx(expected[name])


@pytest.mark.parametrize("guaranteed", [0, 4])
def test_children_divide_their_parents_share_with_what_is_guaranteed_below_it(guaranteed: int) -> None:
    world = World()
    for i in range(3):
        world.do("rules", (i, 0, 0, guaranteed if i == 2 else 0, ""))
    world.waiting = [(0, 3, 3, False), (1, 3, 3, False)]  # more than the department's limit, while `q2` asks for nothing
    check_shares(world, random.Random(0))
    world.waiting = [(0, 1, 2, False)]
    check_shares(world, random.Random(0))


@examples(300)
@given(st.sampled_from(sorted(POLICIES)), st.lists(steps, min_size=6, max_size=30))
def test_accounts_that_are_kept_say_what_new_ones_say(policy: str, done: list[tuple[str, object]]) -> None:
    world = World()
    for what, about in [*done, ("session", None)]:
        if what != "session":
            world.do(what, about)
            continue
        kept = world.session(policy, world.running)
        afresh = said(world.session(policy, world.rebuilt()))
        assert said(kept) == afresh
        assert kept.refused.keys() == {QueueName(f"q{i}") for i, r in enumerate(world.rules) if r[3] == "x"} or (
            "proportion" in policy
        )
        for action in POLICIES[policy].actions:
            run_action(action, kept)
        undo(kept)


def test_a_session_changes_nothing_that_the_next_one_opens_with() -> None:
    world = World()
    world.starts(0, 2, preemptable=True, minimum=False)
    world.waiting = [(1, 2, 2, True)]
    policy = "{name: proportion}"
    first = world.session(policy, world.running)
    before = said(first)
    for action in POLICIES[policy].actions:
        run_action(action, first)
    assert first.outcome.bindings
    assert said(first) != before
    undo(first)
    assert said(world.session(policy, world.running)) == before


def test_accounts_are_kept_as_long_as_the_tree_is_the_same() -> None:
    world = World()
    policy = "{name: capacity, enableHierarchy: true, arguments: {reclaimAtParting: true}}"
    world.session(policy, world.running)
    kept = world.running.watchers["capacity"]
    assert isinstance(kept, QueueAccounts)
    world.infos[0] = replace(world.infos[0], recent_cards=3.0, deserved={GPU: 1})
    world.columns.put_node(node("more", cards=CARDS, cpu=64))
    world.session(policy, world.running)
    assert world.running.watchers["capacity"] is kept
    cards = world.columns.resources[GPU]
    assert (kept.total[cards], kept.accounts[QueueName("q0")].deserved[cards]) == (CARDS * (NODES + 1), 1)
    world.infos[0] = replace(world.infos[0], parent=QueueName("d0"))
    world.session(policy, world.running)
    assert world.running.watchers["capacity"] is not kept
