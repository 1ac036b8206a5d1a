"""Owner objects as HBox keeps them, read by the file of their kind."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

from hbox_common.errors import InvalidRequest
from hbox_common.model import SubGangPolicy, TopologyMode, TopologyWish
from hbox_common.model.annotations import NETWORK_TOPOLOGY_LEVEL, PREEMPTABLE, QUEUE_NAME, TOPOLOGY_ANNOTATIONS
from hbox_common.model.bounds import (
    ANNOTATION_BYTES,
    INT32_MAX,
    KEY_BYTES,
    NAME_BYTES,
    ROLES,
    SUB_GROUPS,
    is_plain,
    not_plain,
    oversized,
    sanitized,
)

from .fields import Fields, at_path, mapping, seconds, shown, texts
from .refs import OwnerRef, controller_of, group_of
from .schema import MAX_KINDS, DefaultsDocument, KindForm, RolesForm, forms_of, parts_of

#: Volcano's annotations for the fabric.
MODE, HIGHEST_TIER = "volcano.sh/network-topology-mode", "volcano.sh/network-topology-highest-tier"
GROUP_MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
JOB_MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
#: Label of a LeaderWorkerSet's pods: the sub-group of their replica.
LWS_SUB_GROUP = "leaderworkerset.sigs.k8s.io/subgroup-index"
#: Annotations about the fabric, read of each owner.
FABRIC_ANNOTATIONS = frozenset({*TOPOLOGY_ANNOTATIONS, NETWORK_TOPOLOGY_LEVEL})


@dataclass(frozen=True, slots=True)
class Role:
    """Pods of one role: `replicas` when whole, `least` for the minimum."""

    name: str
    replicas: int
    least: int
    priority_class: str = ""


@dataclass(frozen=True, slots=True)
class Defaults:
    """Values of a kind that count if nothing else sets them; None: the kind has none."""

    queue: str | None = None
    priority_class: str | None = None
    preemptable: bool | None = None
    minimum: int | str | None = None

    @property
    def items(self) -> Mapping[str, Any]:
        """Those that are set, as a file writes them."""
        found = {
            "queue": self.queue,
            "priorityClass": self.priority_class,
            "preemptable": self.preemptable,
            "minimum": self.minimum,
        }
        return {name: value for name, value in found.items() if value is not None}


NO_DEFAULTS = Defaults()


@dataclass(frozen=True, slots=True)
class Declared:
    """Gang values of one object."""

    roles: tuple[Role, ...] = ()
    minimum: int | None = None
    minimum_from: str = ""  #: the field
    queue: str = ""
    queue_from: str = ""
    priority_class: str = ""
    priority_from: str = ""
    preemptable: bool | None = None
    by_role: bool = False  #: each role is a gang of its own
    leader_first: bool = False  #: the controller makes the other pods once the leader is ready
    workers_first: bool = False  #: likewise the launcher, once the workers are ready
    leading: tuple[str, ...] = ()  #: roles that are whole before others count for the minimum
    defaults: Defaults = NO_DEFAULTS  #: of its kind
    indexed: int | None = None  #: of an Indexed Job: pods that run at the same time
    topology: TopologyWish | None = None  #: of the whole gang
    sub_gangs: tuple[SubGangPolicy, ...] = ()


@dataclass(frozen=True, slots=True)
class Owner:
    """One version of one owner."""

    ref: OwnerRef
    namespace: str
    parent: OwnerRef | None = None
    version: int = 0  #: its resourceVersion; 0 if that is no number
    created_at: float = 0.0  #: seconds since the epoch
    deleted_at: float | None = (
        None  #: when its deletion was requested, in seconds since the epoch; None: it is not being deleted
    )
    labels: Mapping[str, str] = field(default_factory=dict)  #: those that rules read
    annotations: Mapping[str, str] = field(default_factory=dict)  #: likewise
    declared: Declared = Declared()
    problem: str = ""
    ignored: str = ""  #: wrong values in place of which a default counts


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind."""

    form: KindForm

    @property
    def group(self) -> str:
        return self.form.group

    @property
    def versions(self) -> Sequence[str]:
        return self.form.versions

    @property
    def kind(self) -> str:
        return self.form.kind

    @property
    def plural(self) -> str:
        return self.form.plural

    @property
    def transparent(self) -> bool:
        return self.form.transparent


