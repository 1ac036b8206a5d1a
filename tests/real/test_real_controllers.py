"""Beside Kubernetes' own controllers: what they make is placed, what they take away is freed, once, and what they refuse is waited out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from itertools import pairwise
from urllib.parse import parse_qs, urlsplit

import pytest

from hbox_cli.audit.reading import read_claims
from hbox_cli.platform.assets import KUBELETS, ControlPlane
from hbox_cli.platform.layout import Layout
from hbox_common.events import Evict, EvictDecided, EvictKind
from hbox_common.kube import PRIORITYCLASSES, KubeClient
from hbox_common.model import Claim, DecisionId, Epoch

from ..broker import admin_bus
from ..e2e.platform_world import Up, up
from ..waiting import until
from .control_plane import control_plane
from .controllers_world import KWOK, NO_KUBELET, Json, World, a_node, a_pod, container, spec, template, workload
from .rbac_world import requests

pytestmark = pytest.mark.e2e

THE_NODES = [a_node(f"n{i}", labels={"zone": "ab"[i % 2]}) for i in range(4)]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("controllers"), more={KUBELETS: KWOK}) as plane:
        yield plane


@pytest.fixture(scope="module")
def platform(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("platform") / "state", "--kubeconfig", str(plane.kubeconfig)) as running:
        yield running


@pytest.fixture
async def world(plane: ControlPlane, platform: Up) -> AsyncIterator[World]:
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as client:
        world = await World.enter(client, platform)
        if not (await client.json("GET", world.path("Node")))["items"]:
            await world.make(*THE_NODES)
        yield world
        await world.leave()


async def test_a_stateful_set_comes_up_one_by_one_and_goes_with_its_owner(world: World) -> None:
    await world.make(workload("StatefulSet", "db", template("db", container(cards=1)), replicas=3, serviceName="db"))
    await world.running("db", 3)
    pods = await world.pods("db")
    assert [pod["metadata"]["name"] for pod in pods] == ["db-0", "db-1", "db-2"]
    for one, next_one in pairwise(pods):
        (ready,) = [c["lastTransitionTime"] for c in one["status"]["conditions"] if c["type"] == "Ready"]
        assert ready <= next_one["metadata"]["creationTimestamp"]
    assert len(await world.claims()) == 3
    before = {pod["metadata"]["uid"] for pod in pods}
    await world.remove("Pod", "db-1")

    async def again() -> bool:
        pods = await world.pods("db")
        return len(pods) == 3 and pods[1]["metadata"]["uid"] not in before and "nodeName" in pods[1]["spec"]

    await until(again, "the second db-1", timeout_s=60)
    await world.remove("StatefulSet", "db", propagationPolicy="Background")
    await world.no_claims()
    assert {state for _, state in world.claims_made()} == {"void"}
    assert set(world.claims_made().values()) == {1}


async def test_what_a_job_and_a_deployment_held_is_free_when_they_are_gone(world: World) -> None:
    job = {"parallelism": 2, "completions": 4, "template": template("job", container(cards=2), restartPolicy="Never")}
    await world.make(
        {"kind": "Job", "metadata": {"name": "job"}, "spec": job},
        workload("Deployment", "web", template("web", container(cards=1)), replicas=3),
    )
    await world.running("web", 3)

    async def done() -> bool:
        return bool((await world.get("Job", "job"))["status"].get("succeeded") == 4)

    await until(done, "the job's end", timeout_s=60)
    assert {claim.pod.partition("-")[0] for claim in (await world.claims()).values()} == {"web"}
    await world.remove("Job", "job", propagationPolicy="Background")
    await world.remove("Deployment", "web", propagationPolicy="Foreground")
    await world.no_claims()
    assert sorted(world.claims_made().values()) == [1] * 7


async def test_pods_that_wait_their_turn_in_a_crowd_rarely_meet_a_conflict(world: World, plane: ControlPlane) -> None:
    """Four nodes have 32 cards. Pods that wait are told so, which moves what fences their bindings, while places become free all the time.

    What meets is a condition already on its way and a binding just decided: the slower the API server, the more often.
    """
    before = len(requests(plane.audit_log))
    crowd = {
        "parallelism": 96,
        "completions": 160,
        "template": template("crowd", container(cpu="100m", cards=1), restartPolicy="Never"),
    }
    await world.make({"kind": "Job", "metadata": {"name": "crowd"}, "spec": crowd})

    async def done() -> bool:
        return bool((await world.get("Job", "crowd"))["status"].get("succeeded") == 160)

    await until(done, "the end of the crowd", timeout_s=150)
    seen = requests(plane.audit_log)[before:]
    told = sum(r.resource == "pods/status" and r.code == 200 for r in seen)
    bound = sum(r.resource == "pods/binding" and r.code == 201 for r in seen)
    conflicts = [r for r in seen if r.code == 409]
    assert bound >= 160
    assert told > 20
    assert len(conflicts) <= 5 * bound / 100, conflicts


async def test_pods_of_a_node_that_fails_are_replaced_elsewhere_and_hold_it_until_they_are_gone(world: World) -> None:
    pool = {"pool": world.space}
    await world.make(*(a_node(f"{world.space}-{i}", cards=2, labels=pool) for i in range(2)))
    short = [{"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1} for why in
             ("not-ready", "unreachable")]  # fmt: skip
    pod = template("web", container(cards=1), nodeSelector=pool, tolerations=short)
    await world.make(workload("Deployment", "web", pod, replicas=2))
    before = await world.bound("web", 2)
    (failing,) = set(before.values())  # they are packed
    await world.running("web", 2)

    await world.kubelet_dies(failing)

    async def replaced() -> bool:
        return list((await world.nodes_of("web")).values()).count(failing) == 0 and len(await world.nodes_of("web")) == 2

    await until(replaced, "pods on the other node", timeout_s=90)
    # Nobody has confirmed that the old ones have ended.
    leaving = [pod for pod in await world.pods("web") if pod["spec"].get("nodeName") == failing]
    claims = await world.claims()
    assert {pod["metadata"]["name"] for pod in leaving} == set(before)
    assert {name: claims[name].node for name in before} == before
    for name in before:
        await world.remove("Pod", name, gracePeriodSeconds="0")

    async def freed() -> bool:
        return not set(before) & set(await world.claims())

    await until(freed, "the old claims' end", timeout_s=60)
    await world.clean()
    made = world.claims_made()
    assert {made[pod["metadata"]["uid"], "void"] for pod in leaving} == {1}
    assert sum(made.values()) == 4
    for name in await _names(world, "Node", world.space):
        await world.remove("Node", name)


async def test_who_is_under_a_budget_gives_no_room_until_its_controller_counts_one_more(world: World) -> None:
    """Two cards, one held under a budget; two of higher priority want one each. The real disruption controller counts, the real API server evicts."""
    pool = {"pool": world.space}
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": world.space}, "value": 1000}
    await world.client.json("POST", PRIORITYCLASSES.path(), body=urgent)
    kept = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "kept"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    }
    await world.make(a_node(f"{world.space}-0", cards=2, labels=pool), kept)
    for name in ("kept", "batch"):
        await world.make(workload("Deployment", name, template(name, container(cards=1), nodeSelector=pool), replicas=1))
        await world.running(name, 1)

    async def counted() -> bool:
        return bool((await world.get("PodDisruptionBudget", "kept"))["status"].get("currentHealthy") == 1)

    await until(counted, "the budget", timeout_s=60)
    pod = template("urgent", container(cards=1), nodeSelector=pool, priorityClassName=world.space)
    await world.make(workload("Deployment", "urgent", pod, replicas=2))
    await world.bound("urgent", 1)
    await asyncio.sleep(5.0)
    assert (len(await world.nodes_of("urgent")), len(await world.nodes_of("kept")), await world.nodes_of("batch")) == (1, 1, {})
    await world.remove("PodDisruptionBudget", "kept")
    await world.bound("urgent", 2)
    await world.clean()
    await world.remove("Node", f"{world.space}-0")


async def test_an_eviction_that_a_budget_refuses_is_tried_until_it_is_allowed(world: World, plane: ControlPlane) -> None:
    await world.make(
        workload("Deployment", "web", template("web", container(cards=1)), replicas=2),
        {"kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}},
    )  # fmt: skip
    before = await world.bound("web", 2)
    await world.running("web", 2)

    async def counted() -> bool:
        return bool((await world.get("PodDisruptionBudget", "web"))["status"].get("currentHealthy") == 2)

    await until(counted, "the budget", timeout_s=60)
    victim = (await world.claims())[min(before)]
    await _evict(world, victim)

    async def refused() -> int:
        return sum(r.resource == "pods/eviction" and r.code == 429 and r.name == victim.pod for r in requests(plane.audit_log))

    await until(refused, "a refusal", timeout_s=60)
    assert victim.pod in await world.nodes_of("web")
    await world.remove("PodDisruptionBudget", "web")

    async def evicted() -> bool:
        return victim.pod not in await world.nodes_of("web") and len(await world.nodes_of("web")) == 2

    await until(evicted, "the eviction and the victim's successor", timeout_s=60)
    assert await refused() <= 10

    async def freed() -> bool:
        return world.claims_made()[victim.pod_uid, "void"] == 1

    await until(freed, "the end of the victim's claim", timeout_s=60)
    await world.clean()


async def test_a_deployment_grows_as_far_as_its_quota_and_further_when_that_grows(world: World) -> None:
    quota = {"kind": "ResourceQuota", "metadata": {"name": "cards"}, "spec": {"hard": {"requests.nvidia.com/gpu": "2"}}}
    await world.make(quota)

    async def known() -> bool:
        return "hard" in (await world.get("ResourceQuota", "cards")).get("status", {})

    await until(known, "the quota", timeout_s=60)
    await world.make(workload("Deployment", "web", template("web", container(cards=1)), replicas=4))
    await world.bound("web", 2)

    async def refused() -> bool:
        conditions = (await world.get("Deployment", "web"))["status"].get("conditions", ())
        return any(c["type"] == "ReplicaFailure" and c["status"] == "True" for c in conditions)

    await until(refused, "the refusal of the third", timeout_s=60)
    assert len(await world.claims()) == 2
    await world.change("ResourceQuota", "cards", {"spec": {"hard": {"requests.nvidia.com/gpu": "4"}}})
    # The controller of replica sets tries again with growing delay; a change of its object makes it do so at once.
    await world.change("Deployment", "web", {"spec": {"replicas": 5}})
    await world.bound("web", 4)
    assert len(await world.claims()) == 4


async def test_a_quota_of_cards_lets_pods_exist_and_has_them_wait(world: World) -> None:
    """`limits.` of cards is a quota that Kubernetes stores and HBox keeps."""
    await world.make({"kind": "ResourceQuota", "metadata": {"name": "cards"}, "spec": {"hard": {"limits.nvidia.com/gpu": "3"}}})

    async def known() -> bool:
        return bool(world.platform.json("quota", "ls", "-n", world.space)["items"])

    await until(known, "the quota, by the ledger", timeout_s=60)
    await world.make(workload("Deployment", "web", template("web", container(cards=2)), replicas=3))

    async def waiting() -> list[str]:
        names = [pod["metadata"]["name"] for pod in await world.pods("web") if not pod["spec"].get("nodeName")]
        return names if len(names) == 2 else []

    await world.bound("web", 1)
    for name in await until(waiting, "two that wait", timeout_s=60):
        await world.waits(name, "ResourceQuota cards of namespace")
    assert len(await world.claims()) == 1
    await world.change("ResourceQuota", "cards", {"spec": {"hard": {"limits.nvidia.com/gpu": "6"}}})
    await world.bound("web", 3)


async def test_a_namespace_is_deleted_with_pods_that_wait_are_bound_or_are_half_a_gang(world: World) -> None:
    gang = {"kind": "PodGroup", "metadata": {"name": "gang"}, "spec": {"minMember": 4}}
    await world.make(
        *(a_pod(f"bound-{i}", container(cards=1)) for i in range(3)),
        a_pod("waiting-0", container(cards=100)),
        gang,
        *(a_pod(f"gang-{i}", container(cards=1), group="gang") for i in range(2)),
        gang | {"metadata": {"name": "large"}, "spec": {"minMember": 5}},
        *(a_pod(f"large-{i}", container(cards=8), group="large") for i in range(5)),
    )
    await world.bound("bound", 3)
    await world.waits("gang-0", "GangIncomplete")
    await world.remove("Namespace", world.space)

    async def gone() -> bool:
        return world.space not in await _names(world, "Namespace", world.space)

    await until(gone, "the namespace's end", timeout_s=90)
    await world.no_claims()
    jobs = world.platform.json("jobs")

    async def forgotten() -> bool:
        return world.space not in str(world.platform.json("jobs"))

    await until(forgotten, f"the end of its jobs in {jobs}", timeout_s=60)
    await world.clean()


async def test_a_namespace_is_deleted_while_its_gang_is_being_bound(world: World) -> None:
    gang = {"kind": "PodGroup", "metadata": {"name": "doomed"}, "spec": {"minMember": 24}}
    await world.make(gang, *(a_pod(f"doomed-{i}", container(cpu="100m", cards=1), group="doomed") for i in range(24)))
    await world.bound("doomed", 1)
    await world.remove("Namespace", world.space)

    async def gone() -> bool:
        return world.space not in await _names(world, "Namespace", world.space)

    await until(gone, "the namespace's end", timeout_s=90)
    await world.no_claims()
    await world.clean()
    assert {state for _, state in world.claims_made()} == {"void"}


async def test_a_pod_with_scheduling_gates_is_placed_when_they_are_lifted(world: World) -> None:
    gates = [{"name": "example.org/later"}]
    await world.make(a_pod("gated", schedulingGates=gates), a_pod("free"))
    await world.bound("free", 1)
    pod = await world.get("Pod", "gated")
    assert "nodeName" not in pod["spec"]
    assert [c["reason"] for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"] == ["SchedulingGated"]
    await world.change("Pod", "gated", {"spec": {"schedulingGates": []}})
    await world.bound("gated", 1)


async def test_a_pod_follows_its_volume_and_waits_for_one_that_is_not_bound(world: World) -> None:
    late, slow, hand = f"{world.space}-late", f"{world.space}-slow", f"{world.space}-hand"
    provisioner = {"kind": "StorageClass", "provisioner": "example.org/none"}
    first = {"kind": "StorageClass", "volumeBindingMode": "WaitForFirstConsumer"}
    await world.make(
        first | {"metadata": {"name": hand}, "provisioner": "kubernetes.io/no-provisioner"},
        _claim("hand", hand),
        provisioner | {"metadata": {"name": late}, "volumeBindingMode": "WaitForFirstConsumer"},
        provisioner | {"metadata": {"name": slow}},
        _claim("late", late),
        _claim("slow", slow),
        *(a_pod(name, volumes=[_volume(name)]) for name in ("there", "late", "slow", "missing", "hand")),
        a_pod("scratch", volumes=[{"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": _claim("x", slow)["spec"]}}}]),
    )
    await world.waits("missing", 'persistentvolumeclaim "missing" not found')
    await world.waits("hand", f"no node has available persistent volumes of StorageClass {hand} to bind persistentvolumeclaim")

    async def selected() -> str:
        notes = (await world.get("PersistentVolumeClaim", "late"))["metadata"].get("annotations", {})
        return str(notes.get("volume.kubernetes.io/selected-node", ""))

    node = await until(selected, "the node for which the provisioner has to make the volume", timeout_s=60)
    assert await world.nodes_of("late") == {}, "the pod is bound after its volume"
    zones = {node["metadata"]["name"]: node["metadata"]["labels"]["zone"] for node in THE_NODES}
    await world.make(_volume_in(f"{world.space}-late", zones[node], late, f"{world.space}/late"))
    assert await world.bound("late", 1) == {"late": node}
    await world.waits("slow", "pod has unbound immediate PersistentVolumeClaims")
    await world.waits("scratch", "pod has unbound immediate PersistentVolumeClaims")
    for name, zone in (("there", "a"), ("missing", "b"), ("slow", "a")):
        # The last is what a provisioner would make.
        await world.make(_volume_in(f"{world.space}-{name}", zone, slow if name == "slow" else "", f"{world.space}/{name}"))
    await world.make(_claim("there", ""), _claim("missing", ""))
    for name, zone in (("there", "a"), ("missing", "b"), ("slow", "a")):
        assert {zones[node] for node in (await world.bound(name, 1)).values()} == {zone}
    assert await world.nodes_of("hand") == {}


async def test_pods_take_the_local_volumes_that_are_there(world: World) -> None:
    local = f"{world.space}-local"
    claims = {f"local-{i}": _claim(f"local-{i}", local) for i in range(3)}
    await world.make(
        {
            "kind": "StorageClass",
            "metadata": {"name": local},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        *claims.values(),
        a_pod("local-0", volumes=[_volume("local-0")]),
    )
    await world.waits("local-0", f"no node has available persistent volumes of StorageClass {local}")
    await world.make(_local_volume(f"{local}-n2", "n2", local))
    assert await world.bound("local", 1) == {"local-0": "n2"}
    for node in ("n1", "n3", "n3"):  # two claims of a pod have to be of one node
        there = [name for name in await _names(world, "PersistentVolume", local) if node in name]
        await world.make(_local_volume(f"{local}-{node}-{len(there)}", node, local))
    both = [_volume("local-1"), _volume("local-2") | {"name": "more"}]
    await world.make(a_pod("local-1", volumes=both))
    assert await world.bound("local", 2) == {"local-0": "n2", "local-1": "n3"}
    volumes = [(await world.get("PersistentVolumeClaim", name))["spec"]["volumeName"] for name in claims]
    assert (volumes[0], set(volumes[1:])) == (f"{local}-n2", {f"{local}-n3-0", f"{local}-n3-1"})


async def test_host_ports_are_shared_with_nobody_not_even_with_pods_of_others(world: World) -> None:
    def port(number: int) -> list[dict[str, object]]:
        return [{"containerPort": number, "hostPort": number}]

    exporter = template("exporter", container(ports=[{"containerPort": 9400}]), hostNetwork=True)
    mirror = a_pod("static", container(ports=port(8080)), nodeName="n0")
    mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "x"
    stranger = a_pod("stranger", container(ports=port(8080)), nodeName="n1") | {}
    stranger["spec"]["schedulerName"] = "another"
    await world.make(workload("DaemonSet", "exporter", exporter), mirror, stranger)
    assert set((await world.bound("exporter", 4)).values()) == {"n0", "n1", "n2", "n3"}
    await world.running("stranger", 1)

    async def seen() -> bool:
        return {"static", "stranger"} <= set(await world.claims())

    await until(seen, "the claims of others", timeout_s=60)
    await world.make(
        *(a_pod(f"web-{i}", container(ports=port(8080))) for i in range(3)), a_pod("late", container(ports=port(9400)))
    )
    assert set((await world.bound("web", 2)).values()) == {"n2", "n3"}
    await world.waits("late", "0/4 nodes are available: 4 NodePortsTaken")
    (left,) = {f"web-{i}" for i in range(3)} - set(await world.nodes_of("web"))
    await world.waits(left, "0/4 nodes are available: 4 NodePortsTaken")
    await world.remove("Pod", "stranger", gracePeriodSeconds="0")
    await world.bound("web", 3)
    assert (await world.nodes_of("web"))[left] == "n1"
    await world.clean()


#: What kube-scheduler counts, in cpu milli: k8s.io/component-helpers/resource.PodRequests.
SUMS = [
    pytest.param(spec(container(cpu="1"), container(cpu="500m", name="two")), 1500, id="several-containers"),
    pytest.param(spec(container(cpu="1"), initContainers=[container(cpu="3", name="init")]), 3000, id="a-large-init-container"),
    pytest.param(
        spec(container(cpu="1"), initContainers=[container(cpu="2", name="side", restartPolicy="Always"),
                                                 container(cpu="3", name="init")]),
        5000,
        id="an-init-container-beside-a-sidecar",
    ),
    pytest.param(
        spec(container(cpu="4"), initContainers=[container(cpu="3", name="init"),
                                                 container(cpu="2", name="side", restartPolicy="Always")]),
        6000,
        id="containers-beside-a-sidecar",
    ),
    pytest.param(spec(container(cpu="1"), runtimeClassName="heavy"), 1250, id="overhead"),
    pytest.param(spec(container(cpu="1"), resources={"requests": {"cpu": "2500m"}, "limits": {"cpu": "3"}}), 2500, id="pod-level"),
    pytest.param(
        spec(container(cpu="1"), resources={"requests": {"cpu": "2500m"}, "limits": {"cpu": "3"}}, runtimeClassName="heavy"),
        2750,
        id="pod-level-and-overhead",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "cpu_milli"), SUMS)
async def test_a_pod_takes_what_kube_scheduler_counts(world: World, pod: dict[str, object], cpu_milli: int) -> None:
    heavy = {"kind": "RuntimeClass", "metadata": {"name": "heavy"}, "handler": "x", "overhead": {"podFixed": {"cpu": "250m"}}}
    if "runtimeClassName" in pod:
        await _unless_there(world, heavy)
    await world.make({"kind": "Pod", "metadata": {"name": "sum", "labels": {"app": "sum"}}, "spec": pod})
    await world.bound("sum", 1)
    assert (await world.claims())["sum"].requests["cpu"] == cpu_milli


async def test_nothing_that_services_asked_of_the_api_was_forbidden_or_in_vain(world: World, plane: ControlPlane) -> None:
    await world.clean()
    seen = requests(plane.audit_log)
    # Nobody can know a moment before that a namespace will be deleted; and the crowd has its own figure.
    seen = [r for r in seen if "because it is being terminated" not in r.message and not r.name.startswith("crowd-")]
    refused = [r for r in seen if r.code in (401, 403) or r.code >= 500 or (r.code == 429 and r.resource != "pods/eviction")]
    assert refused == []
    bindings = sum(r.resource == "pods/binding" and r.code == 201 for r in seen)
    conflicts = [r for r in seen if r.code == 409]
    assert len(conflicts) <= 1 + bindings / 100, conflicts
    # By a list of one item a service asks where the store stands, for each of its watches; a copy is listed once. The binder chooses among listed volumes.
    seen = [r for r in seen if (r.service, r.resource) != ("binder", "persistentvolumes")]
    lists = [
        (r.service, r.resource) for r in seen if r.verb == "list" and parse_qs(urlsplit(r.uri).query).get("limit") != ["1"]
    ]
    assert sorted(lists) == sorted(set(lists))


async def _evict(world: World, claim: Claim) -> None:
    """Decide, in the ledger's name, that this claim's pod has to go."""
    async with admin_bus(asdict(Layout(world.platform.state).running())) as bus:
        (epoch, _), _ = await read_claims(bus)
        wish = Evict(
            id=DecisionId(f"test-{claim.id}"), kind=EvictKind.EVICT, claim=claim.id, generation=100, job=claim.job, namespace=claim.namespace,
            pod=claim.pod, pod_uid=claim.pod_uid, reason="test",
        )  # fmt: skip
        await bus.publish(EvictDecided(epoch=Epoch(epoch), evictions=(wish,)), "0")


async def _names(world: World, kind: str, prefix: str) -> list[str]:
    listed = await world.client.json("GET", world.path(kind))
    return [item["metadata"]["name"] for item in listed["items"] if item["metadata"]["name"].startswith(prefix)]


async def _unless_there(world: World, manifest: Json) -> None:
    if not await _names(world, str(manifest["kind"]), "heavy"):
        await world.make(manifest)


def _volume(claim: str) -> dict[str, object]:
    return {"name": "data", "persistentVolumeClaim": {"claimName": claim}}


def _claim(name: str, storage_class: str) -> dict[str, object]:
    wish = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": storage_class}
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": wish}


def _local_volume(name: str, node: str, storage_class: str) -> dict[str, object]:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    return {
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "2Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }


def _volume_in(name: str, zone: str, storage_class: str, claim: str) -> dict[str, object]:
    """A volume for one claim (namespace/name), within reach of a zone's nodes."""
    namespace, _, claim_name = claim.partition("/")
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    return {
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "claimRef": {"namespace": namespace, "name": claim_name},
            "hostPath": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }


