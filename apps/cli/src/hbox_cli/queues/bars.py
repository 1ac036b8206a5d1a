"""One bar of text for each queue: its use, the borrowed part of it, and marks at the guaranteed, deserved and allowed amounts.

    ██████┆██│▒▒▒·····▏

A mark is in a cell of its own behind the last unit that it allows, so that marks never hide use.
"""

from collections.abc import Iterable, Mapping
from typing import Any

LEGEND = "█ used  ▒ borrowed  · may borrow  ┆ guarantee  │ deserved  ▏ limit"


def scale_of(items: Iterable[Mapping[str, Any]], resource: str) -> int:
    """The largest amount that any of these bars has to show."""
    amounts = ("capability", "deserved", "guarantee", "used")
    return max((item[amount].get(resource, 0) for item in items for amount in amounts), default=0)


def bar(item: Mapping[str, Any], resource: str, *, scale: int, width: int = 24) -> str:
    """`scale` units are `width` cells; what is more than nothing has one at least."""
    if scale <= 0:
        return ""

    def cells(units: int) -> int:
        return min(width, max(1, round(units * width / scale))) if units > 0 else 0

    used, limit = item["used"].get(resource, 0), item["capability"].get(resource)
    deserved, guarantee = item["deserved"].get(resource), item["guarantee"].get(resource)
    own = used if deserved is None else min(used, deserved)
    line = ["█"] * cells(own) + ["▒"] * max(0, cells(used) - cells(own))
    line += ["·"] * ((width if limit is None else cells(limit)) - len(line))
    marks = [(cells(units), glyph) for units, glyph in ((guarantee, "┆"), (deserved, "│"), (limit, "▏")) if units is not None]
    for position, glyph in sorted(marks, reverse=True):  # from the right, so that positions stay
        line.insert(position, glyph)
    return "".join(line)
