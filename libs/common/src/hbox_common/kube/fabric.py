"""What Volcano's objects say of the fabric, as plain values: HyperNodes with their members resolved, and the wishes of PodGroups."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hbox_common.errors import InvalidRequest
from hbox_common.model import HyperNode, NodeName, SubGangPolicy, TopologyMode, TopologyWish, selects
from hbox_common.model.bounds import (
    INT32_MAX,
    KEY_BYTES,
    NAME_BYTES,
    SUB_GROUP_LABELS,
    SUB_GROUPS,
    is_plain,
    not_plain,
    oversized,
)
from hbox_common.patterns import compiled

from . import objects
from .selectors import selector_of

_TYPES = ("Node", "HyperNode")
_FORMS = "exactMatch, regexMatch or labelMatch"


@dataclass(frozen=True, slots=True)
class Wrong:
    """Something in a HyperNode that cannot be read; the member is left out. `place`: the HyperNode's among those given."""

    place: int
    field: str
    message: str
    hint: str


@dataclass(slots=True)
class Resolved:
    hypernodes: list[HyperNode] = field(default_factory=list)
    wrong: list[Wrong] = field(default_factory=list)


def resolve(hypernodes: Sequence[objects.HyperNode], nodes: Mapping[str, Mapping[str, str]]) -> Resolved:
    """HyperNodes with their members found among `nodes` (labels by name) and each other, in their order.

    A member that names what is not there is left out, as Volcano does.
    """
    there = {"Node": nodes, "HyperNode": {one.metadata.name: one.metadata.labels for one in hypernodes}}
    out = Resolved()
    for place, one in enumerate(hypernodes):
        if not 0 <= one.spec.tier <= INT32_MAX:
            hint = f"write 0 to {INT32_MAX}; 1 is a leaf"
            out.wrong.append(Wrong(place, "spec.tier", f"is {one.spec.tier}", hint))
            continue
        below: dict[str, dict[str, None]] = {"Node": {}, "HyperNode": {}}
        for number, member in enumerate(one.spec.members):
            where = f"spec.members[{number}]"
            if member.type not in _TYPES:
                out.wrong.append(Wrong(place, f"{where}.type", f"is {member.type!r}", f"allowed: {', '.join(_TYPES)}"))
                continue
            try:
                below[member.type].update(dict.fromkeys(_members(member.selector, there[member.type])))
            except _Unreadable as e:
                out.wrong.append(Wrong(place, f"{where}.selector{e.field}", e.message, e.hint))
        below["HyperNode"].pop(one.metadata.name, None)
        out.hypernodes.append(
            HyperNode(
                name=one.metadata.name,
                tier=one.spec.tier,
                tier_name=one.spec.tier_name,
                nodes=tuple(map(NodeName, below["Node"])),
                children=tuple(below["HyperNode"]),
                labels=one.metadata.labels,
            )
        )
    return out


class _Unreadable(Exception):
    """Part of a selector; `field` is what follows the selector's own name."""

    def __init__(self, field: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.field, self.message, self.hint = field, message, hint


def _members(selector: objects.MemberSelector, there: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    given = [form for form in (selector.exact_match, selector.regex_match, selector.label_match) if form is not None]
    if len(given) != 1:
        raise _Unreadable("", f"names {len(given)} of {_FORMS}", f"write exactly one of {_FORMS}")
    if selector.exact_match is not None:
        return iter([selector.exact_match.name] if selector.exact_match.name in there else [])
    if selector.regex_match is not None:
        try:
            pattern = compiled(selector.regex_match.pattern)
        except InvalidRequest as e:
            raise _Unreadable(".regexMatch.pattern", e.message, e.hint) from e
        return (name for name in there if pattern.search(name))
    try:
        wanted = selector_of(selector.label_match)
    except ValueError as e:
        allowed = "allowed: In, NotIn, Exists, DoesNotExist"
        raise _Unreadable(".labelMatch.matchExpressions", f"operator {e}", allowed) from e
    return (name for name, labels in there.items() if selects(wanted, labels))


def wish_of(topology: objects.NetworkTopology | None, where: str = "spec.networkTopology") -> TopologyWish | None:
    """Raises InvalidRequest for a mode that there is not."""
    if topology is None:
        return None
    try:
        mode = TopologyMode(topology.mode or "hard")
    except ValueError as e:
        raise InvalidRequest(f"{where}.mode: is {topology.mode!r}", hint=f"allowed: {', '.join(TopologyMode)}") from e
    if not is_plain(topology.highest_tier_name, NAME_BYTES):
        raise InvalidRequest(not_plain(f"{where}.highestTierName", topology.highest_tier_name, NAME_BYTES))
    if topology.highest_tier_allowed is not None and abs(topology.highest_tier_allowed) > INT32_MAX:
        raise InvalidRequest(f"{where}.highestTierAllowed is {topology.highest_tier_allowed}", hint="write a tier")
    return TopologyWish(mode, topology.highest_tier_allowed, topology.highest_tier_name)


def sub_gangs_of(policies: Sequence[objects.SubGroupPolicy]) -> tuple[SubGangPolicy, ...]:
    """Raises InvalidRequest for what cannot be read, or is not supported."""
    if len(policies) > SUB_GROUPS:
        raise InvalidRequest(oversized("spec.subGroupPolicy", len(policies), SUB_GROUPS))
    return tuple(_policy(policy, f"spec.subGroupPolicy[{place}]") for place, policy in enumerate(policies))


def _policy(policy: objects.SubGroupPolicy, where: str) -> SubGangPolicy:
    if policy.label_selector.match_expressions:
        raise InvalidRequest(f"{where}.labelSelector.matchExpressions: is not supported yet", hint="write it with matchLabels")
    if policy.sub_group_size < 0 or policy.min_sub_groups < 0:
        raise InvalidRequest(f"{where}: subGroupSize and minSubGroups are counts", hint="write 0 or more")
    if max(policy.sub_group_size, policy.min_sub_groups) > INT32_MAX:
        raise InvalidRequest(f"{where}: subGroupSize and minSubGroups are counts of pods")
    by = [*policy.match_label_keys, *policy.label_selector.match_labels]
    if len(by) > SUB_GROUP_LABELS:
        raise InvalidRequest(oversized(f"{where}: labels", len(by), SUB_GROUP_LABELS))
    for text in (policy.name, *by, *policy.label_selector.match_labels.values()):
        if not is_plain(text, KEY_BYTES):
            raise InvalidRequest(not_plain(f"{where}: a name", text, KEY_BYTES))
    return SubGangPolicy(
        name=policy.name,
        labels=policy.match_label_keys,
        selector=policy.label_selector.match_labels,
        size=policy.sub_group_size,
        min_sub_gangs=policy.min_sub_groups,
        topology=wish_of(policy.network_topology, f"{where}.networkTopology"),
    )
