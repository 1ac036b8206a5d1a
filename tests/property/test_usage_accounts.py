"""Usage accounts are the integral of live claims: second by second the same, however the time is cut and however often anybody looks."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import QueueName
from hbox_ledger.core.accounts.usage import HOUR_S, Account, Accrued, Amounts, Held, accrue

QUEUES = (QueueName("a"), QueueName("b"))
LATEST = 240

claims = st.lists(
    st.builds(
        Held,
        st.sampled_from(QUEUES),
        st.sampled_from(["ml", "vision", "speech"]),
        st.dictionaries(st.sampled_from(["A100", "H100"]), st.integers(1, 8000), min_size=1),
        st.integers(0, LATEST),
        st.integers(0, LATEST),
    ),
    max_size=12,
)
shares = st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 12_000))
cuts = st.lists(st.integers(1, LATEST - 1), unique=True, max_size=5).map(sorted)


def shifted(held: list[Held], by: int) -> list[Held]:
    return [Held(h.queue, h.user, h.cards, h.start + by, h.end + by) for h in held]


def total(parts: list[Accrued]) -> dict[Account, Amounts]:
    sums: dict[Account, Amounts] = {}
    for part in parts:
        for account, amounts in part.amounts.items():
            sums.setdefault(account, Amounts()).add(amounts)
    return sums


@given(claims, shares, st.integers(0, 2 * HOUR_S))
def test_accounts_are_what_second_by_second_was_used_borrowed_and_left_idle(
    held: list[Held], deserved: dict[QueueName, int], start: int
) -> None:
    used: Counter[Account] = Counter()
    borrowed: Counter[tuple[str, int]] = Counter()
    idle: Counter[tuple[str, int]] = Counter()
    held = shifted(held, start)
    for second in range(start, start + LATEST):
        hour = second - second % HOUR_S
        for queue in QUEUES:
            now = [h for h in held if h.queue == queue and h.start <= second < h.end]
            using = sum(sum(h.cards.values()) for h in now)
            borrowed[queue, hour] += max(0, using - deserved.get(queue, 0))
            idle[queue, hour] += max(0, deserved.get(queue, 0) - using)
            for h in now:
                for model, cards in h.cards.items():
                    used[Account(queue, h.user, model, hour)] += cards
    accounts = accrue(held, deserved, since=start, until=start + LATEST).amounts
    assert {a: x.own + x.borrowed for a, x in accounts.items() if a.user} == +used
    for name, sums in (("borrowed", borrowed), ("idle", idle)):
        found: Counter[tuple[str, int]] = Counter()
        for account, amounts in accounts.items():
            found[account.queue, account.hour] += getattr(amounts, name)
        assert +found == +sums
    assert all(x.own >= 0 and x.borrowed >= 0 and x.idle >= 0 for x in accounts.values())


@given(claims, shares, cuts)
def test_it_does_not_matter_how_often_anybody_looks(held: list[Held], deserved: dict[QueueName, int], at: list[int]) -> None:
    whole = accrue(held, deserved, since=0, until=LATEST)
    bounds = [0, *at, LATEST]
    parts = [accrue(held, deserved, since=a, until=b) for a, b in pairwise(bounds)]
    assert total(parts) == whole.amounts
