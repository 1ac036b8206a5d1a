from collections.abc import Callable
from typing import Any

import pytest

from hbox_common.errors import Conflict, InvalidRequest, NotFound, Unavailable
from hbox_common.kube import (
    NODES,
    PODGROUPS,
    PODS,
    BindOutcome,
    BindResult,
    CordonOutcome,
    EvictOutcome,
    FenceOutcome,
    KubeClient,
    Pod,
    apply,
    bind,
    cordon,
    evict,
    fence,
    keep_taint,
    patch_status,
    read_locks,
    uncordon,
    wait_established,
    write_locks,
)

POD = PODS.path("ml", "p")
STATUS = f"{POD}/status"
BINDING = PODS.path("ml", "p", "binding")
EVICTION = PODS.path("ml", "p", "eviction")
NODE = NODES.path(name="n1")
DONE = {"kind": "Status", "status": "Success"}
#: Of a load balancer, a firewall, a page to log in at; the last is what proxies written in Go say, and API servers of paths that they do not serve.
STRANGERS = (b"<html>no such route</html>", b"", b'{"message": "denied"}', b"404 page not found\n")


def pod(rv: str = "5", *, uid: str = "u1", node: str = "", claim: str = "", deleting: bool = False) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "p", "namespace": "ml", "uid": uid, "resourceVersion": rv}
    if claim:
        metadata["annotations"] = {"hbox.io/claim": claim}
    if deleting:
        metadata["deletionTimestamp"] = "2026-11-21T13:00:00Z"
    return {"metadata": metadata, "spec": {"nodeName": node}}


async def bind_it(client: KubeClient, may_retry: Callable[[Pod], bool] = lambda pod: False) -> BindResult:
    return await bind(
        client,
        namespace="ml",
        name="p",
        uid="u1",
        resource_version="5",
        node="n1",
        annotations={"hbox.io/claim": "c1", "hbox.io/cards": "0,1"},
        may_retry=may_retry,
    )


async def test_a_binding_is_one_request_that_names_uid_version_node_and_annotations(api: Any, client: KubeClient) -> None:
    api.reply("POST", BINDING, 201, {"kind": "Status", "status": "Success"})
    assert (await bind_it(client)).outcome is BindOutcome.BOUND
    (asked,) = api.asked
    assert asked.body["metadata"] == {
        "name": "p",
        "namespace": "ml",
        "uid": "u1",
        "resourceVersion": "5",
        "annotations": {"hbox.io/claim": "c1", "hbox.io/cards": "0,1"},
    }
    assert asked.body["target"]["name"] == "n1"


@pytest.mark.parametrize("trouble", ["409", "504", "reset"])
async def test_a_binding_that_was_done_but_not_heard_of_is_bound(api: Any, client: KubeClient, trouble: str) -> None:
    if trouble == "reset":
        api.reset("POST", BINDING)
    else:
        api.refuse("POST", BINDING, int(trouble), "Conflict" if trouble == "409" else "Timeout")
    api.reply("GET", POD, 200, pod("6", node="n1", claim="c1"))
    result = await bind_it(client)
    assert (result.outcome, result.resource_version) == (BindOutcome.BOUND, "6")
    assert api.queries("GET", POD) == [{}]  # no resourceVersion: a consistent read


async def test_a_binding_that_times_out_is_looked_up(api: Any, client: KubeClient) -> None:
    client.timeout_s = 0.2
    api.hang("POST", BINDING)
    api.reply("GET", POD, 200, pod("6", node="n1", claim="c1"))
    assert (await bind_it(client)).outcome is BindOutcome.BOUND


@pytest.mark.parametrize(("node", "claim"), [("n2", "c1"), ("n1", "c2"), ("n1", "")])
async def test_a_pod_bound_elsewhere_or_under_another_claim_is_a_conflict(
    api: Any, client: KubeClient, node: str, claim: str
) -> None:
    api.refuse("POST", BINDING, 409, "Conflict", "already assigned")
    api.reply("GET", POD, 200, pod("6", node=node, claim=claim))
    result = await bind_it(client)
    assert (result.outcome, result.node) == (BindOutcome.CONFLICT, node)


