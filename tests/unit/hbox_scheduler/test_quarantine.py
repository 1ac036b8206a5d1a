"""Whom an error of the scheduler's is taken to be about, from one fault to the next."""

import pytest

from hbox_common.model import JobId, NodeName
from hbox_scheduler.core.simulate import job, node
from hbox_scheduler.faults import Kind, Quarantine, SchedulingFault, Suspect
from hbox_scheduler.faults.suspects import place_of, suspects

WALL = 1_800_000_000.0


def fault(*who: Suspect, at: str = "a") -> SchedulingFault:
    try:
        if at == "a":
            _ = 1 / 0
        _ = 2 / 0
    except ZeroDivisionError as e:
        return SchedulingFault(e, who)
    raise AssertionError


def of(name: str, namespace: str = "team") -> Suspect:
    return Suspect(Kind.JOB, name, f"{namespace}/{name}", namespace)


def on(name: str) -> Suspect:
    return Suspect(Kind.NODE, name, name)


def taken(quarantine: Quarantine, *faults: SchedulingFault) -> list[tuple[Kind, str]]:
    found = []
    for number, one in enumerate(faults):
        case = quarantine.take(one, float(number), WALL)
        assert case is not None
        found.append((case.suspect.kind, case.suspect.name))
    return found


def test_the_job_nearest_to_the_error_is_put_in_quarantine_first_and_then_the_next() -> None:
    quarantine = Quarantine()
    assert taken(quarantine, fault(of("a"), of("b")), fault(of("a"), of("b"))) == [(Kind.JOB, "a"), (Kind.JOB, "b")]
    assert quarantine.take(fault(of("a"), of("b")), 2.0, WALL) is None  # neither was it


def test_a_node_alone_is_put_in_quarantine() -> None:
    quarantine = Quarantine()
    assert taken(quarantine, fault(on("n1"))) == [(Kind.NODE, "n1")]
    assert quarantine.holds_node(NodeName("n1"))
    assert not quarantine.holds_node(NodeName("n2"))


def test_the_third_job_over_one_node_puts_the_blame_on_the_node_and_the_jobs_come_back() -> None:
    quarantine = Quarantine()
    assert taken(quarantine, *(fault(of(name), on("n1")) for name in "abc")) == [
        (Kind.JOB, "a"),
        (Kind.JOB, "b"),
        (Kind.NODE, "n1"),
    ]
    assert not quarantine.holds_job(JobId("a"), "team")


def test_jobs_over_different_nodes_or_at_different_places_leave_the_nodes_alone() -> None:
    assert taken(Quarantine(), fault(of("a"), on("n1")), fault(of("b"), on("n2")), fault(of("c"), on("n3")))[-1] == (
        Kind.JOB,
        "c",
    )
    faults = fault(of("a"), on("n1")), fault(of("b"), on("n1"), at="b"), fault(of("c"), on("n1"), at="b")
    assert taken(Quarantine(), *faults)[-1] == (Kind.JOB, "c")


def test_where_ever_more_nodes_fail_the_jobs_are_to_blame() -> None:
    quarantine = Quarantine()
    faults = [fault(of(f"j{i}", f"team-{i}"), on("n1")) for i in range(2)]
    faults += [fault(of("j2", "team-2"), on(f"n{i}")) for i in range(1, 6)]
    assert taken(quarantine, *faults)[2:] == [*((Kind.NODE, f"n{i}") for i in range(1, 5)), (Kind.JOB, "j2")]
    assert not any(quarantine.holds_node(NodeName(f"n{i}")) for i in range(1, 6))


def test_the_fifth_job_of_a_namespace_takes_it_along_and_no_other() -> None:
    quarantine = Quarantine()
    assert taken(quarantine, *(fault(of(name)) for name in "abcd"))[-1] == (Kind.JOB, "d")
    quarantine.release(65.0)
    assert taken(quarantine, fault(of("d"))) == [(Kind.JOB, "d")]
    assert taken(quarantine, fault(of("e"))) == [(Kind.NAMESPACE, "team")]
    assert quarantine.holds_job(JobId("z"), "team")
    assert not quarantine.holds_job(JobId("z"), "other")


def test_one_job_that_fails_again_and_again_is_one_job_and_stays_away_for_longer_each_time() -> None:
    quarantine, now, lasted = Quarantine(), 0.0, []
    for _ in range(8):
        case = quarantine.take(fault(of("a")), now, WALL)
        assert case is not None
        assert case.suspect.kind is Kind.JOB
        lasted.append(case.until - now)
        assert quarantine.release(case.until - 1.0) == []
        assert [one.name for one in quarantine.release(case.until)] == ["a"]
        assert not quarantine.holds_job(JobId("a"), "team")
        now = case.until
    assert lasted == [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0]


def test_what_was_long_ago_does_not_count() -> None:
    quarantine = Quarantine()
    taken(quarantine, fault(of("a")))
    quarantine.release(60.0)
    case = quarantine.take(fault(of("a")), 60.0 + 3601.0, WALL)
    assert case is not None
    assert case.times == 1
    assert quarantine.pause_s() == 0.0


def test_it_begins_anew_more_and_more_slowly() -> None:
    quarantine, pauses = Quarantine(), []
    for number in range(16):
        quarantine.take(fault(of(f"j{number}", f"team-{number}")), float(number), WALL)
        pauses.append(quarantine.pause_s())
    assert pauses == [0.0] * 8 + [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_each_job_that_is_held_back_is_told_once_a_time() -> None:
    quarantine = Quarantine()
    taken(quarantine, fault(of("a")))
    assert quarantine.verdicts() == []
    assert quarantine.holds_job(JobId("a"), "team")
    [verdict] = quarantine.verdicts()
    assert verdict.job == "a"
    assert (verdict.code, verdict.outcome, verdict.owner) == ("JobQuarantined", "escalate", "operator")
    assert verdict.message.startswith("in quarantine: the scheduler fails at it (ZeroDivisionError at test_quarantine.py:")
    assert verdict.message.endswith("; tried again at 08:01:00 UTC")
    assert quarantine.verdicts() == []


def test_summary_names_nodes_but_no_tenant_and_verdicts_quote_no_error() -> None:
    quarantine = Quarantine()
    error = SchedulingFault(KeyError("secret/other"), (of("mine", "secret"),))
    quarantine.take(error, 0.0, WALL)
    taken(quarantine, fault(on("n1")))
    assert quarantine.summary() == "jobs: 1; nodes: n1; the log has the errors"
    assert quarantine.holds_job(JobId("mine"), "secret")
    assert "secret" not in quarantine.verdicts()[0].message
    assert Quarantine().summary() == ""


def test_suspects_are_read_off_the_frames_innermost_first() -> None:
    states = [node("n0"), node("n1"), None]

    def inner(row: int) -> None:
        raise KeyError(row)

    def outer() -> None:
        mine = job("j1")  # noqa: F841  what is at hand
        for row in (0, 1):
            if row:
                inner(row)

    with pytest.raises(KeyError) as caught:
        outer()
    assert suspects(caught.value, states) == (on("n1"), Suspect(Kind.JOB, "j1", "default/j1", "default"))
    assert place_of(caught.value).startswith("test_quarantine.py:")


@pytest.mark.parametrize("row", [2, 3, -1, True, "1", None])
def test_rows_that_are_none_are_nobody(row: object) -> None:
    with pytest.raises(KeyError) as caught:
        _raises(row)
    assert suspects(caught.value, [node("n0"), None, None]) == ()


def _raises(row: object) -> None:
    raise KeyError(row)
