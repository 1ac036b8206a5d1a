"""Victims that never end, on a cluster without kubelets: one platform for all tests."""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from hbox_common.kube import KubeClient

from ..waiting import until
from .platform_world import Up, placed
from .without_kubelets import SPACE, Cluster, dark_cluster, node, pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with dark_cluster(tmp_path_factory.mktemp("dark")) as running:
        yield running


def kubeconfig(running: Up) -> Path:
    return running.state.parent / "kubeconfig"


def at(client: KubeClient, **places: str) -> Callable[[], Awaitable[bool]]:
    async def there() -> bool:
        where = await placed(client, SPACE)
        return {name: where.get(name) for name in places} == places

    return there


async def test_a_preemptor_takes_a_card_that_becomes_free_and_then_another_victim(platform: Up) -> None:
    """n1 is dead: its victim never ends. `hi` takes n2 when that becomes free, before `late` of lower priority, and leaves nothing behind that keeps n1."""
    async with KubeClient.connect(str(kubeconfig(platform)), user_agent="test") as client:
        cluster = Cluster(client)
        await cluster.levels(low=100, high=300)
        await cluster.nodes(node("n1"), node("n2"))
        await cluster.submit(pod("v1", level="low", at="n1"), pod("k2", level="high", at="n2"))
        await until(at(client, v1="n1", k2="n2"), "both nodes are full", timeout_s=60)
        for name in ("v1", "k2"):
            await cluster.runs(name)
        await cluster.submit(pod("hi", level="high"))
        await until(lambda: _leaving(cluster, "v1"), "v1 is to leave", timeout_s=60)
        await cluster.delete("k2")
        await cluster.submit(pod("late", level="low"))
        await until(at(client, hi="n2"), "the free card is taken by the preemptor", timeout_s=30)
        await cluster.runs("hi")

        await cluster.nodes(node("n3"))
        await until(at(client, late="n3"), "the next node is for the other", timeout_s=30)
        await cluster.runs("late")
        await cluster.submit(pod("top", level="high"))
        await until(lambda: _leaving(cluster, "late"), "v1 is overdue: another victim leaves", timeout_s=90)
        assert await cluster.leaving() == {"v1", "late"}
        await cluster.delete("late")
        await until(at(client, top="n3"), "its card is the preemptor's", timeout_s=30)
    assert platform.json("audit")["faults"] == []


async def _leaving(cluster: Cluster, name: str) -> bool:
    return name in await cluster.leaving()
