"""How long sessions wait for one another."""

from hbox_scheduler.core.queueing.backoff import SessionBackoff


def failed(times: int) -> SessionBackoff:
    """After so many attempts without success, each made as soon as it was due, the first at 0."""
    backoff = SessionBackoff(least_s=1.0, most_s=8.0)
    now = 0.0
    for _ in range(times):
        backoff.record(now, success=False)
        now = backoff.next_at
    return backoff


def test_each_attempt_without_success_doubles_the_wait_up_to_the_most() -> None:
    assert [failed(n).next_at - (failed(n - 1).next_at if n > 1 else 0.0) for n in range(1, 7)] == [1, 2, 4, 8, 8, 8]


def test_an_attempt_that_succeeds_after_all_begins_the_waits_anew() -> None:
    backoff = failed(5)
    backoff.reset()
    began = backoff.next_at
    backoff.record(began, success=False)
    assert backoff.next_at - began == 2.0


def test_a_change_lets_the_next_attempt_come_soon_after_the_last_one() -> None:
    backoff = failed(5)
    last = backoff.next_at - 8.0
    backoff.retry_soon()
    assert backoff.next_at == last + 1.0
    assert backoff.due(last + 1.0)
