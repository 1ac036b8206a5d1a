"""job-controller watches the kinds of owners against the API emulator: definitions that come, go and come back, missing owners, further kinds."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hbox_common import kube
from hbox_common.clock import monotonic_s
from hbox_common.kube import PODS, Delta, Informer, KubeClient
from hbox_common.workloads import Kinds, OwnerRef, Submitted
from hbox_jobs.adapters import owners as adapter
from hbox_jobs.adapters.objects import PodReader, identity
from hbox_jobs.adapters.owners import OwnerWatch
from hbox_jobs.core.jobs import Jobs
from hbox_jobs.core.views import PodView

from ... import owners
from ...unit.hbox_jobs.job_world import pod
from ...waiting import until


@pytest.fixture
async def cluster(kubeconfig: Path) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(str(kubeconfig), user_agent="test") as client:
        yield client


WALL = 1_800_000_000.0


class World:
    def __init__(self, client: KubeClient, kinds_dir: str) -> None:
        self.client, self.jobs = client, Jobs(proves_groups=True)
        self.watch = OwnerWatch(client, self.jobs, Kinds.builtin(), wake=asyncio.Event(), kinds_dir=kinds_dir)
        self._reader = PodReader()

    async def pods(self, deltas: Any) -> None:
        delta: Delta[kube.Pod]
        for delta in deltas:
            if delta.new is not None:
                self.jobs.pod(self._reader.view(delta.new), monotonic_s())
            elif delta.old is not None:
                self.jobs.pod_gone(delta.old.metadata.uid, monotonic_s())  # type: ignore[arg-type]

    def found(self) -> dict[str, tuple[int, int]]:
        """Members and minimum of the jobs without a problem."""
        self.jobs.take(monotonic_s() + 10, WALL)
        self.jobs.validate()
        return {one.name: (one.members, one.min_member) for one in self.jobs.jobs() if not one.problem}


@asynccontextmanager
async def world(cluster: KubeClient, kinds_dir: str = "") -> AsyncIterator[World]:
    one = World(cluster, kinds_dir)
    informer = Informer(cluster, PODS, kube.Pod, keep=identity)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in (informer.run(one.pods), one.watch.run(), one.watch.follow_files())]
        await informer.synced.wait()
        one.jobs.pods_listed(monotonic_s())
        yield one
        for task in tasks:
            task.cancel()


async def test_pods_are_single_while_the_kind_is_not_served_and_a_gang_once_it_is(
    cluster: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "UNREADABLE_S", 0.3)
    tree = owners.training_job("train", {"Worker": 2})
    async with world(cluster) as there:
        await owners.install(cluster, "PyTorchJob")
        uids = await owners.create(cluster, "default", tree.owners)
        await owners.create(cluster, "default", tree.pods, uids)
        await until(lambda: there.found() == {"pytorchjob/train": (2, 2)}, "the gang")
        await owners.uninstall(cluster, "PyTorchJob")
        await until(
            lambda: there.jobs.owners.is_unreadable(("kubeflow.org", "PyTorchJob")), "the end of the kind", timeout_s=20
        )
        other = owners.training_job("other", {"Worker": 2})
        await owners.create(cluster, "default", other.pods)
        await until(lambda: "other-worker-0" in there.found(), "single pods")
        await owners.install(cluster, "PyTorchJob")
        third = owners.training_job("third", {"Worker": 2})
        await owners.create(cluster, "default", third.objects)
        await until(lambda: there.found().get("pytorchjob/third") == (2, 2), "the gang of the kind that is back", timeout_s=30)


async def test_pods_of_an_owner_that_does_not_exist_are_single_within_two_seconds(cluster: KubeClient) -> None:
    tree = owners.training_job("train", {"Worker": 2})
    await owners.install(cluster, "PyTorchJob")
    async with world(cluster) as there:
        await owners.create(cluster, "default", tree.pods)
        began = monotonic_s()
        await until(lambda: len(there.found()) == 2, "single pods")
        assert monotonic_s() - began < 2


async def test_raised_minimum_counts_before_new_pods_are_placed(cluster: KubeClient) -> None:
    tree = owners.training_job("train", {"Worker": 2})
    await owners.install(cluster, "PyTorchJob")
    async with world(cluster) as there:
        uids = await owners.create(cluster, "default", tree.objects)
        await until(lambda: there.found() == {"pytorchjob/train": (2, 2)}, "the gang")
        larger = owners.training_job("train", {"Worker": 4})
        await cluster.json(
            "PATCH",
            owners.path("PyTorchJob", "default", "train"),
            body={"spec": larger.top["spec"]},
            content_type=kube.MERGE_PATCH,
        )
        await owners.create(cluster, "default", larger.pods[2:], uids)
        await until(lambda: there.found() == {"pytorchjob/train": (4, 4)}, "the larger gang")


async def test_further_kind_of_a_file_counts_and_an_invalid_file_changes_nothing(
    cluster: KubeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "FILES_S", 0.1)
    folder = tmp_path / "kinds"
    folder.mkdir()
    file = folder / "more.yaml"
    file.write_text("group: kubeflow.org\nversions: [v1]\nkind: PyTorchJob\nplural: pytorchjobs\nminimumDefault: 1\n")
    tree = owners.training_job("train", {"Worker": 2})
    await owners.install(cluster, "PyTorchJob")
    async with world(cluster, str(folder)) as there:
        await until(lambda: bool(there.watch._files), "the file")
        await owners.create(cluster, "default", tree.objects)
        await until(lambda: there.found() == {"pytorchjob/train": (2, 1)}, "the gang by the file")
        file.write_text(file.read_text().replace("minimumDefault: 1", "minimumDefault: 2"))
        await until(lambda: there.found() == {"pytorchjob/train": (2, 2)}, "the gang by the corrected file")
        file.write_text("group: kubeflow.org\nkind: 7\n")
        await until(lambda: "more.yaml" in there.watch.complaint, "the complaint")
        assert there.found() == {"pytorchjob/train": (2, 2)}
        file.unlink()
        await until(lambda: not there.watch.complaint, "the end of the file")


def claims_owner(namespace: str, name: str) -> PodView:
    """A pod whose owner does not exist."""
    ref = OwnerRef("kubeflow.org/v1", "PyTorchJob", name, f"uid-of-{name}")
    return pod(name, namespace=namespace, submitted=Submitted(f"uid-{name}", namespace, name, ref))


async def test_flood_of_invented_owners_does_not_delay_reads_of_another_namespace(
    cluster: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await owners.install(cluster, "PyTorchJob")
    jobs, paths, expected = Jobs(), list[str](), cluster.expected

    async def recorded(method: str, path: str, **options: Any) -> Any:
        paths.append(path)
        return await expected(method, path, **options)

    monkeypatch.setattr(cluster, "expected", recorded)
    watch = OwnerWatch(cluster, jobs, Kinds.builtin(), wake=asyncio.Event())
    long_ago = monotonic_s() - 10
    for number in range(2000):
        jobs.pod(claims_owner("flood", f"p{number}"), long_ago)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(watch.run())
        await until(lambda: any("/flood/" in path for path in paths), "the first read", timeout_s=20)
        before = len(paths)
        jobs.pod(claims_owner("other", "one"), long_ago)
        await until(lambda: any("/other/" in path for path in paths), "the read of the other namespace")
        at = next(at for at, path in enumerate(paths) if "/other/" in path)
        assert sum("/flood/" in path for path in paths[before:at]) < 2000 - before
        assert len(asyncio.all_tasks()) < 100, "owners wait in turns, not as tasks"
        await until(lambda: watch.settled, "all reads", timeout_s=20)
        running.cancel()