class Kinds:
    """The kinds that HBox reads, by group and name."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds = {(each.group, each.kind): each for each in kinds}

    @classmethod
    def builtin(cls) -> "Kinds":
        return _builtin()

    def with_files(self, texts: Mapping[str, str | bytes]) -> "Kinds":
        """These and the kinds of the files, by name; a kind of a file replaces a built-in one, and defaults count for both. Raises InvalidRequest."""
        parts = [part for name, text in texts.items() for part in parts_of(text, name)]
        forms = [*(kind.form for kind in self), *(part for part in parts if isinstance(part, KindForm))]
        for document in (part for part in parts if isinstance(part, DefaultsDocument)):
            forms = [form.with_defaults(document.defaults) if document.of(form) else form for form in forms]
        kinds = Kinds(map(Kind, forms))
        if len(kinds._kinds) > MAX_KINDS:
            raise InvalidRequest(f"{len(kinds._kinds)} kinds, at most {MAX_KINDS} are read", hint="remove files of kinds")
        return kinds

    def of(self, api_version: str, kind: str) -> Kind | None:
        return self._kinds.get((group_of(api_version), kind))

    def __iter__(self) -> Any:
        return iter(self._kinds.values())


@cache
def _builtin() -> Kinds:
    folder = files(__package__) / "kinds"
    found = sorted((each for each in folder.iterdir() if each.name.endswith(".yaml")), key=lambda each: each.name)
    return Kinds(Kind(form) for each in found for form in forms_of(each.read_text(), each.name))


def read_owner(kinds: Kinds, content: Mapping[str, Any]) -> Owner:
    """Never raises: what is wrong becomes the owner's problem."""
    meta = mapping(content.get("metadata"))
    api_version, kind = str(content.get("apiVersion", "")), str(content.get("kind", ""))
    labels, annotations = texts(meta.get("labels")), texts(meta.get("annotations"))
    found = kinds.of(api_version, kind)
    fields = Fields(content)
    references = meta.get("ownerReferences")
    written = str(meta.get("resourceVersion", ""))
    declared = _declared(found.form, fields, labels, annotations) if found is not None else Declared()
    kept = {
        QUEUE_NAME,
        GROUP_MIN_MEMBER,
        PREEMPTABLE,
        MODE,
        HIGHEST_TIER,
        *FABRIC_ANNOTATIONS,
        *(found.form.labels if found else ()),
        *(found.form.annotations if found else ()),
    }
    return Owner(
        ref=OwnerRef(api_version, kind, str(meta.get("name", "")), str(meta.get("uid", ""))),
        namespace=str(meta.get("namespace", "")),
        parent=controller_of(references) if isinstance(references, list | tuple) else None,
        version=int(written) if written.isdecimal() and len(written) < 20 else 0,
        created_at=seconds(meta.get("creationTimestamp")),
        deleted_at=seconds(meta["deletionTimestamp"]) if meta.get("deletionTimestamp") is not None else None,
        labels={key: value for key, value in labels.items() if key in kept},
        annotations={key: value for key, value in annotations.items() if key in kept and is_plain(value, ANNOTATION_BYTES)},
        declared=declared,
        problem=sanitized("; ".join(fields.problems[:3])),
        ignored=sanitized("; ".join(fields.ignored[:3])),
    )


