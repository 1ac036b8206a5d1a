"""Whether the holder of somebody else's lease is alive."""

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import scheduler_names
from hbox_jobs.core.renewals import Liveness, Renewals

ALIVE, UNKNOWN, DEAD = Liveness.ALIVE, Liveness.UNKNOWN, Liveness.DEAD


def test_a_lease_that_changes_before_our_eyes_is_alive_until_it_runs_out() -> None:
    lease = Renewals()
    assert lease.look("vc 1", 15, 3.0, now=100) is UNKNOWN
    assert lease.look("vc 1", 15, 5.0, now=102) is UNKNOWN
    assert lease.look("vc 2", 15, 0.0, now=105) is ALIVE
    assert lease.look("vc 2", 15, 9.0, now=119) is ALIVE
    assert lease.look("vc 2", 15, 15.0, now=120) is DEAD
    assert lease.look("vc 2", 15, 16.0, now=121) is DEAD
    assert lease.look("vc 3", 15, 0.0, now=130) is ALIVE


def test_one_that_does_not_change_for_as_long_as_it_lasts_is_dead_whatever_the_clocks_say() -> None:
    lease = Renewals()
    assert lease.look("vc 1", 15, -3600.0, now=100) is UNKNOWN  # from the future
    assert lease.look("vc 1", 15, -3585.0, now=115) is DEAD


def test_one_that_nobody_holds_or_that_is_long_forgotten_is_not_waited_for() -> None:
    assert Renewals().look("", 0, 0.0, now=100) is DEAD
    assert Renewals().look("vc 1", 15, 3600.0, now=100) is DEAD


def test_a_clock_far_behind_hides_nobody_for_longer_than_a_renewal_takes() -> None:
    lease = Renewals()
    assert lease.look("vc 1", 15, 3600.0, now=100) is DEAD
    assert lease.look("vc 2", 15, 3600.0, now=105) is ALIVE


def test_one_that_is_given_back_is_dead_at_once() -> None:
    lease = Renewals()
    lease.look("vc 1", 15, 0.0, now=100)
    assert lease.look("vc 2", 15, 0.0, now=105) is ALIVE
    assert lease.look("", 15, 0.0, now=106) is DEAD


def test_no_lease_is_waited_for_longer_than_a_minute() -> None:
    lease = Renewals()
    assert lease.look("vc 1", 1e9, 0.0, now=100) is UNKNOWN
    assert lease.look("vc 1", 1e9, 0.0, now=160) is DEAD


def test_names_of_schedulers() -> None:
    assert scheduler_names("hbox, volcano,hbox") == ("hbox", "volcano")


@pytest.mark.parametrize("text", ["", "hbox,", "hbox;volcano", "Hbox", "a" * 254, "a\nb"])
def test_what_no_pod_can_have_is_no_name(text: str) -> None:
    with pytest.raises(InvalidRequest, match="write them like hbox,volcano"):
        scheduler_names(text)
