"""Which shard is told of which job, also when that changes; and whose word on a job counts."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from hbox_common.events import Event, JobsAsked, JobsPending, JobsWithdrawn, JobVerdict
from hbox_common.kube import Freshness
from hbox_common.model import JobId, Queue, QueueName
from hbox_common.model.shards import Shards, scheduler_id
from hbox_jobs.adapters.announcer import Announcer, pages
from hbox_jobs.core.batch import Batch
from hbox_jobs.core.feedback import Feedback
from hbox_jobs.core.jobs import Jobs
from hbox_jobs.core.routing import SILENT_S, Routing

from .job_world import group, pod

POOLS = "main=*;lab=lab"


class Said:
    """A bus that takes everything."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Event]] = []

    async def publish_parts(self, event: Event, *keys: str, message_id: str = "") -> Sequence[Event]:
        assert message_id
        self.said.append((keys[0], event))
        return []

    def jobs(self, shard: str) -> list[str]:
        return [job.name for to, event in self.said if to == shard and isinstance(event, JobsPending) for job in event.jobs]

    def withdrawn(self, shard: str) -> dict[str, int]:
        found = (event for to, event in self.said if to == shard and isinstance(event, JobsWithdrawn))
        return {job: revision for event in found for job, revision in zip(event.jobs, event.revisions, strict=True)}

    def revision(self, shard: str, name: str) -> int:
        found = (event for to, event in self.said if to == shard and isinstance(event, JobsPending))
        return max(job.revision for event in found for job in event.jobs if job.name == name)


class World:
    def __init__(self, shards: str = POOLS) -> None:
        self.jobs = Jobs(routing=Routing(Shards.parse(shards)))
        self.bus = Said()
        self.now = 0.0
        self.use("vision", "lab", "pooled")

    def use(self, queue: str, *pools: str) -> None:
        self.jobs.queue(Queue(QueueName(queue), pools=pools), self.now, gone=False)

    def pod(self, name: str, queue: str) -> None:
        self.jobs.pod(pod(name, queue=QueueName(queue)), self.now)

    def take(self) -> Batch:
        self.now += 1.0
        return self.jobs.take(self.now, 1e9 + self.now)

    def say(self) -> Said:
        """All that is to be said by now, as it goes out."""

        async def go() -> None:
            feedback, traces = Feedback(self.jobs), cast(Any, _Traces())
            wake, behind = asyncio.Event(), asyncio.Event()
            announcer = Announcer(
                self.jobs,
                feedback,
                traces,
                cast(Any, self.bus),
                wake=wake,
                behind=behind,
                groups_delivered=str,
                unread=asyncio.Event(),
            )
            task = asyncio.create_task(announcer.run())
            await asyncio.sleep(0.4)  # what is lazy, too
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self.bus.said.clear()
        asyncio.run(go())
        return self.bus


class _Traces:
    def announced(self, *_: object) -> None:
        pass


def test_each_shard_is_told_of_its_own_jobs() -> None:
    world = World()
    world.pod("a", "vision")
    world.pod("b", "speech")
    said = world.say()
    assert (said.jobs("lab"), said.jobs("main")) == (["a"], ["b"])
    assert {to for to, event in said.said if isinstance(event, JobsPending) and event.anew} == {"lab", "main"}


def test_without_shards_all_is_said_on_the_one_subject() -> None:
    world = World("")
    world.pod("a", "vision")
    world.pod("b", "speech")
    said = world.say()
    assert sorted(said.jobs("0")) == ["a", "b"]
    assert {to for to, _ in said.said} == {"0"}


def test_a_job_whose_queue_gets_other_pools_leaves_one_shard_and_comes_to_the_other() -> None:
    world = World()
    world.pod("a", "speech")
    assert world.say().jobs("main") == ["a"]
    world.use("speech", "lab")
    said = world.say()
    assert (said.jobs("lab"), said.jobs("main")) == (["a"], [])
    assert said.withdrawn("main")["uid-a"] < said.revision("lab", "a"), "the ledger, which hears both, has it as pending"
    assert not said.withdrawn("lab")


