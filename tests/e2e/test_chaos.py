"""The faults that the other tests of the platform do not cause, one after the other under load, with an observer from outside. `make chaos` has many more."""

from random import Random

import pytest

from ..chaos.campaign import campaign
from ..chaos.faults import API, Fault, api, kill, kill_in_commit, pause, wipe
from .platform_world import Up

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SEED = 20
HOLD_S = 2.0


def faults() -> list[Fault]:
    rng = Random(SEED)
    # Stalled watches only show when they last for longer than a test may; `make chaos` has them.
    kinds = [api(kind, HOLD_S, rng.getrandbits(31)) for kind in API if kind != "watches-stall"]
    kinds += [
        pause("quota-ledger", 5.0),
        pause("scheduler-core", 5.0),
        wipe(),
        kill_in_commit(),
        kill("quota-ledger", "nats-server"),
    ]
    rng.shuffle(kinds)
    return kinds


async def test_under_every_fault_no_promise_is_broken_and_bindings_go_on_soon(platform: Up) -> None:
    report = await campaign(platform.state, faults(), seed=SEED, nodes=60, rate=8.0, slack=3.0)
    assert report.violations == [], report.table()
    assert report.bound > 100
    assert len(report.lines) == len(faults())
