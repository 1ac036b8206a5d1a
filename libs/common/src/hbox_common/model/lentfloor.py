"""The cpu and memory that a node with idle cards always lends to small pods without cards (ADR 91).

Idle cards keep `PERCENT` of a node's cpu and memory. On a node of 2 CPUs, daemons and HBox's own pods use the rest, so that no pod without cards would fit.
Small pods (`is_small`) may therefore use a part of what the cards keep. That part is bounded in sum: each idle card keeps a quarter of its share, and the node
lends no more than `MOST`, for any number of small pods.
"""

from collections.abc import Mapping

from .resources import CPU, MEMORY, MIB

#: Percent of a node's cpu and memory that its idle cards keep, if the policy sets no other share.
PERCENT = 75.0

#: Maximum requests of a small pod, in base units (millicores, bytes).
SMALL: Mapping[str, int] = {CPU: 100, MEMORY: 256 * MIB}

#: Limits of small pods' use of a node's reserved resources: in base units, and as a fraction.
MOST: Mapping[str, int] = {CPU: 1500, MEMORY: 1536 * MIB}
PART = 0.75


def is_small(requests: Mapping[str, int]) -> bool:
    """Whether no request exceeds `SMALL`. `requests`: base units."""
    return all(requests.get(resource, 0) <= most for resource, most in SMALL.items())
