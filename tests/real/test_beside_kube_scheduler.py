"""Beside the real kube-scheduler, pod by pod: it puts a pod where our filters would let it, and finds no place exactly when we find none.

Random pods on random clusters: selectors, affinity to nodes, affinity and anti-affinity between pods, topology spread, taints and tolerations, host
ports, extended resources. `HBOX_PODS` sets how many (150), `HBOX_SEED` where the dice begin.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hbox_cli.platform.assets import API_SERVER, ETCD, ControlPlane, find_programs
from hbox_cli.platform.child import die_with
from hbox_cli.simulate.cluster_file import cluster_of
from hbox_cli.simulate.documents import Document
from hbox_common.kube import MERGE_PATCH, NODES, PODS, KubeClient
from hbox_scheduler.core.policy.conf import parse_conf
from hbox_scheduler.core.policy.registry import PLUGINS, plugins_of
from hbox_scheduler.core.session import Placing, Session

from .control_plane import control_plane
from .controllers_world import Json, until

pytestmark = [pytest.mark.timeout(600)]

PEER = "default-scheduler"
SPACE = "default"
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
    program = find_programs() / "kube-scheduler"
    if not program.exists():
        pytest.skip("kube-scheduler is not among the built programs: build them with `make kube-assets`")
    config, us = folder / "scheduler.yaml", os.getpid()
    config.write_text(SCHEDULER_CONF.format(kubeconfig=plane.kubeconfig))
    with (folder / "kube-scheduler.log").open("wb") as log:
        process = subprocess.Popen(
            [str(program), f"--config={config}", "--secure-port=0"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            preexec_fn=lambda: die_with(us),  # noqa: PLW1509  a system call and no more
        )  # fmt: skip
    try:
        yield
    finally:
        process.kill()
        process.wait()


class Dice:
    """Nodes and pods that exercise every filter, and often enough contradict each other."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def some(self, chance: float) -> bool:
        return self.random.random() < chance

    def node(self, number: int) -> Json:
        name, pick = f"n{number}", self.random.choice
        amounts = {
            "cpu": pick(["4", "8"]),
            "memory": pick(["8Gi", "16Gi"]),
            "pods": pick(["6", "12"]),
            "example.com/foo": pick(["0", "2", "4"]),
        }
        taints = [{"key": "team", "value": pick("ab"), "effect": "NoSchedule"}] if self.some(0.25) else []
        labels = {"kubernetes.io/hostname": name, "zone": pick("abc"), "speed": pick(["1", "2", "3"])}
        if self.some(0.2):
            del labels["zone"]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints, "unschedulable": self.some(0.05)},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
        }

    def pod(self, number: int) -> Json:
        pick = self.random.choice
        requests = {"cpu": pick(["100m", "500m", "1", "3"]), "memory": pick(["64Mi", "512Mi", "3Gi"])}
        if self.some(0.2):
            requests["example.com/foo"] = pick(["1", "2"])
        container: Json = {
            "name": "main",
            "image": "busybox",
            "resources": {"requests": requests, "limits": {k: v for k, v in requests.items() if "/" in k}},
        }
        if self.some(0.15):
            container["ports"] = [{"containerPort": 80, "hostPort": pick([8080, 8081])}]
        spec: Json = {"schedulerName": PEER, "containers": [container], "terminationGracePeriodSeconds": 0}
        if self.some(0.2):
            spec["nodeSelector"] = {"zone": pick("abcd")}
        if self.some(0.3):
            spec["tolerations"] = [{"key": "team", "operator": "Equal", "value": pick("ab"), "effect": "NoSchedule"}]
        affinity: Json = {}
        if self.some(0.2):
            expression = pick([
                {"key": "speed", "operator": "Gt", "values": ["1"]}, {"key": "zone", "operator": "NotIn", "values": ["a"]},
                {"key": "zone", "operator": "Exists"}, {"key": "speed", "operator": "In", "values": ["1", "3"]},
            ])  # fmt: skip
            affinity["nodeAffinity"] = {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
            }
        for kind, chance in (("podAffinity", 0.15), ("podAntiAffinity", 0.2)):
            if self.some(chance):
                affinity[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": [self.term()]}
        if affinity:
            spec["affinity"] = affinity
        if self.some(0.25):
            spec["topologySpreadConstraints"] = [{
                "maxSkew": pick([1, 2]), "topologyKey": pick(["zone", "kubernetes.io/hostname"]), "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": pick("xyz")}},
            }]  # fmt: skip
        labels = {"app": pick("xyz"), "tier": pick(["web", "db"])}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{number}", "namespace": SPACE, "labels": labels},
            "spec": spec,
        }

    def term(self) -> Json:
        selector = self.random.choice([
            {"matchLabels": {"app": self.random.choice("xyz")}},
            {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["web"]}]},
        ])  # fmt: skip
        return {"labelSelector": selector, "topologyKey": self.random.choice(["zone", "kubernetes.io/hostname"])}


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


