"""Owner objects as HBox keeps them, read by the file of their kind."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.model.annotations import PREEMPTABLE, QUEUE_NAME
from hbox_common.model.bounds import ANNOTATION_BYTES, INT32_MAX, NAME_BYTES, ROLES, is_plain, not_plain, oversized, sanitized

from .fields import Fields, at_path, mapping, seconds, texts
from .refs import OwnerRef, controller_of, group_of
from .schema import MAX_KINDS, KindForm, RolesForm, forms_of

#: Volcano's annotations for the fabric.
MODE, HIGHEST_TIER = "volcano.sh/network-topology-mode", "volcano.sh/network-topology-highest-tier"
GROUP_MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
JOB_MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"


@dataclass(frozen=True, slots=True)
class Role:
    """Pods of one role: `replicas` when whole, `least` for the minimum."""

    name: str
    replicas: int
    least: int
    priority_class: str = ""


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
        """These and the kinds of the files, by name; a kind of a file replaces a built-in one. Raises InvalidRequest."""
        kinds = Kinds([*self._kinds.values(), *(Kind(form) for name, text in texts.items() for form in forms_of(text, name))])
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
    if form.rule == "job" and minimum is None and (text := annotations.get(JOB_MIN_PARALLELISM)) is not None:
        path, minimum = f"annotation {JOB_MIN_PARALLELISM}", _positive(JOB_MIN_PARALLELISM, text, fields)
    if minimum is None and form.minimum_default is not None:
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
    )


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
