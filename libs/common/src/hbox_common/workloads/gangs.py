"""The gang that owners declare."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

from hbox_common.model import SubGangPolicy, TopologyWish

from .owner import HIGHEST_TIER, MODE, NO_DEFAULTS, Defaults, Owner, Role
from .placing import InGang

LAUNCHER, LEADER = "Launcher", "leader"


@dataclass(frozen=True, slots=True)
class OwnerGang:
    """`preemptable`: None if no owner sets it. `mode`, `highest_tier`: annotations for the fabric, as written. `reasons`: the source of each value."""

    min_member: int = 1
    min_by_role: Mapping[str, int] = field(default_factory=dict)
    queue: str = ""
    priority_class: str = ""
    preemptable: bool | None = None
    mode: str = ""
    highest_tier: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    reasons: tuple[str, ...] = ()
    topology: TopologyWish | None = None  #: of the whole gang, as its object declares it
    sub_gangs: tuple[SubGangPolicy, ...] = ()
    defaults: Defaults = NO_DEFAULTS  #: what counts if nothing else sets it


def gang_of(found: InGang, present: Mapping[str, int]) -> OwnerGang:
    """`present`: live pods by role."""
    owner, declared = found.owner, found.owner.declared
    roles = _roles(found, present)
    total, least = sum(role.replicas for role in roles), sum(role.least for role in roles)
    if declared.minimum is not None:
        minimum = min(declared.minimum, total) if roles else declared.minimum
        why = (
            f"{declared.minimum_from} of {owner.ref.title}" if declared.minimum_from else f"{owner.ref.kind} states no minimum"
        )
    else:
        minimum, why = least, f"replicas of {owner.ref.title}"
    by_role: dict[str, int] = {}
    if len(roles) > 1:
        if declared.minimum is None or minimum >= total:
            by_role = {role.name: role.least for role in roles if role.least}
        else:
            by_role = _leading(roles, declared.leading, minimum)
    queue, queue_why = queue_of(found.chain)
    priority, priority_why = _priority(found, roles)
    notes = {key: value for one in reversed(found.chain) for key, value in one.annotations.items()}
    reasons = (f"minimum {max(1, minimum)}: {why}", queue_why, priority_why)
    return OwnerGang(
        min_member=max(1, minimum),
        min_by_role=by_role,
        queue=queue,
        priority_class=priority,
        preemptable=preemptable_of(found.chain),
        mode=notes.get(MODE, ""),
        highest_tier=notes.get(HIGHEST_TIER, ""),
        annotations={key: notes[key] for key in sorted(notes) if key not in (MODE, HIGHEST_TIER)},
        problem=owner.problem,
        reasons=tuple(filter(None, reasons)),
        topology=declared.topology,
        sub_gangs=_sub_gangs(found, roles),
        defaults=defaults_of(found.chain),
    )


def queue_of(chain: Sequence[Owner]) -> tuple[str, str]:
    """The queue of the topmost owner that names one, and a sentence on it."""
    for one in chain:
        if one.declared.queue:
            return one.declared.queue, f"queue {one.declared.queue}: {one.declared.queue_from} of {one.ref.title}"
    return "", ""


def defaults_of(chain: Sequence[Owner]) -> Defaults:
    """For each value that of the topmost owner whose kind has one."""
    found = NO_DEFAULTS
    for one in reversed(chain):
        if (of := one.declared.defaults) != NO_DEFAULTS:
            found = Defaults(*(new if new is not None else old for new, old in zip(astuple(of), astuple(found), strict=True)))
    return found


def preemptable_of(chain: Sequence[Owner]) -> bool | None:
    """The value of the topmost owner that sets it."""
    return next((one.declared.preemptable for one in chain if one.declared.preemptable is not None), None)


def _roles(found: InGang, present: Mapping[str, int]) -> Sequence[Role]:
    """The roles whose pods have to be there now."""
    declared = found.owner.declared
    roles = declared.roles
    if declared.by_role and found.part:
        return [role for role in roles if role.name == found.part]
    if found.rule == "leaderworkerset":
        size = max(1, next((role.replicas for role in roles if role.name != LEADER), 1))
        leader = next((role for role in roles if role.name == LEADER), Role(LEADER, 1, 1))
        worker = next((role for role in roles if role.name != LEADER), leader)
        if size == 1 or (declared.leader_first and not present.get(worker.name)):
            return [leader]
        return [leader, Role(worker.name, size - 1, size - 1, worker.priority_class)]
    if found.rule == "mpi" and declared.workers_first and not present.get(LAUNCHER):
        return [role for role in roles if role.name != LAUNCHER]
    return roles


def _sub_gangs(found: InGang, roles: Sequence[Role]) -> tuple[SubGangPolicy, ...]:
    """Those of the pods that have to be there now."""
    if found.rule == "leaderworkerset" and len(roles) == 1:
        return tuple(replace(policy, size=1, min_sub_gangs=0) for policy in found.owner.declared.sub_gangs)
    return found.owner.declared.sub_gangs


def _leading(roles: Sequence[Role], leading: Sequence[str], minimum: int) -> dict[str, int]:
    """The leading roles, whole, up to the minimum."""
    found: dict[str, int] = {}
    for role in roles:
        if role.name in leading and 0 < role.replicas <= minimum - sum(found.values()):
            found[role.name] = role.replicas
    return found


def _priority(found: InGang, roles: Sequence[Role]) -> tuple[str, str]:
    for one in found.chain:
        if one.declared.priority_class:
            return (
                one.declared.priority_class,
                f"priority class {one.declared.priority_class}: {one.declared.priority_from} of {one.ref.title}",
            )
    for role in roles:
        if role.priority_class:
            return (
                role.priority_class,
                f"priority class {role.priority_class}: the template of role {role.name} of {found.owner.ref.title}",
            )
    return "", ""
