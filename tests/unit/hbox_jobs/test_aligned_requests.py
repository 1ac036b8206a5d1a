"""What kubelets align of a pod: its QoS class, and what each of its containers asks for."""

from dataclasses import replace

import pytest

from hbox_common.model import PodGroupTask
from hbox_common.model.nodezones import ask_of
from hbox_common.model.numa import PodAsk
from hbox_jobs.core.requests import Container, is_guaranteed
from hbox_jobs.core.spec import PodSpec, shape_of

GPU = "nvidia.com/gpu"
WHOLE = {"cpu": "4", "memory": "1Gi"}
GIB = {"memory": 2**30}


def container(limits: dict[str, str], requests: dict[str, str] | None = None, *, sidecar: bool = False) -> Container:
    return Container("c", requests or {}, limits, sidecar=sidecar)


@pytest.mark.parametrize(
    ("one", "guaranteed"),
    [
        (container(WHOLE), True),
        (container(WHOLE, WHOLE), True),
        (container(WHOLE, {"cpu": "4000m", "memory": "1024Mi"}), True),
        (container(WHOLE, {"cpu": "3"}), False),
        (container({"cpu": "4"}), False),
        (container({}, WHOLE), False),
        (container({"cpu": "0", "memory": "1Gi"}), False),
    ],
)
def test_the_class_is_guaranteed_where_limits_are_what_is_asked_for(one: Container, guaranteed: bool) -> None:
    assert is_guaranteed([one], []) is guaranteed
    assert is_guaranteed([container(WHOLE), one], []) is guaranteed
    assert is_guaranteed([container(WHOLE)], [one]) is guaranteed


def test_one_container_is_what_the_pod_asks_for() -> None:
    shape = shape_of("k", PodSpec((container(WHOLE | {GPU: "2"}),)))
    assert (shape.guaranteed, shape.of_containers, shape.of_init_containers) == (True, (), ())


def test_several_are_told_one_by_one_and_sidecars_run_beside_them() -> None:
    init = (container({"cpu": "8", "memory": "1Gi"}), container({"cpu": "1", "memory": "1Gi"}, sidecar=True))
    shape = shape_of("k", PodSpec((container(WHOLE), container(WHOLE | {GPU: "1"})), init))
    assert shape.of_containers == ({"cpu": 1000} | GIB, {"cpu": 4000} | GIB, {"cpu": 4000, GPU: 1} | GIB)
    assert shape.of_init_containers == ({"cpu": 8000} | GIB,)


def test_what_the_runtime_takes_is_no_containers() -> None:
    shape = shape_of("k", PodSpec((container(WHOLE),), overhead={"cpu": "1"}))
    assert shape.of_containers == ({"cpu": 4000} | GIB,)


def test_of_a_pod_with_amounts_of_its_own_devices_alone_are_aligned() -> None:
    shape = shape_of("k", PodSpec((container(WHOLE | {GPU: "1"}),), pod_requests={"cpu": "4", "memory": "1Gi"}))
    assert (shape.guaranteed, shape.of_containers) == (False, ({"cpu": 4000, GPU: 1},))


def test_half_cpus_are_not_aligned_and_parts_of_cards_are_no_devices() -> None:
    task = PodGroupTask("t", {"cpu": 1500, "memory": 1, "pods": 1, GPU: 2, "nvidia.com/gpumem": 5}, (), guaranteed=True)
    assert ask_of(task) == PodAsk(((("memory", 1), (GPU, 2)),), (), guaranteed=True)
    assert ask_of(replace(task, guaranteed=False)) == PodAsk((((GPU, 2),),), ())
    assert ask_of(PodGroupTask("t", {"cpu": 4000, "pods": 1}, ())) is None
