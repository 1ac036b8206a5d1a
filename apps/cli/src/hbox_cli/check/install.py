"""The checks of `hbox check --pre` before an install: of the cluster, and of the operator's own broker if one is named.

Each check queries one component and judges the answer. If a component cannot be queried, the check is a warning; it is never left out. A fault means that an
install would fail or not work.
"""

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any

from hbox_common.bus import Access
from hbox_common.bus.inspection import OLDEST, Broker, look
from hbox_common.bus.users import ADMIN
from hbox_common.clock import wall_s
from hbox_common.errors import HBoxError, InvalidRequest, NotFound, Unavailable
from hbox_common.kube import CONFIGMAPS, CRDS, LEASES, NAMESPACES, NODES, PODS, STORAGECLASSES, KubeClient, NotAllowed, Resource
from hbox_common.kube.definitions import DEFINITIONS
from hbox_common.model import VENDORS
from hbox_common.model.lentfloor import PERCENT, SMALL
from hbox_common.model.resources import CPU, request_units

from ..platform import crds
from ..platform.identities import identities
from ..services import ON_NODES, SERVICES

#: ValidatingAdmissionPolicy is v1 from 1.30 on.
OLDEST_KUBERNETES, POLICIES_FROM = (1, 29), (1, 30)

#: The API server's Date has whole seconds.
RESOLUTION_S = 1.0
#: Leases last 15 s, and a tenth of that is what a renewal may be late.
SKEW_WARNS_S, SKEW_FAULTS_S = 2.0, 10.0

#: Pods of the profile small (a broker, and each service that does not run on every node), and the cpu request of each in millicores.
PODS_OF_SMALL, CPU_OF_SMALL = 1 + len(SERVICES) - len(ON_NODES), 100

DEPLOYMENTS = Resource("apps", "v1", "deployments", namespaced=True)
CLUSTERROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", namespaced=False)
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"

#: ConfigMaps in which device plugins have their settings: HAMi's chart (`<release>-scheduler-device`), and Volcano's vGPU plugin.
DEVICE_CONFIGS = ("hami-scheduler-device", "volcano-vgpu-device-config")

#: What the chart makes: group, resource, whether in a namespace.
MADE: Sequence[tuple[str, str, bool]] = (
    ("", "configmaps", True),
    ("", "persistentvolumeclaims", True),
    ("", "secrets", True),
    ("", "serviceaccounts", True),
    ("", "services", True),
    ("apps", "deployments", True),
    ("apps", "statefulsets", True),
    ("batch", "jobs", True),
    ("coordination.k8s.io", "leases", True),
    ("networking.k8s.io", "networkpolicies", True),
    ("policy", "poddisruptionbudgets", True),
    ("rbac.authorization.k8s.io", "roles", True),
    ("rbac.authorization.k8s.io", "rolebindings", True),
    ("rbac.authorization.k8s.io", "clusterroles", False),
    ("rbac.authorization.k8s.io", "clusterrolebindings", False),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", False),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", False),
    ("apiextensions.k8s.io", "customresourcedefinitions", False),
    ("scheduling.k8s.io", "priorityclasses", False),
)


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Line:
    """`fix`: what to do about it, where it is not ok."""

    name: str
    level: Level
    message: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Install:
    """What is to be installed. `nats_url`: of a broker of the operator's own; empty: the chart's."""

    release: str = "hbox"
    namespace: str = "hbox-system"
    scheduler_names: tuple[str, ...] = ("hbox",)
    nats_url: str = ""
    access: Access = Access()


async def lines(client: KubeClient, install: Install) -> list[Line]:
    """All of them, in a fixed order. Raises Unavailable where the API server cannot be reached at all."""
    version = await client.json("GET", "/version")
    looks: Sequence[tuple[str, Callable[[], Awaitable[Iterable[Line]]]]] = (
        ("clock", lambda: _clock(client)),
        ("rights", lambda: _rights(client, install.namespace)),
        ("definitions", lambda: _definitions(client)),
        ("release", lambda: _release(client, install)),
        ("namespace", lambda: _namespace(client, install.namespace)),
        ("schedulers", lambda: _schedulers(client, install)),
        ("webhooks", lambda: _webhooks(client)),
        ("storage", lambda: _storage(client)),
        ("nodes", lambda: _nodes(client)),
        ("devices", lambda: _devices(client)),
        ("prometheus", lambda: _prometheus(client)),
        ("broker", lambda: _broker(install)),
    )
    found = await asyncio.gather(*(_tried(name, asks) for name, asks in looks))
    return [kubernetes(version), *(line for some in found for line in some)]


