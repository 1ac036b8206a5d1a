"""Waiting: how often something may be done, and when it is tried again."""

import asyncio
from random import Random

import pytest

from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.insisting import insist
from hbox_common.pacing import WISH_S, Backoff, TokenBucket, backoff_s


def test_a_bucket_lets_a_burst_through_and_then_its_rate() -> None:
    bucket = TokenBucket(rate_per_s=10.0, burst=3)
    assert bucket.available(0.0) == 3
    bucket.spend(3)
    assert bucket.available(0.05) == 0
    assert bucket.wait_s(0.05) == pytest.approx(0.05)
    assert bucket.available(0.1) == 1
    assert bucket.available(100.0) == 3


def test_a_token_is_taken_where_there_is_one_and_can_be_given_back() -> None:
    bucket = TokenBucket(rate_per_s=10.0, burst=2.0)
    assert [bucket.take(0.0) for _ in range(3)] == [True, True, False]
    assert bucket.wait_s(0.0) == pytest.approx(0.1)
    bucket.give_back()
    assert [bucket.take(0.0) for _ in range(2)] == [True, False]
    assert bucket.take(0.11)
    assert [bucket.take(99.0) for _ in range(3)] == [True, True, False]


def test_a_clock_that_goes_back_adds_no_token_and_takes_none() -> None:
    bucket = TokenBucket(rate_per_s=1.0, burst=5)
    bucket.available(10.0)
    bucket.spend(5)
    assert bucket.available(5.0) == 0
    assert bucket.available(11.0) == 1


def test_waits_double_up_to_their_cap() -> None:
    assert [backoff_s(n, base_s=0.1, cap_s=1.0) for n in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert [backoff_s(n, base_s=0.1, cap_s=10.0, factor=4.0) for n in range(5)] == pytest.approx([0.1, 0.4, 1.6, 6.4, 10.0])
    assert backoff_s(10**6, base_s=0.1, cap_s=5.0) == 5.0


def test_the_same_seed_waits_the_same_and_no_longer_than_allowed() -> None:
    one, two = Backoff(Random(7)), Backoff(Random(7))
    waits = [one.next_s() for _ in range(9)]
    assert waits == [two.next_s() for _ in range(9)]
    assert all(wait <= backoff_s(n, base_s=0.8, cap_s=5.0) for n, wait in enumerate(waits))
    assert Backoff(Random(7)).next_s(at_least_s=3600.0) == WISH_S


async def test_what_is_away_is_asked_until_it_answers_and_a_refusal_ends_it() -> None:
    answers: list[Exception | int] = [Unavailable("a"), Unavailable("b"), 7, InvalidRequest("no")]
    said: list[str] = []

    async def call() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ask() -> int:
        return await insist(call, on_unavailable=lambda e: said.append(e.message), every_s=0.001)

    async with asyncio.timeout(5.0):
        assert await ask() == 7
        assert said == ["a", "b"]
        with pytest.raises(InvalidRequest):
            await ask()
