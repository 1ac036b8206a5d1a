"""Beside the real kube-scheduler, pod by pod: it puts a pod where our filters would let it, and finds no place exactly when we find none.

Random pods on random clusters: selectors, affinity to nodes, affinity and anti-affinity between pods of two namespaces, topology spread, taints and
tolerations, host ports, extended resources, init containers and sidecars, on other nodes after every 50 pods: the first ones meet other rules than those
that come to a full cluster. `HBOX_PODS` sets how many (200; 1,000 take a minute), `HBOX_SEED` where the dice begin. One difference is meant:
kube-scheduler gives a cordoned node to pods that tolerate all taints, and we give it to nobody, since health-monitor closes sick nodes so.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hbox_cli.platform.assets import API_SERVER, ETCD, ControlPlane
from hbox_cli.simulate.cluster_file import cluster_of
from hbox_cli.simulate.documents import Document
from hbox_common.kube import MERGE_PATCH, NODES, PODS, KubeClient
from hbox_scheduler.core.framework import Placing, Session
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy.registry import PLUGINS, plugins_of

from ..waiting import until
from .control_plane import control_plane, kube_scheduler
from .controllers_world import Json

SEED, PODS_ASKED = int(os.environ.get("HBOX_SEED", "1")), int(os.environ.get("HBOX_PODS", "200"))
pytestmark = [pytest.mark.timeout(600 + PODS_ASKED)]

PEER = "default-scheduler"
SPACES = ("default", "other")
NODE_COUNT, PODS_OF_A_CLUSTER = 12, 50
CONF = parse_conf('actions: "allocate"\ntiers:\n- plugins:\n  - name: predicates\n', plugins=list(PLUGINS))
SCHEDULER_CONF = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
clientConnection: {{kubeconfig: {kubeconfig}, qps: 1000, burst: 1000}}
profiles:
- schedulerName: default-scheduler
  plugins: {{postFilter: {{disabled: [{{name: "*"}}]}}}}
"""


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with control_plane(tmp_path, programs=(ETCD, API_SERVER)) as plane, peer(plane, tmp_path):
        yield plane


@contextmanager
def peer(plane: ControlPlane, folder: Path) -> Iterator[None]:
    """kube-scheduler, without preemption: it is asked where a pod can go, not whom to take away."""
    if not (plane.programs / "kube-scheduler").exists():
        pytest.skip("kube-scheduler is not among the built programs: build them with `make kube-assets`")
    with kube_scheduler(plane, folder, SCHEDULER_CONF.format(kubeconfig=plane.kubeconfig)):
        yield