async def _tried(name: str, asks: Callable[[], Awaitable[Iterable[Line]]]) -> Iterable[Line]:
    try:
        return list(await asks())
    except HBoxError as e:
        return [
            Line(
                name,
                Level.WARNING,
                f"cannot be asked: {e.message}",
                e.hint or "give the user rights to read it, and check again",
            )
        ]


# --- Kubernetes


def kubernetes(version: Mapping[str, Any]) -> Line:
    """`version`: the content of /version."""
    fact = str(version.get("gitVersion", "?"))
    numbers = re.match(r"v?(\d+)\.(\d+)", fact)
    if numbers is None:
        return Line("kubernetes", Level.WARNING, f"its version {fact!r} is invalid", "is this a Kubernetes API server?")
    here = (int(numbers[1]), int(numbers[2]))
    if here < OLDEST_KUBERNETES:
        return Line("kubernetes", Level.FAULT, f"{fact}: HBox needs 1.29 or newer", "upgrade the cluster")
    if here < POLICIES_FROM:
        fix = "upgrade the cluster, or install with admission.enabled=false: tenants can then forge what HBox writes on pods"
        return Line("kubernetes", Level.FAULT, f"{fact} has no ValidatingAdmissionPolicy, which the chart installs", fix)
    return Line("kubernetes", Level.OK, fact)


def clock(*, theirs: float, asked: float, answered: float) -> Line:
    """Seconds since the epoch. `theirs`: the Date of an answer, truncated to the second; `asked`, `answered`: this machine's clock before and after.

    The API server read its clock between `asked` and `answered`, so only a Date outside of that interval is skew.
    """
    ahead, behind = asked - (theirs + RESOLUTION_S), theirs - answered
    skew = max(ahead, behind)
    if skew < SKEW_WARNS_S:
        return Line("clock", Level.OK, "agrees with the API server's to the second")
    level = Level.FAULT if skew >= SKEW_FAULTS_S else Level.WARNING
    message = (
        f"is {'ahead of' if ahead > behind else 'behind'} the API server's by {skew:.0f} s: leases and deadlines depend on it"
    )
    return Line("clock", level, message, "synchronise the clocks of this machine and of the control plane (NTP)")


async def _clock(client: KubeClient) -> Iterable[Line]:
    asked = wall_s()
    answer = await client.expected("GET", LEASES.path("kube-node-lease"), params={"limit": "500"})
    answered = wall_s()
    try:
        theirs = parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
    except ValueError:
        return [Line("clock", Level.WARNING, "the API server's response has no Date", "compare the clocks by hand")]
    found = [clock(theirs=theirs, asked=asked, answered=answered)]
    leases = json.loads(answer.body)["items"]
    # Compare with the Date of the same answer: its leases were renewed before. With the Date of an earlier answer of a slow API server all nodes seem ahead.
    ahead = sorted(
        f"{lease['metadata']['name']} by {late:.0f} s"
        for lease in leases
        if (late := _renewed(lease) - theirs - RESOLUTION_S) >= SKEW_WARNS_S
    )
    if ahead:
        fact = f"nodes are ahead of the API server: {_some(ahead)}"
        found.append(Line("node-clocks", Level.WARNING, fact, "synchronise their clocks (NTP): services run there"))
    return found


def _renewed(lease: Mapping[str, Any]) -> float:
    try:
        return datetime.fromisoformat(str((lease.get("spec") or {})["renewTime"])).timestamp()
    except (KeyError, ValueError):
        return 0.0


