"""Why no node takes a pod: every node counts once, and what alone is in the way is told apart."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hbox_scheduler.core.explain.labels import Label
from hbox_scheduler.core.explain.reasons import tally

LABELS = [Label.NODE_NOT_READY, Label.UNTOLERATED_TAINT, "Insufficient cpu", Label.CARD_NOT_HEALTH, Label.CARDS_TOO_FEW]


def mask(text: str) -> np.ndarray:
    return np.array([c == "x" for c in text])


def test_each_node_gets_the_first_rule_that_it_fails_and_is_alone_where_it_fails_no_other() -> None:
    """Four nodes: one fits, one fails the taint only, one cpu only, one both."""
    reasons = tally([(Label.UNTOLERATED_TAINT, mask(".x.x")), ("Insufficient cpu", mask("..xx"))], np.arange(4), 4)
    assert reasons.counts == {"UntoleratedTaint": 2, "Insufficient cpu": 1}
    assert reasons.sole == {"UntoleratedTaint": 1, "Insufficient cpu": 1}
    assert reasons.fitting == 1


def test_the_most_frequent_reason_is_said_first_and_equal_ones_by_name() -> None:
    reasons = tally(
        [(Label.UNTOLERATED_TAINT, mask("x....")), ("Insufficient cpu", mask(".xxx.")), ("Insufficient a", mask("....x"))],
        np.arange(5),
        5,
    )
    assert reasons.headline().startswith("0/5 nodes are available: 3 Insufficient cpu, 1 Insufficient a, 1 UntoleratedTaint")


def test_what_is_said_of_cards_is_one_obstacle() -> None:
    reasons = tally(
        [(Label.CARD_NOT_HEALTH, mask("x.")), (Label.CARDS_TOO_FEW, mask("xx")), ("Insufficient cpu", mask(".x"))],
        np.arange(2),
        2,
    )
    assert reasons.sole == {"CardNotHealth": 1}


@given(st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=5, max_size=5), st.sets(st.integers(0, 6)))
def test_counts_and_fitting_nodes_sum_to_the_nodes_whatever_fails(fails: list[list[bool]], alive: set[int]) -> None:
    rows = np.array(sorted(alive), dtype=np.int64)
    reasons = tally([(label, np.array(row)) for label, row in zip(LABELS, fails, strict=True)], rows, 7)
    assert sum(reasons.counts.values()) + reasons.fitting == reasons.nodes == len(alive)
    assert all(reasons.sole[label] <= reasons.counts[label] for label in reasons.sole)
