"""Large gangs start in time under HBox's own policy, with nothing configured: beside streams of small jobs, by a service's cycles over minutes.

4 nodes of 8 cards. `Stream` keeps more one-card jobs waiting than there are cards, each of which runs for `runs_s`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any

import numpy as np
import pytest

from hbox_common.model import Job, JobId, Neighbour, PodUid, Queue, QueueName, RanFor
from hbox_common.model.annotations import WALLTIME
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.cluster.reservations import Reservation
from hbox_scheduler.core.cluster.runtimes import RunTimes, Whose
from hbox_scheduler.core.cluster.walltimes import walltime_in
from hbox_scheduler.core.framework.conf import Conf
from hbox_scheduler.core.placement.reservations import SessionReservations
from hbox_scheduler.core.plugins.reservations import SURE_AFTER_S
from hbox_scheduler.core.plugins.walltimes import not_longer
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.protocol.limits import Limits
from hbox_scheduler.core.queueing.jobs import Entry
from hbox_scheduler.core.simulate import Simulation, job, node
from hbox_scheduler.core.steps.placer import BY_OTHERS

CARDS = 32


@dataclass
class Days:
    """Time that passes around a simulation: jobs end after their run times, and as many small ones as before are submitted."""

    queues: tuple[Queue, ...] = (Queue(QueueName("default")),)
    limits: Limits | None = None
    walltime: str = ""  #: of small jobs
    runs_s: Callable[[int], float] = lambda number: 100.0 + 37.0 * (number % 11)
    small_queue: str = "default"
    started: dict[str, float] = field(default_factory=dict)
    ends: list[tuple[float, str]] = field(default_factory=list)
    submitted: int = 0

    def __post_init__(self) -> None:
        self.simulation = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf(), limits=self.limits, queues=self.queues)
        self.simulation.wall_ahead = 1_000_000.0
        self.simulation.put_nodes([node(f"n{i}", cards=8) for i in range(4)])

    @property
    def time_of_day(self) -> float:
        return self.simulation.now + self.simulation.wall_ahead

    def submit(self, one: Job, *walltimes: str) -> None:
        """`walltimes`: of its shapes; one is of all of them, "" of none."""
        if any(walltimes):
            said = [{WALLTIME: walltime} for walltime in (walltimes if len(walltimes) > 1 else walltimes * len(one.tasks))]
            one = replace(one, tasks=tuple(replace(spec, annotations=of) for spec, of in zip(one.tasks, said, strict=True)))
            self.simulation.scheduler.on_neighbours(
                Neighbour(pod.uid, "default", annotations=spec.annotations) for spec in one.tasks for pod in spec.pods
            )
        self.simulation.submit([one])

    def small(self) -> None:
        number, self.submitted = self.submitted, self.submitted + 1
        self.submit(job(f"s{number}", cards=1, created_at=self.time_of_day, queue=self.small_queue), self.walltime)

    def gang(self, name: str = "big", **more: object) -> None:
        self.submit(job(name, **({"pods": 2, "cards": 8, "created_at": self.time_of_day} | more)))  # type: ignore[arg-type]

    def pass_time(self, seconds: float, *, stream: bool = True, step_s: float = 1.0) -> None:
        """Step by step; small jobs end after `runs_s`, gangs do not."""
        simulation, until = self.simulation, self.simulation.now + seconds
        while simulation.now < until:
            simulation.now += step_s
            while self.ends and self.ends[0][0] <= simulation.now:
                pod = heappop(self.ends)[1]
                simulation.finish([PodUid(pod)])
            if stream:
                while self.submitted - sum(name.startswith("s") for name in self.started) < 2 * CARDS:
                    self.small()
            for plan in simulation.run():
                for placement in () if plan.victims else plan.placements:
                    self.started[placement.pod_uid] = simulation.now
                    if placement.pod_uid.startswith("s"):
                        number = int(placement.pod_uid[1:].partition("-")[0])
                        heappush(self.ends, (simulation.now + self.runs_s(number), placement.pod_uid))

    def fill(self, seconds: float) -> None:
        """Until small jobs have all cards, and it is known how long they run: nothing is looked at meanwhile."""
        self.pass_time(seconds, step_s=5.0)

    @property
    def busy(self) -> int:
        return sum(claim.requests.get(GPU, 0) for claim in self.simulation.claims.values())


def test_a_gang_that_starved_beside_one_card_jobs_starts_within_minutes() -> None:
    days = Days()
    days.fill(900)
    assert days.busy == CARDS
    days.gang()
    asked = days.simulation.now
    days.fill(900)
    assert days.started["big-0"] == days.started["big-1"]
    assert days.started["big-0"] - asked < 700
    days.fill(60)
    assert days.busy == CARDS


def test_without_a_reservation_it_waits_as_long_as_the_others_come() -> None:
    days = Days()
    days.simulation.scheduler.follow(_without_reservations())
    days.fill(900)
    days.gang()
    days.fill(1800)
    assert "big-0" not in days.started


def test_who_is_known_to_end_before_the_start_goes_on_meanwhile_and_delays_nobody() -> None:
    """Small jobs with a walltime run on the reserved nodes until shortly before the start; cards idle for less than one of them runs."""
    runs = Days(walltime="130s", runs_s=lambda number: 60.0 + number % 60)
    without = Days(runs_s=lambda number: 60.0 + number % 60)
    idle = []
    for days in (runs, without):
        days.submit(job("long", pods=2, cards=6, created_at=days.time_of_day), "1500s")  # a start that is known, and far
        days.simulation.run()
        days.ends = [(1500.0, f"long-{i}") for i in range(2)]
        days.fill(600)
        days.gang(pods=4, cards=8)
        days.fill(300)
        idle.append(CARDS - days.busy)
        days.fill(590)
        days.pass_time(20, step_s=2.0)
        assert days.started["big-0"] == pytest.approx(1500, abs=3)
    assert idle[0] == 0


def test_shapes_of_several_kinds_start_together() -> None:
    days = Days()
    days.fill(600)
    mixed = job("big", pods=2, cards=8, created_at=days.time_of_day)
    (workers,) = mixed.tasks
    extra = job("big-ps", pods=3, cards=2, created_at=days.time_of_day).tasks[0]
    days.submit(replace(mixed, tasks=(workers, extra), min_member=5, members=5))
    days.fill(900)
    assert len({at for pod, at in days.started.items() if pod.startswith("big")}) == 1
    assert sum(pod.startswith("big") for pod in days.started) == 5


@pytest.mark.parametrize("asked_after_s", [60, 67, 73])
def test_beside_jobs_of_seconds_it_keeps_its_nodes_and_starts_as_soon_as_they_have_ended(asked_after_s: int) -> None:
    """None of them runs for longer than 24 s."""
    days = Days(runs_s=lambda number: 16.0 + number % 9)
    days.pass_time(asked_after_s)
    long_ago = days.time_of_day - 600
    one, two = (job("big", pods=pods, cards=cards, created_at=long_ago) for pods, cards in ((1, 8), (2, 4)))
    few = replace(
        two.tasks[0], name="few", pods=tuple(replace(pod, uid=PodUid(f"big-few-{pod.uid}")) for pod in two.tasks[0].pods)
    )
    days.submit(replace(one, tasks=(*one.tasks, few), min_member=3, members=3))
    days.pass_time(30)
    assert sum(pod.startswith("big") for pod in days.started) == 3


def test_a_scheduler_that_starts_anew_sets_the_same_nodes_aside_before_it_places_anybody() -> None:
    days = Days()
    days.fill(600)
    days.gang()
    days.pass_time(300, step_s=2.0)
    kept = _reserved(days)
    assert len(kept) == 2
    before, claims = days.simulation, days.simulation.claims
    again = Days()
    again.simulation.now, again.started, again.submitted = before.now, days.started, days.submitted
    again.simulation.hold(claims.values())
    again.submit(job("big", pods=2, cards=8, created_at=days.time_of_day - 300))
    for number in range(40):
        again.submit(job(f"s{days.submitted + number}", cards=1, created_at=days.time_of_day))
    again.simulation.run()
    assert sum(claim.requests.get(GPU, 0) for claim in again.simulation.claims.values()) <= CARDS
    emptiest = sorted(range(4), key=lambda row: sum(claim.node == f"n{row}" for claim in claims.values()))[:2]
    assert _reserved(again) == {f"n{row}" for row in emptiest} == kept


def test_work_of_other_queues_is_held_back_last() -> None:
    """Nobody knows any run times. The gang's own queue is empty: for two minutes more others go on, then they are delayed."""
    days = Days(queues=(Queue(QueueName("small")), Queue(QueueName("large"))), small_queue="small", runs_s=lambda _: 20_000.0)
    days.fill(60)
    days.gang(queue="large")
    days.pass_time(200, step_s=2.0)
    assert [one.own_queue for one in days.simulation.scheduler.reports.reservations] == [True]
    days.pass_time(100)
    assert [one.own_queue for one in days.simulation.scheduler.reports.reservations] == [False]