async def _rights(client: KubeClient, namespace: str) -> Iterable[Line]:
    async def may(group: str, resource: str, verb: str, where: str) -> bool:
        asked = {"group": group, "resource": resource, "verb": verb, **({"namespace": where} if where else {})}
        kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        answer = await client.json("POST", _REVIEWS, body={**kind, "spec": {"resourceAttributes": asked}})
        return bool(answer["status"]["allowed"])

    asked = [(g, r, verb, namespace if inside else "") for g, r, inside in MADE for verb in ("create", "patch", "delete")]
    try:
        answers = await asyncio.gather(*(may(*one) for one in asked))
        roles = await may("rbac.authorization.k8s.io", "clusterroles", "escalate", "") or await may("*", "*", "*", "")
    except NotFound:
        fix = "a real API server has it; an emulated one lets everybody do everything"
        return [Line("rights", Level.WARNING, "the API server does not review access", fix)]
    lacking = [f"{verb} {r}{'.' * bool(g)}{g}" for (g, r, verb, _), yes in zip(asked, answers, strict=True) if not yes]
    if lacking:
        fix = "install as a cluster administrator, or ask one to"
        return [Line("rights", Level.FAULT, f"the current user may not {_some(lacking)}", fix)]
    if not roles:
        fact = "may create roles, but only with rights of its own"
        return [
            Line(
                "rights",
                Level.WARNING,
                f"the current user {fact}",
                "the install fails where a service needs more: be cluster-admin",
            )
        ]
    return [
        Line("rights", Level.OK, f"all {len(MADE)} kinds that the chart makes may be made, changed and deleted in {namespace}")
    ]


# --- others in the cluster


def owner(found: Mapping[str, Any]) -> str:
    """The owner that an object's labels and annotations name."""
    head = found["metadata"]
    notes, labels = head.get("annotations") or {}, head.get("labels") or {}
    if release := notes.get("meta.helm.sh/release-name"):
        return f"Helm release {notes.get('meta.helm.sh/release-namespace', '?')}/{release}"
    managers = sorted(
        {e.get("manager", "") for e in head.get("managedFields") or () if e.get("subresource") != "status"} - {""}
    )
    if managers:
        return f"written by {', '.join(managers)}"
    return str(labels.get("app.kubernetes.io/managed-by") or labels.get("app.kubernetes.io/part-of") or "an unnamed owner")


async def _definitions(client: KubeClient) -> Iterable[Line]:
    found: list[Line] = []
    missing: list[str] = []
    for ours in DEFINITIONS:
        name = ours["metadata"]["name"]
        try:
            theirs = await client.json("GET", CRDS.path(name=name))
        except NotFound:
            missing.append(name)
            continue
        title, whose = f"crd/{ours['spec']['names']['plural']}", owner(theirs)
        versions = ", ".join(v["name"] for v in theirs["spec"]["versions"] if v.get("served"))
        try:
            lacks = crds.lacks(theirs, ours)
        except InvalidRequest:
            wanted = ours["spec"]["versions"][0]["name"]
            fact = f"{name} serves {versions or 'nothing'}, and HBox reads {wanted}; {whose}"
            found.append(Line(title, Level.FAULT, fact, f"upgrade its owner to a version that serves {wanted}"))
            continue
        if crds.is_ours(theirs):
            found.append(Line(title, Level.OK, f"HBox's own, {versions}"))
        elif lacks:
            fact = f"{name} ({versions}; {whose}) does not keep {', '.join(lacks)}"
            found.append(Line(title, Level.WARNING, fact, "HBox works without these fields; a newer Volcano has them"))
        else:
            fact = f"{name} ({versions}) is used as it is; {whose}"
            found.append(Line(title, Level.OK, f"{fact}: removing it deletes all queues and PodGroups"))
    if missing:
        found.append(Line("crds", Level.OK, f"the install brings {', '.join(missing)}"))
    return found


async def _release(client: KubeClient, install: Install) -> Iterable[Line]:
    """Names that the chart gives cluster-wide are always the same: there is one HBox a cluster."""
    ours = f"Helm release {install.namespace}/{install.release}"
    found = []
    for role in (m["metadata"]["name"] for i in identities() for m in i.manifests if m["kind"] == "ClusterRole"):
        try:
            there = await client.json("GET", CLUSTERROLES.path(name=role))
        except NotFound:
            continue
        if (whose := owner(there)) != ours:
            found.append(f"{role} ({whose})")
    if found:
        fact = f"ClusterRoles of HBox are there, and not of {ours}: {_some(found)}"
        return [Line("release", Level.FAULT, fact, "uninstall the other one, or name it with --release and --namespace")]
    return [Line("release", Level.OK, f"no other HBox than {install.namespace}/{install.release}")]


