"""Members of a gang that share an unbound claim with `WaitForFirstConsumer`: its volume is provisioned in one zone, so they are placed in one zone."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hbox_common.model import Match, MatchOperator
from hbox_common.model.podconstraints import PodTerm, Selector

from ..cluster.entities import Member
from ..cluster.interning import ZONE_FIELD

#: Key of a label that no pod can have. Its value names the group of members: one of their shared claims.
_GROUP = "\0shared-claim"


def keep_in_one_zone(members: Sequence[Member]) -> bool:
    """Add a pod affinity in the zone to members that share claims, directly or through other members. Returns whether any do. Members with a pod affinity of
    their own get no second term, because all terms of one affinity select the same pods; for them the binder compares the node with the volume."""
    users = Counter(claim for member in members for claim in set(member.volume_claims))
    groups = {claim: [claim] for claim, count in users.items() if count > 1}  # by claim, all claims that have to be in its zone
    if not groups:
        return False
    for member in members:
        first, *others = [claim for claim in member.volume_claims if claim in groups] or [""]
        for other in others:
            if (group := groups[first]) is not (joining := groups[other]):
                group += joining
                groups.update(dict.fromkeys(joining, group))
    for member in members:
        shared = next((claim for claim in member.volume_claims if claim in groups), None)
        if shared is None or member.constraints.affinity:
            continue
        name = groups[shared][0]
        term = PodTerm(ZONE_FIELD, Selector((Match(_GROUP, MatchOperator.IN, (name,)),)))
        member.labels = {**member.labels, _GROUP: name}
        member.constraints, member.selectable = replace(member.constraints, affinity=(term,)), True
    return True
