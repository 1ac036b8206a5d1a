"""What the scheduler would do with manifests on the cluster as it is: its own code, on a copy of the objects, without a change.

Pods of a workload's templates stand for those that its controller creates. A job that does not start is tried again without the pods of others: if it does not
start there either, no wait helps.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from hbox_common.errors import HBoxError, InvalidRequest
from hbox_common.model import VENDORS
from hbox_common.model.ids import SCHEDULER_NAME

from ..access.cluster import NODE, POD, POD_GROUP, ClusterApi, Kind, Object
from ..lint import kinds_with, linted
from ..output import notify
from ..simulate.documents import Document
from ..simulate.running import Wish, outcome_of
from .targets import controller_of

#: Read from the cluster besides nodes and pods; those that it does not serve, or the user may not list, are left out with a remark.
_KINDS = (
    POD_GROUP,
    Kind("scheduling.volcano.sh/v1beta1", "Queue", "queues", namespaced=False),
    Kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", namespaced=False),
    Kind("v1", "Namespace", "namespaces", namespaced=False),
    Kind("v1", "ResourceQuota", "resourcequotas"),
    Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    Kind("v1", "PersistentVolume", "persistentvolumes", namespaced=False),
    Kind("storage.k8s.io/v1", "StorageClass", "storageclasses", namespaced=False),
    Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    Kind("topology.volcano.sh/v1alpha1", "HyperNode", "hypernodes", namespaced=False),
)
_COUNTS = ("replicas", "parallelism")
_MOST_PODS = 10_000
NOW, WAITS, NEVER = "now", "waits", "never"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file's workloads with the pods that they would have. `jobs`: names by which the scheduler knows them."""

    objects: tuple[Object, ...]
    pods: tuple[dict[str, Any], ...]
    needed: int
    jobs: frozenset[str]


@dataclass(frozen=True, slots=True)
class Planned:
    """`message`: why it does not start, as `hbox why` would say; `helps`: changes of which each starts it now."""

    verdict: str
    needed: int
    places: Mapping[str, str] = field(default_factory=dict)
    evictions: Sequence[Mapping[str, str]] = ()
    message: str = ""
    helps: Sequence[str] = ()


def live_objects(api: ClusterApi) -> list[Object]:
    """The cluster. Raises InvalidRequest where the user may not list nodes and pods."""
    found = [*api.listed(NODE), *api.listed(POD)]
    for kind in _KINDS:
        try:
            found += api.listed(kind)
        except InvalidRequest as e:  # also NotFound
            if "HTTP 403" in e.message:
                notify(f"hbox: {kind.plural} are not part of the plan: {e.message}")
    return found + list(_owners(api, found))


def _owners(api: ClusterApi, objects: Sequence[Object]) -> Iterator[Object]:
    """Controllers of the pods that wait or hold places: they decide which pods are gangs."""
    seen = set[str]()
    queue = [one for one in objects if one.get("kind") == "Pod" and one["spec"].get("schedulerName") == SCHEDULER_NAME]
    while queue:
        one = queue.pop()
        owner = controller_of(one)
        if owner is None or owner["uid"] in seen:
            continue
        seen.add(owner["uid"])
        try:
            kind = api.kind(str(owner["apiVersion"]), str(owner["kind"]))
            above = api.find(kind, str(one["metadata"].get("namespace", "")), str(owner["name"]))
        except HBoxError:
            continue
        if above is not None:
            above = {"apiVersion": kind.api_version, "kind": kind.kind, **above}
            yield above
            queue.append(above)


