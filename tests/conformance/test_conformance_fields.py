"""Fields that a kind does not have, values of a wrong type, workloads that are not valid; and what emulated containers answer."""

from __future__ import annotations

from typing import Any

import pytest

from ..waiting import until
from .kube_world import Json, KubeApi, Raw, a_pod


def a_deployment(name: str, **spec: Any) -> Json:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    body = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": body | spec}


@pytest.fixture
def deployments(namespace: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/deployments"


async def test_strict_validation_refuses_a_misspelt_field_by_its_path(raw: Raw, pods: str) -> None:
    pod = a_pod("a", schedulrName="hbox") | {"status": {}}
    pod["metadata"]["lables"] = {}
    status, body = await raw.post(pods, pod, fieldValidation="Strict")
    assert (status, body["reason"]) == (400, "BadRequest")
    assert body["message"].startswith('Pod in version "v1" cannot be handled as a Pod: strict decoding error: ')
    assert 'unknown field "metadata.lables"' in body["message"]
    assert 'unknown field "spec.schedulrName"' in body["message"]


async def test_a_warning_names_an_unknown_field_that_is_dropped(raw: Raw, pods: str) -> None:
    pod, params = a_pod("a", schedulrName="hbox"), {"fieldValidation": "Warn"}
    async with raw.session.post(raw.base + pods, json=pod, params=params) as response:
        assert response.status == 201
        assert response.headers.getall("Warning") == ['299 - "unknown field \\"spec.schedulrName\\""']
        assert "schedulrName" not in (await response.json())["spec"]


async def test_a_strict_patch_refuses_an_unknown_field(raw: Raw, deployments: str) -> None:
    await raw.made(deployments, a_deployment("a"))
    status, body = await raw.patch(f"{deployments}/a", {"spec": {"replicsa": 2}}, "strategic-merge", fieldValidation="Strict")
    assert (status, body["reason"]) == (422, "Invalid")
    assert body["message"].endswith('strict decoding error: unknown field "spec.replicsa"')


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"replicas": "two"}, "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"),
        ({"paused": 1}, "json: cannot unmarshal number into Go struct field DeploymentSpec.spec.paused of type bool"),
    ],
)
async def test_a_value_of_a_wrong_type_is_named_as_gos_decoder_does(raw: Raw, deployments: str, spec: Json, text: str) -> None:
    status, body = await raw.post(deployments, a_deployment("a", **spec), fieldValidation="Strict")
    assert status == 400
    assert body["message"] == f'Deployment in version "v1" cannot be handled as a Deployment: {text}'


async def test_a_selector_has_to_match_its_template_and_stays(raw: Raw, deployments: str) -> None:
    status, body = await raw.post(deployments, a_deployment("a", selector={"matchLabels": {"app": "b"}}))
    assert (status, body["details"]["causes"][0]["field"]) == (422, "spec.template.metadata.labels")
    await raw.made(deployments, a_deployment("a"))
    change = {"spec": {"selector": {"matchLabels": {"app": "a", "x": "y"}}, "template": {"metadata": {"labels": {"x": "y"}}}}}
    status, body = await raw.patch(f"{deployments}/a", change)
    assert status == 422
    assert {"spec.selector"} == {each["field"] for each in body["details"]["causes"]}


async def test_scale_changes_the_replicas_alone(raw: Raw, deployments: str) -> None:
    await raw.made(deployments, a_deployment("a"))
    status, scale = await raw.get(f"{deployments}/a/scale")
    assert (status, scale["kind"], scale["spec"], scale["status"]["selector"]) == (200, "Scale", {"replicas": 1}, "app=a")
    del scale["metadata"]["resourceVersion"]  # the controller writes the status meanwhile
    scale["spec"]["replicas"] = 3
    status, scale = await raw.put(f"{deployments}/a/scale", scale)
    assert (status, scale["spec"]) == (200, {"replicas": 3})
    status, body = await raw.patch(f"{deployments}/a/scale", {"spec": {"replicas": -1}})
    assert (status, body["reason"]) == (422, "Invalid")
    assert (await raw.get(f"{deployments}/a"))[1]["spec"]["replicas"] == 3


async def test_a_failed_pod_of_a_job_is_replaced_until_its_limit(
    emulator: KubeApi, raw: Raw, namespace: str, pods: str
) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    await raw.made(path, {"metadata": {"name": "a"}, "spec": {"backoffLimit": 1, "template": template}})

    async def active() -> list[str]:
        items = (await raw.get(pods))[1]["items"]
        return [each["metadata"]["name"] for each in items if each["status"]["phase"] == "Pending"]

    for _ in range(2):
        (name,) = await until(active, "a pod of the job")
        assert (await raw.patch(f"{pods}/{name}/status", {"status": {"phase": "Failed"}}))[0] == 200

    async def conditions() -> list[tuple[str, str]]:
        status = (await raw.get(f"{path}/a"))[1].get("status") or {}
        return [(each["type"], each["reason"]) for each in status.get("conditions") or ()]

    assert await until(conditions, "the end of the job") == [
        ("FailureTarget", "BackoffLimitExceeded"),
        ("Failed", "BackoffLimitExceeded"),
    ]
    assert (await raw.get(f"{path}/a"))[1]["status"]["failed"] == 2


async def test_requests_that_need_a_process_are_not_implemented(emulator: KubeApi, raw: Raw, pods: str) -> None:
    await raw.made(pods, a_pod("a", nodeName="n1"))
    for path in (f"{pods}/a/exec", f"{pods}/a/attach", f"{pods}/a/portforward", "/apis/metrics.k8s.io/v1beta1/nodes"):
        status, body = await raw.get(path)
        assert (status, body["reason"]) == (501, "NotImplemented")
        assert "hbox up --api assets" in body["message"]


async def test_a_log_has_the_start_and_the_end_of_its_container(emulator: KubeApi, raw: Raw, pods: str) -> None:
    await raw.made(pods, a_pod("a", nodeName="n1"))
    ended = {"exitCode": 3, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:09Z"}
    container = {
        "name": "main",
        "image": "busybox",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": ended},
    }
    await raw.patch(f"{pods}/a/status", {"status": {"phase": "Failed", "containerStatuses": [container]}})
    async with raw.session.get(f"{raw.base}{pods}/a/log", params={"timestamps": "true", "follow": "true"}) as response:
        lines = (await response.text()).splitlines()
    assert lines[0].startswith("2026-01-01T00:00:00.000000000Z emulated container main started on node n1: image busybox")
    assert lines[-1] == "2026-01-01T00:00:09.000000000Z emulated container main ended with exit code 3"
    async with raw.session.get(f"{raw.base}{pods}/a/log", params={"tailLines": "1"}) as response:
        assert await response.text() == "emulated container main ended with exit code 3\n"
    assert (await raw.get(f"{pods}/a/log", container="other"))[0] == 400
