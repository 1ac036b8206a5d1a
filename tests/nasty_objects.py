"""Objects that an ordinary tenant may create, that a real API server accepts, and that stopped scheduling for everybody once, or might.

Each kind is a few manifests, in the namespace of whoever applies them, with names that begin with `tag`. `bound` moves the pods among them to a node by
`spec.nodeName`: then they are nobody's decision, and booked as they are.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
Make = Callable[[str], list[Json]]

ASTRAL = "\U0001f600" * 253
LONG = "x" * 70_000
VERY_LONG = "x" * 240_000
NUL = "a\0b"
HOSTS = [f"gpu-{n:05}.cluster.example" for n in range(5000)]

GROUP, QUEUE, ROLE = "scheduling.k8s.io/group-name", "scheduling.volcano.sh/queue-name", "volcano.sh/task-spec"
CARDS, CLAIM = "hbox.io/cards", "hbox.io/claim"
NOTES = (
    "hbox.io/walltime",
    "hbox.io/checkpointed-at",
    "volcano.sh/cooldown-time",
    "volcano.sh/task-topology-affinity",
    "volcano.sh/task-topology-task-order",
    "volcano.sh/revocable-zone",
    "volcano.sh/jdb-min-available",
    "sla-waiting-time",
)


@dataclass(frozen=True)
class Kind:
    """`told`: part of what its waiting pods are told by their conditions; empty where there is nothing wrong with them."""

    name: str
    make: Make
    told: str = ""

    def waiting(self, tag: str) -> list[Json]:
        return self.make(tag)

    def bound(self, tag: str, node: str) -> list[Json]:
        """The same, with a node; pods that only wait for a scheduling gate cannot have one."""
        found = deepcopy(self.make(tag))
        for one in found:
            if one["kind"] == "Pod":
                one["spec"]["nodeName"] = node
        return found


def pod(
    name: str,
    notes: dict[str, str] | None = None,
    *,
    labels: dict[str, str] | None = None,
    limits: dict[str, Any] | None = None,
    **spec: Any,
) -> Json:
    container = {"name": "main", "image": "busybox", "resources": {"limits": {"cpu": "10m", **(limits or {})}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": notes or {}, "labels": labels or {}},
        "spec": {"schedulerName": "hbox", "terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }


def group(name: str, notes: dict[str, str] | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "annotations": notes or {}},
        "spec": {"minMember": 1, **spec},
    }


def claim(name: str, notes: dict[str, str]) -> Json:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "annotations": notes},
        "spec": spec,
    }


def noted(name: str, key: str, value: str, told: str = "", **more: Any) -> Kind:
    return Kind(name, lambda tag: [pod(tag, {key: value}, **more)], told)


def gang(name: str, told: str, **spec: Any) -> Kind:
    """A PodGroup with a pod of its own."""
    return Kind(name, lambda tag: [group(tag, **spec), pod(tag, {GROUP: tag})], told)


def asking(name: str, told: str = "", **limits: Any) -> Kind:
    return Kind(name, lambda tag: [pod(tag, limits=limits)], told)


def placed(name: str, told: str, **spec: Any) -> Kind:
    return Kind(name, lambda tag: [pod(tag, **spec)], told)


def near_nodes(*expressions: Json) -> Json:
    terms = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def expression(operator: str, *values: str, key: str = "kubernetes.io/hostname") -> Json:
    return {"key": key, "operator": operator, "values": list(values)}


def apart(terms: int) -> Json:
    each = [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {f"app{n}": "x"}}, "namespaces": [f"ns-{n}"]}
        for n in range(terms)
    ]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": each}}


def spreads(count: int) -> list[Json]:
    selector = {"matchLabels": {"no": "body"}}
    return [
        {
            "maxSkew": 2**31 - 1,
            "topologyKey": f"example.com/zone-{n}",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": selector,
        }
        for n in range(count)
    ]


def on_claim(name: str) -> Json:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


def ports(count: int) -> list[Json]:
    each = [{"containerPort": 20_000 + n, "hostPort": 20_000 + n} for n in range(count)]
    return [{"name": "main", "image": "busybox", "ports": each, "resources": {"limits": {"cpu": "10m"}}}]


def excluders(count: int, hosts: int) -> Make:
    """Without malice: jobs that each avoid many hosts."""

    def make(tag: str) -> list[Json]:
        each = near_nodes(expression("NotIn", *HOSTS[:hosts]))
        return [pod(f"{tag}-{n}", affinity=each, schedulingGates=[]) for n in range(count)]

    return make


def socials(tag: str) -> list[Json]:
    """One with more labels than anybody reads, and one that asks about pods without a label: it concerns all."""
    without = {"matchExpressions": [{"key": "example.com/none", "operator": "DoesNotExist"}]}
    preferred = [{"weight": 1, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": without}}]
    many = {f"example.com/label-{n:05}": "v" * 60 for n in range(3000)}
    return [
        pod(f"{tag}-a", labels=many),
        pod(f"{tag}-b", affinity={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}),
    ]


BEYOND_BOUNDS = "at most"

KINDS: tuple[Kind, ...] = (
    noted("cards beyond 64 bits", CARDS, "0:1:99999999999999999999999"),
    noted("cards of 64 bits", CARDS, "0:1:18446744073709551615"),
    noted("cards of a negative index", CARDS, "-1:-1:-1"),
    noted("ten thousand cards", CARDS, ",".join(f"{n}:100:1" for n in range(10_000))),
    noted("a claim of 70 KB", CLAIM, LONG),
    noted("a claim with NUL", CLAIM, NUL),
    noted("a role of 70 KB", ROLE, LONG, BEYOND_BOUNDS),
    noted("a role with NUL", ROLE, NUL, "control characters"),
    noted("a zone of 70 KB", "volcano.sh/revocable-zone", LONG, BEYOND_BOUNDS),
    Kind(
        "45 pods with 240 KB of notes",
        lambda tag: [pod(f"{tag}-{n}", dict.fromkeys(NOTES, "x" * 30_000)) for n in range(45)],
        BEYOND_BOUNDS,
    ),
    Kind(
        "a good pod's neighbours with good notes of 2 KB",
        lambda tag: [pod(f"{tag}-{n}", dict.fromkeys(NOTES, "x" * 2000)) for n in range(40)],
    ),
    noted("a group of 253 astral characters", GROUP, ASTRAL, "annotation"),
    noted("a group of 240 KB", GROUP, VERY_LONG, "annotation"),
    noted("a group with terminal escapes", GROUP, "\x1b[2J\u202egnp", "annotation"),
    noted("a queue of 253 astral characters", QUEUE, ASTRAL, "annotation"),
    noted("a queue with NUL", QUEUE, NUL, "annotation"),
    noted("a queue with lines", QUEUE, "a\r\nNats-Msg-Id: b", "annotation"),
    noted("models by the ten thousand", "nvidia.com/use-gputype", "a," * 100_000, "", limits={"nvidia.com/gpu": 1}),
    asking("all the cards that int64 has", "", **{"nvidia.com/gpu": str(2**63 - 1)}),
    asking("all the memory of a card that int64 has", "", **{"nvidia.com/gpu": 1, "nvidia.com/gpumem": str(2**63 - 1)}),
    asking("cards of two vendors", "NodeInsufficientDevice", **{"nvidia.com/gpu": 1, "amd.com/gpu": 1}),
    asking("another vendor's memory and no card", "amd.com/gpumem given without", **{"amd.com/gpumem": 1}),
    asking("all the memory that there is", "", memory="7Ei"),
    asking("two thousand resources", BEYOND_BOUNDS, **{f"example.com/r{n:05}": "1" for n in range(2000)}),
    asking("sixty resources that no node has", "", **{f"example.org/r{n:05}": "1" for n in range(60)}),
    placed("a thousand host ports", BEYOND_BOUNDS, containers=ports(1000)),
    placed("five thousand hosts excluded", BEYOND_BOUNDS, affinity=near_nodes(expression("NotIn", *HOSTS))),
    placed("a host of 240 KB excluded", BEYOND_BOUNDS, affinity=near_nodes(expression("NotIn", VERY_LONG))),
    placed("a host with NUL", "control characters", affinity=near_nodes(expression("In", NUL))),
    placed("a label above a number of 63 digits", "", affinity=near_nodes(expression("Gt", "9" * 63, key="example.com/size"))),
    placed(
        "five thousand tolerations",
        BEYOND_BOUNDS,
        tolerations=[{"key": f"example.com/taint-{n}", "operator": "Exists"} for n in range(5000)],
    ),
    placed("apart from two thousand", BEYOND_BOUNDS, affinity=apart(2000)),
    placed("apart from a hundred", "", affinity=apart(100)),
    placed("spread over two thousand zones", BEYOND_BOUNDS, topologySpreadConstraints=spreads(2000)),
    placed(
        "two thousand labels of a node", BEYOND_BOUNDS, nodeSelector={f"example.com/l{n:05}": "v" * 40 for n in range(2000)}
    ),
    placed("a volume claim of 240 KB", "claimName", **on_claim(VERY_LONG)),
    placed("a volume claim with NUL", "claimName", **on_claim(NUL)),
    Kind(
        "a volume claim for a node of 70 KB",
        lambda tag: [claim(tag, {"volume.kubernetes.io/selected-node": LONG}), pod(tag, **on_claim(tag))],
        "PersistentVolumeClaims",
    ),
    Kind(
        "a volume claim of a class of 240 KB",
        lambda tag: [claim(tag, {"volume.beta.kubernetes.io/storage-class": VERY_LONG}), pod(tag, **on_claim(tag))],
        "not found",
    ),
    gang("a PodGroup in a queue of 253 astral characters", "spec.queue", queue=ASTRAL),
    gang("a PodGroup in a queue with NUL", "spec.queue", queue=NUL),
    gang("a PodGroup of two billion members", "", minMember=2**31 - 1),
    gang("a PodGroup of five thousand roles", BEYOND_BOUNDS, minTaskMember={f"role-{n}": 1 for n in range(5000)}),
    gang("a PodGroup with a role of 70 KB", BEYOND_BOUNDS, minTaskMember={LONG: 1}),
    gang("a PodGroup of five thousand resources", BEYOND_BOUNDS, minResources={f"r{n}": "1" for n in range(5000)}),
    gang("a PodGroup with a resource of 70 KB", BEYOND_BOUNDS, minResources={LONG: "1"}),
    gang("a PodGroup with a priority of 70 KB", "priorityClassName", priorityClassName=LONG),
    gang("a PodGroup with a tier of 70 KB", BEYOND_BOUNDS, networkTopology={"mode": "soft", "highestTierName": LONG}),
    gang("a PodGroup of two thousand sub-groups", BEYOND_BOUNDS, subGroupPolicy=[{"name": f"s{n}"} for n in range(2000)]),
    Kind(
        "a PodGroup with notes of 240 KB",
        lambda tag: [group(tag, dict.fromkeys(NOTES, "x" * 30_000)), pod(tag, {GROUP: tag})],
        BEYOND_BOUNDS,
    ),
    Kind(
        "a hundred PodGroups in queues of their own", lambda tag: [group(f"{tag}-{n}", queue=f"{tag}-{n}") for n in range(100)]
    ),
    Kind("a hundred jobs that avoid five hundred hosts each", excluders(100, 500)),
    Kind("more labels than anybody reads, and one that asks", socials),
)

#: Kinds that API servers of today refuse, and those of clusters that are still in use took: values of node affinity are held to the rules of labels since 1.34.
REFUSED_NOW = frozenset({"a host of 240 KB excluded", "a host with NUL"})
