"""Whose phases are said first. Letters are namespaces, digits are jobs; `a1b` is that job 1 of namespace a was bound."""

from hypothesis import given
from hypothesis import strategies as st

from hbox_common.events import JobPhase, JobPhaseChanged
from hbox_common.model import JobId, QueueName
from hbox_jobs.core.phasequeue import PhaseQueue

PHASES = {"p": JobPhase.PENDING, "b": JobPhase.BOUND, "r": JobPhase.RUNNING}
NOW, REST_S = 1000.0, 0.5


def phase(text: str, at: float = NOW - 10.0) -> JobPhaseChanged:
    namespace, job, what = text[0], text[1], text[2]
    return JobPhaseChanged(
        job=JobId(f"{namespace}{job}"), namespace=namespace, name=job, queue=QueueName("q"), phase=PHASES[what],
        members=1, bound=0, message="", at=at,
    )  # fmt: skip


def queue(*texts: str, most: int = 100) -> PhaseQueue[JobPhaseChanged]:
    made = PhaseQueue[JobPhaseChanged](most)
    for text in texts:
        made.add(phase(text))
    made.validate()
    return made


def take(waiting: PhaseQueue[JobPhaseChanged], limit: int = 100, *, over: str = "") -> str:
    """`over`: jobs that are pending no more."""
    found = waiting.take(
        limit, now=NOW, rest_s=REST_S, is_news=lambda one: one.phase is not JobPhase.PENDING or one.job not in over.split()
    )
    waiting.validate()
    return " ".join(f"{one.job}{next(k for k, v in PHASES.items() if v is one.phase)}" for one in found)


def test_a_namespace_with_many_phases_delays_its_own() -> None:
    waiting = queue("a1p", "a2p", "a3p", "a4p", "b1p", "b2p", "c1p")
    assert [take(waiting, 3), take(waiting, 3), take(waiting, 3)] == ["a1p b1p c1p", "a2p b2p a3p", "a4p"]


def test_the_next_of_a_job_comes_behind_what_is_being_said() -> None:
    waiting = queue("a1p", "a1b", "a2p", "b1p")
    assert [take(waiting), take(waiting)] == ["a1p b1p", "a1b a2p"]


def test_what_is_no_news_any_more_costs_no_turn() -> None:
    assert take(queue("a1p", "a1b", "a2p", "b1p", "c1p"), 2, over="a1 b1") == "a1b c1p"
    assert take(queue("a1p", "b1p", "c1p"), over="a1 b1 c1") == ""


def test_a_phase_rests_and_one_from_before_the_clock_was_set_back_does_not() -> None:
    waiting = PhaseQueue[JobPhaseChanged]()
    assert waiting.wait_s(NOW, REST_S) is None
    waiting.add(phase("a1p", NOW - 0.25))
    assert waiting.wait_s(NOW, REST_S) == 0.25
    assert take(waiting) == ""
    waiting.add(phase("b1p", NOW + 3600.0))
    assert waiting.wait_s(NOW, REST_S) == 0.0
    assert take(waiting) == "b1p"
    assert waiting.age_s(NOW) == 0.25


def test_when_there_are_too_many_the_largest_namespace_loses_its_oldest() -> None:
    waiting = queue("b1p", *(f"a{i}p" for i in range(9)), most=9)
    assert len(waiting) == 9
    assert take(waiting, 3) == "b1p a1p a2p"


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("123"), st.sampled_from("pbr")).map("".join)), st.integers(1, 5)
)
def test_each_is_said_once_and_a_jobs_in_order(texts: list[str], limit: int) -> None:
    waiting = queue(*texts)
    said: list[str] = []
    while found := take(waiting, limit).split():
        assert len({text[:2] for text in found}) == len(found) <= limit
        said += found
    assert len(waiting) == 0
    for job in {text[:2] for text in texts}:
        assert [t for t in said if t.startswith(job)] == [t for t in texts if t.startswith(job)]
