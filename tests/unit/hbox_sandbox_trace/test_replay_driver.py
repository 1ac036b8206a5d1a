"""The replay driver against the emulated API server; a few lines stand for the scheduler."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hbox_cli.exits import leaf
from hbox_cli.platform import crds
from hbox_common.errors import InvalidRequest
from hbox_common.kube import NODES, PODGROUPS, PODS, Delta, Informer, KubeClient, Pod
from hbox_sandbox.api.faults import Plan, Rule
from hbox_sandbox.api.server import ApiServer
from hbox_sandbox.profile import generate
from hbox_sandbox.replay import Measured, Options, Progress, Replay
from hbox_sandbox.trace import Trace


@dataclass
class World:
    api: ApiServer
    client: KubeClient
    told: list[Progress] = field(default_factory=list)

    async def replay(
        self,
        trace: Trace,
        options: Options,
        *,
        bind: Callable[[Pod], bool] = lambda _: True,
        verdicts: Mapping[str, str] | None = None,
    ) -> Measured:
        known: list[set[str]] = []

        async def nodes_known(names: set[str]) -> None:
            known.append(names)

        async def answer() -> Mapping[str, str]:
            return verdicts if verdicts is not None else self.unbound

        self.unbound: dict[str, str] = {}
        async with asyncio.TaskGroup() as tasks:
            binder = tasks.create_task(self._bind(trace, bind))
            driver = Replay(self.client, trace, options, verdicts=answer, nodes_known=nodes_known, progress=self.told.append)
            measured = await driver.run()
            binder.cancel()
        assert known == [{node.name for node in trace.nodes}]
        return measured

    async def _bind(self, trace: Trace, wanted: Callable[[Pod], bool]) -> None:
        async def look(deltas: Sequence[Delta[Pod]]) -> None:
            for delta in deltas:
                pod = delta.new
                if pod is None or pod.spec.node_name:
                    continue
                meta = pod.metadata
                if not wanted(pod):
                    self.unbound[meta.uid] = "nobody wants it"
                    continue
                body = {"metadata": {"name": meta.name}, "target": {"kind": "Node", "name": trace.nodes[0].name}}
                await self.client.request("POST", PODS.path(meta.namespace, meta.name, "binding"), body=body)

        await Informer(self.client, PODS, Pod).run(look)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with ApiServer() as api, KubeClient.connect(str(api.kubeconfig(tmp_path / "kc")), user_agent="test") as client:
        await crds.bring(client, lambda _: None)
        yield World(api, client)


DAY = generate("alibaba-2023", seed=42)
QUICK = Options(quiet_s=0.2, wait_s=2.0)


async def test_everything_is_created_and_its_binding_seen(world: World) -> None:
    trace = DAY.limited(pods=400, nodes=20)
    measured = await world.replay(trace, QUICK)
    assert measured.settled
    assert set(measured.bound_at) == set(measured.created_at) == {pod.name for pod in trace.pods}
    assert all(latency > 0 for latency in measured.latencies_ms())
    assert measured.pods_per_s() > 0
    groups = (await world.client.json("GET", PODGROUPS.path()))["items"]
    assert {group["metadata"]["name"] for group in groups} == {pod.gang for pod in trace.pods if pod.gang}
    assert len((await world.client.json("GET", NODES.path()))["items"]) == 20
    assert [stage for stage, _ in itertools.groupby(p.stage for p in world.told)] == ["nodes", "pods", "settling"]


async def test_it_is_over_when_what_has_no_node_has_a_verdict(world: World) -> None:
    measured = await world.replay(DAY.limited(pods=60, nodes=5), QUICK, bind=lambda pod: pod.metadata.name < "pod-04")
    assert measured.settled
    assert measured.waiting
    assert {measured.verdicts[measured.job_of[name]] for name in measured.waiting if not name.startswith("gang")}


async def test_without_a_verdict_it_is_given_up_in_the_end(world: World) -> None:
    measured = await world.replay(DAY.limited(pods=20, nodes=5), QUICK, bind=lambda _: False, verdicts={})
    assert not measured.settled
    assert len(measured.waiting) == 20


async def test_a_troubled_api_server_loses_and_doubles_nothing(world: World) -> None:
    world.api.faults.install(
        Plan(
            seed=5,
            rules=[
                Rule(verb="create", resource="pods", probability=0.1, status=429, retry_after_s=1),
                Rule(verb="create", resource="pods", probability=0.1, applied_status=504),
                Rule(verb="create", resource="nodes", every=4, applied_reset=True),
                Rule(verb="watch", resource="pods", watch_end_s=0.5),
            ],
        )
    )
    trace = DAY.limited(pods=200, nodes=20)
    measured = await world.replay(trace, QUICK)
    assert sum(world.api.faults.fired) > 20
    assert set(measured.bound_at) == {pod.name for pod in trace.pods}


async def test_pods_come_at_the_rate_asked_for(world: World) -> None:
    measured = await world.replay(DAY.limited(pods=60, nodes=5), Options(rate=100.0, quiet_s=0.2))
    first, last = min(measured.created_at.values()), max(measured.created_at.values())
    assert last - first >= 0.5


async def test_a_refused_object_ends_the_replay_with_the_servers_words(world: World) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await world.replay(DAY.limited(pods=20, nodes=5), Options(prefix="Not-A-Name-"))
    error = leaf(caught.value)
    assert isinstance(error, InvalidRequest)
    assert "Not-A-Name" in error.message