def _declared(form: KindForm, fields: Fields, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Declared:
    path, value = fields.first(form.minimum)
    minimum = fields.count(path, value)
    for key in (*((GROUP_MIN_MEMBER,) if form.min_member_annotation else ()), *form.minimum_annotations):
        if (text := annotations.get(key)) is not None:
            path, minimum = f"annotation {key}", _positive(key, text, fields)
            break
    together = _together(fields) if form.rule == "job" else None
    if form.rule == "job" and minimum is None and (text := annotations.get(JOB_MIN_PARALLELISM)) is not None:
        path, minimum = f"annotation {JOB_MIN_PARALLELISM}", _positive(JOB_MIN_PARALLELISM, text, fields)
    if minimum is None and form.minimum_if and at_path(fields.root, form.minimum_if) is not None:
        path, minimum = form.minimum_if, together
    if minimum is None and isinstance(form.defaults.minimum, int):
        path, minimum = "defaults.minimum", form.defaults.minimum
    elif minimum is None and form.minimum_default is not None and form.defaults.minimum is None:
        path, minimum = "", form.minimum_default
    queue_path, queue = fields.first(form.queue)
    if not queue and (key := next((key for key in form.queue_labels if labels.get(key)), "")):
        queue_path, queue = f"label {key}", labels[key]
    if not queue:
        queue_path, queue = f"annotation {QUEUE_NAME}", annotations.get(QUEUE_NAME) or labels.get(QUEUE_NAME, "")
    class_path, named = fields.first(form.priority_class)
    if not named:
        key = next((key for key in form.priority_class_labels if labels.get(key)), "")
        class_path, named = f"label {key}", labels.get(key, "")
    topology, sub_gangs = _SUB_GROUPS.get(form.rule, _no_sub_groups)(form, fields)
    return Declared(
        roles=tuple(_roles(form, fields))[:ROLES],
        minimum=minimum,
        minimum_from=path,
        queue=fields.name(queue_path, queue),
        queue_from=queue_path,
        priority_class=fields.name(class_path, named),
        priority_from=class_path,
        preemptable=_truth(annotations.get(PREEMPTABLE, labels.get(PREEMPTABLE))),
        by_role=form.rule == "jobset" and _in_order(fields.root),
        leader_first=at_path(fields.root, "spec.startupPolicy") == "LeaderReady",
        workers_first=at_path(fields.root, "spec.launcherCreationPolicy") == "WaitForWorkersReady",
        leading=form.leading,
        defaults=Defaults(**dict(form.defaults)),
        indexed=together if at_path(fields.root, "spec.completionMode") == "Indexed" else None,
        topology=topology,
        sub_gangs=sub_gangs,
    )


def indexed_gang(owner: Owner) -> Owner:
    """The owner, with all pods that run at the same time as its minimum if it is an Indexed Job that declares no minimum."""
    declared = owner.declared
    if declared.indexed is None or declared.minimum is not None:
        return owner
    declared = replace(declared, minimum=max(1, declared.indexed), minimum_from="spec.completionMode: Indexed")
    return replace(owner, declared=declared)


def _together(fields: Fields) -> int:
    """Pods of a Job that run at the same time."""
    parallelism = fields.count("spec.parallelism", at_path(fields.root, "spec.parallelism"))
    completions = fields.count("spec.completions", at_path(fields.root, "spec.completions"))
    parallelism = 1 if parallelism is None else parallelism
    return parallelism if completions is None else min(parallelism, completions)


_Divided: TypeAlias = tuple[TopologyWish | None, tuple[SubGangPolicy, ...]]


def _no_sub_groups(form: KindForm, fields: Fields) -> _Divided:  # noqa: ARG001
    return None, ()


def _replica_sub_groups(form: KindForm, fields: Fields) -> _Divided:  # noqa: ARG001
    """Of a LeaderWorkerSet: equal parts of each replica, as close together as possible. Its webhook labels the pods; with LeaderExcluded not the leader, and
    with LeaderWorker the leader is in the first part, as an additional pod if the size is not divisible otherwise."""
    of = "spec.leaderWorkerTemplate"
    policy = mapping(at_path(fields.root, f"{of}.subGroupPolicy"))
    size = fields.count(f"{of}.size", at_path(fields.root, f"{of}.size"))
    part = fields.count(f"{of}.subGroupPolicy.subGroupSize", policy.get("subGroupSize"))
    size = 1 if size is None else size
    if not part or size <= 1:
        return None, ()
    in_parts = size - 1 if policy.get("subGroupPolicyType") == "LeaderExcluded" or size % part else size
    soft = TopologyWish(TopologyMode.SOFT)
    return None, (SubGangPolicy("subgroup", (LWS_SUB_GROUP,), {}, part, in_parts // part, soft),)


def _pod_gang_sub_groups(form: KindForm, fields: Fields) -> _Divided:
    """Of Grove's PodGang: a sub-group for each pod group with a topology constraint of its own."""
    label, groups = form.role_labels[0], at_path(fields.root, "spec.podgroups")
    found: list[SubGangPolicy] = []
    for group in groups[: SUB_GROUPS + 1] if isinstance(groups, list | tuple) else ():
        entry = mapping(group)
        name, least = entry.get("name"), entry.get("minReplicas")
        if (wish := _packed(entry, "spec.podgroups", fields)) is None or not isinstance(name, str):
            continue
        if not name or any(one.name == sanitized(name, NAME_BYTES) for one in found):
            fields.problems.append(f"spec.podgroups has {shown(name)} as the name of a group: write a name of its own for each")
            continue
        size = least if isinstance(least, int) and 0 < least <= INT32_MAX else 1
        found.append(SubGangPolicy(sanitized(name, NAME_BYTES), (), {label: sanitized(name, NAME_BYTES)}, size, 1, wish))
    if len(found) > SUB_GROUPS:
        fields.problems.append(oversized("spec.podgroups with topologyConstraint", len(found), SUB_GROUPS))
    return _packed(fields.root.get("spec"), "spec", fields), tuple(found[:SUB_GROUPS])


def _packed(entry: Any, where: str, fields: Fields) -> TopologyWish | None:
    """By the label of nodes that a pack constraint names: it is the name of a tier, if the fabric comes from labels."""
    pack = mapping(at_path(entry, "topologyConstraint.packConstraint"))
    for field_name, mode in (("required", TopologyMode.HARD), ("preferred", TopologyMode.SOFT)):
        if (key := pack.get(field_name)) is None:
            continue
        if not isinstance(key, str) or not is_plain(key, KEY_BYTES):
            path = f"{where}.topologyConstraint.packConstraint.{field_name}"
            fields.problems.append(f"{path} is {shown(key)}: write the key of a node label")
            return None
        return TopologyWish(mode, None, key)
    return None


_SUB_GROUPS: Mapping[str, Callable[[KindForm, Fields], _Divided]] = {
    "leaderworkerset": _replica_sub_groups,
    "grove": _pod_gang_sub_groups,
}


def _positive(key: str, text: str, fields: Fields) -> int:
    """A number of pods in an annotation; 1 if it is none, as in Volcano."""
    if text.isascii() and text.isdecimal() and len(text) <= 12:
        return min(max(int(text), 1), INT32_MAX)
    fields.ignored.append(f"annotation {key} is {sanitized(repr(text[:40]), 80)}: write a whole number in quotes")
    return 1


def _truth(text: str | None) -> bool | None:
    return {"true": True, "false": False}.get(text) if text is not None else None


def _in_order(root: Mapping[str, Any]) -> bool:
    """Whether the replicated Jobs of a JobSet start one after the other."""
    if at_path(root, "spec.startupPolicy.startupPolicyOrder") == "InOrder":
        return True
    jobs = at_path(root, "spec.replicatedJobs")
    return isinstance(jobs, list | tuple) and any(mapping(job).get("dependsOn") for job in jobs)


def _roles(form: KindForm, fields: Fields) -> Iterable[Role]:
    found = []
    for each in form.roles:
        if each.each is None:
            entry = mapping(at_path(fields.root, each.at)) if each.at else {}
            found.append(_role(each, each.name or "", entry, f"{each.at}.", fields))
            continue
        entries = at_path(fields.root, each.each)
        if isinstance(entries, list | tuple):
            named = [(str(at_path(mapping(one), each.name_field or "name") or ""), one) for one in entries[: ROLES + 1]]
        else:
            named = [(str(key), one) for key, one in list(mapping(entries).items())[: ROLES + 1]]
        if len(named) > ROLES:
            fields.problems.append(oversized(each.each, len(entries), ROLES))
        found += [_role(each, name, mapping(one), f"{each.each}.{name}.", fields) for name, one in named[:ROLES]]
    order = {name: at for at, name in enumerate(form.order)}
    return sorted(found, key=lambda role: order.get(role.name, len(order)))


def _role(form: RolesForm, name: str, entry: Mapping[str, Any], prefix: str, fields: Fields) -> Role:
    def count(paths: Sequence[str]) -> int | None:
        return fields.count(*fields.first(paths, entry, prefix)) if paths else None

    replicas = form.fixed if form.fixed is not None else count(form.replicas)
    replicas = form.default if replicas is None else replicas
    if (low := count(form.at_least)) is not None:
        replicas = max(replicas, low)
    if (high := count(form.at_most)) is not None:
        replicas = min(replicas, high)
    times = count(form.times)
    most = count(form.times_at_most)
    times = 1 if times is None else times
    times = min(times, most) if most is not None else times
    least = replicas
    if form.least and (form.least_if is None or at_path(fields.root, form.least_if) is True):
        written = count(form.least)
        least = min(
            replicas, written if written is not None else form.least_default if form.least_default is not None else replicas
        )
    if form.none_if and at_path(entry, form.none_if) is True:
        replicas = least = 0
    spec = mapping(at_path(entry, f"{form.template}.spec"))
    named = fields.name(f"{prefix}{form.template}.spec.priorityClassName", spec.get("priorityClassName"))
    whole, needed = min(replicas * times, INT32_MAX), min(least * times, INT32_MAX)
    if not is_plain(name, NAME_BYTES):
        fields.problems.append(not_plain(f"the name of a role in {form.each}", name, NAME_BYTES))
    return Role(sanitized(name, NAME_BYTES), whole, needed, named)
