"""Whose turn it is on a node: of the pods whose cards a device plugin hands over, one a node is in allocation at a time (reference hami §1.3).

A turn begins when a task becomes the owner, and ends when the node's lock is gone: the plugin releases it when it has allocated, the binder when nothing came
of the binding. All others of that node stand in line meanwhile, in the order of their decisions, without a call to the API server.

One comes before its turn: the pod that has the lock already, and is unbound. A binder that was killed took it, and nobody else would release it.
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