async def test_a_replica_set_leaves_the_node_that_refuses_and_pods_sent_to_nodes_by_hand_rest_none(world: World) -> None:
    """Without a kubelet, so that the test refuses pods: `bad` with a broken device plugin, and all that names its node itself."""
    kinds = {"zone": "refusals"} | NO_KUBELET
    await world.make(a_node("bad", labels=kinds), a_node("good", labels=kinds))
    here = {"nodeSelector": {"zone": "refusals"}}
    await world.make(a_pod("fill", container(cards=6), nodeSelector={"kubernetes.io/hostname": "bad"}))
    await world.bound("fill", 1)

    async def ends(pod: str, reason: str) -> None:
        status = {"phase": "Failed", "reason": reason, "message": "Pod was rejected", "startTime": "2026-01-01T00:00:00Z"}
        await world.change("Pod", pod, {"status": status}, "status")

    for node in ("bad", "good"):  # whoever may create pods can name a node, and ask for what it does not offer
        await world.make(a_pod(f"direct-{node}", nodeName=node, nodeSelector={"no": "such"}))
        await ends(f"direct-{node}", "NodeAffinity")
    refused: set[str] = set()

    async def runs_elsewhere() -> bool:
        for name, node in (await world.nodes_of("batch")).items():
            if node == "good":
                return True
            if name not in refused:
                refused.add(name)
                await ends(name, "UnexpectedAdmissionError")
        return False

    pods = template("batch", container(cards=2), **here)
    await world.make(
        {
            "kind": "ReplicaSet",
            "metadata": {"name": "batch"},
            "spec": {"selector": {"matchLabels": {"app": "batch"}}, "template": pods},
        }
    )
    await until(runs_elsewhere, "a pod on the node that refuses none", timeout_s=60)
    assert 1 <= len(refused) <= 3, refused
    nodes = {item["name"]: item["refuses"] for item in world.platform.json("nodes")["items"]}
    assert [one["kind"] for one in nodes["bad"]] == ["cards"]
    assert nodes["good"] == []
    await world.remove("ReplicaSet", "batch", propagationPolicy="Foreground")
    for node in ("bad", "good"):
        await world.remove("Node", node)