async def _namespace(client: KubeClient, namespace: str) -> Iterable[Line]:
    """Whether what admits pods there (quotas, ranges of limits, pod security, webhooks) would admit one as the chart makes them: asked by a dry run."""
    try:
        await client.json("GET", NAMESPACES.path(name=namespace))
    except NotFound:
        return [Line("namespace", Level.OK, f"{namespace} is not there yet: helm install --create-namespace")]
    try:
        await client.json("POST", PODS.path(namespace), params={"dryRun": "All"}, body=_like_the_charts())
    except NotAllowed:
        raise  # to make pods, which a cluster's administrator may
    except InvalidRequest as e:
        fix = "pods.resources of the chart for quotas and ranges of limits, such as {limits: {cpu: '1'}}; or another namespace"
        return [Line("namespace", Level.FAULT, f"a pod as the chart makes them is refused in {namespace}: {e.message}", fix)]
    except Unavailable as e:
        fix = "a webhook that does not answer blocks all pods: repair it or delete its configuration"
        return [Line("namespace", Level.WARNING, f"admission of pods in {namespace} could not be tested: {e.message}", fix)]
    return [Line("namespace", Level.OK, f"{namespace} admits the chart's pods")]


def _like_the_charts() -> dict[str, Any]:
    """A service's pod in the profile small, but for what it does."""
    container = {
        "name": "main",
        "image": "hbox",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {"requests": {"cpu": f"{CPU_OF_SMALL}m", "memory": "192Mi"}, "limits": {"memory": "2Gi"}},
    }
    security = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"automountServiceAccountToken": False, "securityContext": security, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "hbox-check-"}, "spec": spec}


