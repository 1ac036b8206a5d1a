"""What the status of a Queue object should say, and what has to be written for that.

The state is a command as well as a report: users and Volcano's tools write `Open`, `Closing` and `Closed`, and the ledger obeys them. It writes `Open` if the
state is empty, replaces `Closing` by `Closed` once the queue is empty, and replaces any other value by one of these two. It does not change `Open` and
`Closed`, not even `Closed` while the queue holds pods: Volcano's webhook refuses every update of a queue in state `Closing`, so that the garbage collector
could not finish the deletion of a queue that was closed for it. A queue that takes no jobs for other reasons (rules that cannot be parsed, a closed queue
above it) keeps its state.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.model import QueuePhase, Resources, capacity_units, in_all_pools, is_host_port, quantity
from hbox_common.model.cardparts import is_share

#: Volcano's names of the fields that count PodGroups.
COUNTS = ("pending", "inqueue", "running", "unknown", "completed")


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """A queue's current status. A count that is None is absent, which means 0: a PUT by Volcano's tools omits every 0."""

    state: str = ""
    allocated: Mapping[str, str | float] = field(default_factory=dict)
    counts: Mapping[str, int | None] = field(default_factory=dict)


def state_of(state: str, total: Mapping[str, int]) -> str:
    """The state that should replace `state`, for a queue that uses `total` with all queues below it."""
    if state in ("", QueuePhase.OPEN):
        return QueuePhase.OPEN.value
    if state == QueuePhase.CLOSED:
        return state
    return (QueuePhase.CLOSING if any(total.values()) else QueuePhase.CLOSED).value


def change(found: QueueStatus, total: Resources, counts: Mapping[str, int] | None) -> dict[str, Any]:
    """The merge patch that corrects a status; empty if it is correct. `counts`: PodGroups by field, None until they are counted."""
    patch: dict[str, Any] = {}
    if (state := state_of(found.state, total)) != found.state:
        patch["state"] = state
    units = {
        name: amount for name, amount in in_all_pools(total).items() if amount and not is_host_port(name) and not is_share(name)
    }
    allocated: dict[str, str | None] = {
        name: quantity(name, amount) for name, amount in units.items() if not _equals(found.allocated.get(name), name, amount)
    }
    allocated |= dict.fromkeys(found.allocated.keys() - units.keys())
    if allocated:
        patch["allocated"] = allocated
    if counts is not None and any((found.counts.get(name) or 0) != counts.get(name, 0) for name in COUNTS):
        patch |= {name: counts.get(name, 0) for name in COUNTS if found.counts.get(name) != counts.get(name, 0)}
    return patch


def contested(ours: QueueStatus, found: QueueStatus) -> list[str]:
    """Fields that another writer changed after HBox wrote them. Opening or closing a queue is a command, not a conflict."""
    other = [name for name in COUNTS if (found.counts.get(name) or 0) != (ours.counts.get(name) or 0)]
    same = ours.allocated.keys() == found.allocated.keys() and all(
        _equals(found.allocated[name], name, capacity_units(name, written)) for name, written in ours.allocated.items()
    )
    if not same:
        other.append("allocated")
    if ours.state != found.state and QueuePhase.OPEN not in (ours.state, found.state):
        other.append("state")
    return sorted(other)


def _equals(written: str | float | None, name: str, units: int) -> bool:
    if written is None:
        return False
    try:
        return capacity_units(name, written) == units
    except InvalidRequest:
        return False
