"""The gang that owners declare."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .placing import InGang


@dataclass(frozen=True, slots=True)
class OwnerGang:
    """`preemptable`: None if no owner says."""

    min_member: int = 1
    min_by_role: Mapping[str, int] = field(default_factory=dict)
    queue: str = ""
    priority_class: str = ""
    preemptable: bool | None = None
    problem: str = ""
    reasons: tuple[str, ...] = ()


def gang_of(found: InGang, present: Mapping[tuple[str, str], int]) -> OwnerGang:  # noqa: ARG001
    owner, declared = found.owner, found.owner.declared
    total = sum(role.replicas for role in declared.roles)
    minimum = declared.minimum if declared.minimum is not None else total
    leading = {role.name: role.replicas for role in declared.roles[:1]} if len(declared.roles) > 1 else {}
    if declared.roles and minimum >= total:
        leading = {role.name: role.replicas for role in declared.roles} if len(declared.roles) > 1 else {}
    queue = next((one.declared.queue for one in found.chain if one.declared.queue), "")
    priority = declared.priority_class or next((role.priority_class for role in declared.roles if role.priority_class), "")
    return OwnerGang(
        min_member=max(1, min(minimum, total) if declared.roles else minimum),
        min_by_role=leading,
        queue=queue,
        priority_class=priority,
        preemptable=next((one.declared.preemptable for one in found.chain if one.declared.preemptable is not None), None),
        problem=owner.problem,
    )