def answers_to(deployment: Mapping[str, Any]) -> set[str]:
    """Names of schedulers that the words of a Deployment's containers give it, and `hbox` of an HBox."""
    pod = deployment["spec"]["template"]
    named = set()
    for container in pod["spec"].get("containers") or ():
        arguments = [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
        for i, word in enumerate(arguments):
            flag, sign, value = word.partition("=")
            if flag.lstrip("-") == "scheduler-name":
                named.add(value if sign else next(iter(arguments[i + 1 : i + 2]), ""))
        if "vc-scheduler" in str(container.get("image", "")) and not named:
            named.add("volcano")
    labels = (pod.get("metadata") or {}).get("labels") or {}
    if labels.get("app.kubernetes.io/name") == "hbox" and labels.get("app.kubernetes.io/component") == "scheduler-core":
        named.add("hbox")
    return named - {""}


async def _schedulers(client: KubeClient, install: Install) -> Iterable[Line]:
    rivals, neighbours = [], []
    for one in (await client.json("GET", DEPLOYMENTS.path()))["items"]:
        where = f"{one['metadata']['namespace']}/{one['metadata']['name']}"
        labels = one["spec"]["template"].get("metadata", {}).get("labels") or {}
        ours = one["metadata"]["namespace"] == install.namespace and labels.get("app.kubernetes.io/instance") == install.release
        for name in sorted(answers_to(one)):
            if name in install.scheduler_names and not ours and one["spec"].get("replicas", 1):
                rivals.append(f"{where} ({name})")
            elif not ours:
                neighbours.append(f"{where} ({name})")
    if rivals:
        fact = f"another scheduler answers to a name of ours: {_some(rivals)}; both would place the same pods"
        return [Line("schedulers", Level.FAULT, fact, "scale it to 0, or give HBox other names (settings.scheduler_names)")]
    names = ", ".join(install.scheduler_names)
    others = f"; other schedulers: {_some(neighbours)}" if neighbours else ""
    waiting = await client.json("GET", PODS.path(), params={"fieldSelector": "status.phase=Pending", "limit": "500"})
    count = sum(pod["spec"].get("schedulerName") in install.scheduler_names for pod in waiting["items"])
    pods = f"; {count} pods wait for it already" if count else ""
    return [Line("schedulers", Level.OK, f"no other scheduler serves {names}{others}{pods}")]


async def _webhooks(client: KubeClient) -> Iterable[Line]:
    strict = []
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        for one in (await client.json("GET", f"{_ADMISSION}/{kind}"))["items"]:
            for hook in one.get("webhooks") or ():
                resources = {r for rule in hook.get("rules") or () for r in rule.get("resources") or ()}
                selective = hook.get("namespaceSelector") or hook.get("objectSelector")
                if (
                    hook.get("failurePolicy", "Fail") == "Fail"
                    and resources & {"pods", "pods/binding", "*", "*/*"}
                    and not selective
                ):
                    strict.append(f"{hook['name']} of {one['metadata']['name']}")
    if strict:
        fact = f"these have to answer before any pod is made or bound: {_some(strict)}; HBox's own pods wait for them too"
        return [
            Line(
                "webhooks",
                Level.WARNING,
                fact,
                "exclude namespaces that they are not for, or set their failurePolicy to Ignore",
            )
        ]
    return [Line("webhooks", Level.OK, "no webhook blocks all pods")]


# --- what it runs on


async def _storage(client: KubeClient) -> Iterable[Line]:
    classes = (await client.json("GET", STORAGECLASSES.path()))["items"]
    key = "storageclass.kubernetes.io/is-default-class"
    default = [c["metadata"]["name"] for c in classes if (c["metadata"].get("annotations") or {}).get(key) == "true"]
    if len(default) == 1:
        return [Line("storage", Level.OK, f"the default class is {default[0]}")]
    if default:
        fact = f"{len(default)} classes say that they are the default: {', '.join(sorted(default))}; the newest is taken"
        return [Line("storage", Level.WARNING, fact, "leave the annotation on one of them")]
    names = ", ".join(sorted(c["metadata"]["name"] for c in classes)) or "none at all"
    fact = f"there is no default storage class (there are: {names}): volumes of broker and ledger stay Pending"
    return [
        Line(
            "storage", Level.FAULT, fact, "name one with database.storage.className and nats.storage.className, or profile=dev"
        )
    ]


async def _nodes(client: KubeClient) -> Iterable[Line]:
    cards, ready, total = dict[str, int](), 0, 0
    lending = Lending()
    more = ""
    names = VENDORS.cards
    while True:
        page = await client.json("GET", NODES.path(), params={"limit": "500", **({"continue": more} if more else {})})
        for node in page["items"]:
            status = node.get("status") or {}
            total += 1
            ready += any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())
            lending.add(status.get("allocatable") or {})
            for name in names:
                amount = str((status.get("allocatable") or {}).get(name, "0"))
                cards[name] = cards.get(name, 0) + (int(amount) if amount.isdigit() else 0)
        if not (more := page["metadata"].get("continue", "")):
            break
    fact = f"{ready} of {total} nodes are ready"
    have = {name: count for name, count in cards.items() if count}
    if not ready:
        return [Line("nodes", Level.FAULT, fact, "the services need a node to run on")]
    if not have:
        return [
            Line(
                "nodes",
                Level.WARNING,
                f"{fact}, and none has cards ({', '.join(names)})",
                "install the device plugin; HBox itself can be first",
            )
        ]
    found = [Line("nodes", Level.OK, f"{fact}; allocatable: {', '.join(f'{count} {name}' for name, count in have.items())}")]
    if line := lending.line():
        found.append(line)
    return found


@dataclass(slots=True)
class Lending:
    """Cpu that nodes lend to pods without cards, in millicores. A node with cards lends what its cards do not keep while all are idle (ADR 39)."""

    lent: int = 0
    without_cards: int = 0

    def add(self, allocatable: Mapping[str, Any]) -> None:
        """Add a node by the allocatable amounts of its status."""
        try:
            cpu = request_units(CPU, str(allocatable.get(CPU, "0")))
        except InvalidRequest:
            return
        if any(str(allocatable.get(name, "0")) not in ("", "0") for name in VENDORS.cards):
            self.lent += cpu - math.ceil(cpu * PERCENT / 100)
        else:
            self.without_cards += cpu

    def line(self) -> Line | None:
        """None if there are nodes without cards, or if the nodes lend enough."""
        own = PODS_OF_SMALL * CPU_OF_SMALL
        if self.without_cards or self.lent >= 2 * own:
            return None
        fact = (
            f"all nodes have cards, and lend {self.lent}m of cpu to pods without cards while their cards are idle; HBox's own pods request {own}m "
            f"(profile small): other pods that request more than {SMALL[CPU]}m may wait (ResourcesKeptForIdleCards)"
        )
        fix = "add a node without cards, label nodes hbox.io/cpu-per-card=0 (memory likewise), or lower the policy's share (plugin idle-cards)"
        return Line("idle-cards", Level.WARNING, fact, fix)