async def test_a_namesake_with_another_uid_is_gone_and_never_bound(api: Any, client: KubeClient) -> None:
    api.refuse("POST", BINDING, 409, "Conflict", "the UID in the precondition does not match")
    api.reply("GET", POD, 200, pod("6", uid="u2"))
    assert (await bind_it(client, lambda pod: True)).outcome is BindOutcome.GONE
    assert len(api.queries("POST", BINDING)) == 1


async def test_absent_and_deleting_pods_are_gone(api: Any, client: KubeClient) -> None:
    api.refuse("POST", BINDING, 404, "NotFound", 'pods "p" not found')
    api.refuse("POST", BINDING, 409, "Conflict", "being deleted")
    api.reply("GET", POD, 200, pod("6", deleting=True))
    assert (await bind_it(client)).outcome is BindOutcome.GONE
    assert (await bind_it(client)).outcome is BindOutcome.GONE


async def test_a_404_that_is_not_the_api_servers_is_no_evidence(api: Any, client: KubeClient) -> None:
    api.reply("POST", BINDING, 404, b"<html>no such route</html>")
    api.reply("GET", POD, 200, pod("5"))
    assert (await bind_it(client)).outcome is BindOutcome.UNKNOWN


@pytest.mark.parametrize("said", STRANGERS)
@pytest.mark.parametrize("code", [200, 201, 400, 403, 404, 409, 410, 422])
async def test_what_a_stranger_answers_is_no_evidence_of_what_became_of_a_pod(
    api: Any, client: KubeClient, code: int, said: bytes
) -> None:
    """Every one of these frees a claim, or posts it, where it is believed: the pod may be bound, or unbound, all the while."""
    for method, path in (("POST", BINDING), ("PATCH", STATUS), ("POST", EVICTION), ("GET", POD)):
        api.reply(method, path, code, said)
    assert (await bind_it(client)).outcome is BindOutcome.UNKNOWN
    fenced = await fence(client, namespace="ml", name="p", uid="u1", condition="hbox.io/claim-gen", value="c1/2")
    assert fenced.outcome is FenceOutcome.UNKNOWN
    assert (await evict(client, namespace="ml", name="p", uid="u1")).outcome is EvictOutcome.UNKNOWN


@pytest.mark.parametrize("said", STRANGERS)
@pytest.mark.parametrize("code", [200, 403, 404, 409, 422])
@pytest.mark.parametrize("strange", ["GET", "PATCH"])
async def test_what_a_stranger_answers_is_no_evidence_of_what_became_of_a_node(
    api: Any, client: KubeClient, strange: str, code: int, said: bytes
) -> None:
    """That it is gone, or done, is believed by nobody: a cordon, a taint or a lock would be left unwritten."""
    there = {"metadata": {"name": "n1", "uid": "nu", "resourceVersion": "5"}, "spec": {}}
    for method in ("GET", "PATCH"):
        if method == strange:
            api.reply(method, NODE, code, said)
        else:
            api.reply(method, NODE, 200, there)
    assert (await cordon(client, node="n1", reason="xid-79", owner="health")).outcome is CordonOutcome.UNKNOWN
    with pytest.raises(Unavailable):
        await keep_taint(client, node="n1", key="hbox.io/pool", value="lab", effect="NoSchedule")
    locks = (
        read_locks(client, "n1", ("lock",))
        if strange == "GET"
        else write_locks(client, "n1", ("lock",), "mine", resource_version="5")
    )
    with pytest.raises(Unavailable):
        await locks


async def test_a_changed_pod_is_bound_again_when_the_caller_allows_it(api: Any, client: KubeClient) -> None:
    api.refuse("POST", BINDING, 409, "Conflict")
    api.reply("POST", BINDING, 201, DONE)
    api.reply("GET", POD, 200, pod("6"))
    shown: list[Pod] = []
    result = await bind_it(client, lambda pod: not shown.append(pod))  # type: ignore[func-returns-value]
    assert result.outcome is BindOutcome.BOUND
    assert [p.metadata.resource_version for p in shown] == ["6"]
    assert [a.body["metadata"]["resourceVersion"] for a in api.asked if a.method == "POST"] == ["5", "6"]


async def test_a_changed_pod_is_a_conflict_when_the_caller_does_not_allow_it(api: Any, client: KubeClient) -> None:
    api.refuse("POST", BINDING, 504, "Timeout")
    api.reply("GET", POD, 200, pod("6"))
    result = await bind_it(client)
    assert (result.outcome, result.resource_version) == (BindOutcome.CONFLICT, "6")


