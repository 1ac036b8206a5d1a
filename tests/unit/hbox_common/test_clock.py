"""The wall clock of an emulated cluster may go faster than the machine's; patience with other processes does not."""

import time
from collections.abc import Iterator

import pytest

from hbox_common.clock import monotonic_s, run_faster, wall_s
from hbox_common.errors import InvalidRequest
from hbox_common.runtime import Settings, load


@pytest.fixture(autouse=True)
def _as_the_machines() -> Iterator[None]:
    yield
    run_faster(1.0, 0.0)


def test_a_faster_clock_agrees_with_the_machines_at_its_beginning_and_is_ahead_of_it_from_then_on() -> None:
    since = time.time() - 10
    run_faster(60, since)
    ahead = wall_s() - since
    assert 600 <= ahead < 660
    assert abs(monotonic_s() - time.monotonic()) < 1


def test_a_scale_without_the_moment_since_when_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HBOX_TIME_SCALE", "60")
    with pytest.raises(InvalidRequest, match="HBOX_TIME_SCALE_SINCE"):
        load(Settings, "binder")
