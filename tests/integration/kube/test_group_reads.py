"""job-controller reads PodGroups that its watch may not have delivered yet: failures, and PodGroups that the API server does not find."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hbox_common.kube import PODGROUPS, KubeClient
from hbox_jobs.adapters import groupreads
from hbox_jobs.adapters.groupreads import GroupReader
from hbox_jobs.core.jobs import Jobs

from ...unit.hbox_jobs.job_world import group, pod
from ...waiting import until

WALL = 1_800_000_000.0
PATH = PODGROUPS.path("ml", "g")


def found(min_member: int) -> dict[str, Any]:
    meta = {
        "name": "g",
        "namespace": "ml",
        "uid": "uid-g",
        "resourceVersion": "30",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": meta,
        "spec": {"minMember": min_member},
    }


@asynccontextmanager
async def reading(api: Any, kubeconfig: Any) -> AsyncIterator[Callable[[], list[tuple[int, str]]]]:
    """A gang whose pods are newer than the watch of PodGroups. Yields a function that settles the jobs and returns minimum and problem of each."""
    jobs, now = Jobs(proves_groups=True), 0.0
    jobs.group(group(min_member=2, version=10), now)
    jobs.groups_delivered("10")
    for name in ("a", "b", "c"):
        jobs.pod(pod(name, rv="20", group="g"), now)
    async with KubeClient.connect(kubeconfig(api.url), user_agent="test") as client, asyncio.TaskGroup() as tasks:
        reader = GroupReader(client, jobs, wake=asyncio.Event())
        running = tasks.create_task(reader.run())

        def settled() -> list[tuple[int, str]]:
            jobs.take(asyncio.get_running_loop().time() + 1e6, WALL)
            reader.unread.set()
            return [(job.min_member, job.problem) for job in jobs.jobs()]

        yield settled
        running.cancel()


@pytest.mark.parametrize(("status", "reason"), [(403, "Forbidden"), (500, "InternalError")])
async def test_failed_read_gives_the_gang_a_reason_until_a_read_succeeds(
    api: Any, kubeconfig: Any, status: int, reason: str
) -> None:
    async with reading(api, kubeconfig) as settled:
        api.refuse("GET", PATH, status, reason, "the storage is gone")
        await until(lambda: any("PodGroupNotRead: PodGroup ml/g could not be read" in problem for _, problem in settled()))
        api.script["GET", PATH].clear()
        api.reply("GET", PATH, body=found(3))
        await until(lambda: settled() == [(3, "")], timeout_s=20)


async def test_404_for_the_kind_is_no_evidence_that_the_podgroup_is_gone(
    api: Any, kubeconfig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy's page, or a definition that is absent for a moment: the watch would not report the unchanged PodGroup again."""
    monkeypatch.setattr(groupreads, "MISSING_AGAIN_S", 0.05)
    seen: set[str] = set()
    async with reading(api, kubeconfig) as settled:
        api.reply("GET", PATH, 404, b"404 page not found")

        def has_reason() -> bool:
            problems = {problem for _, problem in settled()}
            seen.update(problems)
            return any("PodGroupNotRead" in problem for problem in problems)

        await until(has_reason, timeout_s=20)
        api.script["GET", PATH].clear()
        api.reply("GET", PATH, body=found(3))
        await until(lambda: settled() == [(3, "")], timeout_s=20)
    assert not any("not found: create it" in problem for problem in seen)


async def test_podgroup_that_one_read_does_not_find_is_read_again_before_it_counts_as_deleted(
    api: Any, kubeconfig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groupreads, "MISSING_AGAIN_S", 0.05)
    seen: set[str] = set()
    async with reading(api, kubeconfig) as settled:
        api.refuse("GET", PATH, 404, "NotFound")
        api.reply("GET", PATH, body=found(3))

        def has_new_minimum() -> bool:
            jobs = settled()
            seen.update(problem for _, problem in jobs)
            return jobs == [(3, "")]

        await until(has_new_minimum, timeout_s=20)
    assert seen == {""}


async def test_podgroup_that_two_reads_do_not_find_is_reported_as_not_found(
    api: Any, kubeconfig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groupreads, "MISSING_AGAIN_S", 0.05)
    async with reading(api, kubeconfig) as settled:
        api.refuse("GET", PATH, 404, "NotFound")
        await until(lambda: any("PodGroup ml/g not found" in problem for _, problem in settled()), timeout_s=20)
