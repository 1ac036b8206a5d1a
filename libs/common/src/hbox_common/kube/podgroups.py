"""The spec of Volcano's PodGroups as plain values, with the fault of the first value that cannot be."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hbox_common.errors import InvalidRequest
from hbox_common.model import QueueName, Resources, SubGangPolicy, TopologyWish, request_units
from hbox_common.model.annotations import POLICY_ANNOTATIONS
from hbox_common.model.bounds import (
    ANNOTATION_BYTES,
    INT32_MAX,
    KEY_BYTES,
    NAME_BYTES,
    RESOURCES,
    ROLES,
    is_name,
    is_plain,
    not_a_name,
    not_plain,
    oversized,
    plain_entries,
    sanitized,
)

from . import objects
from .fabric import sub_gangs_of, wish_of

#: Keys of ResourceQuotas that stand for no resource of their own.
_QUOTA_KEYS = ("requests.", "limits.", "count/")
_POLICY_ANNOTATIONS = frozenset(POLICY_ANNOTATIONS)
_NO_ANNOTATIONS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class GroupRules:
    """The rules of a gang. `problem`: why the gang is not scheduled; empty if it is."""

    min_member: int = 0
    queue: QueueName = QueueName("")
    priority_class: str = ""
    min_task_member: Mapping[str, int] = field(default_factory=dict)  #: by role
    min_resources: Resources = field(default_factory=dict)
    topology: TopologyWish | None = None
    sub_gangs: tuple[SubGangPolicy, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)  #: those that policies read
    problem: str = ""


def rules_of(group: objects.PodGroup) -> GroupRules:
    """The rules of one PodGroup. Never raises: a value that cannot be is left out and becomes the problem."""
    spec = group.spec
    topology: TopologyWish | None = None
    sub_gangs: tuple[SubGangPolicy, ...] = ()
    min_resources: Resources = {}
    min_task_member: dict[str, int] = {}
    queue, problem = name_of("spec.queue", spec.queue)
    priority_class, wrong = name_of("spec.priorityClassName", spec.priority_class_name)
    annotations, unfit = policy_annotations(group.metadata.annotations)
    problem = problem or wrong or unfit
    try:
        min_member = _count("spec.minMember", spec.min_member)
        min_resources = _minimum(spec.min_resources)
        min_task_member = _minima(spec.min_task_member)
        topology, sub_gangs = wish_of(spec.network_topology), sub_gangs_of(spec.sub_group_policy)
    except InvalidRequest as e:
        min_member, problem = min(max(spec.min_member, 0), INT32_MAX), problem or str(e)
    return GroupRules(
        min_member=min_member,
        queue=QueueName(queue),
        priority_class=priority_class,
        min_task_member=min_task_member,
        min_resources=min_resources,
        topology=topology,
        sub_gangs=sub_gangs,
        annotations=annotations,
        problem=sanitized(problem),
    )


def name_of(what: str, text: str) -> tuple[str, str]:
    """The name of an object, or nothing and what is wrong with it. Empty text names nothing."""
    return (text, "") if not text or is_name(text) else ("", not_a_name(what, text))


def policy_annotations(annotations: Mapping[str, str]) -> tuple[Mapping[str, str], str]:
    """Those that policies read, and what is wrong with one of them."""
    if _POLICY_ANNOTATIONS.isdisjoint(annotations):
        return _NO_ANNOTATIONS, ""
    return plain_entries({key: annotations[key] for key in POLICY_ANNOTATIONS if key in annotations}, ANNOTATION_BYTES)


def _count(what: str, number: int) -> int:
    """Raises InvalidRequest: schemas of definitions say int32, and no API server looks."""
    if number > INT32_MAX:
        raise InvalidRequest(f"{what} is {number}", hint="write a number of pods")
    return max(number, 0)


def _minima(written: Mapping[str, int]) -> dict[str, int]:
    """By role, without what is 0. Raises InvalidRequest."""
    if len(written) > ROLES:
        raise InvalidRequest(oversized("spec.minTaskMember", len(written), ROLES))
    for role in written:
        if not is_plain(role, NAME_BYTES):
            raise InvalidRequest(not_plain("a role in spec.minTaskMember", role, NAME_BYTES))
    return {role: _count(f"spec.minTaskMember.{role}", least) for role, least in written.items() if least > 0}


def _minimum(quantities: Mapping[str, str | float]) -> Resources:
    """Amounts by resource, in base units, without zeros. Volcano's controllers add keys of quotas (`limits.cpu`), which are no resources."""
    found: Resources = {}
    if len(quantities) > 2 * RESOURCES:
        raise InvalidRequest(oversized("spec.minResources", len(quantities), 2 * RESOURCES))
    for name, quantity in quantities.items():
        if name.startswith(_QUOTA_KEYS):
            continue
        if not is_plain(name, KEY_BYTES):
            raise InvalidRequest(not_plain("a name in spec.minResources", name, KEY_BYTES))
        try:
            units = request_units(name, quantity)
        except InvalidRequest as e:
            raise InvalidRequest(f"spec.minResources: {e.message}", hint=e.hint) from e
        if units:
            found[name] = units
    return found
