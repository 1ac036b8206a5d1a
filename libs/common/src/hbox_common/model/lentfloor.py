"""What a node with idle cards always lends to small pods without cards (ADR 91).

Idle cards keep `PERCENT` of a node's cpu and memory, so that a node of 2 CPUs whose rest is used by daemons and by HBox's own pods would take no pod without
cards at all. Small pods (`is_small`) may therefore use a part of what is kept as well. The part is bounded in sum: however many small pods come, each idle card
keeps a quarter of its share, and the node lends no more than `MOST`.
"""

from collections.abc import Mapping

from .resources import CPU, MEMORY, MIB

#: Of a node's cpu and memory, what its idle cards keep where the policy names no other share.
PERCENT = 75.0

#: A small pod asks for no more than this of each, in base units (millicores, bytes).
SMALL: Mapping[str, int] = {CPU: 100, MEMORY: 256 * MIB}

#: What small pods may use of a node's kept resources, in base units; and which part of them at most.
MOST: Mapping[str, int] = {CPU: 1500, MEMORY: 1536 * MIB}
PART = 0.75


def is_small(requests: Mapping[str, int]) -> bool:
    """requests: by resource, in base units."""
    return all(requests.get(resource, 0) <= most for resource, most in SMALL.items())