async def test_a_binding_that_may_still_be_on_its_way_stays_unknown(api: Any, client: KubeClient) -> None:
    api.refuse("POST", BINDING, 504, "Timeout")
    api.reply("GET", POD, 200, pod("5"))
    assert (await bind_it(client)).outcome is BindOutcome.UNKNOWN
    assert (await bind_it(client, lambda pod: True)).outcome is BindOutcome.UNKNOWN
    assert len(api.queries("POST", BINDING)) == 3


async def test_a_refusal_of_the_second_try_says_nothing_about_the_first(api: Any, client: KubeClient) -> None:
    api.refuse("POST", BINDING, 504, "Timeout")
    api.refuse("POST", BINDING, 403, "Forbidden")
    api.reply("GET", POD, 200, pod("5"))
    assert (await bind_it(client, lambda pod: True)).outcome is BindOutcome.UNKNOWN


@pytest.mark.parametrize("status", [400, 403, 422])
async def test_a_binding_refused_for_good_is_rejected_with_the_reason(api: Any, client: KubeClient, status: int) -> None:
    api.refuse("POST", BINDING, status, "Forbidden", "not yours")
    result = await bind_it(client)
    assert result.outcome is BindOutcome.REJECTED
    assert "not yours" in result.message


async def test_binding_in_a_namespace_that_is_being_deleted_is_rejected_with_that_reason(api: Any, client: KubeClient) -> None:
    why = 'pods "p" is forbidden: unable to create new content in namespace ml because it is being terminated'
    details = {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]}
    status = {"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": why, "details": details}
    api.reply("POST", BINDING, 403, status)
    result = await bind_it(client)
    assert (result.outcome, result.not_allowed) == (BindOutcome.REJECTED, False)
    assert result.message == f"NamespaceTerminating: {why} (HTTP 403)"


async def test_a_busy_server_is_left_alone(api: Any, client: KubeClient) -> None:
    api.refuse("POST", BINDING, 429, "TooManyRequests", Retry_After="3")
    result = await bind_it(client)
    assert (result.outcome, result.retry_after_s) == (BindOutcome.UNKNOWN, 3.0)
    assert len(api.asked) == 1


async def test_when_nothing_answers_it_stays_unknown(api: Any, client: KubeClient) -> None:
    api.reset("POST", BINDING)
    api.reset("GET", POD)
    assert (await bind_it(client)).outcome is BindOutcome.UNKNOWN


# --- fence


async def fence_it(client: KubeClient) -> Any:
    return await fence(client, namespace="ml", name="p", uid="u1", condition="hbox.io/claim-gen", value="7")


async def test_a_fence_says_where_the_pod_stands(api: Any, client: KubeClient) -> None:
    api.reply("PATCH", STATUS, 200, pod("8"))
    api.reply("PATCH", STATUS, 200, pod("8", node="n3", claim="c9"))
    unbound, bound = await fence_it(client), await fence_it(client)
    assert (unbound.outcome, unbound.resource_version) == (FenceOutcome.UNBOUND, "8")
    assert (bound.outcome, bound.node, bound.claim) == (FenceOutcome.BOUND, "n3", "c9")
    condition = {"type": "hbox.io/claim-gen", "status": "True", "message": "7"}
    assert api.asked[0].body == {"metadata": {"uid": "u1"}, "status": {"conditions": [condition]}}
    assert api.asked[0].headers["Content-Type"] == "application/strategic-merge-patch+json"


@pytest.mark.parametrize("status", [409, 422])
async def test_a_fence_never_takes_a_namesake_for_the_pod(api: Any, client: KubeClient, status: int) -> None:
    api.refuse("PATCH", STATUS, status, "Invalid", "metadata.uid: field is immutable")
    api.reply("GET", POD, 200, pod("9", uid="u2"))
    assert (await fence_it(client)).outcome is FenceOutcome.GONE


async def test_other_fence_outcomes(api: Any, client: KubeClient) -> None:
    api.refuse("PATCH", STATUS, 404, "NotFound")
    api.refuse("PATCH", STATUS, 403, "Forbidden")
    api.refuse("PATCH", STATUS, 504, "Timeout")
    api.reset("PATCH", STATUS)
    assert [(await fence_it(client)).outcome for _ in range(4)] == [
        FenceOutcome.GONE,
        FenceOutcome.REJECTED,
        FenceOutcome.UNKNOWN,
        FenceOutcome.UNKNOWN,
    ]


