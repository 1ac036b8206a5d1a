"""Room on empty nodes by shape, kept until a node is described anew."""

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from .arrays import Ints
from .task import Task


@dataclass(slots=True)
class KeptRooms:
    """`last`: the shape examined last, and its room `[N]`; `sums`: over all nodes."""

    last: tuple[Task, Ints] | None = None
    sums: WeakKeyDictionary[Task, int] = field(default_factory=WeakKeyDictionary)
    described: int = -1

    def follow(self, described: int) -> None:
        """Forget what a node made obsolete that was described since. described: how many were (`Columns.described.end`)."""
        if self.described != described:
            self.described, self.last = described, None
            self.sums.clear()
