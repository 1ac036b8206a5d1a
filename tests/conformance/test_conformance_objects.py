"""Objects, writes, preconditions, deletion (checklist items 1, 5 and 9)."""

from __future__ import annotations

import pytest

from ..waiting import until
from .kube_world import Json, Raw, a_binding, a_pod


def rv(obj: Json) -> int:
    return int(obj["metadata"]["resourceVersion"])


async def test_a_created_object_carries_what_the_server_gives_it(raw: Raw, pods: str) -> None:
    pod = await raw.made(pods, a_pod("a"))
    meta = pod["metadata"]
    assert isinstance(meta["resourceVersion"], str)
    assert len(meta["uid"]) == 36
    assert meta["creationTimestamp"].endswith("Z")
    assert meta["generation"] == 1
    assert pod["status"]["phase"] == "Pending"
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert pod["spec"]["priority"] == 0
    assert pod["spec"]["terminationGracePeriodSeconds"] == 30
    assert {each["key"] for each in pod["spec"]["tolerations"]} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }


async def test_a_status_given_on_creation_is_ignored_for_pods_and_kept_for_nodes(raw: Raw, pods: str, namespace: str) -> None:
    pod = await raw.made(pods, a_pod("a") | {"status": {"phase": "Running"}})
    assert pod["status"]["phase"] == "Pending"
    node = await raw.made(
        "/api/v1/nodes", {"metadata": {"name": f"{namespace}-n"}, "status": {"capacity": {"nvidia.com/gpu": "8"}}}
    )
    assert node["status"]["capacity"] == {"nvidia.com/gpu": "8"}
    assert (await raw.delete(f"/api/v1/nodes/{namespace}-n"))[0] == 200


async def test_generate_name_makes_different_names(raw: Raw, configmaps: str) -> None:
    made = [await raw.made(configmaps, {"metadata": {"generateName": "cm-"}}) for _ in range(3)]
    names = {each["metadata"]["name"] for each in made}
    assert len(names) == 3
    assert all(name.startswith("cm-") and len(name) == 8 for name in names)


async def test_creating_a_name_twice_is_already_exists(raw: Raw, configmaps: str) -> None:
    await raw.made(configmaps, {"metadata": {"name": "a"}})
    status, body = await raw.post(configmaps, {"metadata": {"name": "a"}})
    assert (status, body["reason"], body["code"], body["status"]) == (409, "AlreadyExists", 409, "Failure")
    assert body["details"] == {"name": "a", "kind": "configmaps"}
    assert body["message"] == 'configmaps "a" already exists'


async def test_a_bad_name_is_invalid_with_its_cause(raw: Raw, configmaps: str) -> None:
    status, body = await raw.post(configmaps, {"metadata": {"name": "Bad_Name"}})
    assert (status, body["reason"]) == (422, "Invalid")
    assert body["details"]["causes"][0]["field"] == "metadata.name"
    assert body["details"]["causes"][0]["reason"] == "FieldValueInvalid"
    assert "RFC 1123 subdomain" in body["message"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"containers": []}, "spec.containers"),
        ({"containers": [{"name": "a"}]}, "spec.containers[0].image"),
        ({"containers": [{"image": "a"}]}, "spec.containers[0].name"),
        ({"restartPolicy": "Sometimes"}, "spec.restartPolicy"),
    ],
)
async def test_a_bad_pod_is_invalid_and_says_which_field(raw: Raw, pods: str, change: Json, field: str) -> None:
    status, body = await raw.post(pods, a_pod("a", **change))
    assert (status, body["reason"]) == (422, "Invalid")
    assert field in [each["field"] for each in body["details"]["causes"]]


