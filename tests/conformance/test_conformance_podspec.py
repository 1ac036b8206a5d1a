"""What of a pod's spec decides where it may run: how it is completed, and what is refused."""

from __future__ import annotations

import pytest

from .kube_world import Json, Raw, a_pod


def main(**more: object) -> Json:
    return {"name": "main", "image": "busybox", **more}


def asking(limits: Json | None = None, requests: Json | None = None, **more: object) -> Json:
    return main(resources={key: value for key, value in (("limits", limits), ("requests", requests)) if value}, **more)


def affine(*terms: Json) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def ports(*numbers: int, **more: object) -> Json:
    return main(ports=[{"containerPort": 80 + i, "hostPort": number, **more} for i, number in enumerate(numbers)])


REFUSED = [
    pytest.param({"containers": [ports(80, 80)]}, 'ports[1].hostPort: Duplicate value: "TCP//80"', id="a host port twice"),
    pytest.param(
        {"containers": [ports(80), ports(80) | {"name": "b"}]},
        'spec.containers[1].ports[0].hostPort: Duplicate value: "TCP//80"',
        id="a host port in two containers",
    ),
    pytest.param({"containers": [ports(70000)]}, "70000: must be between 1 and 65535, inclusive", id="no port"),
    pytest.param(
        {"containers": [ports(81)], "hostNetwork": True}, "must match `containerPort` when `hostNetwork` is true", id="another port"
    ),
    pytest.param(
        {"containers": [asking({"cpu": "1"}, {"cpu": "2"})]},
        'requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        id="more asked for than allowed",
    ),
    pytest.param({"containers": [asking({"nvidia.com/gpu": "500m"})]}, '"500m": must be an integer', id="half a device"),
    pytest.param(
        {"containers": [main()], "resources": {"limits": {"nvidia.com/gpu": "1"}}},
        'spec.resources.limits[nvidia.com/gpu]: Unsupported value: "nvidia.com/gpu"',
        id="a device for the pod as a whole",
    ),
    pytest.param(
        {"containers": [asking(requests={"cpu": "3"})], "resources": {"requests": {"cpu": "2"}}},
        'spec.resources.requests[cpu]: Invalid value: "2": must be greater than or equal to aggregate container requests of 3',
        id="less for the pod than for its containers",
    ),
    pytest.param(
        {"schedulingGates": [{"name": "a/b"}, {"name": "a/b"}]}, 'spec.schedulingGates[1]: Duplicate value: "a/b"', id="a gate twice"
    ),
    pytest.param(
        {"schedulingGates": [{"name": "a/b"}], "nodeName": "n"},
        "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
        id="a gate and a node",
    ),
    pytest.param({"affinity": affine()}, "must have at least one node selector term", id="no term"),
    pytest.param(
        {"affinity": affine({"matchExpressions": [{"key": "a", "operator": "Is", "values": ["b"]}]})},
        'matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator',
        id="no such operator",
    ),
    pytest.param(
        {"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 3}]},
        "effect must be 'NoExecute' when `tolerationSeconds` is set",
        id="seconds of what does not evict",
    ),
    pytest.param(
        {"tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]},
        "value must be empty when `operator` is 'Exists'",
        id="a value of what only exists",
    ),
    pytest.param(
        {"volumes": [{"name": "d", "emptyDir": {}}, {"name": "d", "emptyDir": {}}]},
        'spec.volumes[1].name: Duplicate value: "d"',
        id="a volume twice",
    ),
    pytest.param(
        {"volumes": [{"name": "d", "persistentVolumeClaim": {}}]}, "claimName: Required value", id="a claim without a name"
    ),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "why"), REFUSED)
async def test_a_pod_that_nobody_could_place_is_refused(raw: Raw, pods: str, spec: Json, why: str) -> None:
    status, body = await raw.post(pods, a_pod("a", **spec))
    assert (status, body["reason"]) == (422, "Invalid")
    assert why in body["message"]


POD_LEVEL = [
    pytest.param({}, {"requests": {"cpu": "2"}}, {"cpu": "2"}, id="as written"),
    pytest.param({}, {"limits": {"cpu": "2", "memory": "1Gi"}}, {"cpu": "2", "memory": "1Gi"}, id="the limits"),
    pytest.param({"cpu": "500m"}, {"limits": {"cpu": "2"}}, {"cpu": "500m"}, id="what the containers ask for"),
    pytest.param({"cpu": "1500m", "memory": "512Mi"}, {"requests": {"cpu": "2"}}, {"cpu": "2"}, id="nothing without limits"),
    pytest.param(
        {"cpu": "1500m"},
        {"limits": {"cpu": "2"}, "requests": {"memory": "1Gi"}},
        {"cpu": "1500m", "memory": "1Gi"},
        id="with limits, what is not named too",
    ),
]


@pytest.mark.parametrize(("container", "pod", "requests"), POD_LEVEL)
async def test_requests_of_the_pod_as_a_whole_are_completed(
    raw: Raw, pods: str, container: Json, pod: Json, requests: Json
) -> None:
    made = await raw.made(pods, a_pod("a", containers=[asking(requests=container)], resources=pod))
    assert made["spec"]["resources"]["requests"] == requests


async def test_a_quality_of_service_is_that_of_the_pod_as_a_whole(raw: Raw, pods: str) -> None:
    whole = {"cpu": "2", "memory": "1Gi"}
    assert (await raw.made(pods, a_pod("a", resources={"limits": whole})))["status"]["qosClass"] == "Guaranteed"
    assert (await raw.made(pods, a_pod("b", resources={"requests": whole})))["status"]["qosClass"] == "Burstable"
    assert (await raw.made(pods, a_pod("c")))["status"]["qosClass"] == "BestEffort"


async def test_overhead_comes_from_the_runtime_class_alone(raw: Raw, pods: str, namespace: str) -> None:
    classes = "/apis/node.k8s.io/v1/runtimeclasses"
    await raw.made(classes, {"metadata": {"name": namespace}, "handler": "x", "overhead": {"podFixed": {"cpu": "250m"}}})
    try:
        made = await raw.made(pods, a_pod("a", runtimeClassName=namespace))
        assert made["spec"]["overhead"] == {"cpu": "250m"}
        for spec, why in (
            (
                {"runtimeClassName": namespace, "overhead": {"cpu": "1"}},
                "Pod's Overhead doesn't match RuntimeClass's defined Overhead",
            ),
            ({"overhead": {"cpu": "1"}}, "Pod Overhead set without corresponding RuntimeClass defined Overhead"),
            ({"runtimeClassName": "none"}, 'RuntimeClass "none" not found'),
        ):
            status, body = await raw.post(pods, a_pod("b", **spec))
            assert (status, body["reason"]) == (403, "Forbidden")
            assert body["message"] == f'pods "b" is forbidden: pod rejected: {why}'
    finally:
        await raw.delete(f"{classes}/{namespace}")


async def test_a_grace_period_below_nothing_is_a_second(raw: Raw, pods: str) -> None:
    assert (await raw.made(pods, a_pod("a", terminationGracePeriodSeconds=-1)))["spec"]["terminationGracePeriodSeconds"] == 1
