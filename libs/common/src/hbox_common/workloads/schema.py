"""The form of a kind's file: which objects are meant, and where in them the values of a gang stand.

A path is the way to a field, as `spec.runPolicy.schedulingPolicy.minAvailable`; of several paths the first one counts at which something is written.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from hbox_common.errors import InvalidRequest
from hbox_common.model.bounds import sanitized
from hbox_common.yamltext import contents_of

_PATH = r"^[A-Za-z][A-Za-z0-9_-]{0,62}(\.[A-Za-z][A-Za-z0-9_-]{0,62}){0,11}$"
_KEY = r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
_KIND = r"^[A-Z][A-Za-z0-9]{0,62}$"
_PLURAL = r"^[a-z][a-z0-9]{0,62}$"
_GROUP = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$"
_VERSION = r"^v[0-9]+((alpha|beta)[0-9]+)?$"
_WHICH = r"^(\*|[a-z][a-z0-9]{0,62}(\.[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?)$"
_OBJECT = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
_ROLE = r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"

Path = Annotated[str, StringConstraints(pattern=_PATH)]
Key = Annotated[str, StringConstraints(pattern=_KEY)]
RoleName = Annotated[str, StringConstraints(pattern=_ROLE)]
ObjectName = Annotated[str, StringConstraints(pattern=_OBJECT)]
Paths = Annotated[tuple[Path, ...], Field(max_length=8)]
Keys = Annotated[tuple[Key, ...], Field(max_length=8)]
Text = Annotated[str, StringConstraints(max_length=400)]

#: Rules in code for what paths cannot express (`rules`).
RuleName = Literal["", "mpi", "jobset", "leaderworkerset", "job", "grove"]

#: Of one kind's file.
MAX_KIND_BYTES = 64 * 1024
#: Built-in ones and those of files.
MAX_KINDS = 256


class _Form(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=lambda name: _camel(name),  # noqa: PLW0108
        populate_by_name=True,
    )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


class RolesForm(_Form):
    """Roles of pods: one by its `name`, or each entry of the object or list at the path `each`. All other paths are relative to the role's own entry."""

    name: RoleName | None = Field(None, description="name of a single role")
    at: Path | None = Field(
        None,
        description="with `name`: path of the role's entry; without an entry there, the role has its `fixed` or `default` pods",
    )
    each: Path | None = Field(None, description="path of an object (role: entry) or a list of entries")
    name_field: Path | None = Field(None, description="with `each` over a list: field of the role's name")
    replicas: Paths = Field((), description="number of pods")
    default: int = Field(1, ge=0, le=1000, description="number of pods if none is written")
    fixed: int | None = Field(None, ge=0, le=1000, description="number of pods, whatever is written")
    times: Paths = Field((), description="factor of `replicas`, 1 if none is written, such as hosts of one replica")
    times_at_most: Paths = Field((), description="upper limit of the factor")
    least: Paths = Field((), description="minimum of the role, in place of `replicas`")
    least_if: Path | None = Field(
        None, description="path from the object's root of a boolean: `least` counts only if it is true"
    )
    least_default: int | None = Field(
        None, ge=0, le=1000, description="minimum of the role if `least` counts and is not written"
    )
    at_least: Paths = Field((), description="lower limit of `replicas`")
    at_most: Paths = Field((), description="upper limit of `replicas`")
    none_if: Path | None = Field(None, description="path of a boolean: the role has no pods if it is true")
    template: Path = Field("template", description="path of the pod template")

    @model_validator(mode="after")
    def _one(self) -> "RolesForm":
        if (self.name is None) == (self.each is None):
            raise ValueError("write `name` (one role) or `each` (roles at a path), not both")
        return self


class DefaultsForm(_Form):
    """Values for workloads of a kind that neither they nor their pods nor their namespace set."""

    queue: ObjectName | None = Field(None, description="name of a queue")
    priority_class: ObjectName | None = Field(
        None, description="name of a PriorityClass, if no pod has one; one that does not exist is ignored"
    )
    preemptable: bool | None = Field(
        None, description="whether the pods may be preempted, regardless of the rules of their queue"
    )
    minimum: Annotated[int, Field(ge=1, le=1000)] | Literal["all"] | None = Field(
        None,
        description="minimum of the gang if the object states none, in place of that of its kind: a number, or `all` pods of all roles",
    )


class DefaultsDocument(_Form):
    """Defaults for kinds of other files, or for built-in ones."""

    defaults_for: Annotated[
        tuple[Annotated[str, StringConstraints(pattern=_WHICH)], ...], Field(min_length=1, max_length=64)
    ] = Field(description="kinds: PLURAL.GROUP, or `*` for all")
    defaults: DefaultsForm = Field(description="values")

    def of(self, form: "KindForm") -> bool:
        """Whether the kind is among them."""
        return "*" in self.defaults_for or f"{form.plural}.{form.group}".rstrip(".") in self.defaults_for