async def test_extended_resources_need_equal_limits_and_default_their_requests(raw: Raw, pods: str) -> None:
    def with_resources(name: str, resources: Json) -> Json:
        return a_pod(name, containers=[{"name": "main", "image": "a", "resources": resources}])

    pod = await raw.made(pods, with_resources("a", {"limits": {"nvidia.com/gpu": 2}}))
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "2"}
    status, _ = await raw.post(pods, with_resources("b", {"requests": {"nvidia.com/gpu": 2}}))
    assert status == 422
    status, body = await raw.post(pods, with_resources("c", {"requests": {"cpu": "many"}}))
    assert (status, body["reason"]) == (400, "BadRequest")


async def test_objects_cannot_be_created_in_a_namespace_that_is_not_there(raw: Raw) -> None:
    status, body = await raw.post("/api/v1/namespaces/nowhere/configmaps", {"metadata": {"name": "a"}})
    assert (status, body["reason"]) == (404, "NotFound")
    assert body["message"] == 'namespaces "nowhere" not found'


async def test_an_update_that_changes_nothing_keeps_the_version(raw: Raw, configmaps: str) -> None:
    made = await raw.made(configmaps, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    status, same = await raw.put(f"{configmaps}/a", made)
    assert (status, rv(same)) == (200, rv(made))
    status, patched = await raw.patch(f"{configmaps}/a", {"data": {"x": "1"}})
    assert (status, rv(patched)) == (200, rv(made))
    status, changed = await raw.patch(f"{configmaps}/a", {"data": {"x": "2"}})
    assert rv(changed) > rv(made)


async def test_put_with_a_stale_version_is_a_conflict(raw: Raw, configmaps: str) -> None:
    made = await raw.made(configmaps, {"metadata": {"name": "a"}})
    await raw.patch(f"{configmaps}/a", {"data": {"x": "1"}})
    status, body = await raw.put(f"{configmaps}/a", made | {"data": {"x": "2"}})
    assert (status, body["reason"]) == (409, "Conflict")
    assert body["message"].endswith(
        "the object has been modified; please apply your changes to the latest version and try again"
    )


async def test_put_with_another_uid_is_a_conflict(raw: Raw, configmaps: str) -> None:
    made = await raw.made(configmaps, {"metadata": {"name": "a"}})
    made["metadata"] = {"name": "a", "uid": "00000000-0000-4000-8000-000000000000"}
    assert (await raw.put(f"{configmaps}/a", made))[0] == 409


async def test_put_without_a_version_overwrites_where_the_kind_allows_it(raw: Raw, configmaps: str, namespace: str) -> None:
    await raw.made(configmaps, {"metadata": {"name": "a"}})
    status, body = await raw.put(f"{configmaps}/a", {"metadata": {"name": "a"}, "data": {"x": "1"}})
    assert (status, body["data"]) == (200, {"x": "1"})
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    lease = await raw.made(leases, {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}})
    del lease["metadata"]["resourceVersion"]
    status, body = await raw.put(f"{leases}/a", lease | {"spec": {"holderIdentity": "you"}})
    assert (status, body["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")


async def test_lease_times_must_have_microseconds(raw: Raw, namespace: str) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    spec = {
        "holderIdentity": "me",
        "renewTime": "2026-01-02T04:04:05.000000+01:00",
        "acquireTime": "2026-01-02T03:04:05.123456Z",
    }
    lease = await raw.made(leases, {"metadata": {"name": "a"}, "spec": spec})
    assert lease["spec"]["renewTime"] == "2026-01-02T03:04:05.000000Z"
    assert lease["spec"]["acquireTime"] == "2026-01-02T03:04:05.123456Z"
    status, body = await raw.post(leases, {"metadata": {"name": "b"}, "spec": {"renewTime": "2026-01-02T03:04:05Z"}})
    assert (status, body["reason"]) == (400, "BadRequest")


async def test_a_write_to_status_changes_nothing_else_and_the_other_way_round(raw: Raw, pods: str) -> None:
    pod = await raw.made(pods, a_pod("a", labels={"x": "1"}))
    pod["spec"]["priority"] = 7
    pod["status"]["phase"] = "Running"
    status, after = await raw.put(f"{pods}/a/status", pod)
    assert (status, after["status"]["phase"], after["spec"]["priority"]) == (200, "Running", 0)
    status, after = await raw.patch(f"{pods}/a", {"status": {"phase": "Failed"}, "metadata": {"labels": {"x": "2"}}})
    assert (status, after["status"]["phase"], after["metadata"]["labels"]) == (200, "Running", {"x": "2"})


async def test_most_of_a_pods_spec_may_not_change(raw: Raw, pods: str) -> None:
    await raw.made(pods, a_pod("a"))
    status, body = await raw.patch(f"{pods}/a", {"spec": {"nodeName": "n1"}})
    assert (status, body["reason"]) == (422, "Invalid")
    assert "pod updates may not change fields other than" in body["message"]
    status, body = await raw.patch(
        f"{pods}/a", {"spec": {"containers": [{"name": "main", "image": "other"}]}}, "strategic-merge"
    )
    assert (status, body["spec"]["containers"][0]["image"]) == (200, "other")
    assert body["metadata"]["generation"] == 2


async def test_priority_comes_from_the_class_and_an_unknown_class_is_forbidden(raw: Raw, pods: str, namespace: str) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await raw.made(classes, {"metadata": {"name": namespace}, "value": 1000, "preemptionPolicy": "Never"})
    pod = await raw.made(pods, a_pod("a", priorityClassName=namespace))
    assert (pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]) == (1000, "Never")
    status, body = await raw.post(pods, a_pod("b", priorityClassName="no-such-class"))
    assert (status, body["reason"]) == (403, "Forbidden")
    assert "no PriorityClass with name no-such-class was found" in body["message"]
    assert (await raw.delete(f"{classes}/{namespace}"))[0] == 200