async def test_a_fence_without_the_right_to_it_is_no_evidence(api: Any, client: KubeClient) -> None:
    api.refuse("PATCH", STATUS, 403, "Forbidden", 'pods "p" is forbidden: User "binder" cannot patch resource "pods/status"')
    api.refuse("PATCH", STATUS, 403, "Forbidden", 'admission webhook "w" denied the request: User "a" cannot do that')
    lacking, judged = await fence_it(client), await fence_it(client)
    assert (lacking.outcome, lacking.not_allowed) == (FenceOutcome.UNKNOWN, True)
    assert (judged.outcome, judged.not_allowed) == (FenceOutcome.REJECTED, False)


# --- evict


async def evict_it(client: KubeClient, grace_s: int | None = None) -> Any:
    return await evict(client, namespace="ml", name="p", uid="u1", grace_s=grace_s)


async def test_an_eviction_names_the_uid(api: Any, client: KubeClient) -> None:
    api.reply("POST", EVICTION, 201, DONE)
    assert (await evict_it(client, grace_s=3)).outcome is EvictOutcome.ACCEPTED
    assert api.asked[0].body["deleteOptions"] == {"preconditions": {"uid": "u1"}, "gracePeriodSeconds": 3}


async def test_a_namesake_is_gone_and_never_evicted(api: Any, client: KubeClient) -> None:
    api.refuse("POST", EVICTION, 409, "Conflict", "Precondition failed: UID")
    api.reply("GET", POD, 200, pod(uid="u2"))
    assert (await evict_it(client)).outcome is EvictOutcome.GONE
    assert len(api.queries("POST", EVICTION)) == 1


async def test_a_disruption_budget_blocks_and_says_for_how_long(api: Any, client: KubeClient) -> None:
    why = "The disruption budget web needs 3 healthy pods and has 3 currently"
    details = {"causes": [{"reason": "DisruptionBudget", "message": why}], "retryAfterSeconds": 10}
    status = {"kind": "Status", "reason": "TooManyRequests", "message": "Cannot evict pod", "code": 429, "details": details}
    api.reply("POST", EVICTION, 429, status)
    result = await evict_it(client)
    assert (result.outcome, result.retry_after_s) == (EvictOutcome.BLOCKED, 10.0)
    assert why in result.message


async def test_a_server_that_has_no_time_blocks_nothing(api: Any, client: KubeClient) -> None:
    api.refuse("POST", EVICTION, 429, "TooManyRequests", "too many requests, please try again later", Retry_After="10")
    result = await evict_it(client)
    assert (result.outcome, result.retry_after_s) == (EvictOutcome.UNKNOWN, 10.0)


async def test_two_disruption_budgets_block_for_ever(api: Any, client: KubeClient) -> None:
    why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    api.refuse("POST", EVICTION, 500, "InternalError", why)
    assert (await evict_it(client)).outcome is EvictOutcome.BLOCKED


async def test_an_eviction_not_heard_of_is_looked_up(api: Any, client: KubeClient) -> None:
    api.reset("POST", EVICTION)
    api.reply("GET", POD, 200, pod(deleting=True))
    api.reply("GET", POD, 200, pod())
    api.refuse("GET", POD, 404, "NotFound")
    assert [(await evict_it(client)).outcome for _ in range(3)] == [
        EvictOutcome.ACCEPTED,
        EvictOutcome.UNKNOWN,
        EvictOutcome.GONE,
    ]


async def test_an_eviction_refused_for_good_is_rejected(api: Any, client: KubeClient) -> None:
    api.refuse("POST", EVICTION, 403, "Forbidden", "no")
    assert (await evict_it(client)).outcome is EvictOutcome.REJECTED


# --- cordon


def node(rv: str = "3", *, closed: bool = False, by: str = "", reason: str = "") -> dict[str, Any]:
    marks = {"hbox.io/cordoned-by": by, "hbox.io/cordon-reason": reason} if by else {}
    return {
        "metadata": {"name": "n1", "uid": "nu", "resourceVersion": rv, "annotations": marks},
        "spec": {"unschedulable": closed},
    }


