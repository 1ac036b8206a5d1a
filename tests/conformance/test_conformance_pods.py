"""Binding and eviction (checklist items 7 and 8)."""

from __future__ import annotations

import pytest

from ..waiting import until
from .kube_world import Json, Raw, a_binding, a_pod


def condition(pod: Json, kind: str) -> Json:
    found = [each for each in pod["status"].get("conditions", []) if each["type"] == kind]
    return found[0] if found else {}


def an_eviction(name: str, **options: object) -> Json:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}


async def test_a_binding_sets_node_annotations_and_condition_in_one_write(raw: Raw, pods: str) -> None:
    pod = await raw.made(pods, a_pod("a", annotations={"kept": "yes", "changed": "no"}))
    meta = {"uid": pod["metadata"]["uid"], "resourceVersion": pod["metadata"]["resourceVersion"]}
    status, body = await raw.post(
        f"{pods}/a/binding", a_binding("a", "no-such-node", **meta, annotations={"hbox.io/claim": "c1", "changed": "yes"})
    )
    assert (status, body["kind"], body["status"]) == (201, "Status", "Success")
    events = await raw.watch(pods, until=bool, resourceVersion=pod["metadata"]["resourceVersion"])
    bound = events[0]["object"]
    assert bound["spec"]["nodeName"] == "no-such-node"
    assert bound["metadata"]["annotations"] == {"kept": "yes", "changed": "yes", "hbox.io/claim": "c1"}
    assert condition(bound, "PodScheduled")["status"] == "True"


async def test_a_second_binding_is_a_conflict_even_to_the_same_node(raw: Raw, pods: str) -> None:
    await raw.made(pods, a_pod("a"))
    assert (await raw.post(f"{pods}/a/binding", a_binding("a", "n1")))[0] == 201
    status, body = await raw.post(f"{pods}/a/binding", a_binding("a", "n1"))
    assert (status, body["reason"]) == (409, "Conflict")
    assert body["message"] == 'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n1"'


@pytest.mark.parametrize("precondition", ["uid", "resourceVersion"])
async def test_a_binding_meant_for_another_pod_or_version_is_a_conflict(raw: Raw, pods: str, precondition: str) -> None:
    pod = await raw.made(pods, a_pod("a"))
    await raw.patch(f"{pods}/a", {"metadata": {"annotations": {"hbox.io/claim-gen": "2"}}})
    stale = {"uid": "00000000-0000-4000-8000-000000000000", "resourceVersion": pod["metadata"]["resourceVersion"]}[precondition]
    status, body = await raw.post(f"{pods}/a/binding", a_binding("a", "n1", **{precondition: stale}))
    assert (status, body["reason"]) == (409, "Conflict")
    _, pod = await raw.get(f"{pods}/a")
    assert "nodeName" not in pod["spec"]


async def test_a_pod_that_is_being_deleted_cannot_be_bound(raw: Raw, pods: str) -> None:
    pod = a_pod("a")
    pod["metadata"]["finalizers"] = ["hbox.io/held"]
    await raw.made(pods, pod)
    await raw.delete(f"{pods}/a")
    status, body = await raw.post(f"{pods}/a/binding", a_binding("a", "n1"))
    assert (status, body["reason"]) == (409, "Conflict")
    assert "is being deleted" in body["message"]
    await raw.patch(f"{pods}/a", {"metadata": {"finalizers": None}})
    assert (await raw.get(f"{pods}/a"))[0] == 404


async def test_a_gated_pod_cannot_be_bound_until_its_gate_is_removed(raw: Raw, pods: str) -> None:
    pod = await raw.made(pods, a_pod("a", schedulingGates=[{"name": "hbox.io/wait"}]))
    assert condition(pod, "PodScheduled")["reason"] == "SchedulingGated"
    status, body = await raw.post(f"{pods}/a/binding", a_binding("a", "n1"))
    assert (status, body["reason"]) == (409, "Conflict")
    assert "schedulingGates" in body["message"]
    assert (await raw.patch(f"{pods}/a", {"spec": {"schedulingGates": None}}))[0] == 200
    assert (await raw.post(f"{pods}/a/binding", a_binding("a", "n1")))[0] == 201


async def test_a_binding_for_a_missing_pod_or_under_another_name(raw: Raw, pods: str) -> None:
    assert (await raw.post(f"{pods}/a/binding", a_binding("a", "n1")))[0] == 404
    await raw.made(pods, a_pod("a"))
    status, body = await raw.post(f"{pods}/a/binding", a_binding("b", "n1"))
    assert (status, body["reason"]) == (400, "BadRequest")
    assert (await raw.post(f"{pods}/a/binding", a_binding("a", "")))[0] in (422, 500)


async def run(raw: Raw, pods: str, name: str, *, ready: bool = True) -> Json:
    await raw.made(pods, a_pod(name, labels={"app": "x"}))
    await raw.post(f"{pods}/{name}/binding", a_binding(name, "n1"))
    conditions = [{"type": "Ready", "status": str(ready)}]
    status, pod = await raw.patch(
        f"{pods}/{name}/status", {"status": {"phase": "Running", "conditions": conditions}}, "strategic-merge"
    )
    assert status == 200
    return pod


async def test_an_eviction_deletes_gracefully_and_says_why(raw: Raw, pods: str) -> None:
    await run(raw, pods, "a")
    status, body = await raw.post(f"{pods}/a/eviction", an_eviction("a", gracePeriodSeconds=20))
    assert (status, body["status"]) == (201, "Success")
    _, pod = await raw.get(f"{pods}/a")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 20
    assert condition(pod, "DisruptionTarget")["reason"] == "EvictionByEvictionAPI"