async def test_a_missing_object_is_not_found(raw: Raw, pods: str) -> None:
    for method, body in (("GET", None), ("DELETE", None), ("PUT", a_pod("gone")), ("PATCH", {})):
        media = "application/merge-patch+json" if method == "PATCH" else "application/json"
        status, answer = await raw.call(method, f"{pods}/gone", body, content_type=media)
        assert (status, answer["reason"], answer["message"]) == (404, "NotFound", 'pods "gone" not found')


async def test_the_name_in_the_body_must_be_the_one_in_the_url(raw: Raw, configmaps: str) -> None:
    await raw.made(configmaps, {"metadata": {"name": "a"}})
    status, body = await raw.put(f"{configmaps}/a", {"metadata": {"name": "b"}})
    assert (status, body["reason"]) == (400, "BadRequest")
    status, body = await raw.post(configmaps, {"metadata": {"name": "c", "namespace": "elsewhere"}})
    assert (status, body["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b'{"kind": "Pod", "apiVersion": "v1"}', b'{"metadata": []}'])
async def test_a_body_that_cannot_be_read_is_a_bad_request(raw: Raw, configmaps: str, body: bytes) -> None:
    status, answer = await raw.call("POST", configmaps, body)
    assert (status, answer["kind"], answer["reason"]) == (400, "Status", "BadRequest")


async def test_delete_minds_its_preconditions(raw: Raw, configmaps: str) -> None:
    made = await raw.made(configmaps, {"metadata": {"name": "a"}})
    status, body = await raw.delete(f"{configmaps}/a", {"preconditions": {"uid": "00000000-0000-4000-8000-000000000000"}})
    assert (status, body["reason"]) == (409, "Conflict")
    assert "does not match the UID in record" in body["message"]
    status, _ = await raw.delete(f"{configmaps}/a", {"preconditions": {"resourceVersion": "1"}})
    assert status == 409
    status, body = await raw.delete(f"{configmaps}/a", {"preconditions": {"uid": made["metadata"]["uid"]}})
    assert (status, body["status"]) == (200, "Success")
    assert body["details"] == {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}


async def test_finalizers_hold_an_object_until_they_are_removed(raw: Raw, configmaps: str) -> None:
    await raw.made(configmaps, {"metadata": {"name": "a", "finalizers": ["hbox.io/held"]}})
    status, body = await raw.delete(f"{configmaps}/a")
    assert (status, body["metadata"]["deletionGracePeriodSeconds"]) == (200, 0)
    assert "deletionTimestamp" in body["metadata"]
    status, body = await raw.patch(f"{configmaps}/a", {"metadata": {"finalizers": ["hbox.io/held", "hbox.io/more"]}})
    assert (status, body["details"]["causes"][0]["field"]) == (422, "metadata.finalizers")
    assert (await raw.patch(f"{configmaps}/a", {"metadata": {"finalizers": None}}))[0] == 200
    assert (await raw.get(f"{configmaps}/a"))[0] == 404


async def test_a_bound_pod_is_deleted_gracefully_and_an_unbound_one_at_once(raw: Raw, pods: str) -> None:
    for name in ("bound", "unbound"):
        await raw.made(pods, a_pod(name))
    assert (await raw.post(f"{pods}/bound/binding", a_binding("bound", "n1")))[0] == 201
    assert (await raw.delete(f"{pods}/unbound"))[0] == 200
    assert (await raw.get(f"{pods}/unbound"))[0] == 404
    status, body = await raw.delete(f"{pods}/bound")
    assert (status, body["metadata"]["deletionGracePeriodSeconds"]) == (200, 30)
    status, body = await raw.delete(f"{pods}/bound", {"gracePeriodSeconds": 5})
    assert body["metadata"]["deletionGracePeriodSeconds"] == 5
    status, body = await raw.delete(f"{pods}/bound", {"gracePeriodSeconds": 60})
    assert body["metadata"]["deletionGracePeriodSeconds"] == 5
    assert (await raw.delete(f"{pods}/bound", {"gracePeriodSeconds": 0}))[0] == 200
    assert (await raw.get(f"{pods}/bound"))[0] == 404


async def test_delete_collection_takes_what_the_selector_says(raw: Raw, configmaps: str) -> None:
    for name in ("a", "b", "c"):
        await raw.made(configmaps, {"metadata": {"name": name, "labels": {"drop": str(name != "b").lower()}}})
    assert (await raw.delete(configmaps, labelSelector="drop=true"))[0] == 200
    _, body = await raw.get(configmaps)
    names = {each["metadata"]["name"] for each in body["items"]}
    assert names - {"kube-root-ca.crt"} == {"b"}


async def test_a_dry_run_changes_nothing(raw: Raw, configmaps: str) -> None:
    status, body = await raw.post(configmaps, {"metadata": {"name": "a"}}, dryRun="All")
    assert (status, body["metadata"]["name"]) == (201, "a")
    assert (await raw.get(f"{configmaps}/a"))[0] == 404


async def test_events_are_the_same_objects_in_both_groups(raw: Raw, namespace: str) -> None:
    about = {"kind": "Pod", "namespace": namespace, "name": "a", "uid": "u1"}
    body = {"metadata": {"name": "e1"}, "involvedObject": about, "reason": "Why", "message": "because", "type": "Normal"}
    await raw.made(f"/api/v1/namespaces/{namespace}/events", body)
    status, event = await raw.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events/e1")
    assert (status, event["note"], event["regarding"]["name"]) == (200, "because", "a")
    status, body = await raw.post(
        f"/api/v1/namespaces/{namespace}/events", body | {"involvedObject": {**about, "namespace": "other"}}
    )
    assert status == 422


async def test_deleting_a_namespace_refuses_new_content(emulator: object, raw: Raw) -> None:
    await raw.made("/api/v1/namespaces", {"metadata": {"name": "leaving"}})
    await raw.made("/api/v1/namespaces/leaving/configmaps", {"metadata": {"name": "a", "finalizers": ["hbox.io/held"]}})
    await raw.made("/api/v1/namespaces/leaving/pods", a_pod("p"))
    held = a_pod("held")
    await raw.made("/api/v1/namespaces/leaving/pods", held | {"metadata": held["metadata"] | {"finalizers": ["hbox.io/held"]}})
    status, body = await raw.delete("/api/v1/namespaces/leaving")
    assert (status, body["status"]["phase"]) == (200, "Terminating")
    binding = {"metadata": {"name": "held"}, "target": {"kind": "Node", "name": "n1"}}
    status, body = await raw.post("/api/v1/namespaces/leaving/pods/held/binding", binding)
    assert (status, body["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    status, body = await raw.post("/api/v1/namespaces/leaving/configmaps", {"metadata": {"name": "b"}})
    assert (status, body["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")

    async def pod_gone() -> bool:
        return (await raw.get("/api/v1/namespaces/leaving/pods/p"))[0] == 404

    async def all_gone() -> bool:
        return (await raw.get("/api/v1/namespaces/leaving"))[0] == 404

    await until(pod_gone)
    assert (await raw.get("/api/v1/namespaces/leaving"))[0] == 200
    for held_object in ("configmaps/a", "pods/held"):
        await raw.patch(f"/api/v1/namespaces/leaving/{held_object}", {"metadata": {"finalizers": []}})
    await until(all_gone)


@pytest.mark.parametrize(
    ("propagation", "child_stays", "owner_waits"),
    [("Background", False, False), ("Foreground", False, True), ("Orphan", True, False)],
)
async def test_owned_objects_follow_their_owner(
    emulator: object, raw: Raw, configmaps: str, propagation: str, child_stays: bool, owner_waits: bool
) -> None:
    owner = await raw.made(configmaps, {"metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    await raw.made(configmaps, {"metadata": {"name": "child", "ownerReferences": [reference], "finalizers": ["hbox.io/held"]}})
    assert (await raw.delete(f"{configmaps}/owner", {"propagationPolicy": propagation}))[0] == 200

    async def settled() -> bool:
        owner_status = (await raw.get(f"{configmaps}/owner"))[0]
        _, child = await raw.get(f"{configmaps}/child")
        return (owner_status == 200) is owner_waits and ("deletionTimestamp" in child["metadata"]) is not child_stays

    await until(settled)
    _, child = await raw.get(f"{configmaps}/child")
    assert ("ownerReferences" in child["metadata"]) is not child_stays
    await raw.patch(f"{configmaps}/child", {"metadata": {"finalizers": None}})

    async def owner_gone() -> bool:
        return (await raw.get(f"{configmaps}/owner"))[0] == 404

    await until(owner_gone)


@pytest.mark.parametrize(
    "path", ["/nothing", "/api/v1/unknowns", "/apis/no.group/v1/things", "/api/v1/namespaces/default/pods/a/unknown"]
)
async def test_unknown_paths_are_not_found(raw: Raw, path: str) -> None:
    async with raw.session.get(raw.base + path) as response:
        assert response.status == 404


async def test_a_method_that_a_resource_lacks_is_refused(raw: Raw, pods: str) -> None:
    status, body = await raw.post(f"{pods}/a", a_pod("a"))
    assert (status, body["reason"]) == (405, "MethodNotAllowed")


async def test_a_quota_of_what_cards_have_is_kept_as_written_and_nobody_counts_it(raw: Raw, pods: str, namespace: str) -> None:
    """Kubernetes counts `requests.` of extended resources alone: `limits.nvidia.com/gpumem` is HBox's to keep."""
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    hard = {"limits.nvidia.com/gpumem": "1", "limits.nvidia.com/gpu": "0"}
    made = await raw.made(quotas, {"metadata": {"name": "cards"}, "spec": {"hard": hard}})
    assert made["spec"]["hard"] == hard
    wanted = a_pod("a")
    wanted["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "2000"}}
    await raw.made(pods, wanted)
    scoped = {"hard": {"limits.nvidia.com/gpumem": "1"}, "scopes": ["NotBestEffort"]}
    made = await raw.made(quotas, {"metadata": {"name": "scoped"}, "spec": scoped})
    assert made["spec"]["scopes"] == ["NotBestEffort"]
