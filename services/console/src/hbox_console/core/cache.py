"""Answers of reviews, kept for a while. Pure: the caller brings the time."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Expiring(Generic[K, V]):
    """At most `size` answers; the one that was used longest ago makes room. An answer counts for `lasts_s` from when its question was sent, so that a revoked
    right ends within that time."""

    def __init__(self, *, size: int, lasts_s: float) -> None:
        self._size, self._lasts_s = size, lasts_s
        self._kept: OrderedDict[K, tuple[V, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: K, now: float) -> V | None:
        found = self._kept.get(key)
        if found is None:
            return None
        value, until = found
        if now >= until:
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return value

    def put(self, key: K, value: V, asked_at: float) -> None:
        self._kept[key] = (value, asked_at + self._lasts_s)
        self._kept.move_to_end(key)
        if len(self._kept) > self._size:
            self._kept.popitem(last=False)
