"""Routing to shards: total, deterministic, and the same for whoever is told the same; nothing that a tenant writes is a shard."""

from contextlib import suppress
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hbox_common.errors import InvalidRequest
from hbox_common.model import Job, JobId, PodGroupTask, QueueName, SchedulerId
from hbox_common.model.shards import ONE_SHARD, Shards, scheduler_id, shard_of, term_of

NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,5}[a-z0-9])?", fullmatch=True).filter(lambda name: not name.endswith("standby"))
POOLS = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,5}[A-Za-z0-9])?", fullmatch=True)
TEXTS = st.text(max_size=20)


@st.composite
def settings(draw: st.DrawFn) -> str:
    """What HBOX_SHARDS may say."""
    if draw(st.booleans()):
        return draw(st.sampled_from(["", "1", "2", "7", "64"]))
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    pools = draw(st.lists(POOLS, max_size=6, unique=True))
    by_name: dict[str, list[str]] = {name: [] for name in names}
    for pool in pools:
        by_name[draw(st.sampled_from(names))].append(pool)
    by_name[draw(st.sampled_from(names))].append("*")
    return ";".join(f"{name}={','.join(some)}" for name, some in by_name.items() if some)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    selectors = st.one_of(st.just({}), st.builds(lambda pool: {"hbox.io/pool": pool}, st.one_of(TEXTS, POOLS)))
    tasks = tuple(
        PodGroupTask(name="t", requests={}, pods=(), node_selector=draw(selectors)) for _ in range(draw(st.integers(0, 3)))
    )
    return Job(
        id=JobId("j"), namespace="n", name="j", queue=QueueName(draw(TEXTS)), priority=0, min_member=1, members=1, bound=0,
        created_at=0.0, revision=1, tasks=tasks,
    )  # fmt: skip


@given(settings(), jobs(), st.lists(st.one_of(POOLS, TEXTS), max_size=4))
def test_every_job_is_of_one_shard_that_there_is(text: str, job: Job, pools: list[str]) -> None:
    shards = Shards.parse(text)
    found = shards.of(job, tuple(pools))
    assert found in shards.names
    assert found == Shards.parse(text).of(job, tuple(pools))


@given(settings(), st.one_of(POOLS, TEXTS))
def test_by_pool_each_node_is_of_one_shard_and_else_of_all(text: str, pool: str) -> None:
    shards = Shards.parse(text)
    having = [name for name in shards.names if shards.has_node(name, pool)]
    assert len(having) == (1 if shards.pooled else len(shards.names))


@given(settings(), jobs(), POOLS)
def test_a_job_whose_pods_name_a_pool_is_of_the_shard_that_has_its_nodes(text: str, job: Job, pool: str) -> None:
    shards = Shards.parse(text)
    for each in (pool, *shards.by_pool):
        task = PodGroupTask(name="t", requests={}, pods=(), node_selector={"hbox.io/pool": each})
        named = replace(job, tasks=(task, task))
        assert shards.has_node(shards.of(named, ("pooled",)), each)


@given(jobs(), jobs(), st.integers(2, 64))
def test_by_queue_all_jobs_of_a_queue_are_of_one_shard(one: Job, other: Job, count: int) -> None:
    shards = Shards.parse(str(count))
    if one.queue == other.queue:
        assert shards.of(one) == shards.of(other)
    moved = replace(other, queue=one.queue, id=JobId(f"other-{count}"))
    assert shards.of(one, ("a",)) == shards.of(moved, ("b",))


@given(st.text(max_size=40))
def test_whatever_is_set_is_understood_or_refused_in_words(text: str) -> None:
    shards: Shards | None = None
    with suppress(InvalidRequest):
        shards = Shards.parse(text)
    assert shards is None or (shards.names and len(set(shards.names)) == len(shards.names))


@given(NAMES, st.integers(0, 10**9), st.text(max_size=30))
def test_a_schedulers_id_says_its_shard_and_term(name: str, term: int, instance: str) -> None:
    id = scheduler_id(instance, name, term)
    assert (shard_of(id), term_of(id)) == (name, term)


@given(st.text(max_size=60))
def test_every_id_has_a_shard(text: str) -> None:
    assert shard_of(SchedulerId(text))
    if not text.startswith("@"):
        assert (shard_of(SchedulerId(text)), term_of(SchedulerId(text))) == (ONE_SHARD, 0)
