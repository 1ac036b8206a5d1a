"""Members of a gang that share a claim which waits for its first consumer: its volume will be in one zone, so they are placed in one."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hbox_common.model import Match, MatchOperator
from hbox_common.model.podconstraints import PodTerm, Selector

from ..cluster.entities import Member
from ..cluster.interning import ZONE_FIELD

#: A label that no pod has: the group of members, by one of the claims that they share.
_GROUP = "\0shared-claim"


def keep_in_one_zone(members: Sequence[Member]) -> bool:
    """Add the constraint to members that need it; whether there are any. Members with an affinity of their own keep that alone: terms of one affinity mean the
    same pods. The binder compares their node with the volume."""
    users = Counter(claim for member in members for claim in set(member.volume_claims))
    shared = {claim for claim, count in users.items() if count > 1}
    if not shared:
        return False
    groups: list[set[str]] = []  #: claims of which members use several: one zone for all
    for member in members:
        joined = shared.intersection(member.volume_claims)
        if joined:
            joined = joined.union(*(one for one in groups if not one.isdisjoint(joined)))
            groups = [*(one for one in groups if one.isdisjoint(joined)), joined]
    for member in members:
        group = next((one for one in groups if not one.isdisjoint(member.volume_claims)), None)
        if group is None or member.constraints.affinity:
            continue
        name = min(group)
        term = PodTerm(ZONE_FIELD, Selector((Match(_GROUP, MatchOperator.IN, (name,)),)))
        member.labels = {**member.labels, _GROUP: name}
        member.constraints, member.selectable = replace(member.constraints, affinity=(term,)), True
    return True