class Dice:
    """Nodes and pods that exercise every filter, and often enough contradict each other."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names: list[str] = []

    def nodes(self) -> list[Json]:
        """Of one more cluster, none named as one before."""
        first = self.random.randrange(1_000_000)
        self.names = [f"n{first + number}" for number in range(NODE_COUNT)]
        return [self.node(name) for name in self.names]

    def some(self, chance: float) -> bool:
        return self.random.random() < chance

    def node(self, name: str) -> Json:
        pick = self.random.choice
        amounts = {
            "cpu": pick(["4", "8"]),
            "memory": pick(["8Gi", "16Gi"]),
            "ephemeral-storage": pick(["10Gi", "40Gi"]),
            "pods": pick(["6", "12"]),
            "example.com/foo": pick(["0", "2", "4"]),
        }
        effects = ["NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"]
        taints = [{"key": key, "value": pick("ab"), "effect": pick(effects)} for key in ("team", "spot") if self.some(0.2)]
        labels = {"kubernetes.io/hostname": name, "zone": pick("abc"), "speed": pick(["1", "2", "3"])}
        if self.some(0.2):
            del labels["zone"]
        if self.some(0.3):
            labels["ssd"] = ""
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints, "unschedulable": self.some(0.05)},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
        }

    def pod(self, number: int) -> Json:
        pick = self.random.choice
        container = self.container("main")
        if self.some(0.2):
            port: Json = {"containerPort": 80, "hostPort": pick([8080, 8081])}
            if self.some(0.3):
                port["protocol"] = "UDP"
            if self.some(0.3):
                port["hostIP"] = pick(["10.0.0.1", "10.0.0.2"])
            container["ports"] = [port]
        spec: Json = {"schedulerName": PEER, "containers": [container], "terminationGracePeriodSeconds": 0}
        inits = (
            [self.container(f"init-{i}", sidecar=self.some(0.4)) for i in range(self.random.randint(1, 3))]
            if self.some(0.2)
            else []
        )
        if inits:
            spec["initContainers"] = inits
        if self.some(0.2):
            spec["nodeSelector"] = {"zone": pick("abcd")}
        if self.some(0.4):
            spec["tolerations"] = [self.toleration() for _ in range(self.random.randint(1, 2))]
        affinity: Json = {}
        if self.some(0.25):
            terms = [self.node_term() for _ in range(self.random.randint(1, 2))]
            affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        for kind, chance in (("podAffinity", 0.15), ("podAntiAffinity", 0.2)):
            if self.some(chance):
                terms = [self.term() for _ in range(self.random.choice([1, 1, 2]))]
                affinity[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        if affinity:
            spec["affinity"] = affinity
        if self.some(0.3):
            keys = self.random.sample(["zone", "kubernetes.io/hostname"], self.random.choice([1, 1, 2]))
            spec["topologySpreadConstraints"] = [self.spread(key) for key in keys]
        labels = {"app": pick("xyz"), "tier": pick(["web", "db"])}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{number}", "namespace": pick([SPACES[0], SPACES[0], SPACES[1]]), "labels": labels},
            "spec": spec,
        }

    def container(self, name: str, *, sidecar: bool = False) -> Json:
        pick = self.random.choice
        requests = {"cpu": pick(["100m", "500m", "1", "3"]), "memory": pick(["64Mi", "512Mi", "3Gi"])}
        if self.some(0.1):
            requests["ephemeral-storage"] = pick(["1Gi", "6Gi"])
        if self.some(0.2):
            requests["example.com/foo"] = pick(["1", "2"])
        limits = {key: value for key, value in requests.items() if key.startswith("example.com/")}
        made: Json = {"name": name, "image": "busybox", "resources": {"requests": requests, "limits": limits}}
        if sidecar:
            made["restartPolicy"] = "Always"
        return made

    def toleration(self) -> Json:
        pick = self.random.choice
        if self.some(0.1):
            return {"operator": "Exists"}
        made: Json = {"key": pick(["team", "spot"])}
        made |= {"operator": "Exists"} if self.some(0.4) else {"operator": "Equal", "value": pick("ab")}
        if self.some(0.6):
            made["effect"] = pick(["NoSchedule", "NoExecute"])
        return made

    def node_term(self) -> Json:
        pick = self.random.choice
        if self.some(0.1):
            operator = pick(["In", "NotIn"])
            return {
                "matchFields": [
                    {"key": "metadata.name", "operator": operator, "values": [f"n{self.random.randrange(NODE_COUNT)}"]}
                ]
            }
        expressions = [
            {"key": "speed", "operator": "Gt", "values": ["1"]}, {"key": "speed", "operator": "Lt", "values": ["3"]},
            {"key": "zone", "operator": "NotIn", "values": ["a"]}, {"key": "zone", "operator": "Exists"},
            {"key": "speed", "operator": "In", "values": ["1", "3"]}, {"key": "ssd", "operator": "DoesNotExist"},
            {"key": "zone", "operator": "DoesNotExist"},
        ]  # fmt: skip
        return {"matchExpressions": self.random.sample(expressions, self.random.choice([1, 1, 2]))}

    def spread(self, key: str) -> Json:
        pick = self.random.choice
        made: Json = {
            "maxSkew": pick([1, 2]), "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": pick("xyz")}},
        }  # fmt: skip
        if self.some(0.2):
            made["minDomains"] = pick([2, 3, 4])
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if self.some(0.3):
                made[policy] = pick(["Honor", "Ignore"])
        if self.some(0.15):
            made["matchLabelKeys"] = ["tier"]
        return made

    def term(self) -> Json:
        pick = self.random.choice
        selector = pick([
            {"matchLabels": {"app": pick("xyz")}},
            {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["web"]}]},
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]},
            {"matchExpressions": [{"key": "tier", "operator": "Exists"}, {"key": "app", "operator": "In", "values": ["y", "z"]}]},
        ])  # fmt: skip
        made: Json = {"labelSelector": selector, "topologyKey": pick(["zone", "kubernetes.io/hostname"])}
        if self.some(0.2):
            made["namespaces"] = self.random.sample(SPACES, self.random.randint(1, 2))
        elif self.some(0.15):
            made["namespaceSelector"] = {}
        if self.some(0.1):
            made[pick(["matchLabelKeys", "mismatchLabelKeys"])] = ["team"]
        return made


def feasible(nodes: list[Json], placed: list[Json], pod: Json) -> set[str]:
    """Nodes on which our filters would let the pod, beside those placed."""
    documents = [Document(number, content) for number, content in enumerate([*nodes, *placed, pod], 1)]
    saved = cluster_of(documents, schedulers=[PEER], now=0.0)
    for gang in saved.cluster.gangs:
        for member in gang.members:
            if member.row >= 0:
                saved.columns.book(member.row, member.task.requests, member.slices)
    session = Session(columns=saved.columns, cluster=saved.cluster, conf=CONF, tiers=plugins_of(CONF))
    member = next(m for gang in session.gangs for m in gang.members if m.name == pod["metadata"]["name"])
    placing = Placing(session)
    fits = placing.allowed(member, saved.columns) & placing.fits(member, saved.columns)
    return {saved.columns.names[row] for row in range(saved.columns.size) if fits[row]}


@dataclass(slots=True)
class Findings:
    refused: int = 0
    differences: list[str] = field(default_factory=list)


async def test_it_places_a_pod_where_and_only_where_our_filters_let_it(plane: ControlPlane) -> None:
    dice, findings = Dice(SEED), Findings()
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as client:

        async def account() -> bool:
            found = await client.json("GET", "/api/v1/namespaces")
            return any(one["metadata"]["name"] == SPACES[0] for one in found["items"])

        await until(account, "the namespace", timeout_s=60)
        await client.json("POST", "/api/v1/namespaces", body={"metadata": {"name": SPACES[1]}})
        for first in range(0, PODS_ASKED, PODS_OF_A_CLUSTER):
            await one_cluster(client, dice, range(first, min(first + PODS_OF_A_CLUSTER, PODS_ASKED)), findings)
    assert not findings.differences, f"{len(findings.differences)} of {PODS_ASKED}:\n" + "\n".join(findings.differences[:10])
    assert PODS_ASKED // 20 < findings.refused < PODS_ASKED, (
        f"{findings.refused} of {PODS_ASKED} pods found no place: the dice are loaded"
    )


async def one_cluster(client: KubeClient, dice: Dice, numbers: range, findings: Findings) -> None:
    nodes = dice.nodes()
    for node in nodes:
        await client.json("POST", NODES.path(), body=node)
        # Admission has put a taint there that the node controller would take away.
        path, patch = NODES.path(name=node["metadata"]["name"]), {"spec": {"taints": node["spec"]["taints"] or None}}
        await client.json("PATCH", path, body=patch, content_type=MERGE_PATCH)
    for node in nodes:
        await warmed_up(client, node["metadata"]["name"])
    cordoned = {node["metadata"]["name"] for node in nodes if node["spec"]["unschedulable"]}
    placed: list[Json] = []
    for number in numbers:
        asked = dice.pod(number)
        pod = await client.json("POST", PODS.path(asked["metadata"]["namespace"]), body=asked)
        ours = feasible(nodes, placed, {**pod, "spec": {k: v for k, v in pod["spec"].items() if k != "nodeName"}})
        theirs, why = await verdict(client, pod["metadata"]["namespace"], pod["metadata"]["name"])
        if theirs:
            placed.append({**pod, "spec": {**pod["spec"], "nodeName": theirs}, "status": {"phase": "Running"}})
        else:
            findings.refused += 1
            await delete(client, pod)
        if (theirs not in ours and theirs not in cordoned) if theirs else ours:
            where = [(one["metadata"]["name"], one["spec"]["nodeName"]) for one in placed]
            findings.differences.append(
                f"pod {number} of seed {SEED}: kube-scheduler {theirs or why}, we {sorted(ours)}: {asked['metadata']}, {asked['spec']}; placed: {where}"
            )
        while len(placed) > 30:
            await delete(client, placed.pop(dice.random.randrange(len(placed))))
    for pod in placed:
        await delete(client, pod)
    for node in nodes:
        await client.json("DELETE", NODES.path(name=node["metadata"]["name"]))


async def delete(client: KubeClient, pod: Json) -> None:
    await client.json(
        "DELETE", PODS.path(pod["metadata"]["namespace"], pod["metadata"]["name"]), params={"gracePeriodSeconds": "0"}
    )


async def warmed_up(client: KubeClient, node: str) -> None:
    """Until kube-scheduler has seen the node as it is."""
    only: Json = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    tolerant: Json = {
        "schedulerName": PEER, "containers": [{"name": "main", "image": "busybox"}], "terminationGracePeriodSeconds": 0,
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [only]}}},
    }  # fmt: skip
    for number in itertools.count():
        pod: Json = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"warm-{node}-{number}", "namespace": SPACES[0]}, "spec": tolerant
        }  # fmt: skip
        await client.json("POST", PODS.path(SPACES[0]), body=pod)
        where, _ = await verdict(client, SPACES[0], pod["metadata"]["name"])
        await delete(client, pod)
        if where:
            return


async def verdict(client: KubeClient, space: str, name: str) -> tuple[str, str]:
    """Where kube-scheduler put the pod, or why it found no place."""

    async def said() -> tuple[str, str]:
        pod = await client.json("GET", PODS.path(space, name))
        if node := pod["spec"].get("nodeName"):
            return node, ""
        conditions = pod.get("status", {}).get("conditions", ())
        return "", next((c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), "")

    async def settled() -> tuple[str, str] | None:
        found = await said()
        return found if any(found) else None

    found: tuple[str, str] = await until(settled, f"a verdict on {name}", timeout_s=65)
    return found