class KindForm(_Form):
    """One kind."""

    group: Annotated[str, StringConstraints(pattern=_GROUP, max_length=253)] = Field(
        description="API group; empty for the core one"
    )
    versions: tuple[Annotated[str, StringConstraints(pattern=_VERSION)], ...] = Field(
        min_length=1, max_length=16, description="versions that are read, preferred first"
    )
    kind: Annotated[str, StringConstraints(pattern=_KIND)] = Field(description="name of the kind")
    plural: Annotated[str, StringConstraints(pattern=_PLURAL)] = Field(description="name of the resource in the API's paths")
    about: Text = Field("", description="what the gang is, in a sentence")
    source: Text = Field("", description="where the rule comes from")
    transparent: bool = Field(
        False, description="forms no gang: its pods belong to the kind above or below, and are single pods without one"
    )
    min_member_annotation: bool = Field(
        False, description="with `transparent`: the annotation scheduling.volcano.sh/group-min-member makes its pods a gang"
    )
    roles: tuple[RolesForm, ...] = Field((), max_length=16, description="roles of its pods, each a sub-group with a minimum")
    role_labels: Keys = Field((), description="labels of a pod that name its role; the first one counts")
    roles_in_lower_case: bool = Field(False, description="labels write the roles in lower case")
    order: tuple[RoleName, ...] = Field(
        (), max_length=32, description="order of roles, for the priority class; others follow in theirs"
    )
    leading: tuple[RoleName, ...] = Field(
        (), max_length=32, description="roles that are whole before others count for the minimum"
    )
    minimum: Paths = Field((), description="minimum of the gang; without one written, all pods of all roles")
    minimum_annotations: Keys = Field((), description="annotations of the object with the minimum")
    minimum_if: Path | None = Field(
        None, description="with the rule job: path of a field with which all pods that run at the same time are the minimum"
    )
    minimum_default: int | None = Field(None, ge=0, le=1000, description="minimum without one written, in place of all pods")
    replaced: Paths = Field(
        (),
        description="factors of the number of pods that its controller keeps running, each 1 if not written; a new pod takes over the place of "
        "one that ended, with paths only",
    )
    max_surge: Path | None = Field(
        None,
        description="with `replaced`: setting for pods that a rollout starts beyond the declared number; an Event names it if they have no place",
    )
    max_unavailable: Path | None = Field(
        None, description="with `maxSurge`: setting for declared pods that a rollout may end before their successors are ready"
    )
    queue: Paths = Field((), description="name of a queue, besides the label or annotation scheduling.volcano.sh/queue-name")
    queue_labels: Keys = Field((), description="labels of the object that name a queue")
    priority_class: Paths = Field((), description="name of a PriorityClass, before those of the roles' templates")
    priority_class_labels: Keys = Field((), description="labels of the object that name a PriorityClass")
    scheduled_condition: Annotated[str, StringConstraints(pattern=_KIND)] | None = Field(
        None,
        description="type of the condition that HBox writes in the object's status: whether its minimum has places; true for ever once it had",
    )
    labels: Keys = Field((), description="further labels of the object that its rule reads")
    annotations: Keys = Field((), description="further annotations of the object that its rule reads")
    defaults: DefaultsForm = Field(DefaultsForm(), description="values that count if nothing else sets them (below)")
    rule: RuleName = Field("", description="rule in code for what paths cannot express")

    @model_validator(mode="after")
    def _meaningful(self) -> "KindForm":
        bare = not (self.minimum or self.minimum_annotations) or self.rule == "job"
        if self.transparent and (self.roles or not bare or self.minimum_default is not None):
            raise ValueError("`transparent` forms no gang: leave out roles and minimum, or `transparent`")
        if self.minimum_if and self.rule != "job":
            raise ValueError("`minimumIf` needs `rule: job`")
        if self.rule == "grove" and not self.role_labels:
            raise ValueError("`rule: grove` needs `roleLabels`")
        if self.min_member_annotation and not self.transparent:
            raise ValueError("`minMemberAnnotation` needs `transparent: true`")
        if (self.max_surge is None) != (self.max_unavailable is None):
            raise ValueError("write both of `maxSurge` and `maxUnavailable`, or none")
        if self.transparent and self.defaults.minimum is not None:
            raise ValueError("`transparent` forms no gang: leave out `defaults.minimum`")
        if len(set(self.versions)) != len(self.versions):
            raise ValueError("`versions` names a version twice")
        return self

    def with_defaults(self, defaults: DefaultsForm) -> "KindForm":
        """The kind with these defaults where they are set. A kind without a gang takes no minimum."""
        values = defaults.model_dump(exclude_none=True)
        if self.transparent:
            values.pop("minimum", None)
        return self.model_copy(update={"defaults": self.defaults.model_copy(update=values)})


