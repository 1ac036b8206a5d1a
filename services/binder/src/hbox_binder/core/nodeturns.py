"""Turns on nodes: of the pods whose cards a device plugin hands over, one per node is in allocation at a time (sources: hami-node-lock).

A turn begins when a task becomes the owner, and ends when the node's lock is released: by the plugin after the allocation, or by the binder if the bind fails.
All other tasks of that node wait meanwhile, in the order of their decisions, without a call to the API server.

An unbound pod that already has the lock goes first: a binder that was killed took the lock, and no other component would release it.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class Turn(Generic[T]):
    """Of one node. `held`: the node is locked, or may be, by a pod that is no owner here: bound, or another scheduler's. `holder`: that pod (namespace, name),
    where it is known."""

    owner: T | None = None
    held: bool = False
    holder: tuple[str, str] | None = None
    line: deque[T] = field(default_factory=deque)

    @property
    def free(self) -> bool:
        return self.owner is None and not self.held

    @property
    def over(self) -> bool:
        return self.free and not self.line
