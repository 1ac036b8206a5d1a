"""What `hbox share` says of history, and what a saved cluster may say of it."""

import pytest

from hbox_cli.commands.share import explain
from hbox_cli.queues import Memory, fair_shares, share_of
from hbox_cli.simulate.cluster_file import cluster_of
from hbox_cli.simulate.documents import objects_of
from hbox_cli.simulate.queues import remembered
from hbox_common.errors import InvalidRequest
from hbox_common.model import CardRequest, Job, JobId, PodGroupTask, PodRef, PodUid, Queue, QueueName, QueueTree
from hbox_common.model.devices.nvidia import GPU
from hbox_common.yamltext import contents_of
from hbox_scheduler.core.cluster.entities import QueueInfo

A, B, C = QueueName("a"), QueueName("b"), QueueName("c")


def waiting(queue: QueueName, pods: int) -> Job:
    task = PodGroupTask(
        "w", {GPU: 1}, tuple(PodRef(PodUid(f"{queue}{n}"), f"{queue}{n}", "1") for n in range(pods)), CardRequest(1)
    )
    return Job(
        id=JobId(f"job-{queue}"), namespace="d", name=queue, queue=queue, priority=0, min_member=1, members=pods, bound=0, created_at=0.0, revision=1,
        tasks=(task,),
    )  # fmt: skip


def tree(*queues: Queue, used: dict[QueueName, int]) -> QueueTree:
    made = QueueTree({name: {GPU: units} for name, units in used.items()})
    made.update({queue.name: queue for queue in queues})
    return made


def test_shares_are_those_of_the_engine_with_and_without_history() -> None:
    queues = tree(Queue(A), Queue(B), Queue(C), used={A: 8})
    shares = fair_shares(queues, [waiting(A, 8), waiting(B, 8)], Memory(8, {A: 4.0}, 168.0, 1.0))
    assert (shares[A]["part"], shares[A]["counts"], shares[A]["share"], shares[A]["shareWithoutHistory"]) == (0.5, 0.3333, 3, 4)
    assert (shares[B]["part"], shares[B]["counts"], shares[B]["share"], shares[B]["shareWithoutHistory"]) == (0.5, 0.6667, 5, 4)
    assert (shares[C]["part"], shares[C]["counts"], shares[C]["share"]) == (0.0, 0.0, 0)


def test_a_department_divides_what_is_its_own() -> None:
    queues = tree(Queue(A), Queue(B), Queue(C, parent="b"), used={A: 8})
    shares = fair_shares(queues, [waiting(A, 8), waiting(C, 8)], Memory(8, {A: 8.0}, 168.0, 1.0))
    assert (shares[B]["share"], shares[C]["share"], shares[A]["share"]) == (8, 8, 0)


@pytest.mark.parametrize(
    ("memory", "jobs", "said"),
    [
        (
            Memory(8, {A: 4.0}, 168.0, 1.0), [waiting(A, 8), waiting(B, 8)],
            ["recent usage: 4 of 8 cards on average (half-life 168 h)", "is 50% of those who want more, and counts as 33%",
             "it is served after others", "if all go on waiting it has 3 of 8, 4 without history"],
        ),
        (Memory(8, {A: 8.0}, 168.0, 1.0), [waiting(A, 8), waiting(B, 8)], ["counts as 0% by what it used: it is served after others"]),
        (Memory(8, {A: 4.0}, 168.0, 0.0), [waiting(A, 8)], ["the policy gives it no weight"]),
        (Memory(8, {A: 4.0}, 168.0, 1.0), [], ["it wants no more than it deserves"]),
        (Memory(8, {}, 0.0, 1.0), [waiting(A, 8)], []),
    ],
)  # fmt: skip
def test_share_explains_history(memory: Memory, jobs: list[Job], said: list[str]) -> None:
    queues = tree(Queue(A, deserved={GPU: 0} if jobs else {GPU: 8}), Queue(B), used={A: 8})
    text = explain(share_of(queues, A, jobs, GPU, now=0.0, memory=memory))
    assert [one for one in said if one not in text] == []
    assert ("recent usage" in text) == bool(said)


def test_queues_in_a_circle_or_below_nothing_are_explained_too() -> None:
    queues = tree(Queue(A, parent="b"), Queue(B, parent="a"), Queue(C, parent="gone"), used={C: 1})
    for name in (A, C):
        assert explain(share_of(queues, name, [], GPU, now=0.0, memory=Memory(8, {}, 168.0, 1.0)))


def info(name: str, recent: float = 0.0, parent: str = "") -> QueueInfo:
    return QueueInfo(QueueName(name), parent=QueueName(parent) if parent else None, recent_cards=recent)


@pytest.mark.parametrize(
    ("queues", "sums"),
    [
        ([info("a", 1.5), info("b")], [1.5, 0.0]),
        ([info("d", 1.0), info("a", 1.5, "d"), info("b", 2.0, "a"), info("c", 0.5, "d")], [5.0, 3.5, 2.0, 0.5]),
        ([info("a", 1.0, "b"), info("b", 2.0, "a")], [3.0, 3.0]),
    ],
)
def test_a_saved_queue_has_the_history_of_all_below_it(queues: list[QueueInfo], sums: list[float]) -> None:
    assert [queue.recent_cards for queue in remembered(queues)] == sums


@pytest.mark.parametrize("text", ["many", "-1", "nan", "inf"])
def test_a_history_that_is_no_number_of_cards_is_told(text: str) -> None:
    content = (
        "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\n"
        f'metadata: {{name: a, annotations: {{"hbox.io/recent-cards": "{text}"}}}}\nspec: {{}}\n'
    )
    with pytest.raises(InvalidRequest, match=rf"hbox\.io/recent-cards\]: is '{text}'"):
        cluster_of(objects_of(contents_of(content.encode())), schedulers={"hbox"}, now=0.0)


def test_both_who_used_far_more_than_their_part_are_compared_all_the_same() -> None:
    queues = tree(Queue(A), Queue(B), used={})
    shares = fair_shares(queues, [waiting(A, 8), waiting(B, 8)], Memory(4, {A: 16.0, B: 8.0}, 168.0, 1.0))
    assert (shares[A]["counts"], shares[B]["counts"]) == (0.3333, 0.6667)
