"""Which pod of a job is which, by what the usual controllers write, and by what anybody may."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import PodUid
from hbox_common.model.ranks import rank_key, ranks

TRAINING = "training.kubeflow.org/replica-"
COMPLETION = "batch.kubernetes.io/job-completion-index"


def ranked(*pods: tuple[str, dict[str, str]], role: str = "") -> list[int]:
    """The ranks of pods, each a name and its labels, in this order."""
    found = ranks({PodUid(f"{i:04}"): rank_key(name, role, labels, {}) for i, (name, labels) in enumerate(pods)})
    return [found[PodUid(f"{i:04}")] for i in range(len(pods))]


def test_the_number_at_the_end_of_the_name_where_nobody_says_more() -> None:
    assert ranked(("a-10", {}), ("a-2", {}), ("a-0", {})) == [10, 2, 0]
    assert ranked(("a-x7k2q", {}), ("a-b", {}), ("a-a", {})) == [2, 1, 0], "by name where there is no number"


@pytest.mark.parametrize(
    "label",
    [
        COMPLETION,
        "apps.kubernetes.io/pod-index",
        "volcano.sh/task-index",
        "leaderworkerset.sigs.k8s.io/worker-index",
        f"{TRAINING}index",
    ],
)
def test_the_index_of_a_controller_counts_before_the_name(label: str) -> None:
    assert ranked(("p-0", {label: "2"}), ("p-1", {label: "0"}), ("p-2", {label: "1"})) == [2, 0, 1]


def test_indexes_may_be_annotations() -> None:
    key = rank_key("train-0-x8zk1", "", {}, {COMPLETION: "5"})
    assert key.ordinal == 5


@pytest.mark.parametrize("leads", ["master", "Master", "chief", "launcher"])
def test_who_leads_comes_first_and_the_others_role_by_role(leads: str) -> None:
    pods = [(f"j-worker-{i}", {f"{TRAINING}type": "worker", f"{TRAINING}index": str(i)}) for i in (1, 0)]
    pods += [("j-x-0", {f"{TRAINING}type": leads, f"{TRAINING}index": "0"})]
    pods += [("j-ps-0", {f"{TRAINING}type": "ps", f"{TRAINING}index": "0"})]
    assert ranked(*pods) == [3, 2, 0, 1]


def test_groups_of_a_role_come_one_after_the_other() -> None:
    jobset = [
        (
            f"s-{job}-{pod}",
            {"jobset.sigs.k8s.io/replicatedjob-name": "w", "jobset.sigs.k8s.io/job-index": str(job), COMPLETION: str(pod)},
        )
        for job in (1, 0)
        for pod in (0, 1)
    ]
    assert ranked(*jobset) == [2, 3, 0, 1]


def test_the_head_of_a_ray_cluster_leads() -> None:
    worker = {"ray.io/node-type": "worker", "ray.io/group": "big"}
    assert ranked(("r-big-worker-zz", worker), ("r-head-x", {"ray.io/node-type": "head"}), ("r-big-worker-aa", worker)) == [
        2,
        0,
        1,
    ]


def test_who_takes_the_place_of_another_has_its_rank_and_who_comes_later_the_next() -> None:
    before = [(f"p-{i}", {COMPLETION: str(i)}) for i in range(3)]
    assert ranked(("p-1-again", {COMPLETION: "1"}), before[0], before[2]) == [1, 0, 2]
    assert ranked(*before, ("p-3", {COMPLETION: "3"})) == [0, 1, 2, 3]


@pytest.mark.parametrize("bad", ["-1", "1e3", "99999999999999999999", "1000000", "", "x", "٣", "1.0", " 1"])
def test_an_index_that_is_none_counts_as_if_it_were_not_there(bad: str) -> None:
    assert ranked(("p-1", {COMPLETION: bad}), ("p-0", {})) == [1, 0]


def test_where_an_index_repeats_all_of_the_role_go_by_their_order() -> None:
    assert ranked(("p-c", {COMPLETION: "7"}), ("p-a", {COMPLETION: "7"}), ("p-b", {COMPLETION: "900"})) == [1, 0, 2]


@given(
    st.lists(
        st.tuples(
            st.text(max_size=8),
            st.dictionaries(
                st.sampled_from(
                    [COMPLETION, f"{TRAINING}type", f"{TRAINING}index", "jobset.sigs.k8s.io/job-index", "ray.io/node-type"]
                ),
                st.one_of(st.text(max_size=4), st.integers(-5, 2_000_000).map(str)),
            ),
        ),
        max_size=12,
    )
)
def test_whatever_is_written_ranks_are_different_numbers_from_zero_on(pods: list[tuple[str, dict[str, str]]]) -> None:
    found = ranked(*pods)
    assert len(set(found)) == len(pods)
    assert all(0 <= rank < 1_000_000 * (len(pods) + 1) for rank in found)