async def test_an_eviction_minds_its_preconditions_and_its_name(raw: Raw, pods: str) -> None:
    pod = await run(raw, pods, "a")
    other = {"uid": "00000000-0000-4000-8000-000000000000"}
    status, body = await raw.post(f"{pods}/a/eviction", an_eviction("a", preconditions=other))
    assert (status, body["reason"]) == (409, "Conflict")
    assert (await raw.post(f"{pods}/a/eviction", an_eviction("b")))[0] == 400
    assert (await raw.post(f"{pods}/gone/eviction", an_eviction("gone")))[0] == 404
    status, _ = await raw.post(f"{pods}/a/eviction", an_eviction("a", preconditions={"uid": pod["metadata"]["uid"]}))
    assert status == 201


async def guarded(raw: Raw, namespace: str, allowed: int) -> str:
    """A budget that has been counted: by the controller where there is one, else by this test in its place."""
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 2 - allowed, "selector": {"matchLabels": {"app": "x"}}}
    await raw.made(budgets, {"metadata": {"name": "guard"}, "spec": spec})
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": allowed,
        "currentHealthy": 2,
        "desiredHealthy": 2 - allowed,
        "expectedPods": 2,
    }

    async def counted() -> bool:
        await raw.patch(f"{budgets}/guard/status", {"status": status})
        _, budget = await raw.get(f"{budgets}/guard")
        return bool(budget["status"].get("observedGeneration") == 1 and budget["status"]["disruptionsAllowed"] == allowed)

    await until(counted)
    return budgets


async def test_a_budget_with_nothing_to_spend_refuses_evictions(raw: Raw, pods: str, namespace: str) -> None:
    for name in "ab":
        await run(raw, pods, name)
    await guarded(raw, namespace, allowed=0)
    status, body = await raw.post(f"{pods}/a/eviction", an_eviction("a"))
    assert (status, body["reason"]) == (429, "TooManyRequests")
    assert body["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    assert body["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert body["details"]["causes"][0]["message"] == "The disruption budget guard needs 2 healthy pods and has 2 currently"


async def test_each_eviction_spends_the_budget(raw: Raw, pods: str, namespace: str) -> None:
    for name in "ab":
        await run(raw, pods, name)
    budgets = await guarded(raw, namespace, allowed=1)
    assert (await raw.post(f"{pods}/a/eviction", an_eviction("a")))[0] == 201
    assert (await raw.post(f"{pods}/b/eviction", an_eviction("b")))[0] == 429
    _, budget = await raw.get(f"{budgets}/guard")
    assert budget["status"]["disruptionsAllowed"] == 0


async def test_pending_and_terminal_pods_bypass_the_budget(raw: Raw, pods: str, namespace: str) -> None:
    for name in "ab":
        await run(raw, pods, name)
    await guarded(raw, namespace, allowed=0)
    await raw.made(pods, a_pod("pending", labels={"app": "x"}))
    assert (await raw.post(f"{pods}/pending/eviction", an_eviction("pending")))[0] == 201
    await raw.patch(f"{pods}/a/status", {"status": {"phase": "Succeeded"}})
    assert (await raw.post(f"{pods}/a/eviction", an_eviction("a")))[0] == 201
    assert (await raw.get(f"{pods}/a"))[0] == 404


async def test_two_budgets_for_one_pod_are_an_error(raw: Raw, pods: str, namespace: str) -> None:
    await run(raw, pods, "a")
    for name in ("one", "two"):
        spec = {"minAvailable": 0, "selector": {"matchLabels": {"app": "x"}}}
        await raw.made(
            f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", {"metadata": {"name": name}, "spec": spec}
        )
    status, body = await raw.post(f"{pods}/a/eviction", an_eviction("a"))
    assert status == 500
    assert "more than one PodDisruptionBudget" in body["message"]


async def test_a_condition_stays_whatever_is_written_on_the_pod_and_fences_bindings(raw: Raw, pods: str) -> None:
    pod = await raw.made(pods, a_pod("a"))
    condition = {"type": "hbox.io/claim-gen", "status": "True", "message": "c:1"}
    status = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"conditions": [condition]}}
    code, fenced = await raw.patch(f"{pods}/a/status", status, "strategic-merge")
    assert code == 200
    assert fenced["metadata"]["resourceVersion"] != pod["metadata"]["resourceVersion"]
    _, again = await raw.patch(f"{pods}/a/status", status, "strategic-merge")
    assert again["metadata"]["resourceVersion"] == fenced["metadata"]["resourceVersion"], "the same fence is no change"
    owners = {"metadata": {"annotations": {"x": "y"}}, "status": {"conditions": []}}
    code, touched = await raw.patch(f"{pods}/a", owners)
    assert code == 200
    said = [c["message"] for c in touched["status"]["conditions"] if c["type"] == condition["type"]]
    assert said == ["c:1"]
    old = a_binding("a", "n1", resourceVersion=pod["metadata"]["resourceVersion"])
    assert (await raw.post(f"{pods}/a/binding", old))[0] == 409
    namesake = {"metadata": {"uid": "00000000-0000-4000-8000-000000000000"}, "status": {"conditions": [condition]}}
    assert (await raw.patch(f"{pods}/a/status", namesake, "strategic-merge"))[0] in (409, 422)
