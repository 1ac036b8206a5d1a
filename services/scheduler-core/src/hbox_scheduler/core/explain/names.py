"""Existing names that are similar to one that does not exist."""

from collections.abc import Iterable

#: Characters that are mistaken for each other.
_MISTAKEN = str.maketrans("OIL", "011")


def nearest(wanted: str, names: Iterable[str]) -> str:
    """The name with the least edit distance, if at most half of its characters differ; "" = none has. Of equally similar names the first."""
    plain = _plain(wanted)
    best, least = "", max(len(plain), 1) / 2
    for name in names:
        distance = edit_distance(plain, _plain(name))
        if distance < least or (distance == least and not best):
            best, least = name, distance
    return best


def edit_distance(one: str, other: str) -> int:
    """Characters to insert, delete or replace."""
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, right in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (left != right))
    return row[-1]


def _plain(name: str) -> str:
    return name.upper().translate(_MISTAKEN)
