"""Explanations of pending jobs on random clusters are true: `make fuzz` looks at more clusters (`python -m tests.explained`)."""

from hypothesis import given
from hypothesis import strategies as st

from ..explained.checks import check
from ..searching import examples


@given(st.integers(0, 2**32))
@examples(30, fixed=30)
def test_counts_outcome_and_proposed_changes_of_a_pending_job_hold(seed: int) -> None:
    check(seed)