@pytest.mark.parametrize(
    ("queue", "pods"),
    [
        (Queue(QueueName("default"), capability={GPU: 15}), 2),  # its queue may never have so much
        (Queue(QueueName("default")), 5),  # more than the cluster has
        (Queue(QueueName("default")), 3),  # nobody knows when three of four nodes are free: more than half of the cluster
    ],
)
def test_a_gang_that_asks_for_the_moon_reserves_nothing(queue: Queue, pods: int) -> None:
    days = Days(queues=(queue,), runs_s=lambda _: 20_000.0)
    days.fill(60)
    days.gang(pods=pods)
    days.fill(600)
    assert not days.simulation.scheduler.reports.reservations


def test_many_gangs_of_one_namespace_that_can_never_start_leave_others_their_reservation() -> None:
    days = Days(queues=(Queue(QueueName("default")), Queue(QueueName("theirs"))), limits=Limits(session_jobs=2))
    days.fill(600)
    for number in range(4):
        days.submit(replace(job(f"moon{number}", pods=5, cards=8, created_at=float(number), queue="theirs"), namespace="flood"))
    days.gang()
    days.pass_time(200, step_s=2.0)
    assert [one.gang.strip() for one in days.simulation.scheduler.reports.reservations] == ["big"]


def test_gangs_that_may_never_start_are_looked_at_a_few_at_a_time_and_all_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 of one namespace that fit nowhere, each a shape of its own; behind them one of its own that has nodes set aside once its turn has come."""
    days = Days(queues=(Queue(QueueName("default")), Queue(QueueName("theirs"))))
    days.fill(600)
    looked: list[int] = []
    make = SessionReservations.make

    def counted(self: SessionReservations, entries: Sequence[Entry], *more: Any) -> list[tuple[Entry, Reservation]]:
        looked.append(len(entries))
        return make(self, entries, *more)

    monkeypatch.setattr(SessionReservations, "make", counted)
    days.gang("before", created_at=days.time_of_day - 200, queue="theirs")  # the first making of a process is for all
    days.pass_time(2)
    for number in range(100):
        moon = job(f"moon{number:03}", pods=5, cards=8, cpu_milli=1000 + number, created_at=days.time_of_day - 200, priority=1)
        days.submit(replace(moon, namespace="flood"))
    days.submit(replace(job("big", pods=2, cards=8, created_at=days.time_of_day - 150), namespace="flood"))
    looked.clear()
    days.pass_time(5)
    few = Limits().session_failures // BY_OTHERS
    assert max(looked) <= few + 1
    assert sum(looked) <= 7 * (few + 1)
    days.pass_time(2.5 * 100 / few)  # a making each other second of these
    assert {one.gang.strip() for one in days.simulation.scheduler.reports.reservations} == {"before", "big"}


def test_what_a_gang_leaves_that_goes_is_kept_from_nobody() -> None:
    days = Days()
    days.fill(600)
    days.gang()
    days.pass_time(200, step_s=2.0)
    assert _reserved(days)
    days.simulation.scheduler.on_withdrawn([JobId("big")], [100])
    days.simulation.step()
    assert not _reserved(days)


def test_a_queue_has_one_reservation_at_a_time() -> None:
    days = Days()
    days.fill(600)
    for number in range(5):
        days.gang(f"big{number}", pods=2)
    days.pass_time(200, step_s=2.0)
    assert [one.gang.strip() for one in days.simulation.scheduler.reports.reservations] == ["big0"]


def test_a_walltime_that_was_overrun_is_not_believed_again() -> None:
    """Jobs that say `20s` and run for 400 s get into the gap once; what they say counts as what they did from then on."""
    days = Days(walltime="20s", runs_s=lambda _: 400.0)
    days.submit(job("long", pods=2, cards=6, created_at=days.time_of_day), "3000s")
    days.simulation.run()
    days.ends = [(3000.0, f"long-{i}") for i in range(2)]
    days.fill(600)
    days.gang(pods=4, cards=8)
    days.fill(2390)
    days.pass_time(20, step_s=2.0)
    assert days.started["big-0"] == pytest.approx(3000, abs=3)


def test_a_walltime_that_is_made_longer_while_its_pod_runs_is_overrun_all_the_same() -> None:
    """As above, and each says so as soon as it is in the gap."""
    days = Days(walltime="20s", runs_s=lambda _: 400.0)
    days.submit(job("long", pods=2, cards=6, created_at=days.time_of_day), "3000s")
    days.simulation.run()
    days.ends = [(3000.0, f"long-{i}") for i in range(2)]
    days.fill(600)
    days.gang(pods=4, cards=8)
    told: set[str] = set()
    while days.simulation.now < 3010:
        days.pass_time(10, step_s=2.5)
        fresh = [pod for pod in days.started if pod.startswith("s") and pod not in told]
        told.update(fresh)
        longer = {WALLTIME: "10h"}
        days.simulation.scheduler.on_neighbours(Neighbour(PodUid(pod), "default", annotations=longer) for pod in fresh)
    assert days.started["big-0"] == pytest.approx(3000, abs=3)


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        ({WALLTIME: "20s"}, {WALLTIME: "1h"}, 20.0),
        ({WALLTIME: "20s"}, {}, 20.0),
        ({WALLTIME: "20s"}, {WALLTIME: "for ever"}, 20.0),
        ({WALLTIME: "1h"}, {WALLTIME: "20s"}, 20.0),
        ({}, {WALLTIME: "1h"}, 600.0),
        ({}, {WALLTIME: "20s"}, 20.0),
    ],
)
def test_a_pod_that_has_its_place_can_only_say_that_it_ends_sooner(
    before: dict[str, str], after: dict[str, str], counts: float
) -> None:
    """In a queue that says ten minutes."""
    queue = {WALLTIME: "10m"}
    assert walltime_in(not_longer(after, before, queue), queue) == counts


def test_those_held_back_are_told_for_whom_and_until_when_and_the_gang_what_it_waits_for() -> None:
    days = Days()
    days.fill(900)
    days.gang()
    days.pass_time(300, step_s=2.0)
    verdicts = days.simulation.verdicts
    own = verdicts[JobId("big")]
    assert "reserved for it: " in own
    assert "expected to start at 1970-01-12 14:1" in own
    assert " of queue default" in own
    others = [why for name, why in verdicts.items() if name.startswith("s") and "ReservedForLargeJob" in why]
    assert any("set aside for a gang of queue default (2 pods), expected to start at 1970-01-12 14:1" in why for why in others)


def test_a_start_that_turns_out_to_be_later_lets_in_who_would_have_ended_after_it() -> None:
    """`long` says 100 s first, and then 2,000 s: `brief` is let in then, though nobody came or went."""
    days = Days()
    days.submit(job("long", pods=4, cards=6, created_at=days.time_of_day), "100s")
    days.pass_time(30, stream=False)
    days.submit(job("big", pods=4, cards=8, created_at=days.time_of_day - 200))
    days.submit(job("brief", cards=1, created_at=days.time_of_day), "90s")
    days.pass_time(30, stream=False)
    assert "brief-0" not in days.started
    said = {WALLTIME: "2000s"}
    days.simulation.scheduler.on_neighbours([Neighbour(PodUid(f"long-{i}"), "default", annotations=said) for i in range(4)])
    days.pass_time(5, stream=False)
    assert "brief-0" in days.started


def test_what_comes_idle_before_the_gang_for_whose_end_it_waits_may_be_used_until_then() -> None:
    """n0 comes free in ten minutes, the two nodes of another gang in an hour, one of them half a minute after the other: the gang waits for that one's end in
    any case, and takes its nodes."""
    days = Days()
    days.submit(job("early", cards=8), "10m")
    other = job("other", cards=8)
    other = replace(other, tasks=(*other.tasks, *job("other-too", cards=8).tasks), min_member=2, members=2)
    days.submit(other, "3600s", "3630s")
    days.submit(job("late", cards=8), "9h")
    days.pass_time(2, stream=False)
    days.gang()
    days.pass_time(300, stream=False, step_s=10)
    days.simulation.finish([PodUid("early-0")])
    days.submit(job("next", cards=8, created_at=days.time_of_day))  # nobody knows for how long it runs
    days.pass_time(300, stream=False, step_s=10)
    assert "next-0" in days.started
    days.simulation.finish([PodUid("other-0"), PodUid("other-too-0")])
    days.pass_time(10, stream=False)
    assert {"big-0", "big-1"} <= days.started.keys()


def test_whoever_could_have_the_running_gang_leave_is_not_held_back_and_nobody_else() -> None:
    """Higher priority in the same queue; a queue below what it deserves beside a gang beyond that. Not: priority in another queue."""
    days = Days(queues=(Queue(QueueName("default")), Queue(QueueName("other"))))
    days.fill(900)
    days.gang()
    days.pass_time(300, step_s=2.0)
    (reserved,) = days.simulation.scheduler.reports.reservations

    def passes(queue: str, priority: int, *, entitled: bool = False) -> bool:
        return reserved.passed(
            JobId("x"), QueueName(queue), priority, ends=lambda _: 1e12, entitled=lambda: entitled, now=days.time_of_day
        )

    assert passes("default", 1)
    assert not passes("default", 0)
    assert not passes("other", 1)
    assert passes("other", 0, entitled=True)


def test_an_owner_gets_its_share_beside_the_nodes_set_aside_for_a_borrower() -> None:
    """`owner` deserves 8 cards and has none; the gang of `borrower`, which deserves nothing, waits for two nodes."""
    days = Days(
        queues=(Queue(QueueName("owner"), deserved={GPU: 8}), Queue(QueueName("borrower"), deserved={GPU: 0})),
        small_queue="borrower",
    )
    days.fill(900)
    days.gang(queue="borrower")
    days.pass_time(300, step_s=2.0)
    kept = _reserved(days)
    days.submit(job("own", pods=1, cards=2, created_at=days.time_of_day, queue="owner"))
    days.pass_time(5)
    assert days.simulation.claims[PodUid("own-0")].node in kept


def test_what_was_overrun_counts_for_all_walltimes_of_the_namespace() -> None:
    known, queue = RunTimes(), QueueName("q")
    assert known.believed_s(queue, "liar", 60.0) == 60.0
    known.ended(queue, "liar", 600.0, 60.0)
    assert known.believed_s(queue, "liar", 60.0) == 600.0
    assert known.believed_s(queue, "liar", 0.0) == 100.0
    assert known.believed_s(queue, "honest", 60.0) == 60.0
    for _ in range(64):
        known.ended(queue, "liar", 50.0, 60.0)
    assert known.believed_s(queue, "liar", 60.0) == 60.0


def whole_s(known: RunTimes, pair: Whose, ran_s: float) -> float:
    return float(known.whole_s([pair], np.zeros(1, dtype=np.int64), np.array([ran_s]))[0])


def test_what_was_learned_is_said_once_and_taken_in_by_who_knows_less() -> None:
    known, successor = RunTimes(), RunTimes()
    assert known.take_pending() == {}
    for number in range(20):
        known.ended(QueueName("q"), "space", 60.0 + number, 30.0)
    said = known.take_pending()
    assert known.take_pending() == {}
    for learned in said.values():
        successor.take_in(learned)
        known.take_in(learned)  # its own words
    for one in (known, successor):
        assert one.bound_s(QueueName("q"), "space") == 79.0
        assert whole_s(one, ("other", "elsewhere"), 70.0) == whole_s(known, ("q", ""), 70.0)
        assert one.believed_s(QueueName("q"), "space", 10.0) == pytest.approx(10.0 * 79 / 30)
    assert successor.take_pending() == {}
    known.ended(QueueName("q"), "space", 5.0, None)
    shard = next(iter(known.take_pending()))
    known.put_back(shard)
    assert shard in known.take_pending()
    successor.take_in([RanFor(QueueName("q"), "space", (1.0,))])
    assert successor.bound_s(QueueName("q"), "space") == 79.0


def test_run_times_that_nobody_can_have_are_not_taken_in() -> None:
    known, queue = RunTimes(), QueueName("q")
    known.take_in(
        [RanFor(queue, "space", (float("nan"), float("inf"), -1.0) * 20 + (7.0,) * 16, (float("inf"), 0.5, float("nan")))]
    )
    assert known.bound_s(queue, "space") == 7.0
    assert known.believed_s(queue, "space", 60.0) == 60.0
    known.take_in([RanFor(queue, "endless", (float("inf"),) * 16)])
    assert known.bound_s(queue, "endless") is None
    known.take_in([RanFor(queue, "long", tuple(float(each) for each in range(1000)))])
    assert known.bound_s(queue, "long") == 996.0


def test_who_would_more_likely_than_not_have_ended_by_the_start_goes_on_until_the_gang_has_waited_for_long() -> None:
    """Nobody writes walltimes but `long`, two hours. Of 40 before it 30 ran for a minute, and 10 for ten hours."""
    days = Days()
    known = days.simulation.scheduler._facts.run_times
    for number in range(40):
        known.ended(QueueName("default"), "default", 60.0 if number < 30 else 36_000.0, None)
    days.submit(job("long", pods=4, cards=6, created_at=days.time_of_day), "2h")
    days.pass_time(30, stream=False)
    days.submit(job("big", pods=4, cards=8, created_at=days.time_of_day - 200))
    days.submit(job("brief", cards=1, created_at=days.time_of_day))
    days.pass_time(30, stream=False)
    assert "brief-0" in days.started
    days.submit(job("old", pods=4, cards=8, created_at=days.time_of_day - SURE_AFTER_S, priority=1))
    days.pass_time(30, stream=False)
    days.submit(job("late", cards=1, created_at=days.time_of_day))
    days.pass_time(30, stream=False)
    assert "late-0" not in days.started


def _reserved(days: Days) -> set[str]:
    columns = days.simulation.scheduler.columns
    return {columns.names[row] for row in columns.reserved[: columns.size].nonzero()[0]}


def _without_reservations() -> Conf:
    conf = default_conf()
    return replace(conf, tiers=tuple(tuple(one for one in tier if one.name != "reservation") for tier in conf.tiers))


def test_where_the_wall_clock_goes_faster_the_scheduler_looks_again_as_much_sooner() -> None:
    """Two minutes until nodes are set aside are two seconds of a machine that lives a minute each second."""
    made = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf(), limits=Limits(clock_rate=60.0))
    made.wall_ahead = 1_000_000.0
    made.put_nodes([node("n0", cards=8)])
    made.submit([job("small", cards=1, created_at=1_000_000.0)])
    made.step()
    made.submit([job("big", pods=1, cards=8, created_at=1_000_000.0)])
    due = [out.wake_at for _ in range(5) if (out := made.step()).wake_at is not None]
    assert made.scheduler._reservations.next_at() == [pytest.approx(2.0)], due
