"""The breaker: how many nodes health-monitor may restrict, and how many gangs it may evict, at a time."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    least: int = 2  #: nodes that may always be restricted
    share: float = 0.05  #: of the nodes with cards
    unit_share: float = 0.20  #: of the nodes of a unit; one is always allowed
    new_share: float = 0.02  #: of the nodes with cards, newly restricted in `window_s`; `least` are always allowed
    window_s: float = 600.0


@dataclass(slots=True)
class Breaker:
    """`restricted`: nodes that take no new work, or none on several cards, because of us; with their units. Further nodes wait in `queue`, in their order.
    Releases are never limited, so the breaker closes by itself."""

    limits: Limits = field(default_factory=Limits)
    nodes: dict[str, str] = field(default_factory=dict)  #: nodes with cards -> unit
    units: dict[str, int] = field(default_factory=dict)  #: sizes
    restricted: dict[str, str] = field(default_factory=dict)
    by_unit: dict[str, int] = field(default_factory=dict)  #: restricted nodes of each unit
    begun: list[float] = field(default_factory=list)  #: times of the newest restrictions
    evicted: list[float] = field(default_factory=list)  #: times of the newest evictions of gangs
    queue: dict[str, None] = field(default_factory=dict)

    @property
    def most(self) -> int:
        return max(self.limits.least, int(len(self.nodes) * self.limits.share))

    @property
    def most_new(self) -> int:
        return max(self.limits.least, int(len(self.nodes) * self.limits.new_share))

    def seen(self, node: str, unit: str) -> None:
        """Count the node in its unit. A node that moves to another unit stays restricted, or keeps its place in the queue."""
        if self.nodes.get(node) == unit:
            return
        restricted, waits = node in self.restricted, node in self.queue
        place = list(self.queue)
        self.gone(node)
        self.nodes[node] = unit
        self.units[unit] = self.units.get(unit, 0) + 1
        if restricted:
            self._restrict(node)
        elif waits:
            self.queue = dict.fromkeys(place)

    def gone(self, node: str) -> None:
        unit = self.nodes.pop(node, None)
        if unit is not None:
            self.units[unit] -= 1
        self.release(node)

    def admits(self, node: str, now: float) -> bool:
        """Restrict the node, or queue it. A node that is restricted already stays so."""
        if node in self.restricted:
            self.queue.pop(node, None)
            return True
        self.queue.setdefault(node)
        if self.next(now) != node:
            return False
        self.take(node, now)
        return True

    def take(self, node: str, now: float) -> None:
        """Count the node as restricted, also if another part of health-monitor cordoned it."""
        self.queue.pop(node, None)
        if node not in self.restricted:
            self._restrict(node)
            self.begun.append(now)

    def _restrict(self, node: str) -> None:
        unit = self.restricted[node] = self.nodes.get(node, "")
        self.by_unit[unit] = self.by_unit.get(unit, 0) + 1

    def release(self, node: str) -> None:
        self.queue.pop(node, None)
        unit = self.restricted.pop(node, None)
        if unit is not None:
            self.by_unit[unit] -= 1

    def admits_eviction(self, now: float) -> bool:
        self.evicted = [at for at in self.evicted if now - at < self.limits.window_s]
        if len(self.evicted) >= self.most_new:
            return False
        self.evicted.append(now)
        return True

    def next_room(self, now: float) -> float | None:
        """When the limit of new restrictions or evictions gives way; None: it does not bind."""
        times = [
            times[-most] for times, most in ((self.begun, self.most_new), (self.evicted, self.most_new)) if len(times) >= most
        ]
        ends = [at + self.limits.window_s for at in times if at + self.limits.window_s > now]
        return min(ends, default=None)

    def next(self, now: float) -> str | None:
        """The first node of the queue for which there is room."""
        return next((node for node in self.queue if self._room(node, now)), None)

    def _room(self, node: str, now: float) -> bool:
        self.begun = [at for at in self.begun if now - at < self.limits.window_s]
        unit = self.nodes.get(node, "")
        of_unit = max(1, int(self.units.get(unit, 0) * self.limits.unit_share))
        return (
            len(self.restricted) < self.most
            and len(self.begun) < self.most_new
            and (not unit or self.by_unit.get(unit, 0) < of_unit)
        )
