"""Whether a decision is executed on this node now."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from hbox_common.events import RemediesDecided
from hbox_common.model.remedy import Decision

#: Both reach commands, their environment or names of files.
_INCIDENT, _ENTITY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"), re.compile(r"[A-Za-z0-9][A-Za-z0-9:._/-]{0,255}")


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `most` executions within `per_s` seconds."""

    most: int
    per_s: float


def ignored(decided: RemediesDecided, decision: Decision, *, node: str, boot_id: str, now: float) -> str:
    """Why the decision is none for this node now; empty: it is one. `now`: seconds since the epoch."""
    if decided.node != node:
        return "foreign-node"
    if not boot_id or decided.boot_id != boot_id:
        return "other-boot"
    if not _INCIDENT.fullmatch(decision.incident) or not _ENTITY.fullmatch(decision.entity):
        return "malformed"
    return "expired" if now >= decision.expires else ""


def exceeded(limit: Limit, begun: Iterable[float], *, now: float) -> str:
    """Why the verb may not be executed once more; empty: it may. `begun`: when it was executed, in seconds since the epoch."""
    recent = sum(now - at < limit.per_s for at in begun)
    return f"limit of the node: {recent} times in {limit.per_s:.0f} s" if recent >= limit.most else ""