async def test_a_cordon_says_who_and_why_under_the_version_that_was_read(api: Any, client: KubeClient) -> None:
    api.reply("GET", NODE, 200, node())
    api.reply("PATCH", NODE, 200, node())
    assert (await cordon(client, node="n1", reason="xid-79", owner="health")).outcome is CordonOutcome.DONE
    assert api.asked[1].body == {
        "metadata": {
            "resourceVersion": "3",
            "annotations": {"hbox.io/cordoned-by": "health", "hbox.io/cordon-reason": "xid-79"},
        },
        "spec": {"unschedulable": True},
    }


async def test_what_is_as_asked_for_is_not_written_again(api: Any, client: KubeClient) -> None:
    api.reply("GET", NODE, 200, node(closed=True, by="health", reason="xid-79"))
    api.reply("GET", NODE, 200, node())
    assert (await cordon(client, node="n1", reason="xid-79", owner="health")).outcome is CordonOutcome.DONE
    assert (await uncordon(client, node="n1", owner="health")).outcome is CordonOutcome.DONE
    assert [a.method for a in api.asked] == ["GET", "GET"]


@pytest.mark.parametrize("by", ["", "maintenance"])
async def test_a_node_cordoned_by_others_is_left_alone(api: Any, client: KubeClient, by: str) -> None:
    api.reply("GET", NODE, 200, node(closed=True, by=by))
    assert (await cordon(client, node="n1", reason="r", owner="health")).outcome is CordonOutcome.NOT_OURS
    assert (await uncordon(client, node="n1", owner="health")).outcome is CordonOutcome.NOT_OURS
    assert [a.method for a in api.asked] == ["GET", "GET"]


async def test_an_uncordon_takes_back_all_that_the_cordon_wrote(api: Any, client: KubeClient) -> None:
    api.reply("GET", NODE, 200, node(closed=True, by="health"))
    api.reply("PATCH", NODE, 200, node())
    assert (await uncordon(client, node="n1", owner="health")).outcome is CordonOutcome.DONE
    assert api.asked[1].body["spec"] == {"unschedulable": None}
    assert api.asked[1].body["metadata"]["annotations"] == {"hbox.io/cordoned-by": None, "hbox.io/cordon-reason": None}


def managed(manager: str, *fields: tuple[str, ...]) -> dict[str, Any]:
    """An entry of managedFields."""
    entry: dict[str, Any] = {}
    for path in fields:
        level = entry
        for name in path:
            level = level.setdefault(f"f:{name}", {})
    return {"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": entry}


CLOSED, MARKED = ("spec", "unschedulable"), ("metadata", "annotations", "hbox.io/cordoned-by")


async def test_a_cordon_behind_marks_of_an_earlier_one_stays_and_loses_them(api: Any, client: KubeClient) -> None:
    """kubectl opened and closed the node while no service looked at it."""
    seen = node(closed=True, by="health", reason="xid-79")
    seen["metadata"]["managedFields"] = [managed("hbox-binder", MARKED), managed("kubectl", CLOSED)]
    for _ in range(2):
        api.reply("GET", NODE, 200, seen)
        api.reply("PATCH", NODE, 200, node(closed=True))
    assert (await uncordon(client, node="n1", owner="health")).outcome is CordonOutcome.NOT_OURS
    assert (await cordon(client, node="n1", reason="xid-31", owner="health")).outcome is CordonOutcome.NOT_OURS
    marks = {"resourceVersion": "3", "annotations": {"hbox.io/cordoned-by": None, "hbox.io/cordon-reason": None}}
    assert [one.body for one in api.asked if one.method == "PATCH"] == [{"metadata": marks}] * 2


@pytest.mark.parametrize(
    "entries", [[managed("hbox-binder", MARKED, CLOSED), managed("kubelet", ("status",))], [managed("kubelet", ("status",))]]
)
async def test_a_cordon_that_was_written_with_its_marks_is_taken_back(
    api: Any, client: KubeClient, entries: list[dict[str, Any]]
) -> None:
    seen = node(closed=True, by="health")
    seen["metadata"]["managedFields"] = entries
    api.reply("GET", NODE, 200, seen)
    api.reply("PATCH", NODE, 200, node())
    assert (await uncordon(client, node="n1", owner="health")).outcome is CordonOutcome.DONE
    assert api.asked[1].body["spec"] == {"unschedulable": None}


