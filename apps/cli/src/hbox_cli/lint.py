"""The gangs of one manifest, as job-controller would form them of the pods that the workload's controller creates.

The pods do not exist yet: one pod of each declared role represents them, with the label that names its role.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hbox_common.model import DEFAULT_QUEUE, TopologyMode, TopologyWish
from hbox_common.model.annotations import GROUP_NAME, INDEXED_JOBS, QUEUE_NAME
from hbox_common.model.ids import SCHEDULER_NAME
from hbox_common.workloads import (
    Alone,
    InGang,
    Kind,
    Kinds,
    Owner,
    OwnerGang,
    OwnerRef,
    Submitted,
    controller_of,
    gang_of,
    place,
    read_owner,
)
from hbox_common.workloads.placing import LWS_GROUP, LWS_WORKER
from hbox_common.yamltext import read_file

from .simulate.documents import Document


def kinds_with(paths: Iterable[Path]) -> Kinds:
    """The built-in kinds and those, and defaults, of files or folders. Raises InvalidRequest."""
    texts: dict[str, bytes] = {}
    for path in paths:
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            if file.is_file() and not file.name.startswith("."):
                texts[str(file)] = read_file(file)
    return Kinds.builtin().with_files(texts)


@dataclass(frozen=True, slots=True)
class _Role:
    name: str
    pods: int
    least: int


@dataclass(frozen=True, slots=True)
class _Gang:
    part: str
    gang: OwnerGang
    roles: tuple[_Role, ...]


@dataclass(frozen=True, slots=True)
class Linted:
    """One workload of a file. `gangs`: empty if its pods are single pods, or if objects that it creates decide (`below`)."""

    title: str
    gangs: tuple[_Gang, ...]
    queue: str  #: of single pods
    why_single: str
    below: str
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def item(self) -> dict[str, Any]:
        return {
            "workload": self.title,
            "gangs": [
                {
                    "part": one.part,
                    "min_member": one.gang.min_member,
                    "sub_groups": [
                        {"name": role.name, "pods": role.pods, "min": one.gang.min_by_role.get(role.name, 0)}
                        for role in one.roles
                    ],
                    "queue": one.gang.queue or DEFAULT_QUEUE,
                    "priority_class": one.gang.priority_class,
                    "preemptible": one.gang.preemptable,
                    "defaults": dict(one.gang.defaults.items),
                    "topology": _topology(one.gang),
                    "divided_by": [
                        {
                            "name": policy.name,
                            "labels": list(policy.labels),
                            "selector": policy.selector,
                            "pods": policy.size,
                            "min_sub_groups": policy.min_sub_gangs,
                            "topology": _wish(policy.topology),
                        }
                        for policy in one.gang.sub_gangs
                    ],
                    "reasons": list(one.gang.reasons),
                }
                for one in self.gangs
            ],
            "single": self.why_single,
            "below": self.below,
            "problems": list(self.problems),
            "notes": list(self.notes),
        }

    @property
    def lines(self) -> list[str]:
        found = [self.title]
        for one in self.gangs:
            found += [f"  gang {one.part}" if one.part else "  one gang", *_gang_lines(one)]
        if self.below:
            found += [f"  gang        {self.below}"]
        elif not self.gangs:
            found += [f"  single pods: {self.why_single}"]
        if not self.gangs:
            found += [f"  queue       {self.queue}"]
        found += [f"  wrong       {text}" for text in self.problems]
        return found + [f"  note        {text}" for text in self.notes]


def linted(document: Document, kinds: Kinds) -> Linted | None:
    """None for an object that makes no pods."""
    api_version = str(document.content.get("apiVersion", ""))
    kind = kinds.of(api_version, document.kind)
    if kind is None:
        return None
    content = _identified(document)
    owner = read_owner(kinds, content)
    gangs = tuple(_gangs(kind, owner, kinds))
    problems = dict.fromkeys(filter(None, (owner.problem, owner.ignored, *(one.gang.problem for one in gangs))))
    queue = owner.declared.queue or DEFAULT_QUEUE
    passes_on = kind.transparent and not kind.form.min_member_annotation
    why = f"{document.kind} makes no gang without {_GROUP_MIN_MEMBER}" if not gangs and not passes_on else ""
    return Linted(
        f"{document.kind.lower()}/{owner.ref.name} ({document.where})",
        gangs,
        queue,
        why,
        f"the kind below {document.kind} decides; pods without one are single pods" if passes_on else "",
        tuple(problems),
        (*_owner_note(document.content), *_indexed_note(owner), *_notes(content)),
    )


_LEADER_WORKER_SET = "leaderworkerset"  #: name of a rule
_GROUP_MIN_MEMBER = "the annotation scheduling.volcano.sh/group-min-member"


def _identified(document: Document) -> dict[str, Any]:
    content = dict(document.content)
    meta = content.get("metadata")
    meta = {"namespace": "default", "uid": "lint", **(meta if isinstance(meta, dict) else {})}
    meta.pop("ownerReferences", None)  # its owner is in no file, and would be waited for
    content["metadata"] = meta
    return content


def _gangs(kind: Kind, owner: Owner, kinds: Kinds) -> Iterable[_Gang]:
    """The gangs of pods that the owner controls directly; the objects between them decide nothing else."""
    found: dict[str, InGang] = {}
    for labels in _pods_of(kind, owner):
        pod = Submitted(uid="pod", namespace=owner.namespace, name="pod", controller=owner.ref, labels=labels)
        membership = place(pod, lambda namespace, ref: owner if _is(ref, owner.ref) else None, kinds)  # noqa: ARG005
        if isinstance(membership, InGang):
            found.setdefault(membership.part, membership)
        elif isinstance(membership, Alone):
            return
    whole = {role.name: role.replicas for role in owner.declared.roles}
    for part, membership in found.items():
        gang = gang_of(membership, whole)
        if membership.rule == _LEADER_WORKER_SET:
            yield _Gang("of each replica", gang, tuple(_Role(name, least, least) for name, least in gang.min_by_role.items()))
            continue
        yield _Gang(
            part,
            gang,
            tuple(
                _Role(role.name, role.replicas, gang.min_by_role.get(role.name, 0))
                for role in owner.declared.roles
                if role.name == part or not (owner.declared.by_role and part)
            ),
        )


def _pods_of(kind: Kind, owner: Owner) -> Iterable[Mapping[str, str]]:
    """Labels of one pod of each role."""
    if kind.form.rule == _LEADER_WORKER_SET:
        yield {LWS_GROUP: "0", LWS_WORKER: "0"}
        return
    key = next(iter(kind.form.role_labels), "")
    roles = [role for role in owner.declared.roles if role.replicas]
    for role in roles if key else ():
        yield {key: role.name.lower() if kind.form.roles_in_lower_case else role.name}
    if not key or not roles:
        yield {}


def _is(ref: OwnerRef, other: OwnerRef) -> bool:
    return ref.uid == other.uid


def _gang_lines(one: _Gang) -> Iterable[str]:
    gang = one.gang
    pods = sum(role.pods for role in one.roles)
    yield f"  minimum     {gang.min_member}" + (f" of {pods} pods" if pods else "")
    for role in one.roles if len(one.roles) > 1 else ():
        least = f", at least {role.least}" if role.least else ""
        yield f"  sub-group   {role.name}: {role.pods}{least}"
    yield f"  queue       {gang.queue or DEFAULT_QUEUE}"
    yield f"  class       {gang.priority_class or '(of its most important pod)'}"
    if gang.preemptable is not None:
        yield f"  preemptible {'yes' if gang.preemptable else 'no'}"
    if (text := _wish_text(_topology(gang))) is not None:
        yield f"  topology    {text}"
    for policy in gang.sub_gangs:
        by = f"by label {', '.join(policy.labels)}" if policy.labels else ", ".join(policy.selector.values())
        text = _wish_text(_wish(policy.topology))
        count = f"{policy.min_sub_gangs} of {policy.size} pods" if policy.labels else f"{policy.size} pods"
        yield f"  divided     {by}: {count}" + (f", {text}" if text else "")
    if defaults := gang.defaults.items:
        yield f"  defaults    {', '.join(f'{name} {value}' for name, value in defaults.items())}"
    for reason in gang.reasons:
        yield f"  why         {reason}"


def _topology(gang: OwnerGang) -> dict[str, str] | None:
    if gang.mode or gang.highest_tier:
        return {"mode": gang.mode or TopologyMode.HARD.value, "highest_tier": gang.highest_tier}
    return _wish(gang.topology)


def _wish(wish: TopologyWish | None) -> dict[str, str] | None:
    return {"mode": wish.mode.value, "highest_tier": wish.highest_tier_name} if wish is not None else None


def _wish_text(topology: Mapping[str, str] | None) -> str | None:
    if topology is None:
        return None
    return topology["mode"] + (f", at most tier {topology['highest_tier']}" if topology["highest_tier"] else "")


def _indexed_note(owner: Owner) -> Iterable[str]:
    declared = owner.declared
    if declared.indexed is not None and declared.minimum is None:
        yield f"with the setting indexedJobs: gang, or the label {INDEXED_JOBS}=gang of its namespace, {declared.indexed} pods are a gang"


def _owner_note(content: Mapping[str, Any]) -> Iterable[str]:
    meta = content.get("metadata")
    references = meta.get("ownerReferences") if isinstance(meta, Mapping) else None
    if isinstance(references, list) and (owner := controller_of(references)) is not None:
        yield f"its owner {owner.title} is not read here, and has precedence if its kind makes a gang"


def _notes(content: Mapping[str, Any]) -> Iterable[str]:
    """What else decides about pods of the workload's templates."""
    named, templates = set[str](), 0
    for template in _templates(content.get("spec"), 0):
        templates += 1
        spec = template["spec"]
        scheduler = spec.get("schedulerName")
        named.add(scheduler if isinstance(scheduler, str) else "")
        meta = template.get("metadata")
        notes = meta.get("annotations") if isinstance(meta, Mapping) else None
        if isinstance(notes, Mapping) and notes.get(GROUP_NAME):
            yield f"its pods name PodGroup {notes[GROUP_NAME]}, which counts instead of the workload"
        if isinstance(notes, Mapping) and notes.get(QUEUE_NAME):
            yield f"its pods name queue {notes[QUEUE_NAME]}, which counts if the workload names none"
    others = sorted(named - {SCHEDULER_NAME})
    if templates and others:
        text = ", ".join(other or "the default scheduler" for other in others)
        yield f"schedulerName of its pods is {text}: write {SCHEDULER_NAME}, or label the namespace hbox.io/scheduler"


def _templates(value: Any, depth: int) -> Iterable[Mapping[str, Any]]:
    """Pod templates below a spec: objects whose `spec` has containers."""
    if depth > 12:
        return
    if isinstance(value, Mapping):
        spec = value.get("spec")
        if isinstance(spec, Mapping) and isinstance(spec.get("containers"), list):
            yield value
            return
        for each in value.values():
            yield from _templates(each, depth + 1)
    elif isinstance(value, list):
        for each in value[:64]:
            yield from _templates(each, depth + 1)
