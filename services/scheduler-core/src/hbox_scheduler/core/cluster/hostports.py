"""Booked host ports by port and row. Stored sparsely outside the columns, because few pods use one of the 65,535 ports."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np

from hbox_common.model import is_host_port
from hbox_common.model.hostports import WHOLE

from .arrays import Ints

#: Ports (by the names of their resources) and the units of each.
Ports: TypeAlias = tuple[tuple[str, int], ...]


def ports_of(requests: Mapping[str, int]) -> Ports:
    """The host ports among the resources of a request."""
    return tuple((name, units) for name, units in requests.items() if units > 0 and is_host_port(name))


class HostPorts:
    """`_used[port][row]` units; no entry = none. Over-committed where reality is (pods of others, found bound)."""

    def __init__(self) -> None:
        self._used: dict[str, dict[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._used)

    def book(self, rows: Iterable[int], name: str, units: int) -> None:
        """Add `units` (negative = take back) of a port on each row."""
        used = self._used.setdefault(name, {})
        for row in rows:
            left = used.get(row, 0) + units
            if left:
                used[row] = left
            else:
                used.pop(row, None)
        if not used:
            del self._used[name]

    @property
    def used(self) -> Mapping[str, Mapping[int, int]]:
        """Units by port and row; what is not there is free."""
        return {name: rows for name, rows in self._used.items() if rows}

    def clear(self, row: int) -> None:
        """Nothing booked on this row."""
        for name in [name for name, used in self._used.items() if row in used]:
            del self._used[name][row]
            if not self._used[name]:
                del self._used[name]

    def without(self, other: "HostPorts") -> "HostPorts":
        """A copy with what `other` holds taken away."""
        left = HostPorts()
        for name in self._used.keys() | other._used.keys():
            mine, taken = self._used.get(name, {}), other._used.get(name, {})
            left._used[name] = {row: mine.get(row, 0) - taken.get(row, 0) for row in mine.keys() | taken.keys()}
        return left

    def maximum(self, other: "HostPorts") -> "HostPorts":
        """A copy with the larger of both everywhere."""
        most = HostPorts()
        for name in self._used.keys() | other._used.keys():
            mine, theirs = self._used.get(name, {}), other._used.get(name, {})
            most._used[name] = {row: max(mine.get(row, 0), theirs.get(row, 0)) for row in mine.keys() | theirs.keys()}
        return most

    def held(self, name: str, row: int) -> int:
        """Units of a port on a row."""
        return self._used.get(name, {}).get(row, 0)

    def room(self, size: int, name: str, units: int) -> Ints:
        """`[size]`: how many times `units` of a port fit on each row."""
        room = np.full(size, WHOLE // units, dtype=np.int64)
        for row, used in self._used.get(name, {}).items():
            room[row] = max(WHOLE - used, 0) // units
        return room
