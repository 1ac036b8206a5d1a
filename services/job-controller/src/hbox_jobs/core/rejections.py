"""Nodes for which provisioners made no volume: they are not tried again for the claim at once, each time for longer."""

import heapq
from dataclasses import dataclass

from hbox_common.pacing import backoff_s

#: A node is tried again for a claim after so long, doubled by each rejection.
FIRST_S, LONGEST_S = 10.0, 300.0


@dataclass(slots=True)
class _Rejection:
    times: int = 0
    until: float = 0.0  #: monotonic
    over: bool = False  #: `until` has passed


class Rejections:
    """By claim (namespace/name) and node. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, _Rejection]] = {}
        self._dues: list[tuple[float, str, str]] = []

    def add(self, claim: str, node: str, now: float) -> float:
        """Seconds until the node may be tried again for the claim."""
        one = self._of.setdefault(claim, {}).setdefault(node, _Rejection())
        wait_s = backoff_s(one.times, base_s=FIRST_S, cap_s=LONGEST_S)
        one.times, one.until, one.over = one.times + 1, now + wait_s, False
        heapq.heappush(self._dues, (one.until, claim, node))
        return wait_s

    def nodes(self, claim: str) -> tuple[str, ...]:
        """Nodes that are not to be tried for the claim now."""
        return tuple(sorted(node for node, one in self._of.get(claim, {}).items() if not one.over))

    def forget(self, claim: str) -> None:
        """The claim has a volume, or is gone."""
        self._of.pop(claim, None)

    def next_due(self) -> float | None:
        """When `expire` is due."""
        return self._dues[0][0] if self._dues else None

    def expire(self, now: float) -> list[str]:
        """Claims for which more nodes may be tried from now on."""
        found: dict[str, None] = {}
        while self._dues and self._dues[0][0] <= now:
            due, claim, node = heapq.heappop(self._dues)
            one = self._of.get(claim, {}).get(node)
            if one is not None and one.until == due and not one.over:
                one.over = True
                found[claim] = None
        return list(found)
