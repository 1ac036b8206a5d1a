from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.errors import InvalidRequest
from hbox_common.model.resources import GIB
from hbox_jobs.core.requests import Container, pod_requests


def c(requests: Any = None, *, limits: Any = None, sidecar: Any = False, name: str = "main") -> Container:
    return Container(name, requests or {}, limits or {}, sidecar=sidecar)


@pytest.mark.parametrize(
    ("containers", "init", "requests"),
    [
        ([c({"cpu": "500m", "memory": "1Gi"})], [], {"cpu": 500, "memory": GIB}),
        ([c({"cpu": "1"}), c({"cpu": 2})], [], {"cpu": 3000}),
        ([c({"cpu": "1"})], [c({"cpu": "4"}), c({"cpu": "3"})], {"cpu": 4000}),
        ([c({"cpu": "1"})], [c({"cpu": "1"}, sidecar=True)], {"cpu": 2000}),
        ([c({"cpu": "1"})], [c({"cpu": "1"}, sidecar=True), c({"cpu": "3"})], {"cpu": 4000}),
        ([c({"cpu": "1"})], [c({"cpu": "3"}), c({"cpu": "1"}, sidecar=True)], {"cpu": 3000}),
        ([c({"cpu": "1"})], [c({"memory": "1Gi"})], {"cpu": 1000, "memory": GIB}),
        ([c({"cpu": "1"}, limits={"cpu": "4", "nvidia.com/gpu": 2})], [], {"cpu": 1000, "nvidia.com/gpu": 2}),
        ([c({"cpu": "0", "nvidia.com/gpu": "0"})], [], {}),
        ([c()], [], {}),
    ],
)
def test_a_pod_takes_what_kubernetes_computes(containers: Any, init: Any, requests: Any) -> None:
    assert pod_requests(containers, init) == {**requests, "pods": 1}


def test_overhead_comes_on_top_and_pod_level_requests_replace_the_containers() -> None:
    taken = pod_requests([c({"cpu": "1", "memory": "1Gi"})], overhead={"cpu": "250m"}, pod_level={"memory": "4Gi"})
    assert taken == {"cpu": 1250, "memory": 4 * GIB, "pods": 1}


def test_parts_of_cards_are_not_left_in_the_requests() -> None:
    taken = pod_requests([c(limits={"nvidia.com/gpu": 1, "nvidia.com/gpucores": 30, "nvidia.com/gpumem": 1000})])
    assert taken == {"nvidia.com/gpu": 1, "pods": 1}


@pytest.mark.parametrize("quantity", ["-1", "much"])
def test_a_quantity_that_is_none_is_refused_with_the_containers_name(quantity: Any) -> None:
    with pytest.raises(InvalidRequest, match="container main"):
        pod_requests([c({"cpu": quantity})])


_amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 64).map(str), max_size=3)
_containers = st.lists(st.builds(Container, st.just("c"), _amounts, _amounts), max_size=4)
_inits = st.lists(st.builds(Container, st.just("i"), _amounts, _amounts, sidecar=st.booleans()), max_size=4)


@given(_containers, _inits, _amounts)
def test_a_pod_never_takes_less_than_what_runs_together_at_any_moment(containers: Any, inits: Any, overhead: Any) -> None:
    taken = pod_requests(containers, inits, overhead=overhead)
    extra = pod_requests([], overhead=overhead)
    sidecars = [i for i in inits if i.sidecar]
    moments = [[*containers, *sidecars]]
    moments += [[i, *[s for s in inits[:n] if s.sidecar]] for n, i in enumerate(inits)]
    peak: dict[str, int] = {}
    for running in moments:
        for name, units in pod_requests(running).items():
            if name != "pods":
                peak[name] = max(peak.get(name, 0), units)
    for name in {*peak, *extra} - {"pods"}:
        assert taken.get(name, 0) == peak.get(name, 0) + extra.get(name, 0)
    assert taken["pods"] == 1
    assert all(units > 0 for units in taken.values())


@given(_containers, _inits, _amounts)
def test_one_more_container_never_makes_a_pod_smaller(containers: Any, inits: Any, more: Any) -> None:
    before = pod_requests(containers, inits)
    after = pod_requests([*containers, Container("more", more)], inits)
    assert all(after.get(name, 0) >= units for name, units in before.items())


@pytest.mark.parametrize(
    ("asked", "given", "infeasible", "counts"),
    [("7", "1", False, 7000), ("1", "7", False, 7000), ("7", "1", True, 1000), ("1", "1", False, 1000)],
    ids=["grows", "shrinks", "can never grow", "as it is"],
)
def test_of_a_container_that_is_resized_counts_the_most_that_it_may_take(
    asked: str, given: str, infeasible: bool, counts: int
) -> None:
    resized = Container("main", {"cpu": asked}, given={"cpu": given}, infeasible=infeasible)
    assert pod_requests([resized])["cpu"] == counts


def test_how_urgent_work_on_a_card_is_is_no_amount_of_a_node() -> None:
    one = Container("main", limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4000", "nvidia.com/priority": "1"})
    assert pod_requests([one]) == {"nvidia.com/gpu": 1, "pods": 1}
