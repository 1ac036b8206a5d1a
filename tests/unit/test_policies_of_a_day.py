"""Which rows of a day's table stand under the three levels (`tests/bench/day`)."""

from ..bench.day.policies import policies


def test_a_row_keeps_to_the_levels_where_its_policy_has_them_or_preempts_nobody() -> None:
    kept = {name for name, row in policies().items() if row.keeps_levels}
    assert kept == {"HBox", "HBox, moves on", "Volcano", "KAI's, levels"}
