"""Amounts divided among claims."""

from hbox_common.model.fairshare import ShareDemand, divide


def test_everybody_gets_what_it_deserves_before_the_rest_is_divided_by_weight() -> None:
    assert divide(10, [ShareDemand(2, 100, weight=1), ShareDemand(2, 100, weight=2)]) == [4, 6]


def test_what_one_does_not_want_goes_to_the_others() -> None:
    assert divide(10, [ShareDemand(4, 1), ShareDemand(2, 100), ShareDemand(2, 3)]) == [1, 6, 3]


def test_the_higher_priority_is_satisfied_from_the_rest_first() -> None:
    assert divide(10, [ShareDemand(1, 4, priority=1), ShareDemand(1, 100, weight=9)]) == [4, 6]


def test_units_that_do_not_divide_go_to_the_largest_remainder() -> None:
    assert divide(8, [ShareDemand(4, 7, weight=4), ShareDemand(2, 3, weight=2)]) == [5, 3]


def test_what_is_deserved_is_given_even_where_there_is_less() -> None:
    assert divide(2, [ShareDemand(2, 2), ShareDemand(2, 2)]) == [2, 2]


def test_without_a_weight_nothing_comes_on_top() -> None:
    assert divide(10, [ShareDemand(2, 100, weight=0), ShareDemand(3, 100, weight=0)]) == [2, 3]
