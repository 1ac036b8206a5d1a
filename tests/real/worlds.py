"""Random small clusters, each a world of its own in one cluster: nodes that its label marks, namespaces, volumes, pods that run, and pods that are asked about.

Worlds do not touch: every pod selects the world's nodes, labels by which pods are told apart or kept together have the world in their keys or values, and
claims and namespaces are the world's own. So that many are asked about side by side. What a world has hangs on its seed alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

#: Marks nodes and namespaces, and names the world.
WORLD = "world"
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
CORDON, NOT_READY = "node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready"
#: A PriorityClass of the whole cluster: nobody has to leave for its pods.
PATIENT = "patient"
FOO, HUGE, CARDS = "example.com/foo", "hugepages-2Mi", "nvidia.com/gpu"
#: A node with these keeps no cores and no memory for idle cards (ADR 39), which kube-scheduler knows nothing of.
NOTHING_KEPT = {"hbox.io/cpu-per-card": "0", "hbox.io/memory-per-card": "0"}

#: Of the whole cluster: pods' overheads and where they may run.
RUNTIME_CLASSES: Sequence[Json] = (
    {"metadata": {"name": "heavy"}, "overhead": {"podFixed": {"cpu": "250m", "memory": "300Mi"}}},
    {
        "metadata": {"name": "picky"},
        "scheduling": {"nodeSelector": {"speed": "2"}, "tolerations": [{"key": "team", "operator": "Exists"}]},
    },
)


@dataclass(slots=True)
class World:
    """Objects as they are written. `running` have a node; `asked` wait for one."""

    name: str
    seed: int
    nodes: list[Json] = field(default_factory=list)
    namespaces: list[Json] = field(default_factory=list)
    classes: list[Json] = field(default_factory=list)
    volumes: list[Json] = field(default_factory=list)
    claims: list[Json] = field(default_factory=list)
    running: list[Json] = field(default_factory=list)
    leaving: set[str] = field(default_factory=set)  #: of those that run, by name: they have been deleted and are not gone
    asked: list[Json] = field(default_factory=list)


def world_of(name: str, seed: int, *, asked: int) -> World:
    """With so many pods that are asked about."""
    return _Dice(name, seed).world(asked)


class _Dice:
    def __init__(self, name: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.pick = self.random.choice
        self.seed = seed
        self.name = name
        self.spaces = (f"{name}-a", f"{name}-b")
        self.nodes: list[str] = []

    def some(self, chance: float) -> bool:
        return self.random.random() < chance

    def world(self, asked: int) -> World:
        world = World(self.name, self.seed)
        self.nodes = [f"{self.name}-n{number}" for number in range(self.random.randint(3, 12))]
        self.crowd = self.pick([0.5, 1.0, 2.5])
        self.cards = self.some(0.3)
        world.namespaces = [
            {"metadata": {"name": space, "labels": {WORLD: self.name, "env": env}}}
            for space, env in zip(self.spaces, (self.pick(["dev", "prod"]), "prod"), strict=True)
        ]
        world.nodes = [self.node(node) for node in self.nodes]
        self.storage(world)
        for number in range(int(len(self.nodes) * self.crowd)):
            pod = self.pod(f"r{number}", world)
            pod["spec"]["nodeName"] = self.pick(self.nodes)
            pod["spec"]["schedulerName"] = self.pick(["default-scheduler", "other", "hbox"])
            pod["status"] = self.status(pod)
            world.running.append(pod)
            if not pod["status"] and self.some(0.1):
                world.leaving.add(pod["metadata"]["name"])
        world.asked = [self.pod(f"p{number}", world, asked=True) for number in range(asked)]
        return world

    # --- nodes

    def node(self, name: str) -> Json:
        pick = self.pick
        amounts: Json = {"cpu": pick(["2", "4", "7500m", "8"]), "memory": pick(["4Gi", "8G", "16Gi"])}
        amounts["pods"] = pick(["2", "4", "12", "12"])
        if self.some(0.9):
            amounts["ephemeral-storage"] = pick(["10Gi", "40G"])
        if self.some(0.6):
            amounts[FOO] = pick(["0", "1", "2", "4"])
        if self.some(0.5):
            amounts[HUGE] = pick(["0", "64Mi", "256Mi"])
        if self.cards and self.some(0.8):
            amounts[CARDS] = pick(["0", "2", "4", "8"])
        labels = {WORLD: self.name, HOST: name, f"{self.name}/host": name, "speed": pick(["1", "2", "3", "10", "01"])}
        if self.cards:
            labels |= NOTHING_KEPT
        if self.some(0.1):
            labels[HOST] = f"{name}.local"
        if self.some(0.1):
            labels["speed"] = pick(["x", "1_0", "", "9223372036854775808", "0x2"])
        if self.some(0.85):
            labels[ZONE] = labels[f"{self.name}/zone"] = f"{self.name}-{pick('abc')}"
        if self.some(0.3):
            labels["ssd"] = ""
        effects = ["NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"]
        taints: list[Json] = [
            {"key": key, "value": pick(["a", "b", ""]), "effect": pick(effects)} for key in ("team", "spot") if self.some(0.15)
        ]
        cordoned, ready = self.some(0.05), not self.some(0.04)
        if cordoned:
            taints.append({"key": CORDON, "effect": "NoSchedule"})
        if not ready:
            taints += [{"key": NOT_READY, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints, "unschedulable": cordoned},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": str(ready)}]},
        }

    # --- volumes

    def storage(self, world: World) -> None:
        name = self.name
        late: Json = {"provisioner": "example.com/disk", "volumeBindingMode": "WaitForFirstConsumer"}
        topologies = [
            {
                "matchLabelExpressions": [
                    {"key": ZONE, "values": [f"{name}-{zone}" for zone in self.random.sample("abc", self.pick([1, 2]))]}
                ]
            }
        ]
        world.classes = [
            {"metadata": {"name": f"{name}-now"}, "provisioner": "example.com/disk", "volumeBindingMode": "Immediate"},
            {"metadata": {"name": f"{name}-late"}, **late},
            {"metadata": {"name": f"{name}-zonal"}, **late, "allowedTopologies": topologies},
        ]
        near = self.pick(self.nodes)
        reaches: dict[str, Json] = {
            "anywhere": {},
            "local": reached(HOST, [near]),
            "zone": reached(f"{name}/zone", [f"{name}-a", f"{name}-b"]),
            "fast": reached("speed", ["1"], "Gt"),
            "either": {
                "required": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]},
                        {"matchExpressions": [{"key": HOST, "operator": "In", "values": [self.pick(self.nodes)]}]},
                    ]
                }
            },
            "labelled": {},
            "multizone": {},
        }
        labels = {"labelled": {ZONE: f"{name}-{self.pick('abc')}"}, "multizone": {ZONE: f"{name}-a__{name}-c"}}
        for kind, reach in reaches.items():
            claim = self.claim(kind, f"{name}-now", volume=f"{name}-{kind}")
            world.claims.append(claim)
            spec: Json = {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": f"{name}-now",
                "hostPath": {"path": "/tmp/volume"}, "claimRef": {"kind": "PersistentVolumeClaim", "namespace": self.spaces[0], "name": kind},
            }  # fmt: skip
            if reach:
                spec["nodeAffinity"] = reach
            world.volumes.append({"metadata": {"name": f"{name}-{kind}", "labels": labels.get(kind, {})}, "spec": spec})
        world.claims += [
            self.claim("unbound", f"{name}-now"),
            self.claim("late", f"{name}-late"),
            self.claim("zonal", f"{name}-zonal"),
            self.claim("selected", f"{name}-late", selected=self.pick(self.nodes)),
            self.claim("gone", f"{name}-now", volume=f"{name}-nothing"),
        ]

    def claim(self, name: str, storage_class: str, *, volume: str = "", selected: str = "") -> Json:
        notes = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
        if selected:
            notes["volume.kubernetes.io/selected-node"] = selected
        spec: Json = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "1Gi"}},
        }
        if volume:
            spec["volumeName"] = volume
        return {
            "metadata": {"name": name, "namespace": self.spaces[0], "annotations": notes},
            "spec": spec,
            "status": {"phase": "Bound" if volume else "Pending"},
        }

    # --- pods

    def pod(self, name: str, world: World, *, asked: bool = False) -> Json:
        pick = self.pick
        space = pick([self.spaces[0], self.spaces[0], self.spaces[1]])
        spec: Json = {
            "containers": [self.container(f"main-{number}") for number in range(pick([1, 1, 2]))],
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {WORLD: self.name},
        }
        if self.some(0.2):
            spec["initContainers"] = [
                self.container(f"init-{i}", sidecar=self.some(0.4)) for i in range(self.random.randint(1, 3))
            ]
        if self.some(0.06):
            spec["hostNetwork"] = True
        if self.some(0.1):
            spec["runtimeClassName"] = pick(["heavy", "heavy", "picky"])
        if self.some(0.08):
            self.pod_level(spec)
        if self.some(0.35):
            spec["tolerations"] = [self.toleration() for _ in range(self.random.randint(1, 2))]
        self.constraints(spec)
        if asked:
            if self.some(0.1):
                spec["nodeSelector"] |= pick([{ZONE: f"{self.name}-a"}, {"ssd": ""}, {"speed": "1"}, {HOST: pick(self.nodes)}])
            if self.some(0.2) and space == self.spaces[0]:
                kinds = [claim["metadata"]["name"] for claim in world.claims] + ["missing"]
                usual = ["anywhere", "local", "zone", "fast", "either", "labelled", "multizone", "late", "zonal", "selected"]
                chosen = self.random.sample(usual, pick([1, 1, 2])) if self.some(0.8) else [pick(kinds)]
                spec["volumes"] = [
                    {"name": f"v{i}", "persistentVolumeClaim": {"claimName": kind}} for i, kind in enumerate(chosen)
                ]
            if self.some(0.05):
                spec.setdefault("volumes", []).append({"name": "own", "hostPath": {"path": "/tmp"}})
            if self.some(0.02):
                spec["schedulingGates"] = [{"name": "example.com/gate"}]
            if self.some(0.1):
                spec["priorityClassName"] = PATIENT
        labels = {"app": pick("xyz"), "tier": pick(["web", "db"])}
        if self.some(0.3):
            labels["team"] = pick("ab")
        return {"metadata": {"name": name, "namespace": space, "labels": labels}, "spec": spec}

    def status(self, pod: Json) -> Json:
        """Of a pod with a node: it has ended, or a container of it is being resized; mostly nothing."""
        if self.some(0.1):
            return {"phase": self.pick(["Succeeded", "Failed"])}
        if self.some(0.9):
            return {}
        given = {"cpu": self.pick(["100m", "2"]), "memory": self.pick(["64Mi", "2Gi"])}
        container: Json = {
            "name": self.pick(["main-0", "init-0"]), "image": "busybox", "imageID": "", "ready": True, "restartCount": 0,
            "allocatedResources": given, "resources": {"requests": {"cpu": self.pick(["200m", "3"])}},
        }  # fmt: skip
        kind = "containerStatuses" if container["name"] == "main-0" else "initContainerStatuses"
        reason = self.pick(["Infeasible", "Deferred", ""])
        pending = [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else []
        return {kind: [container], "conditions": pending}

    def container(self, name: str, *, sidecar: bool = False) -> Json:
        pick = self.pick
        requests: Json = {}
        limits: Json = {}
        if self.some(0.85):
            requests["cpu"] = pick(["0", "100m", "250m", "500m", "1", "1500m", "3"])
        elif self.some(0.5):
            limits["cpu"] = pick(["200m", "1"])
        if self.some(0.8):
            requests["memory"] = pick(["0", "64Mi", "512Mi", "1G", "3Gi", "128974848500m"])
        if self.some(0.1):
            requests["ephemeral-storage"] = pick(["1Gi", "6G", "100m"])
        if self.some(0.15):
            requests[FOO] = limits[FOO] = pick(["0", "1", "2"])
        if self.some(0.1):
            requests[HUGE] = limits[HUGE] = pick(["0", "32Mi", "64Mi"])
            requests.setdefault("cpu", "100m")
        if self.cards and self.some(0.3):
            requests[CARDS] = limits[CARDS] = pick(["1", "2", "4"])
        made: Json = {"name": name, "image": "busybox", "resources": {"requests": requests, "limits": limits}}
        if self.some(0.12):
            port: Json = {"containerPort": (number := pick([8080, 8081])), "hostPort": number}
            if self.some(0.4):
                port["protocol"] = pick(["UDP", "SCTP", "TCP"])
            if self.some(0.5):
                port["hostIP"] = pick(["10.0.0.1", "127.0.0.1", "0.0.0.0", "::"])
            made["ports"] = [port]
        if sidecar:
            made["restartPolicy"] = "Always"
        return made

    def pod_level(self, spec: Json) -> None:
        """What the pod itself asks for, which has to be what its containers do, or more."""
        pick = self.pick
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            container["resources"] = pick([{}, {"requests": {"cpu": "100m"}}, {"requests": {"memory": "128Mi"}}])
        spec["resources"] = {"requests": {"cpu": pick(["1", "4", "9"])}}
        if self.some(0.5):
            spec["resources"]["requests"]["memory"] = pick(["2Gi", "7Gi"])
        if self.some(0.3):
            spec["resources"] = {"limits": {"cpu": "9", "memory": "9Gi"}}

    def toleration(self) -> Json:
        pick = self.pick
        if self.some(0.15):
            return (
                {"operator": "Exists"}
                if self.some(0.7)
                else {"operator": "Exists", "effect": pick(["NoSchedule", "NoExecute"])}
            )
        made: Json = {"key": pick(["team", "spot"])}
        made |= {"operator": "Exists"} if self.some(0.4) else {"value": pick(["a", "b", ""])}
        if self.some(0.5):
            made["effect"] = pick(["NoSchedule", "NoExecute", "PreferNoSchedule"])
        if made.get("effect") == "NoExecute" and self.some(0.5):
            made["tolerationSeconds"] = 300
        return made

    def constraints(self, spec: Json) -> None:
        affinity: Json = {}
        if self.some(0.3):
            terms = [self.node_term() for _ in range(self.random.randint(1, 2))]
            affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        for kind, chance in (("podAffinity", 0.15), ("podAntiAffinity", 0.15)):
            if self.some(chance):
                affinity[kind] = {
                    "requiredDuringSchedulingIgnoredDuringExecution": [self.term() for _ in range(self.pick([1, 1, 2]))]
                }
        if affinity:
            spec["affinity"] = affinity
        if self.some(0.25):
            kinds = self.random.sample(["zone", "host"], self.pick([1, 1, 2]))
            spec["topologySpreadConstraints"] = [self.spread(kind) for kind in kinds]

    def node_term(self) -> Json:
        pick = self.pick
        term: Json = {}
        if self.some(0.2):
            term["matchFields"] = [{"key": "metadata.name", "operator": pick(["In", "NotIn"]), "values": [pick(self.nodes)]}]
        if not term or self.some(0.3):
            zones = [f"{self.name}-{zone}" for zone in "abc"]
            expressions = [
                {"key": "speed", "operator": "Gt", "values": [pick(["1", "2", "9"])]},
                {"key": "speed", "operator": "Lt", "values": [pick(["3", "10"])]},
                {"key": ZONE, "operator": "NotIn", "values": self.random.sample(zones, pick([1, 2]))},
                {"key": ZONE, "operator": "In", "values": self.random.sample(zones, pick([1, 2]))},
                {"key": ZONE, "operator": "Exists"},
                {"key": ZONE, "operator": "DoesNotExist"},
                {"key": "speed", "operator": "In", "values": ["1", "3", "10"]},
                {"key": "ssd", "operator": "DoesNotExist"},
                {"key": "ssd", "operator": "In", "values": [""]},
                {"key": "ssd", "operator": "NotIn", "values": [""]},
            ]
            term["matchExpressions"] = self.random.sample(expressions, pick([1, 1, 2]))
        return {} if self.some(0.03) else term

    def key(self, kind: str, *, own: bool = False) -> str:
        """The label of nodes that makes domains. `own`: one that no node of another world has."""
        return f"{self.name}/{kind}" if own or self.some(0.5) else {"zone": ZONE, "host": HOST}[kind]

    def spread(self, kind: str) -> Json:
        pick = self.pick
        policies = {
            policy: pick(["Honor", "Ignore"]) for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy") if self.some(0.35)
        }
        made: Json = {
            "maxSkew": pick([1, 1, 2]), "topologyKey": self.key(kind, own=policies.get("nodeAffinityPolicy") == "Ignore"),
            "whenUnsatisfiable": pick(["DoNotSchedule", "DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]), **policies,
        }  # fmt: skip
        if self.some(0.95):
            made["labelSelector"] = self.selector()
        if self.some(0.25) and made["whenUnsatisfiable"] == "DoNotSchedule":
            made["minDomains"] = pick([1, 2, 3, 4])
        if self.some(0.2) and "team" not in str(made.get("labelSelector", "team")):
            made["matchLabelKeys"] = [pick(["team", "absent"])]
        return made

    def selector(self) -> Json:
        chosen: Json = self.pick([
            {"matchLabels": {"app": self.pick("xyz")}},
            {"matchLabels": {"app": self.pick("xyz")}},
            {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["web"]}]},
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]},
            {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
            {"matchExpressions": [{"key": "tier", "operator": "Exists"}, {"key": "app", "operator": "In", "values": ["y", "z"]}]},
            {},
        ])  # fmt: skip
        return chosen

    def term(self) -> Json:
        pick = self.pick
        kind = pick(["zone", "host"])
        made: Json = {"topologyKey": self.key(kind)}
        if self.some(0.95):
            made["labelSelector"] = self.selector()
        if self.some(0.25):
            made["namespaces"] = self.random.sample(self.spaces, self.random.randint(1, 2))
        if self.some(0.2):
            made["namespaceSelector"] = pick([
                {}, {"matchLabels": {"env": "prod", WORLD: self.name}}, {"matchExpressions": [{"key": "env", "operator": "In", "values": ["dev"]}]}
            ])  # fmt: skip
            made["topologyKey"] = self.key(kind, own=True)
        if self.some(0.15) and "team" not in str(made.get("labelSelector", "team")):
            made[pick(["matchLabelKeys", "mismatchLabelKeys"])] = [pick(["team", "absent"])]
        return made


def reached(key: str, values: Sequence[str], operator: str = "In") -> Json:
    return {
        "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}]}
    }
