"""Every process killed, and the faults that the other tests of the platform do not cause, one after the other under load, with an observer from
outside. `make chaos` has many more.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

import pytest

from ..chaos.campaign import campaign
from ..chaos.faults import (
    API,
    Fault,
    api,
    clock_jump,
    disk_full,
    forgers,
    kill,
    kill_in_commit,
    kills,
    pause,
    unwatched_ends,
    wipe,
)
from ..chaos.machine import Machine, machine
from .platform_world import Up, up

pytestmark = pytest.mark.e2e

SEED = 20
HOLD_S = 2.0
#: Of kills of every process. The replay in `test_e2e_replay.py` has another, `make chaos` a hundred.
ROUNDS = 1


@pytest.fixture
def on(tmp_path: Path) -> Iterator[tuple[Machine, Up]]:
    with machine(tmp_path) as one, up(one.state, *one.words, env=one.env) as platform:
        yield one, platform


def faults(on: Machine, processes: Iterable[str]) -> list[Fault]:
    rng = Random(SEED)
    # Stalled watches only show when they last for longer than a test may; `make chaos` has them. The kills are with an API that is away.
    kinds = [api(kind, HOLD_S, rng.getrandbits(31)) for kind in API if kind not in ("watches-stall", "away")]
    kinds += [
        pause("quota-ledger", 5.0),
        pause("scheduler-core", 5.0),
        wipe(),
        forgers(HOLD_S),
        kill_in_commit(),
        kill("quota-ledger", "nats-server"),
    ]
    kinds += [disk_full(name, HOLD_S) for name in on.disks]
    if on.clock is not None:
        kinds += [clock_jump(600.0, HOLD_S, then_kill="job-controller"), clock_jump(-600.0, HOLD_S), unwatched_ends(HOLD_S)]
    rng.shuffle(kinds)
    return kills(ROUNDS, SEED, processes) + kinds


async def test_under_every_fault_no_promise_is_broken_and_bindings_go_on_soon(on: tuple[Machine, Up]) -> None:
    where, platform = on
    suffered = faults(where, platform.pids())
    report = await campaign(where, suffered, seed=SEED, nodes=24, rate=4.0, slack=3.0, look_s=1.0)
    print(report.table(), *where.missing, sep="\n")
    assert report.violations == [], report.table()
    assert report.bound > 100
    assert len(report.lines) == len(suffered)
