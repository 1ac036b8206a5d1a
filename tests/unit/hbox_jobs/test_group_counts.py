from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import QueueName
from hbox_jobs.core.groupcounts import PhaseCounts
from hbox_jobs.core.views import GroupPhase, GroupStatus, GroupView

from .job_world import group

NEWS = st.tuples(st.integers(0, 3), st.sampled_from(["", "a", "b"]), st.sampled_from(GroupPhase), st.booleans())


def view(number: int, queue: str, phase: GroupPhase) -> GroupView:
    return group(f"g{number}", queue=QueueName(queue), status=GroupStatus(phase))


def test_a_group_counts_where_it_is_now() -> None:
    counts = PhaseCounts()
    assert counts.put(view(1, "", GroupPhase.NEW))
    assert not counts.put(view(1, "", GroupPhase.PENDING))
    assert counts.by_queue() == {"default": {"Pending": 1}}
    assert counts.put(view(1, "a", GroupPhase.RUNNING))
    assert counts.by_queue() == {"a": {"Running": 1}}
    assert counts.gone(view(1, "a", GroupPhase.RUNNING))
    assert not counts.gone(view(1, "a", GroupPhase.RUNNING))
    assert counts.by_queue() == {}


@given(st.lists(NEWS))
def test_counts_are_those_of_the_groups_that_are_there(news: list[tuple[int, str, GroupPhase, bool]]) -> None:
    counts, there = PhaseCounts(), dict[int, tuple[str, GroupPhase]]()
    for number, queue, phase, gone in news:
        if gone:
            counts.gone(view(number, queue, phase))
            there.pop(number, None)
        else:
            counts.put(view(number, queue, phase))
            there[number] = (queue or "default", phase or GroupPhase.PENDING)
    assert counts.by_queue() == {
        queue: {p: sum(one == (queue, p) for one in there.values()) for p in {p for q, p in there.values() if q == queue}}
        for queue in {queue for queue, _ in there.values()}
    }
