"""Where a pod can go, HBox and kube-scheduler say alike: random worlds on a real control plane, each asked of both, and of the filters of `hbox simulate`.

kube-scheduler and the filters tell all nodes that take the pod; these sets are the same. The running platform binds a copy of the pod to one of them, and to
none where there is none. `HBOX_WORLDS` says how many (12; 100 take some minutes), `HBOX_SEED` which is the first. A world that differs is made alone by
`HBOX_WORLDS=1 HBOX_SEED=<its seed>`.

Where HBox differs on purpose the worlds do not go, or the difference is taken out:

- Nodes that are cordoned or not ready take nobody here, whatever a pod tolerates (health-monitor closes sick nodes so).
- Idle cards keep cores and memory (ADR 39); nodes with cards say by their labels that they keep none.
- A `namespaceSelector` with NotIn or DoesNotExist: kube-scheduler 1.34 asks it of no labels at all and so takes every namespace for one that it means
  (`mergeAffinityTermNamespacesIfNotEmpty` changes a copy).
- `matchFields` of a PersistentVolume's node affinity: kube-scheduler sees labels alone (`CheckNodeAffinity`) and takes the term for true.
- A claim of a class without a provisioner has to be bound beforehand; ResourceClaims are not allocated; volume limits of nodes, ReadWriteOncePod and
  CSIStorageCapacity are not read.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hbox_cli.platform.assets import API_SERVER, ETCD, ControlPlane, find_programs
from hbox_common.kube import NAMESPACES, KubeClient

from ..e2e.platform_world import Up, up
from ..waiting import until
from .control_plane import control_plane
from .feasibility import WITHIN_S, Peer, Place, Verdict, Watched, ours, peer, prepare, simulated, theirs
from .worlds import Json, world_of

SEED, WORLDS = int(os.environ.get("HBOX_SEED", "1")), int(os.environ.get("HBOX_WORLDS", "12"))
ASKED_OF_A_WORLD, AT_ONCE = 8, 6
#: So long a difference has to stand: what one of the two has not seen yet is none.
STANDS_S = (2.0, 5.0)
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600 + 40 * WORLDS)]


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    if not (find_programs() / "kube-scheduler").exists():
        pytest.skip("kube-scheduler is not among the built programs: build them with `make kube-assets`")
    with control_plane(tmp_path / "plane", programs=(ETCD, API_SERVER)) as plane:
        yield plane


@pytest.fixture
def platform(plane: ControlPlane, tmp_path: Path) -> Iterator[Up]:
    words, quickly = ("--kubeconfig", str(plane.kubeconfig)), {"HBOX_CONDITION_DELAY_S": "0.2"}
    with up(tmp_path / "state", *words, env=quickly) as running:
        yield running


@dataclass(slots=True)
class Findings:
    """`asked`: by how many of the world's nodes take the pod. `refused`: objects that the API server did not take."""

    asked: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


@pytest.mark.usefixtures("platform")
async def test_kube_scheduler_and_hbox_find_the_same_nodes_feasible(plane: ControlPlane, tmp_path: Path) -> None:
    findings, turn = Findings(), asyncio.Semaphore(AT_ONCE)
    async with (
        peer(plane, tmp_path) as told,
        KubeClient.connect(str(plane.kubeconfig), user_agent="test", timeout_s=WITHIN_S) as client,
        asyncio.TaskGroup() as group,
    ):
        await until(lambda: _found(client, "default"), "the namespace", timeout_s=60)
        await prepare(client)
        watched = Watched(client)
        watching = group.create_task(watched.run())
        worlds = [group.create_task(_world(seed, turn, client, told, watched, findings)) for seed in range(SEED, SEED + WORLDS)]
        await asyncio.gather(*worlds)
        watching.cancel()
    asked = findings.asked.total()
    assert not findings.differences, f"{len(findings.differences)} of {asked}:\n" + "\n".join(findings.differences[:10])
    assert len(findings.refused) <= asked // 20, findings.refused
    assert min(findings.asked["none"], findings.asked["some"]) > asked // 10, f"the dice are loaded: {findings.asked}"


async def _found(client: KubeClient, name: str) -> bool:
    return any(one["metadata"]["name"] == name for one in (await client.json("GET", NAMESPACES.path()))["items"])


async def _world(
    seed: int, turn: asyncio.Semaphore, client: KubeClient, told: Peer, watched: Watched, findings: Findings
) -> None:
    async with turn:
        place = Place(client, world_of(f"w{seed}", seed, asked=ASKED_OF_A_WORLD))
        await place.make()
        try:
            await _judge(place, told, watched, findings)
        finally:
            findings.refused += place.refused
            await place.leave()


async def _judge(place: Place, told: Peer, watched: Watched, findings: Findings) -> None:
    """kube-scheduler's pods are never bound, nor are those of ours that no node takes: these are asked about side by side, the others one by one."""
    closed = {node["metadata"]["name"] for node in place.world.nodes if _closed(node)}

    async def theirs_of(pod: Json) -> Verdict | None:
        found = await theirs(place, told, watched, pod)
        return None if found is None else Verdict(found.nodes - closed, found.why, found.gated)

    async def compare(pod: Json, verdict: Verdict) -> None:
        asked: dict[str, Callable[[], Awaitable[Verdict]]] = {
            "the filters": lambda: simulated(place, pod),
            "the platform": lambda: ours(place, watched, pod),
        }
        for kind, ask in asked.items():
            found, expected = await ask(), verdict
            for pause_s in STANDS_S:
                if not _differ(kind, found, expected):
                    break
                await asyncio.sleep(pause_s)
                expected, found = await theirs_of(pod) or verdict, await ask()
            if _differ(kind, found, expected):
                findings.differences.append(
                    f"seed {place.world.seed}, {kind}: kube-scheduler {sorted(expected.nodes)} {expected.why}, we {sorted(found.nodes)} {found.why}: {pod}"
                )

    verdicts = await asyncio.gather(*map(theirs_of, place.world.asked))
    asked = [(pod, verdict) for pod, verdict in zip(place.world.asked, verdicts, strict=True) if verdict is not None]
    for _, verdict in asked:
        findings.asked["gated" if verdict.gated else "some" if verdict.nodes else "none"] += 1
    await asyncio.gather(*(compare(pod, verdict) for pod, verdict in asked if not verdict.nodes))
    for pod, verdict in asked:
        if verdict.nodes:
            await compare(pod, verdict)


def _closed(node: Json) -> bool:
    return bool(node["spec"]["unschedulable"] or node["status"]["conditions"][0]["status"] != "True")


def _differ(kind: str, found: Verdict, expected: Verdict) -> bool:
    """The platform names one node."""
    if expected.gated:
        return kind == "the platform" and bool(found.nodes)
    if kind == "the platform":
        return not found.nodes <= expected.nodes or bool(found.nodes) != bool(expected.nodes)
    return found.nodes != expected.nodes