async def test_it_places_a_pod_where_and_only_where_our_filters_let_it(plane: ControlPlane) -> None:
    seed, count = int(os.environ.get("HBOX_SEED", "1")), int(os.environ.get("HBOX_PODS", "150"))
    dice = Dice(seed)
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as client:

        async def account() -> bool:
            found = await client.json("GET", "/api/v1/namespaces")
            return any(one["metadata"]["name"] == SPACE for one in found["items"])

        await until(account, "the namespace")
        nodes = [dice.node(number) for number in range(12)]
        for node in nodes:
            await client.json("POST", NODES.path(), body=node)
            # Admission has put a taint there that the node controller would take away.
            path, patch = NODES.path(name=node["metadata"]["name"]), {"spec": {"taints": node["spec"]["taints"] or None}}
            await client.json("PATCH", path, body=patch, content_type=MERGE_PATCH)
        await warmed_up(client)
        placed: list[Json] = []
        differences: list[str] = []
        refused = 0
        for number in range(count):
            pod = dice.pod(number)
            ours = feasible(nodes, placed, pod)
            await client.json("POST", PODS.path(SPACE), body=pod)
            theirs, why = await verdict(client, pod["metadata"]["name"])
            if theirs:
                placed.append({**pod, "spec": {**pod["spec"], "nodeName": theirs}, "status": {"phase": "Running"}})
            else:
                refused += 1
                await client.json("DELETE", PODS.path(SPACE, pod["metadata"]["name"]))
            if (theirs not in ours) if theirs else ours:
                differences.append(
                    f"pod {number} of seed {seed}: kube-scheduler {theirs or why}, we {sorted(ours)}: {pod['spec']}"
                )
            while len(placed) > 30:
                gone = placed.pop(dice.random.randrange(len(placed)))["metadata"]["name"]
                await client.json("DELETE", PODS.path(SPACE, gone), params={"gracePeriodSeconds": "0"})
        assert not differences, f"{len(differences)} of {count}:\n" + "\n".join(differences[:10])
        assert count // 20 < refused < count, f"{refused} of {count} pods found no place: the dice are loaded"


async def warmed_up(client: KubeClient) -> None:
    """Until kube-scheduler has seen the nodes as they are."""
    pod = Dice(0).pod(0)
    tolerant = {"schedulerName": PEER, "containers": [{"name": "main", "image": "busybox"}], "terminationGracePeriodSeconds": 0}
    for number in itertools.count():
        name = f"warm-{number}"
        await client.json("POST", PODS.path(SPACE), body={**pod, "metadata": {"name": name}, "spec": tolerant})
        where, _ = await verdict(client, name)
        await client.json("DELETE", PODS.path(SPACE, name), params={"gracePeriodSeconds": "0"})
        if where:
            return


async def verdict(client: KubeClient, name: str) -> tuple[str, str]:
    """Where kube-scheduler put the pod, or why it found no place."""

    async def said() -> tuple[str, str]:
        pod = await client.json("GET", PODS.path(SPACE, name))
        if node := pod["spec"].get("nodeName"):
            return node, ""
        conditions = pod.get("status", {}).get("conditions", ())
        return "", next((c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), "")

    async def settled() -> tuple[str, str] | None:
        found = await said()
        return found if any(found) else None

    for _ in range(200):
        if found := await settled():
            return found
        await asyncio.sleep(0.02)
    found = await until(settled, f"a verdict on {name}")
    assert found is not None
    return found