async def _devices(client: KubeClient) -> Iterable[Line]:
    """Whether installed device plugins use another `device-config.yaml` than HBox (`HBOX_DEVICE_CONFIG`)."""
    found: list[Line] = []
    for name in DEVICE_CONFIGS:
        maps = (await client.json("GET", CONFIGMAPS.path(), params={"fieldSelector": f"metadata.name={name}"}))["items"]
        for one in maps:
            text = (one.get("data") or {}).get("device-config.yaml", "")
            found.append(_device_config(f"{one['metadata']['namespace']}/{name}", str(text)))
    return found or [
        Line("devices", Level.OK, "no device-config.yaml of HAMi or Volcano is there: names and factors are those built in")
    ]


def _device_config(where: str, text: str) -> Line:
    ours_sum = VENDORS.fingerprint
    try:
        with VENDORS.configured(text):
            installed_sum = VENDORS.fingerprint
    except InvalidRequest as e:
        return Line("devices", Level.FAULT, f"device-config.yaml of {where}: {e.message}", e.hint or "mend the ConfigMap")
    if installed_sum == ours_sum:
        return Line("devices", Level.OK, f"device-config.yaml of {where} equals HBox's")
    fact = f"device-config.yaml of {where} has other names, factors or sizes than HBox's: its plugins would count differently"
    return Line(
        "devices",
        Level.WARNING,
        fact,
        "install with --set-file deviceConfig=FILE, and check again with HBOX_DEVICE_CONFIG=FILE",
    )


async def _prometheus(client: KubeClient) -> Iterable[Line]:
    missing = []
    for name in ("podmonitors.monitoring.coreos.com", "prometheusrules.monitoring.coreos.com"):
        try:
            await client.json("GET", CRDS.path(name=name))
        except NotFound:
            missing.append(name)
    if missing:
        return [
            Line("prometheus", Level.OK, "the Prometheus operator's definitions are not there: leave podMonitor.enabled off")
        ]
    return [
        Line(
            "prometheus",
            Level.OK,
            "the Prometheus operator's definitions are there: podMonitor.enabled=true scrapes and alerts",
        )
    ]


# --- the broker


async def _broker(install: Install) -> Iterable[Line]:
    if not install.nats_url:
        return [Line("broker", Level.OK, "the chart's own")]
    try:
        found = await look(install.nats_url, user=ADMIN, access=install.access, try_room=True)
    except (Unavailable, InvalidRequest) as e:
        return [Line("broker", Level.FAULT, e.message, e.hint or "is it running, and is the address right?")]
    return broker(found)


def broker(found: Broker) -> list[Line]:
    """What a broker of the operator's own has to be able to keep."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", found.version)[:2])
    if numbers < OLDEST:
        return [Line("broker", Level.FAULT, f"nats-server {found.version}: HBox needs 2.11 or newer", "upgrade it")]
    lines = [Line("broker", Level.OK, f"nats-server {found.version} with JetStream")]
    if found.max_payload < 8 * 2**20:
        fact = f"takes messages of {found.max_payload / 2**20:.3g} MiB at most; a gang of thousands needs 8"
        lines.append(Line("broker-payload", Level.WARNING, fact, "max_payload: 8MB in nats.conf"))
    if found.account is None:
        lines.append(
            Line("broker-limits", Level.WARNING, "its limits cannot be asked by this user", "use the seed of the user admin")
        )
        return lines
    for storage, why in found.refused.items():
        fix = f"raise max_{'memory_store' if storage == 'memory' else 'file_store'} of the server, or the limits of the account"
        lines.append(Line(f"broker-{storage}", Level.FAULT, f"{why}; HBox's streams may come to hold that", fix))
    return lines


def _some(names: Sequence[str], most: int = 4) -> str:
    """The first of them, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
