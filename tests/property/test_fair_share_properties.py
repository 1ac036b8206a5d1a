"""The division of amounts among claims with history: what must hold whatever the claims are (sources: kai-fair-share)."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model.fairshare import ShareDemand, divide, remembering

from ..searching import examples

PARTS = st.floats(0.0, 1.0, allow_nan=False).map(lambda x: round(x, 3))
CLAIMS = st.builds(
    ShareDemand,
    deserved=st.integers(0, 20),
    wanted=st.integers(0, 60),
    weight=st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0, 3.0]),
    priority=st.integers(0, 1),
)
WORLDS = st.lists(st.tuples(CLAIMS, PARTS), min_size=1, max_size=8)
K = st.sampled_from([0.25, 0.5, 1.0, 2.0, 10.0])


def owed(claims: list[ShareDemand]) -> list[int]:
    return [min(claim.deserved, claim.wanted) for claim in claims]


@given(WORLDS, st.integers(0, 200), K)
@examples(400)
def test_what_is_owed_is_kept_nobody_gets_more_than_it_wants_and_the_sum_is_the_same(
    world: list[tuple[ShareDemand, float]], amount: int, k: float
) -> None:
    claims, used = [claim for claim, _ in world], [part for _, part in world]
    plain, remembered = divide(amount, claims), divide(amount, remembering(claims, used, k))
    assert sum(plain) == sum(remembered)
    for claim, least, got in zip(claims, owed(claims), remembered, strict=True):
        assert least <= got <= max(claim.wanted, least)


@given(WORLDS, st.integers(0, 200))
def test_without_a_weight_history_changes_no_bit(world: list[tuple[ShareDemand, float]], amount: int) -> None:
    claims, used = [claim for claim, _ in world], [part for _, part in world]
    assert remembering(claims, used, 0) == claims
    assert divide(amount, remembering(claims, used, 0)) == divide(amount, claims)


@given(WORLDS, st.integers(0, 200), K, st.integers(0, 7), st.sampled_from([0.001, 0.01, 0.1, 0.5, 2.0]))
@examples(800)
def test_more_history_never_gives_more(
    world: list[tuple[ShareDemand, float]], amount: int, k: float, who: int, more: float
) -> None:
    claims, used = [claim for claim, _ in world], [part for _, part in world]
    who %= len(claims)
    later = [part + more * (number == who) for number, part in enumerate(used)]
    before, after = (divide(amount, remembering(claims, history, k))[who] for history in (used, later))
    assert after <= before


@given(st.lists(PARTS, min_size=2, max_size=6), st.integers(0, 100), K)
def test_of_equals_who_used_less_gets_no_less(used: list[float], amount: int, k: float) -> None:
    shares = divide(amount, remembering([ShareDemand(0, 60)] * len(used), used, k))
    for one, mine in enumerate(used):
        for other, theirs in enumerate(used):
            assert mine >= theirs or shares[one] >= shares[other]


@given(WORLDS, st.integers(0, 200), PARTS, K)
def test_priorities_are_served_as_without_history(
    world: list[tuple[ShareDemand, float]], amount: int, part: float, k: float
) -> None:
    claims, used = [claim for claim, _ in world], [own for _, own in world]
    low = [*claims, ShareDemand(0, 50, 1.0, priority=-1)]
    assert divide(amount, remembering(low, [*used, part], k))[:-1] == divide(amount, remembering(claims, used, k))


def test_a_planted_slip_would_be_seen() -> None:
    """A correction that pays for history instead of charging for it."""
    claims = [ShareDemand(0, 10), ShareDemand(0, 10)]
    assert divide(10, remembering(claims, [0.5, 0.0], 1.0)) == [3, 7]
    assert divide(10, [replace(claims[0], weight=1.5), replace(claims[1], weight=0.5)]) == [8, 2]
