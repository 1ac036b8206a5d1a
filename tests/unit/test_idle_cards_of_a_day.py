"""Why cards are idle, as the bench of a day says it: each card has one reason."""

from collections.abc import Sequence

import numpy as np

from ..bench.day.idle import reasons


def said(
    idle: Sequence[int], waiting: Sequence[Sequence[int]], *, reserved: Sequence[int] = (), nominated: int = 0
) -> dict[str, int]:
    cards = np.array(idle, dtype=np.int64)
    kept = np.isin(np.arange(len(idle)), reserved)
    found = reasons(cards, kept, nominated, waiting)
    assert sum(found.values()) == sum(idle)
    return {reason: count for reason, count in found.items() if count}


def test_nobody_waits_for_them() -> None:
    assert said([8, 3], []) == {"no demand": 11}
    assert said([8, 3], [(1, 3)], reserved=[0, 1]) == {"reserved": 3, "no demand": 8}


def test_a_pod_of_eight_finds_pieces_and_a_gang_too_few() -> None:
    assert said([4, 4], [(1, 8)]) == {"scattered": 8}
    assert said([4, 4], [(2, 8)]) == {"too large": 8}
    assert said([4, 4, 1], [(4, 8), (1, 8)]) == {"scattered": 8, "too large": 1}


def test_who_would_fit_is_kept_out_by_a_reservation_or_by_rules() -> None:
    assert said([8, 8], [(1, 8)], reserved=[0]) == {"open": 8, "no demand": 8}
    assert said([8, 8], [(2, 8)], reserved=[0]) == {"reserved": 16}


def test_cards_for_whom_others_leave_are_counted_first() -> None:
    assert said([8, 8], [(1, 8)], nominated=12) == {"nominated": 12, "too large": 4}