def candidate_of(documents: Sequence[Document], namespace: str) -> Candidate:
    """Raises InvalidRequest for a file without pods that HBox places."""
    kinds = kinds_with(())
    objects: list[Object] = []
    pods: list[dict[str, Any]] = []
    jobs, needed, minimums = set[str](), 0, dict[str, int]()
    for document in documents:
        content: dict[str, Any] = deepcopy(dict(document.content))
        metadata = content.setdefault("metadata", {})
        metadata.setdefault("namespace", namespace)
        metadata["uid"] = f"plan/{document.kind}/{metadata.get('name')}"
        name = f"{metadata['namespace']}/{metadata.get('name')}"
        if document.kind == "Pod":
            pods.append(content)
            jobs.add(name)
            continue
        objects.append(content)
        jobs |= {name, f"{metadata['namespace']}/{document.kind.lower()}/{metadata.get('name')}"}
        if document.kind == "PodGroup":
            minimums[name] = int((content.get("spec") or {}).get("minMember") or 1)
            continue
        found = linted(document, kinds)
        if found is None:
            continue
        if found.problems:
            raise InvalidRequest(f"{found.title}: {'; '.join(found.problems)}", hint="hbox job lint explains the fields")
        made = list(_pods_of(content, document, kinds))
        needed += sum(one.gang.min_member for one in found.gangs) or len(made)
        pods += made
    pods = [pod for pod in pods if pod["spec"].get("schedulerName") == SCHEDULER_NAME]
    if not pods:
        raise InvalidRequest("the files have no pod that HBox places", hint="set schedulerName: hbox")
    own = sum(1 for pod in pods if controller_of(pod) is None)
    return Candidate(tuple(objects), tuple(pods), needed + (sum(minimums.values()) if minimums else own), frozenset(jobs))


def _pods_of(content: Mapping[str, Any], document: Document, kinds: Any) -> Iterator[dict[str, Any]]:
    metadata = content["metadata"]
    kind = kinds.of(str(content.get("apiVersion", "")), document.kind)
    label = next(iter(kind.form.role_labels), "") if kind is not None else ""
    lower = kind is not None and kind.form.roles_in_lower_case
    owner = {
        "apiVersion": content["apiVersion"],
        "kind": document.kind,
        "name": metadata.get("name"),
        "uid": metadata["uid"],
        "controller": True,
    }
    for number, (role, count, template) in enumerate(_templates(content.get("spec"), "", 1)):
        if count > _MOST_PODS:
            raise document.wrong("spec", f"{count} pods are more than a plan takes", hint=f"at most {_MOST_PODS}")
        for index in range(count):
            pod_metadata = deepcopy(template.get("metadata") or {})
            named = f"{metadata.get('name')}-{role.lower() or number}-{index}"
            labels = {
                **(pod_metadata.get("labels") or {}),
                **({label: role.lower() if lower else role} if label and role else {}),
            }
            pod_metadata |= {
                "name": named,
                "namespace": metadata["namespace"],
                "uid": f"plan/{named}",
                "labels": labels,
                "ownerReferences": [owner],
            }
            annotations = {**_queue_of(content), **(pod_metadata.get("annotations") or {})}
            pod_metadata["annotations"] = annotations
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": pod_metadata,
                "spec": deepcopy(template["spec"]),
                "status": {"phase": "Pending"},
            }


def _queue_of(content: Mapping[str, Any]) -> dict[str, str]:
    name = "scheduling.volcano.sh/queue-name"
    notes = content["metadata"].get("annotations") or {}
    return {name: notes[name]} if name in notes else {}


def _templates(value: Any, role: str, count: int) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """Role, number of pods and template of each pod template below a spec: the product of the counts on the way to it."""
    if isinstance(value, Mapping):
        spec = value.get("spec")
        if isinstance(spec, Mapping) and isinstance(spec.get("containers"), list):
            yield role, count, value
            return
        for name in _COUNTS:
            number = value.get(name)
            if isinstance(number, int) and not isinstance(number, bool):
                count *= number
        for key, one in value.items():
            named = isinstance(one, Mapping) and "template" in one and key != "spec"
            yield from _templates(one, str(key) if named else role, count)
    elif isinstance(value, list):
        for one in value:
            own = one.get("name") if isinstance(one, Mapping) and "template" in one else None
            yield from _templates(one, str(own) if own else role, count)


