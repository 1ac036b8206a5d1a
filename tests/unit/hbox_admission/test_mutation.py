"""What is written into a pod that asks for devices: HAMi's own cases (pkg/scheduler/webhook_test.go and the vendors' Test_MutateAdmission), and what differs on
purpose."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from hbox_admission.core import Mutation, Outcome, Rules, mutate
from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS
from hbox_common.model.devices.sizes import DEFAULT, Becomes, Size, Way

from ...json_patch import patched

HBOX = Rules()


def container(name: str = "main", **fields: Any) -> dict[str, Any]:
    limits = fields.pop("limits", {})
    return {
        "name": name,
        "image": "i",
        "resources": {"limits": {k: str(v) for k, v in limits.items()}} if limits else {},
        **fields,
    }


def pod(
    *containers: dict[str, Any],
    init: list[dict[str, Any]] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "p", "namespace": "ml"}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    found = {"containers": list(containers), "schedulerName": "default-scheduler", **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": found | ({"initContainers": init} if init else {})}


def done(before: dict[str, Any], rules: Rules = HBOX) -> Mutation:
    """Applied: what came in is not changed, the patch leads to the pod that is told, and a second time there is nothing to do."""
    kept = deepcopy(before)
    found = mutate(before, rules)
    assert before == kept
    assert patched(before, found.patch) == found.pod
    again = mutate(found.pod, rules)
    assert (again.patch, again.warnings) == ((), found.warnings)
    return found


def limits(found: Mutation, place: int = 0) -> Mapping[str, str]:
    return dict(found.pod["spec"]["containers"][place]["resources"].get("limits", {}))


def env(found: Mutation, place: int = 0) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in found.pod["spec"]["containers"][place].get("env", ())}


NVIDIA = {"nvidia.com/gpu": 1}


def test_a_pod_that_asks_for_cards_becomes_hboxs() -> None:
    found = done(pod(container(limits=NVIDIA)))
    assert found.patch == ({"op": "add", "path": "/spec/schedulerName", "value": "hbox"},), "no amount that says nothing new"
    assert done(pod(container(limits=NVIDIA), schedulerName="")).pod["spec"]["schedulerName"] == "hbox"


@pytest.mark.parametrize("name", ["hami-scheduler", "volcano", "kai-scheduler"])
def test_a_pod_of_another_scheduler_is_let_by(name: str) -> None:
    found = done(pod(container(limits={"nvidia.com/gpumem": 3000}), schedulerName=name))
    assert (found.outcome, found.patch) == (Outcome.FOREIGN, ())


def test_hboxs_own_names_stay_and_are_completed() -> None:
    rules = Rules(("hbox", "volcano"))
    found = done(pod(container(limits={"nvidia.com/gpumem": 3000}), schedulerName="volcano"), rules)
    assert found.pod["spec"]["schedulerName"] == "volcano"
    assert limits(found)["nvidia.com/gpu"] == "1"


def test_the_default_schedulers_pods_stay_its_own_where_the_operator_says_so() -> None:
    rules = Rules(force_overwrite_default_scheduler=False)
    assert done(pod(container(limits=NVIDIA)), rules).outcome is Outcome.FOREIGN
    assert done(pod(container(limits=NVIDIA), schedulerName=""), rules).pod["spec"]["schedulerName"] == "hbox"


def test_a_pod_without_devices_is_let_by() -> None:
    for one in (container(limits={"cpu": 4, "memory": "1Gi"}), container(), container(limits={"nvidia.com/gpu": 0})):
        assert done(pod(one)).outcome is Outcome.UNCHANGED


def test_a_pod_with_a_node_is_let_by_where_hami_refuses_it() -> None:
    assert done(pod(container(limits={"nvidia.com/gpumem": 1}), nodeName="n1")).outcome is Outcome.FOREIGN


@pytest.mark.parametrize("place", ["init", "main"])
def test_a_pod_with_a_privileged_container_is_let_by_with_a_word(place: str) -> None:
    """HAMi refuses it; validators of the GPU operator are such pods."""
    setup = container("setup", securityContext={"privileged": place == "init"})
    main = container("main", limits={"nvidia.com/gpumem": 1}, securityContext={"privileged": place == "main"})
    found = done(pod(main, init=[setup]))
    assert (found.outcome, found.patch) == (Outcome.PRIVILEGED, ())
    assert "is privileged" in found.warnings[0]


@pytest.mark.parametrize(
    ("asked", "after"),
    [
        ({"nvidia.com/gpumem": 3000}, {"nvidia.com/gpu": "1"}),
        ({"nvidia.com/gpucores": 30}, {"nvidia.com/gpu": "1"}),
        ({"nvidia.com/gpumem-percentage": 50}, {"nvidia.com/gpu": "1"}),
        ({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000}, {}),
        ({"hygon.com/dcumem": 2000}, {"hygon.com/dcunum": "1"}),
        ({"huawei.com/Ascend910B3": 1, "huawei.com/Ascend910B3-memory": 20_000}, {"huawei.com/Ascend910B3-memory": "32768"}),
        ({"huawei.com/Ascend910B3-memory": 1}, {"huawei.com/Ascend910B3": "1", "huawei.com/Ascend910B3-memory": "16384"}),
        ({"huawei.com/Ascend910B3": 2}, {}),
        ({"huawei.com/Ascend910C": 1}, {"huawei.com/Ascend910C": "2"}),
        ({"kunlunxin.com/vxpu": 1, "kunlunxin.com/vxpu-memory": 25_000}, {"kunlunxin.com/vxpu-memory": "49152"}),
        ({"kunlunxin.com/vxpu": 1, "kunlunxin.com/vxpu-memory": 24_576}, {}),
        ({"mthreads.com/vgpu": 1, "mthreads.com/sgpu-memory": 32}, {}),
    ],
)  # fmt: skip
def test_amounts_are_completed_by_the_makers_rules(asked: dict[str, int], after: dict[str, str]) -> None:
    found = done(pod(container(limits={"cpu": 2, **asked})))
    assert limits(found) == {"cpu": "2"} | {name: str(amount) for name, amount in asked.items()} | after
    assert found.pod["spec"]["schedulerName"] == "hbox"
    assert not found.warnings


def test_templates_of_units_stay_the_same_template() -> None:
    units = "vnpus: {configs: [{commonWord: Ascend910B3, memoryFactor: 1000}]}"
    with VENDORS.configured(units):
        found = done(pod(container(limits={"huawei.com/Ascend910B3": 1, "huawei.com/Ascend910B3-memory": 1})))
        assert limits(found)["huawei.com/Ascend910B3-memory"] == "16", (
            "16,000 MiB: of 17,000 it would be the template of 32,768"
        )


def test_requests_that_there_are_say_the_same_as_limits() -> None:
    one = container(limits={"kunlunxin.com/vxpu": 1, "kunlunxin.com/vxpu-memory": 1})
    one["resources"]["requests"] = dict(one["resources"]["limits"])
    found = done(pod(one)).pod["spec"]["containers"][0]["resources"]
    assert found["limits"] == found["requests"] == {"kunlunxin.com/vxpu": "1", "kunlunxin.com/vxpu-memory": "24576"}


def test_a_device_among_the_requests_alone_is_a_limit_too() -> None:
    one = container() | {"resources": {"requests": {"enflame.com/drs-gcu": "3", "cpu": "1"}}}
    assert limits(done(pod(one))) == {"enflame.com/drs-gcu": "3"}


def test_urgency_becomes_the_variable_of_hamis_library_and_outranks_what_stands_there() -> None:
    asked = {"nvidia.com/gpu": 1, "nvidia.com/priority": 1}
    assert env(done(pod(container(limits=asked)))) == {"CUDA_TASK_PRIORITY": "1"}
    other = [{"name": "CUDA_TASK_PRIORITY", "value": "0"}, {"name": "A", "value": "b"}]
    found = done(pod(container(limits=asked, env=other)))
    assert found.pod["spec"]["containers"][0]["env"] == [
        {"name": "A", "value": "b"},
        {"name": "CUDA_TASK_PRIORITY", "value": "1"},
    ]


def test_what_hamis_webhook_has_written_already_stays_as_it_is() -> None:
    """HAMi appends: of a name that stands twice the last counts."""
    twice = [{"name": "CUDA_TASK_PRIORITY", "value": "0"}, {"name": "CUDA_TASK_PRIORITY", "value": "1"}]
    found = done(pod(container(limits={"nvidia.com/gpu": 1, "nvidia.com/priority": 1, "nvidia.com/gpucores": 100}, env=twice)))
    assert found.patch == ({"op": "add", "path": "/spec/schedulerName", "value": "hbox"},)


def test_annotations_that_plugins_read_are_added_where_none_stand() -> None:
    sgpu = {"metax-tech.com/sgpu": 1, "metax-tech.com/vcore": 30}
    policy = "metax-tech.com/sgpu-qos-policy"
    assert done(pod(container(limits=sgpu))).pod["metadata"]["annotations"] == {policy: "best-effort"}
    assert done(pod(container(limits=sgpu), annotations={policy: "burst-share"})).pod["metadata"]["annotations"] == {
        policy: "burst-share"
    }
    online = {"metax-tech.com/sgpu-app-class": "online"}
    assert done(pod(container(limits=sgpu), annotations=online)).pod["metadata"]["annotations"] == online
    assert done(pod(container(limits={"mthreads.com/vgpu": 2}), annotations={})).pod["metadata"]["annotations"] == {
        "mthreads.com/request-gpu-num": "2"
    }


def test_iluvatars_plugin_is_told_the_containers_name_unless_the_pod_does() -> None:
    asked = {"iluvatar.ai/MR-V100-vgpu": 1}
    assert env(done(pod(container("a", limits=asked), container("b")))) == {"SOL_CONTINER_NAME": "a"}
    own = [{"name": "SOL_CONTINER_NAME", "value": "x"}]
    assert env(done(pod(container("a", limits=asked, env=own)))) == {"SOL_CONTINER_NAME": "x"}


OPERATORS = """
nvidia: {runtimeClassName: nvidia, overwriteEnv: true, gpuCorePolicy: force}
vnpus: {configs: [{commonWord: Ascend910B3, runtimeClassName: ascend, overwriteEnv: true}]}
"""


def test_the_runtime_class_is_the_makers_where_the_pod_names_none() -> None:
    with VENDORS.configured(OPERATORS):
        assert done(pod(container(limits=NVIDIA))).pod["spec"]["runtimeClassName"] == "nvidia"
        assert done(pod(container(limits={"huawei.com/Ascend910B3": 1}))).pod["spec"]["runtimeClassName"] == "ascend"
        assert done(pod(container(limits=NVIDIA), runtimeClassName="kata")).pod["spec"]["runtimeClassName"] == "kata"
        assert "runtimeClassName" not in done(pod(container(limits={"huawei.com/Ascend310P": 1}))).pod["spec"]
    assert "runtimeClassName" not in done(pod(container(limits=NVIDIA))).pod["spec"]


def test_the_operators_core_policy_outranks_a_tenants() -> None:
    lax = [{"name": "GPU_CORE_UTILIZATION_POLICY", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    with VENDORS.configured(OPERATORS):
        assert env(done(pod(container(limits=NVIDIA, env=lax)))) == {"GPU_CORE_UTILIZATION_POLICY": "force"}
    assert done(pod(container(limits=NVIDIA, env=lax))).pod["spec"]["containers"][0]["env"] == lax


def test_cards_are_hidden_from_containers_that_ask_for_none() -> None:
    hidden = {"NVIDIA_VISIBLE_DEVICES": "none", "ASCEND_VISIBLE_DEVICES": ""}
    greedy = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    with VENDORS.configured(OPERATORS):
        assert env(done(pod(container(env=greedy)))) == hidden, "also of pods without devices"
        found = done(pod(container("a", limits=NVIDIA), container("b")))
        assert env(found) == {"GPU_CORE_UTILIZATION_POLICY": "force"}
        assert env(found, 1) == hidden
        assert env(done(pod(container(limits={"nvidia.com/mig-1g.5gb": 1})))) == {"ASCEND_VISIBLE_DEVICES": ""}
        assert env(done(pod(container(limits={"aliyun.com/gpu-mem": 4})))) == {}
    assert env(done(pod(container(env=greedy)))) == {"NVIDIA_VISIBLE_DEVICES": "all"}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 101}, "container main: nvidia.com/gpumem-percentage is 101 (write the percentage of one card's"),
        ({"nvidia.com/gpu": 1, "nvidia.com/priority": "high"}, "nvidia.com/priority is 'high', not a quantity"),
        ({"huawei.com/Ascend910C": 3}, "a module has 2 dies"),
        ({"huawei.com/Ascend910B3": 2, "huawei.com/Ascend910B3-memory": 1}, "several cards are whole cards"),
        ({"mthreads.com/vgpu": 1, "mthreads.com/sgpu-memory": 3}, "write one of 2, 4, 8, 16, 32, 64, 96"),
        ({"nvidia.com/gpu": "-1"}, "write a whole number, 0 or more"),
        ({"nvidia.com/gpu": "1e40"}, "at most"),
        ({"sizes.hbox.io/huge": 1}, "no size is called huge"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_and_goes_to_hbox_which_says_why(asked: dict[str, Any], said: str) -> None:
    """HAMi refuses these pods. Here they wait, and `hbox why` says the same."""
    found = done(pod(container(limits=asked), container("fine", limits={"nvidia.com/gpumem": 1})))
    assert found.pod["spec"]["schedulerName"] == "hbox"
    assert limits(found) == {name: str(amount) for name, amount in asked.items()}, "left as it is"
    assert limits(found, 1)["nvidia.com/gpu"] == "1", "the others are completed"
    assert said in found.warnings[0]


def test_warnings_are_few_and_short() -> None:
    found = done(pod(*(container(f"c{i}" * 30, limits={"nvidia.com/gpu": "x" * 300}) for i in range(200))))
    assert len(found.warnings) == 11
    assert found.warnings[-1] == "and 190 more"
    assert max(map(len, found.warnings)) <= 260


SETTLED = {
    "8GB-compute": Size("8GB-compute", "", (Way.SHARE,), 8192, 25, becomes=Becomes("NVIDIA", Way.SHARE, {"nvidia.com/vgpu-mode": "hami-core"})),
    "big": Size("big", "", (Way.WHOLE,), cards=2, becomes=Becomes("DCU", Way.WHOLE)),
    "open": next(size for size in DEFAULT if size.name == "16GB-inference"),
}  # fmt: skip


def test_sizes_become_what_the_catalogue_has_settled() -> None:
    rules = Rules(sizes=SETTLED)
    found = done(
        pod(
            container("a", limits={"sizes.hbox.io/8GB-compute": 2, "cpu": 1}),
            init=[container("i", limits={"sizes.hbox.io/big": 1})],
        ),
        rules,
    )
    assert limits(found) == {"cpu": "1", "nvidia.com/gpu": "2", "nvidia.com/gpumem": "8192", "nvidia.com/gpucores": "25"}
    assert found.pod["metadata"]["annotations"] == {"nvidia.com/vgpu-mode": "hami-core"}
    assert found.pod["spec"]["initContainers"][0]["resources"]["limits"] == {"hygon.com/dcunum": "2"}
    assert found.pod["spec"]["schedulerName"] == "hbox"


def test_a_size_that_is_not_settled_waits_with_a_word() -> None:
    found = done(pod(container(limits={"sizes.hbox.io/open": 1})), Rules(sizes=SETTLED))
    assert limits(found) == {"sizes.hbox.io/open": "1"}
    assert found.pod["spec"]["schedulerName"] == "hbox"
    assert "hbox sizes --settle" in found.warnings[0]


@pytest.mark.parametrize(
    ("what", "place"),
    [
        ({}, "spec"),
        ({"spec": []}, "$.spec"),
        ({"spec": {"containers": {"a": 1}}}, "$.spec.containers"),
        ({"spec": {"containers": ["a"]}}, "$.spec.containers[0]"),
        ({"spec": {"containers": [{"resources": {"limits": ["a"]}}]}}, "$.spec.containers[0].resources.limits"),
        ({"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": {}}}}]}}, "limits"),
        ({"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": True}}}]}}, "limits"),
        ({"spec": {"containers": [], "schedulerName": 3}}, "$.spec.schedulerName"),
        ({"spec": {"containers": [{"env": {"a": "b"}}]}}, "$.spec.containers[0].env"),
        ({"metadata": {"annotations": {"a": 1}}, "spec": {}}, "$.metadata.annotations"),
    ],
)
def test_what_is_no_pod_is_told_where(what: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidRequest) as told:
        mutate(what, Rules())
    assert place in str(told.value)


def test_what_may_be_left_out_may_be_null() -> None:
    one = {
        "name": "a",
        "resources": {"limits": {"nvidia.com/gpumem": 3000}, "requests": None},
        "env": None,
        "securityContext": None,
    }
    found = done(
        {"metadata": None, "spec": {"containers": [one], "initContainers": None, "nodeName": None, "runtimeClassName": None}}
    )
    assert limits(found) == {"nvidia.com/gpumem": 3000, "nvidia.com/gpu": "1"}
    assert done({"metadata": None, "spec": {"containers": [container(limits={"mthreads.com/vgpu": 2})]}}).pod["metadata"]
    assert done({"spec": {}}).outcome is Outcome.UNCHANGED