def test_a_queues_amounts_move_nobody() -> None:
    world = World()
    world.pod("a", "vision")
    world.say()
    world.jobs.queue(Queue(QueueName("vision"), pools=("lab", "pooled"), weight=7), world.now, gone=False)
    assert not world.say().jobs("lab")


def test_who_ends_is_withdrawn_from_its_own_shard_and_who_is_unknown_from_all() -> None:
    world = World()
    world.pod("a", "vision")
    world.say()
    world.jobs.pod_gone(pod("a").uid, 5.0)
    world.jobs.disown(JobId("stranger"))
    said = world.say()
    assert (set(said.withdrawn("lab")), set(said.withdrawn("main"))) == ({"uid-a", "stranger"}, {"stranger"})


def test_a_verdict_of_another_shard_is_not_believed() -> None:
    world = World()
    world.pod("a", "vision")
    world.take()
    verdict = JobVerdict(job=JobId("uid-a"), message="no room")
    world.jobs.verdict(verdict, 1.0, "main")
    assert not list(world.jobs.verdicts())
    world.jobs.verdict(verdict, 1.0, "lab")
    assert [one.message for one in world.jobs.verdicts()] == ["no room"]


def test_a_podgroup_is_let_in_by_its_own_shard_alone() -> None:
    world = World()
    world.jobs.gated(True, 0.0, "lab")
    world.jobs.group(group(min_resources={"cpu": 1}, queue=QueueName("vision")), 0.0)
    [state] = world.take().groups
    world.jobs.admit(scheduler_id("host", "main", 1), [state.id], 1.0)
    assert not [one for one in world.jobs.admission.all() if one.admitted]
    world.jobs.admit(scheduler_id("host", "lab", 1), [state.id], 1.0)
    assert [one.admitted for one in world.jobs.admission.all()] == [True]


def test_a_podgroup_that_goes_to_another_shard_is_gone_from_the_one_that_it_leaves() -> None:
    world = World()
    world.jobs.gated(True, 0.0, "lab")
    world.jobs.group(group(min_resources={"cpu": 1}, queue=QueueName("speech")), 0.0)
    [before] = world.take().groups
    world.use("speech", "lab")
    batch = world.take()
    [(left, gone)] = batch.groups_left
    [after] = batch.groups
    assert (left, gone.gone, after.gone) == ("main", True, False)
    assert before.revision < gone.revision < after.revision


def test_a_scheduler_that_asks_is_answered_with_its_own_jobs() -> None:
    world = World()
    world.pod("a", "vision")
    world.pod("b", "speech")
    world.take()
    seen = Freshness("1", 0.0)

    def told(asked: JobsAsked) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for page in pages(asked, world.jobs, seen, synced=True):
            found.setdefault(page.shard, []).extend(job.name for job in page.jobs)
        return {shard: names for shard, names in found.items() if names}

    assert told(JobsAsked(asker="s", shard="lab")) == {"lab": ["a"]}
    assert told(JobsAsked(asker="s", shard="nobody")) == {}
    assert told(JobsAsked(asker="cli")) == {"lab": ["a"], "main": ["b"]}


def test_jobs_of_a_shard_without_scheduler_are_told_so_and_others_are_not() -> None:
    world = World()
    world.pod("a", "vision")
    world.pod("b", "speech")
    world.take()
    routing = world.jobs.routing
    routing.received("main", 1000.0)
    assert set(routing.without_scheduler(1001.0)) == {"lab"}, "nobody ever heard of one"
    assert not Routing(Shards.parse(POOLS), began=1000.0).without_scheduler(1001.0), (
        "who has just begun has heard of nobody yet"
    )
    routing.received("lab", 1000.0)
    assert not routing.without_scheduler(1000.0 + SILENT_S)
    routing.received("main", 1001.0 + SILENT_S)
    [verdict] = world.jobs.verdicts(routing.without_scheduler(1001.0 + SILENT_S))
    assert (verdict.job, verdict.message.startswith("shard lab has no scheduler")) == ("uid-a", True)
    assert not Routing().without_scheduler(1e9), "nobody says that of the one that has all"
