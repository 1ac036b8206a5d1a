"""When it pays to move pods: the terms in card-seconds, and how many may move in an hour."""

from math import inf, nan

import pytest

from hbox_common.model.consolidation import (
    ANY,
    LONGEST_GAIN_S,
    MoveTerms,
    RecentMoves,
    card_seconds_lost,
    gain_seconds,
    too_many,
)


def terms(*, cards: float = 16, gain_s: float = 3600.0, lost: float = 3600.0) -> MoveTerms:
    return MoveTerms(cards, gain_s, pods_moved=4, cards_moved=4, pods_restarted=4, card_seconds_lost=lost)


def test_it_pays_when_more_is_gained_than_lost_and_not_when_it_is_as_much() -> None:
    assert terms(cards=16, gain_s=100.0, lost=1599.0).pays
    assert not terms(cards=16, gain_s=100.0, lost=1600.0).pays
    assert not terms(cards=16, gain_s=100.0, lost=1601.0).pays


@pytest.mark.parametrize(
    "wrong", [{"lost": nan}, {"lost": inf}, {"lost": -1.0}, {"gain_s": nan}, {"gain_s": inf}, {"cards": 0}, {"cards": -4}]
)
def test_what_is_no_sensible_figure_never_pays(wrong: dict[str, float]) -> None:
    assert not terms(**wrong).pays


def test_each_pod_loses_its_work_and_the_time_to_start_again_times_its_cards() -> None:
    assert card_seconds_lost([(4, 100.0), (1, 0.0), (0, 50.0)], restart_s=60.0) == 4 * 160 + 60 + 110


def test_work_below_nothing_is_nothing() -> None:
    assert card_seconds_lost([(2, -1000.0)], restart_s=60.0) == 120.0


def test_a_gang_gains_no_longer_than_it_runs_waits_anyway_or_the_policy_looks_ahead() -> None:
    assert gain_seconds(3600.0, runs_s=inf, starts_in_s=inf) == 3600.0
    assert gain_seconds(3600.0, runs_s=300.0, starts_in_s=inf) == 300.0
    assert gain_seconds(3600.0, runs_s=inf, starts_in_s=40.0) == 40.0
    assert gain_seconds(3600.0, runs_s=inf, starts_in_s=-5.0) == 0.0
    assert gain_seconds(inf, runs_s=inf, starts_in_s=inf) == LONGEST_GAIN_S


def test_moves_count_for_an_hour_and_those_that_were_refused_do_not() -> None:
    moves = RecentMoves()
    moves.note("a", 3, 1000.0)
    moves.note("b", 2, 2000.0)
    moves.note("c", 0, 2000.0)
    assert moves.within_hour(2000.0) == 5
    assert moves.next_at(2000.0) == 4600.0
    moves.withdraw("b")
    assert moves.within_hour(4599.0) == 3
    assert moves.within_hour(4600.0) == 0
    assert moves.next_at(4600.0) is None


def test_a_clock_that_was_set_back_forgets_what_is_in_its_future() -> None:
    moves = RecentMoves()
    moves.note("a", 3, 9000.0)
    assert moves.within_hour(5000.0) == 0


def test_no_more_move_in_an_hour_than_allowed() -> None:
    assert too_many(ANY, 10_000, 10_000) == ""
    assert too_many(8, 4, 4) == ""
    assert too_many(8, 5, 4) == "5 pods were moved within the last hour, and 4 more would be above 8"
    assert too_many(0, 0, 1)


def test_the_terms_are_said_in_cards_and_hours() -> None:
    assert terms(cards=16, gain_s=3600.0, lost=1080.0).text == (
        "gains 16 cards for 1 h (16 card-hours), 4 pods with 4 cards move and lose 0.3 card-hours"
    )
    one = MoveTerms(0.5, 3600.0, pods_moved=1, cards_moved=1, pods_restarted=8, card_seconds_lost=360.0)
    assert one.text == (
        "gains 0.5 cards for 1 h (0.5 card-hours), 1 pod with 1 card (and 7 more of their gangs that start anew) moves and loses 0.1 card-hours"
    )