async def test_a_node_that_changes_meanwhile_is_read_again(api: Any, client: KubeClient) -> None:
    api.reply("GET", NODE, 200, node("3"))
    api.reply("GET", NODE, 200, node("4"))
    api.refuse("PATCH", NODE, 409, "Conflict")
    api.reply("PATCH", NODE, 200, node())
    assert (await cordon(client, node="n1", reason="r", owner="health")).outcome is CordonOutcome.DONE
    assert api.asked[-1].body["metadata"]["resourceVersion"] == "4"


async def test_other_cordon_outcomes(api: Any, client: KubeClient) -> None:
    api.refuse("GET", NODE, 404, "NotFound")
    api.refuse("GET", NODE, 403, "Forbidden")
    api.refuse("GET", NODE, 503, "ServiceUnavailable")
    outcomes = [(await cordon(client, node="n1", reason="r", owner="o")).outcome for _ in range(3)]
    assert outcomes == [CordonOutcome.GONE, CordonOutcome.REJECTED, CordonOutcome.UNKNOWN]


# --- manifests

VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
PODGROUP = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "g", "namespace": "ml"}}
DISCOVERED = {
    "resources": [
        {"name": "podgroups/status", "kind": "PodGroup", "namespaced": True},
        {"name": "podgroups", "kind": "PodGroup", "namespaced": True},
    ]
}


async def test_any_manifest_is_applied_where_its_kind_lives(api: Any, client: KubeClient) -> None:
    api.reply("GET", VOLCANO, 200, DISCOVERED)
    api.reply("PATCH", PODGROUPS.path("ml", "g"), 201, PODGROUP)
    assert await apply(client, PODGROUP, field_manager="hbox") == PODGROUP
    asked = api.asked[-1]
    assert asked.query == {"fieldManager": "hbox", "force": "true"}
    assert asked.headers["Content-Type"] == "application/apply-patch+yaml"


async def test_what_cannot_be_applied_says_why(api: Any, client: KubeClient) -> None:
    api.reply("GET", VOLCANO, 200, {"resources": []})
    with pytest.raises(NotFound, match="knows no PodGroup"):
        await apply(client, PODGROUP, field_manager="hbox")
    with pytest.raises(InvalidRequest, match=r"metadata\.name"):
        await apply(client, {"kind": "PodGroup"}, field_manager="hbox")


async def test_a_field_of_another_manager_is_a_conflict(api: Any, client: KubeClient) -> None:
    api.reply("GET", VOLCANO, 200, DISCOVERED)
    api.refuse("PATCH", PODGROUPS.path("ml", "g"), 409, "Conflict", "conflict with kubectl")
    with pytest.raises(Conflict, match="conflict with kubectl"):
        await apply(client, PODGROUP, field_manager="hbox", force=False)


async def test_a_definition_is_waited_for_until_it_is_established(api: Any, client: KubeClient) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/queues.scheduling.volcano.sh"
    meta = {"name": "queues.scheduling.volcano.sh", "uid": "x"}
    api.reply("GET", path, 200, {"metadata": meta})
    api.reply("GET", path, 200, {"metadata": meta, "status": {"conditions": [{"type": "Established", "status": "True"}]}})
    await wait_established(client, "queues.scheduling.volcano.sh")
    assert len(api.asked) == 2


async def test_a_definition_that_is_never_established_is_given_up_with_the_reason(api: Any, client: KubeClient) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/q"
    conditions = [{"type": "NamesAccepted", "status": "False", "message": "plural is taken"}]
    api.reply("GET", path, 200, {"metadata": {"name": "q", "uid": "x"}, "status": {"conditions": conditions}})
    with pytest.raises(Unavailable, match="plural is taken"):
        await wait_established(client, "q", timeout_s=0.0)


async def test_a_status_is_patched_on_its_subresource_for_this_uid_only(api: Any, client: KubeClient) -> None:
    path = PODGROUPS.path("ml", "g", "status")
    api.reply("PATCH", path, 200, PODGROUP)
    await patch_status(client, PODGROUPS, namespace="ml", name="g", status={"phase": "Running"}, uid="gu")
    assert api.asked[0].body == {"status": {"phase": "Running"}, "metadata": {"uid": "gu"}}
