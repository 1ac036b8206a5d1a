"""Large gangs start in time, and nothing that is placed in the gaps pushes them back. 2 nodes of 4 cards; gang `big` needs both whole."""

import pytest

from .small_world import NOW, SmallWorld, bound

POLICY = """
actions: "allocate"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: reservation
    arguments: {after: 10m, hold: 30m, share: 1}
"""


def world(*, small: str, ends_in_s: float = 1000.0) -> SmallWorld:
    """`running` holds one card of each node and ends after 1,000 s; `big` has waited for an hour; `small` has just come, and is looked at first."""
    made = SmallWorld(2, 4)
    made.gang(
        "running", pods=2, on=[0, 1], age_s=100, annotations={"hbox.io/walltime": f"{ends_in_s + 100:g}s"} if ends_in_s else {}
    )
    made.gang("small", pods=1, age_s=7200, annotations={"hbox.io/walltime": small} if small else {})
    made.gang("big", pods=2, cards=4, age_s=3600)
    return made


def test_a_job_that_ends_before_the_start_is_let_in() -> None:
    assert "small-0" in bound(world(small="900s").decide(POLICY))


@pytest.mark.parametrize("small", ["1100s", ""])
def test_one_that_would_end_after_it_or_at_no_known_time_waits(small: str) -> None:
    report = world(small=small).decide(POLICY)
    assert not bound(report)
    assert report.pending["d/small-0"].reasons == {"ReservedForLargeJob": 2}


def test_without_a_reservation_it_would_have_gone_in() -> None:
    assert "small-0" in bound(world(small="").decide(POLICY.replace("after: 10m", "after: 2h")))


def test_nodes_that_the_gang_does_not_need_stay_open() -> None:
    made = SmallWorld(3, 4)
    made.gang("running", pods=3, on=[0, 1, 2], age_s=100, annotations={"hbox.io/walltime": "500s"})
    made.gang("small", age_s=7200)
    made.gang("big", pods=2, cards=4, age_s=3600)
    assert len(bound(made.decide(POLICY))) == 1


@pytest.mark.parametrize(("depth", "let_in"), [(1, True), (2, False)])
def test_no_more_gangs_than_asked_for_have_nodes_kept_for_them(depth: int, *, let_in: bool) -> None:
    made = SmallWorld(4, 4)
    made.gang("running", pods=4, on=[0, 1, 2, 3], age_s=100, annotations={"hbox.io/walltime": "1100s"})
    made.gang("small", age_s=7200)
    for name in ("big", "next"):
        made.gang(name, pods=2, cards=4, age_s=3600)
    report = made.decide(POLICY.replace("hold: 30m", f"hold: 30m, depth: {depth}"))
    assert ("small-0" in bound(report)) is let_in


def test_where_no_end_is_known_smaller_work_is_delayed_and_never_stopped() -> None:
    """`big` is eligible since 50 minutes: held for 30, given free for 30, and so on."""
    assert not bound(world(small="", ends_in_s=0).decide(POLICY, now=NOW - 2000))
    assert "small-0" in bound(world(small="", ends_in_s=0).decide(POLICY))


def test_the_gang_itself_goes_in_when_its_time_has_come() -> None:
    made = SmallWorld(2, 4)
    made.gang("small", age_s=1200)
    made.gang("big", pods=2, cards=4, age_s=9000)
    assert sorted(bound(made.decide(POLICY))) == ["big-0", "big-1"]