def forms_of(text: str | bytes, where: str) -> list[KindForm]:
    """The kinds of one file of YAML or JSON documents, without its defaults for others. As `parts_of`."""
    return [part for part in parts_of(text, where) if isinstance(part, KindForm)]


def parts_of(text: str | bytes, where: str) -> list[KindForm | DefaultsDocument]:
    """The kinds, and defaults for kinds, of one file of YAML or JSON documents. `where`: the file's name, for messages. Raises InvalidRequest: file, field,
    fault and remedy."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(raw) > MAX_KIND_BYTES:
        raise InvalidRequest(
            f"{where} has {len(raw)} bytes, at most {MAX_KIND_BYTES} are read", hint="write one kind in a file"
        )
    try:
        documents = [one for one in contents_of(raw) if one is not None]
    except InvalidRequest as e:
        raise InvalidRequest(f"{where}: {e.message}", hint=e.hint) from e
    if not documents:
        raise InvalidRequest(f"{where} is empty", hint="write a kind; hbox kinds show PyTorchJob prints an example")
    return [
        part_of(content, where if len(documents) == 1 else f"{where}, document {n}") for n, content in enumerate(documents, 1)
    ]


def part_of(content: Any, where: str) -> KindForm | DefaultsDocument:
    """Raises InvalidRequest."""
    if not isinstance(content, dict):
        raise InvalidRequest(f"{where} holds no fields", hint="write a kind; hbox kinds show PyTorchJob prints an example")
    try:
        return (DefaultsDocument if "defaultsFor" in content else KindForm).model_validate(content)
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        field = _place(first["loc"])
        what, hint = _fault(first)
        raise InvalidRequest(f"{where}: {field + ': ' if field else ''}{what}", hint=hint) from e


def _place(location: tuple[int | str, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{sanitized(part, 64)}" for part in location)
    return text.removeprefix(".")


_PATTERNS = {
    _PATH: ("is no path", "write names of fields with dots between, as spec.replicas"),
    _KEY: ("is no label or annotation key", "write it like example.com/queue"),
    _KIND: ("is no kind", "write it like PyTorchJob"),
    _PLURAL: ("is no resource name", "write it in lower case, like pytorchjobs"),
    _GROUP: ("is no API group", "write it like kubeflow.org"),
    _VERSION: ("is no version", "write it like v1 or v1beta1"),
    _WHICH: ("is no kind", "write its plural and group, like pytorchjobs.kubeflow.org, or *"),
    _OBJECT: ("is no name of an object", "write the name of a Queue or PriorityClass"),
    _ROLE: ("is no role", "write it like Worker"),
}
_TYPES = {
    "string_type": ("is no text", "write a text"),
    "int_type": ("is no whole number", "write a whole number without quotes"),
    "int_parsing": ("is no whole number", "write a whole number without quotes"),
    "int_from_float": ("is no whole number", "write a whole number without quotes"),
    "bool_type": ("is neither true nor false", "write true or false without quotes"),
    "bool_parsing": ("is neither true nor false", "write true or false without quotes"),
    "tuple_type": ("is no list", "write a list, such as [spec.replicas]"),
    "model_type": ("holds no fields", "write keys and values"),
}


def _fault(error: Any) -> tuple[str, str]:
    """What is wrong, and what to write."""
    kind, given, more = error["type"], error.get("input"), error.get("ctx") or {}
    written = sanitized(repr(given), 80)
    if kind == "missing":
        return "is missing", "write it; docs/reference/kinds.md describes all fields"
    if kind == "extra_forbidden":
        below = error["loc"][0] if len(error["loc"]) > 1 else ""
        allowed: type[_Form] = RolesForm if below == "roles" else DefaultsForm if below == "defaults" else KindForm
        return "is no field of a kind", "allowed: " + ", ".join(sorted(_camel(name) for name in allowed.model_fields))
    if kind == "string_pattern_mismatch" and (known := _PATTERNS.get(more.get("pattern", ""))):
        return f"{written} {known[0]}", known[1]
    if kind == "literal_error":
        expected = str(more.get("expected")).replace("'", "").replace('"', "")
        return f"{written} is no rule", f"allowed: {expected}".replace("allowed:  or", "allowed:")
    if kind == "value_error":
        what, _, hint = str(more.get("error")).partition(": ")
        return what, hint
    if kind in _TYPES:
        what, hint = _TYPES[kind]
        return f"{written} {what}", hint
    return f"{written}: {sanitized(error['msg'], 200).lower()}", ""
