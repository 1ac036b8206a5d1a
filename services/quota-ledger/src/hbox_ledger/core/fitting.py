"""Reduces pod facts that a database refuses to what it can store.

job-controller limits facts where they enter the platform, so this handles facts that passed nevertheless: messages of an older version or an unknown sender.
A running pod has to be booked, even with less than its fact contains: if the fact were dropped, its cards would be allocated again, and a list that contains
it would never open the books.
"""

from dataclasses import replace

from hbox_common.model import ClaimId, JobId, PodFact, QueueName
from hbox_common.model.bounds import (
    ID_BYTES,
    INT32_MAX,
    INT64_MAX,
    KEY_BYTES,
    MOST_OF_A_POD,
    NAME_BYTES,
    is_plain,
    sanitized,
)
from hbox_common.model.devices import MAX_CARDS, is_slice

#: A job's id is a uid, or `podgroup:<namespace>/<name>`.
_JOB_BYTES = 2 * NAME_BYTES


def fitting(fact: PodFact) -> PodFact | None:
    """The storable part of the fact; None if its pod or node cannot exist."""
    if not (is_plain(fact.uid, ID_BYTES) and is_plain(fact.node, NAME_BYTES)):
        return None
    return replace(
        fact,
        namespace=sanitized(fact.namespace, NAME_BYTES),
        name=sanitized(fact.name, NAME_BYTES),
        job=fact.job if is_plain(fact.job, _JOB_BYTES) else JobId(fact.uid),
        queue=fact.queue if is_plain(fact.queue, NAME_BYTES) else QueueName(""),
        claim=fact.claim if is_plain(fact.claim, ID_BYTES) else ClaimId(""),
        resource_version=fact.resource_version if is_plain(fact.resource_version, ID_BYTES) else "",
        priority=max(-INT32_MAX, min(fact.priority, INT32_MAX)),
        min_member=max(1, min(fact.min_member, INT32_MAX)),
        cards=max(0, min(fact.cards, MAX_CARDS)),
        requests={
            name: min(units, MOST_OF_A_POD) for name, units in fact.requests.items() if is_plain(name, KEY_BYTES) and units > 0
        },
        slices=tuple(s for s in fact.slices[:MAX_CARDS] if is_slice(s)),
        created_at=fact.created_at if abs(fact.created_at) < INT64_MAX else 0.0,
    )
