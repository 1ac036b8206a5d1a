"""What the webhook adds to a new pod: what HAMi's webhook adds (sources: hami-webhook), by the vendors' rules (`Vendor.complete`).

To a pod that requests devices and names no other scheduler:
    spec.schedulerName            HBox's, in place of the default scheduler's
    sizes.hbox.io/NAME            the resources and annotations of the size in the catalogue
    limits and requests           the number of cards if only a part of one is requested; amounts as allocated (templates, sizes of a vendor)
    env, annotations              what the vendor's plugin or library reads
    spec.runtimeClassName         the class of the vendor in `device-config.yaml`, if the pod names none
To containers without devices: a variable that hides the cards, if `device-config.yaml` sets `overwriteEnv`.
To pods of a namespace with labels (`namespaces`): the scheduler name also without devices, and the queue where the pod names neither a queue nor a PodGroup.

The webhook rejects nothing. It leaves an invalid request as it is and returns a warning to the client; job-controller rejects the pod with the same text.
A pod with a node or with a privileged container stays as it is (HAMi rejects those). A second application changes nothing, so the API server may repeat the
call. The given pod object is never changed.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from hbox_common.errors import InvalidRequest
from hbox_common.model import SCHEDULER_NAME, VENDORS, Vendor
from hbox_common.model.annotations import GROUP_NAME, QUEUE_NAME
from hbox_common.model.bounds import sanitized
from hbox_common.model.devices.sizes import PREFIX, Choice, Size, settled
from hbox_common.model.devices.sizing import resolve_pod

from .namespaces import NO_DEFAULTS, NamespaceDefaults

DEFAULT_SCHEDULER = "default-scheduler"

#: Of one pod, and characters of one: what API servers pass on whole (k8s.io/api admission/v1 AdmissionResponse.Warnings).
MOST_WARNINGS, WARNING_CHARS = 10, 240

#: Names of a pod's PodGroup, whose spec names the queue.
_GROUP_NAMES = (GROUP_NAME, "scheduling.volcano.sh/group-name")

_KINDS = ("initContainers", "containers")


class Outcome(StrEnum):
    MUTATED = "mutated"
    UNCHANGED = "unchanged"
    FOREIGN = "foreign"  #: another scheduler's, or bound to a node already
    PRIVILEGED = "privileged"
    NOT_A_POD = "not-a-pod"  #: or not one that is being made


@dataclass(frozen=True, slots=True)
class Rules:
    schedulers: tuple[str, ...] = (SCHEDULER_NAME,)  #: HBox's names: the first is written
    force_overwrite_default_scheduler: bool = (
        True  #: as HAMi's value of the name: whether pods of the default scheduler become HBox's
    )
    sizes: Mapping[str, Size] = field(default_factory=dict)  #: the catalogue, by name


@dataclass(frozen=True, slots=True)
class Mutation:
    """`pod`: as it is to be; `patch`: RFC 6902, what leads there from what was handed in."""

    pod: Mapping[str, Any]
    outcome: Outcome
    patch: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()


# --- what is read of a pod. All else of it is carried as it is.


class _Resources(msgspec.Struct, frozen=True):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class _Security(msgspec.Struct, frozen=True):
    privileged: bool | None = None


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    resources: _Resources | None = None
    env: list[dict[str, Any]] | None = None
    security_context: _Security | None = None

    @property
    def requests(self) -> Mapping[str, str | int | float]:
        return (self.resources.requests if self.resources else None) or {}

    @property
    def limits(self) -> Mapping[str, str | int | float]:
        return (self.resources.limits if self.resources else None) or {}


class _Metadata(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    scheduler_name: str | None = None
    node_name: str | None = None
    runtime_class_name: str | None = None


class _Pod(msgspec.Struct, frozen=True):
    spec: _Spec
    metadata: _Metadata | None = None


def _read(pod: Mapping[str, Any]) -> _Pod:
    try:
        return msgspec.convert(pod, _Pod)
    except msgspec.ValidationError as e:
        raise InvalidRequest(f"this is no pod: {sanitized(str(e), 200)}") from e


# --- the rule


def mutate(pod: Mapping[str, Any], rules: Rules, namespace: NamespaceDefaults = NO_DEFAULTS) -> Mutation:
    """`pod`: as Kubernetes has it, in JSON's values; `namespace`: what the labels of its namespace say. Raises InvalidRequest, which names the place, for what
    is no pod."""
    read = _read(pod)
    spec = read.spec
    if spec.node_name or not _may_take(spec.scheduler_name or "", rules, namespace):
        return Mutation(pod, Outcome.FOREIGN)
    resolved, warnings = _with_sizes(pod, read, rules)
    warnings += namespace.problems
    if resolved is not pod:
        read = _read(resolved)
        spec = read.spec
    annotations = (read.metadata.annotations if read.metadata else None) or {}
    writing = _Writing(dict(annotations))
    everyone = [(kind, i, one) for kind in _KINDS for i, one in enumerate(_containers(spec, kind))]
    written = {(kind, i): writing.container(one) for kind, i, one in everyone}
    ours = (spec.scheduler_name or "") in rules.schedulers
    if not (writing.asks or ours or namespace.scheduler):
        return _result(pod, _pod(resolved, written, {}), warnings)
    privileged = next((one.name for _, _, one in everyone if one.security_context and one.security_context.privileged), None)
    if privileged is not None and writing.asks:
        warning = (
            f"container {privileged} is privileged: HBox leaves the pod to its scheduler, and gives no devices to such pods"
        )
        return Mutation(pod, Outcome.PRIVILEGED, warnings=bounded([warning]))
    own: dict[str, str] = {}
    if not ours:
        own["schedulerName"] = namespace.scheduler or rules.schedulers[0]
    if namespace.queue and not _names_queue(read):
        writing.annotations[QUEUE_NAME] = namespace.queue
    if spec.runtime_class_name is None and writing.runtime_class:
        own["runtimeClassName"] = writing.runtime_class
    wanted = writing.annotations if writing.annotations != annotations else None
    return _result(pod, _pod(resolved, written, own, wanted), [*warnings, *writing.warnings])


def _may_take(scheduler: str, rules: Rules, namespace: NamespaceDefaults) -> bool:
    if scheduler == DEFAULT_SCHEDULER:
        return rules.force_overwrite_default_scheduler or bool(namespace.scheduler)
    return not scheduler or scheduler in rules.schedulers


def _names_queue(pod: _Pod) -> bool:
    """Whether the pod names a queue itself, or a PodGroup, whose spec names it."""
    metadata = pod.metadata or _Metadata()
    annotations, labels = metadata.annotations or {}, metadata.labels or {}
    return bool(annotations.get(QUEUE_NAME) or labels.get(QUEUE_NAME) or any(annotations.get(name) for name in _GROUP_NAMES))


def _containers(spec: _Spec, kind: str) -> Sequence[_Container]:
    return (spec.init_containers if kind == _KINDS[0] else spec.containers) or ()


def _with_sizes(pod: Mapping[str, Any], read: _Pod, rules: Rules) -> tuple[Mapping[str, Any], list[str]]:
    """The pod with its sizes resolved; itself where there are none, or they cannot be."""
    everyone = [one for kind in _KINDS for one in _containers(read.spec, kind)]
    if not any(name.startswith(PREFIX) for one in everyone for name in (*one.limits, *one.requests)):
        return pod, []
    changed = deepcopy(dict(pod))
    try:
        resolve_pod(changed, rules.sizes, _resolve)
    except InvalidRequest as e:
        return pod, [str(e)]
    return changed, []


def _resolve(size: Size) -> Choice:
    choice = settled(size)
    if choice is None:
        raise InvalidRequest(
            f"what {size.name} becomes here is not settled",
            hint="write the manifest by `hbox sizes apply FILE`, or have the catalogue settled by `hbox sizes --settle`",
        )
    return choice


@dataclass(slots=True)
class _Written:
    """What a container is to be: None = as it is."""

    resources: Mapping[str, Any] | None = None
    env: Sequence[Mapping[str, Any]] | None = None


@dataclass(slots=True)
class _Writing:
    """What the containers of one pod have found so far."""

    annotations: dict[str, str]  #: of the pod, with what vendors add
    asks: bool = False
    runtime_class: str = ""
    warnings: list[str] = field(default_factory=list)

    def container(self, one: _Container) -> _Written:
        named = dict.fromkeys((*one.limits, *one.requests))
        sized = [name for name in named if name.startswith(PREFIX)]
        vendors = VENDORS.whose(named)
        self.asks |= bool(sized)  # for an unresolved one job-controller publishes the reason
        if not vendors:
            return _Written(env=None if sized else self._hidden(one, named))
        asked = {**one.limits, **one.requests}
        amounts: dict[str, str] = {}
        env: dict[str, str] = {}
        default_env: dict[str, str] = {}
        for vendor in vendors:
            own = {name: asked[name] for name in (vendor.cards, *vendor.parts, vendor.priority) if name and name in asked}
            try:
                if vendor.ask(own, self.annotations) is None:
                    continue
                found = vendor.complete(own, self.annotations, one.name)
            except InvalidRequest as e:
                self.asks = True
                self.warnings.append(f"container {one.name}: {e}")
                continue
            self.asks = True
            self.runtime_class = self.runtime_class or vendor.runtime_class
            amounts |= {name: str(amount) for name, amount in found.amounts.items()}
            # What is asked for of devices is limited to just that; the API server refuses anything else.
            amounts |= {name: str(own[name]) for name in own if name not in one.limits and name not in amounts}
            env |= found.env
            default_env |= found.default_env
            for name, value in found.annotations.items():
                if not self.annotations.get(name, "").strip():
                    self.annotations[name] = value
        return _Written(_amounts(one, amounts), _env(one, env, default_env))

    def _hidden(self, one: _Container, named: Iterable[str]) -> Sequence[Mapping[str, Any]] | None:
        """Of a container that asks for no device that HBox knows. Other resources of the maker (MIG's, by profile) are devices too."""
        makers = {name.partition("/")[0] for name in named if "/" in name}
        hides = dict(vendor.hidden for vendor in VENDORS if vendor.hidden and _maker(vendor) not in makers)
        return _env(one, hides, {}) if hides else None


def _maker(vendor: Vendor) -> str:
    return vendor.cards.partition("/")[0]


def _amounts(one: _Container, amounts: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Requests say the same where the container has any: without, the API server makes them from the limits."""
    changed = {name: amount for name, amount in amounts.items() if str(one.limits.get(name)) != amount}
    asked = {name: amount for name, amount in amounts.items() if one.requests and str(one.requests.get(name)) != amount}
    if not changed and not asked:
        return None
    found = {"limits": {**one.limits, **changed}}
    return found | {"requests": {**one.requests, **asked}} if one.requests else found


def _env(one: _Container, forced: Mapping[str, str], default: Mapping[str, str]) -> Sequence[Mapping[str, Any]] | None:
    """Of several entries of a name the last counts; an entry that already has the required value stays in place."""
    entries = one.env or []
    last = {entry.get("name"): entry for entry in entries}
    wrong = {
        name: value
        for name, value in forced.items()
        if name not in last or "valueFrom" in last[name] or (last[name].get("value") or "") != value
    }
    more = {name: value for name, value in default.items() if name not in last}
    if not wrong and not more:
        return None
    kept = [entry for entry in entries if entry.get("name") not in wrong]
    return [*kept, *({"name": name, "value": value} for name, value in (*wrong.items(), *more.items()))]


# --- what leads there


def _result(before: Mapping[str, Any], after: Mapping[str, Any], warnings: Sequence[str]) -> Mutation:
    patch = tuple(_patch(before, after))
    outcome = Outcome.MUTATED if patch else Outcome.UNCHANGED
    return Mutation(after if patch else before, outcome, patch, bounded(warnings))


def _pod(
    pod: Mapping[str, Any],
    written: Mapping[tuple[str, int], _Written],
    own: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
) -> Mapping[str, Any]:
    """The pod with this in its containers and in its `spec`; None: annotations as they are."""
    spec = {**pod["spec"], **own}
    for kind in _KINDS:
        if spec.get(kind):
            spec[kind] = [_after(one, written[kind, i]) for i, one in enumerate(spec[kind])]
    after = {**pod, "spec": spec}
    return (
        after
        if annotations is None
        else after | {"metadata": {**(pod.get("metadata") or {}), "annotations": dict(annotations)}}
    )


def _after(one: Mapping[str, Any], written: _Written) -> Mapping[str, Any]:
    if written.resources is None and written.env is None:
        return one
    found = dict(one)
    if written.resources is not None:
        found["resources"] = {**(one.get("resources") or {}), **written.resources}
    if written.env is not None:
        found["env"] = list(written.env)
    return found


def _patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """`add` puts a value in the place of one that is there."""
    if before.get("metadata") != after.get("metadata"):
        if before.get("metadata"):
            yield {"op": "add", "path": "/metadata/annotations", "value": after["metadata"]["annotations"]}
        else:
            yield {"op": "add", "path": "/metadata", "value": after["metadata"]}
    for name in ("schedulerName", "runtimeClassName"):
        if before["spec"].get(name) != after["spec"].get(name):
            yield {"op": "add", "path": f"/spec/{name}", "value": after["spec"][name]}
    for kind in _KINDS:
        for i, (old, new) in enumerate(zip(before["spec"].get(kind) or (), after["spec"].get(kind) or (), strict=True)):
            for name in ("resources", "env"):
                if old is not new and old.get(name) != new.get(name):
                    yield {"op": "add", "path": f"/spec/{kind}/{i}/{name}", "value": new[name]}


def bounded(warnings: Sequence[str]) -> tuple[str, ...]:
    """As many warnings as API servers pass on, each of a length that they leave whole."""
    kept = [sanitized(text, WARNING_CHARS) for text in warnings[:MOST_WARNINGS]]
    return (*kept, f"and {len(warnings) - MOST_WARNINGS} more") if len(warnings) > MOST_WARNINGS else tuple(kept)
