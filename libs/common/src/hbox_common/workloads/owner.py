"""Owner objects as HBox keeps them, read by the file of their kind."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from hbox_common.model.bounds import ROLES, sanitized

from .fields import Fields, at_path, mapping, seconds, texts
from .refs import OwnerRef, controller_of, group_of
from .schema import KindForm, RolesForm, forms_of

QUEUE_NAME = "scheduling.volcano.sh/queue-name"
GROUP_MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
PREEMPTABLE = "volcano.sh/preemptable"


@dataclass(frozen=True, slots=True)
class Role:
    """Pods of one role: `replicas` when whole, `least` for the minimum."""

    name: str
    replicas: int
    least: int
    priority_class: str = ""
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Declared:
    """What one object says of its gang."""

    roles: tuple[Role, ...] = ()
    minimum: int | None = None
    minimum_from: str = ""  #: the field
    queue: str = ""
    queue_from: str = ""
    priority_class: str = ""
    priority_from: str = ""
    preemptable: bool | None = None
    suspended: bool = False


@dataclass(frozen=True, slots=True)
class Owner:
    """One version of one owner."""

    ref: OwnerRef
    namespace: str
    parent: OwnerRef | None = None
    version: int = 0  #: its resourceVersion; 0 if that is no number
    created_at: float = 0.0  #: seconds since the epoch
    deleting: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)  #: those that rules read
    annotations: Mapping[str, str] = field(default_factory=dict)  #: likewise
    declared: Declared = Declared()
    problem: str = ""


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
        return Kinds([*self._kinds.values(), *(Kind(form) for name, text in texts.items() for form in forms_of(text, name))])

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
        deleting=meta.get("deletionTimestamp") is not None,
        labels={key: value for key, value in labels.items() if key in kept},
        annotations={key: value for key, value in annotations.items() if key in kept},
        declared=declared,
        problem=sanitized("; ".join(fields.problems[:3])),
    )


def _declared(form: KindForm, fields: Fields, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Declared:
    path, value = fields.first(form.minimum)
    minimum = fields.count(path, value)
    if form.min_member_annotation and (text := annotations.get(GROUP_MIN_MEMBER)) is not None:
        path, minimum = (
            f"annotation {GROUP_MIN_MEMBER}",
            int(text) if text.isdecimal() and 1 <= int(text[:12]) <= 2**31 - 1 else 1,
        )
    queue_path, queue = fields.first(form.queue)
    if not queue:
        queue_path, queue = f"annotation {QUEUE_NAME}", annotations.get(QUEUE_NAME) or labels.get(QUEUE_NAME, "")
    class_path, named = fields.first(form.priority_class)
    preemptable = annotations.get(PREEMPTABLE, labels.get(PREEMPTABLE))
    return Declared(
        roles=tuple(_roles(form, fields))[:ROLES],
        minimum=minimum,
        minimum_from=path,
        queue=fields.name(queue_path, queue),
        queue_from=queue_path,
        priority_class=fields.name(class_path, named),
        priority_from=class_path,
        preemptable=None if preemptable is None else preemptable == "true",
        suspended=fields.truth(*fields.first(form.suspended)),
    )


def _roles(form: KindForm, fields: Fields) -> Iterable[Role]:
    for each in form.roles:
        if each.each is None:
            continue
        entries = at_path(fields.root, each.each)
        for name, entry in mapping(entries).items():
            yield _role(each, str(name), mapping(entry), f"{each.each}.{name}.", fields)


def _role(form: RolesForm, name: str, entry: Mapping[str, Any], prefix: str, fields: Fields) -> Role:
    path, value = fields.first(form.replicas, entry, prefix)
    replicas = fields.count(path, value)
    replicas = form.default if replicas is None else replicas
    spec = mapping(at_path(entry, f"{form.template}.spec"))
    named = fields.name(f"{prefix}{form.template}.spec.priorityClassName", spec.get("priorityClassName"))
    return Role(sanitized(name, 253), replicas, replicas, named)