def planned(cluster: Sequence[Object], candidate: Candidate, wish: Wish) -> Planned:
    """Raises InvalidRequest for an object that the scheduler cannot read."""
    found = _tried(cluster, candidate, wish)
    if found.verdict == NOW:
        return found
    alone = _tried([one for one in cluster if not _is_work(one)], candidate, wish)
    verdict = WAITS if alone.verdict == NOW else NEVER
    message = found.message if verdict == WAITS else alone.message
    return Planned(verdict, candidate.needed, found.places, found.evictions, message, tuple(_helps(cluster, candidate, wish)))


def _is_work(one: Object) -> bool:
    """Pods and PodGroups that end some day: all but the pods of nodes and of DaemonSets."""
    if one.get("kind") == "Pod":
        return (controller_of(one) or {}).get("kind") not in ("DaemonSet", "Node")
    return one.get("kind") == "PodGroup"


def _tried(cluster: Sequence[Object], candidate: Candidate, wish: Wish) -> Planned:
    mine = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in candidate.pods}
    known = {_key(one) for one in candidate.objects}
    objects = [*(one for one in cluster if _key(one) not in known), *candidate.objects, *candidate.pods]
    row = outcome_of("plan", [Document(number, one) for number, one in enumerate(objects, 1)], wish)
    places = {one["pod"]: one["node"] for one in (*row["nominations"], *row["bindings"]) if one["pod"] in mine}
    evictions = [one for one in row["evictions"] if one["for"] in candidate.jobs or one["for"] in mine]
    reasons = [why["message"] for pod, why in row["pending"].items() if pod in mine and pod not in places]
    verdict = NOW if len(places) >= candidate.needed else WAITS
    return Planned(verdict, candidate.needed, places, evictions, "" if verdict == NOW or not reasons else str(reasons[0]))


def _key(one: Object) -> tuple[str, str, str]:
    metadata = one["metadata"]
    return str(one.get("kind")), str(metadata.get("namespace", "")), str(metadata.get("name"))


def _helps(cluster: Sequence[Object], candidate: Candidate, wish: Wish) -> Iterator[str]:
    """Fewer pods; fewer cards each. Tried one by one on the present state."""
    single = [_alone(pod) for pod in candidate.pods]
    fitting = len(_tried(cluster, Candidate((), tuple(single), 1, frozenset()), wish).places)
    if 0 < fitting < candidate.needed:
        yield f"a minimum of {fitting} pods instead of {candidate.needed}: so many fit now"
    cards = max((_cards(pod) for pod in candidate.pods), default=0)
    fewer = cards // 2
    while fewer:
        smaller = tuple(_with_cards(pod, fewer) for pod in candidate.pods)
        if _tried(cluster, Candidate(candidate.objects, smaller, candidate.needed, candidate.jobs), wish).verdict == NOW:
            yield f"{fewer} cards per pod instead of {cards}"
            return
        fewer //= 2


def _alone(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The pod without the gang."""
    found = deepcopy(dict(pod))
    found["metadata"].pop("ownerReferences", None)
    notes = found["metadata"].get("annotations") or {}
    found["metadata"]["annotations"] = {key: value for key, value in notes.items() if not key.endswith("group-name")}
    return found


def _cards(pod: Mapping[str, Any]) -> int:
    return max((int(value) for _, value in _card_limits(pod)), default=0)


def _with_cards(pod: Mapping[str, Any], cards: int) -> dict[str, Any]:
    found = deepcopy(dict(pod))
    for resources, value in list(_card_limits(found)):
        for name in [name for name in resources if VENDORS.asked({name: 1})]:
            if int(value) > cards:
                resources[name] = str(cards)
    return found


def _card_limits(pod: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Amounts with cards, and the number of cards; not of parts of cards."""
    for container in pod["spec"].get("containers") or ():
        for amounts in (container.get("resources") or {}).values():
            if isinstance(amounts, dict):
                for name, value in amounts.items():
                    if VENDORS.asked({name: 1}) and str(value).isdecimal():
                        yield amounts, str(value)
