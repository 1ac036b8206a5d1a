"""Services of `hbox up --kubeconfig` on a real API server: each as itself, with the rights that it needs and no others."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import stat
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from hbox_cli.audit.reading import read_claims
from hbox_cli.platform.assets import ControlPlane
from hbox_cli.platform.identities import NAMESPACE, Identity, Tokens, bring, identities
from hbox_cli.platform.layout import Layout
from hbox_common.errors import InvalidRequest
from hbox_common.events import Evict, EvictDecided, EvictKind
from hbox_common.kube import MERGE_PATCH, NODES, PODS, KubeClient, Resource, apply
from hbox_common.model import DecisionId, Epoch
from hbox_common.model.annotations import CORDONED_BY

from ..broker import admin_bus
from ..e2e.platform_world import Up, up
from ..rights import RIGHTS
from ..waiting import until
from .control_plane import control_plane
from .rbac_world import ACCOUNTS, SPACE, Cluster, Request, requests

pytestmark = pytest.mark.e2e

IDENTITIES = {identity.service: identity for identity in identities()}
SERVICES = {
    "topology-collector",
    "job-controller",
    "quota-ledger",
    "scheduler-core",
    "binder",
    "health-monitor",
    "node-agent",
    "console",
}

BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", namespaced=False)
SECRETS = Resource("", "v1", "secrets", namespaced=True)
ACCOUNT_OBJECTS = Resource("", "v1", "serviceaccounts", namespaced=True)

#: Ours, where Events about objects of the whole cluster stand, and a tenant's.
SPACES = (NAMESPACE, "default", SPACE)

#: What no service may do is asked of everything that is worth stealing, and of everything that they are allowed in part.
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
KINDS: tuple[tuple[str, str], ...] = (
    ("", "pods"), ("", "pods/status"), ("", "pods/binding"), ("", "pods/eviction"), ("", "pods/exec"), ("", "pods/ephemeralcontainers"),
    ("", "bindings"), ("", "nodes"), ("", "nodes/status"), ("", "nodes/proxy"), ("", "secrets"), ("", "configmaps"), ("", "events"), ("", "namespaces"),
    ("", "serviceaccounts"), ("", "serviceaccounts/token"), ("", "persistentvolumes"),
    ("", "persistentvolumes/status"), ("", "persistentvolumeclaims"), ("", "persistentvolumeclaims/status"),
    ("storage.k8s.io", "storageclasses"), ("coordination.k8s.io", "leases"), ("scheduling.k8s.io", "priorityclasses"),
    ("scheduling.volcano.sh", "queues"), ("scheduling.volcano.sh", "queues/status"), ("scheduling.volcano.sh", "podgroups"),
    ("scheduling.volcano.sh", "podgroups/status"), ("apiextensions.k8s.io", "customresourcedefinitions"), ("apps", "deployments"),
    ("rbac.authorization.k8s.io", "clusterroles"), ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"), ("topology.volcano.sh", "hypernodes"), ("topology.volcano.sh", "hypernodes/status"),
    ("topology.node.k8s.io", "noderesourcetopologies"), ("nodeinfo.volcano.sh", "numatopologies"),
    ("metrics.k8s.io", "nodes"), ("metrics.k8s.io", "pods"), ("", "resourcequotas"), ("policy", "poddisruptionbudgets"),
    ("authentication.k8s.io", "tokenreviews"), ("authorization.k8s.io", "subjectaccessreviews"),
)  # fmt: skip
#: Whether there are HyperNodes, NUMA nodes and measured use, is asked of the server's own list of what it serves.
DISCOVERED = (
    "topology.volcano.sh/v1alpha1",
    "topology.node.k8s.io/v1alpha2",
    "nodeinfo.volcano.sh/v1alpha1",
    "metrics.k8s.io/v1beta1",
)
SPECIAL = (
    ("", "users", "impersonate"),
    ("", "serviceaccounts", "impersonate"),
    ("rbac.authorization.k8s.io", "clusterroles", "escalate"),
    ("rbac.authorization.k8s.io", "clusterroles", "bind"),
)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Of our own, so that its audit log is about us alone."""
    with control_plane(tmp_path_factory.mktemp("rbac")) as plane:
        yield plane


@pytest.fixture(scope="module")
def platform(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("platform") / "state", "--kubeconfig", str(plane.kubeconfig)) as running:
        yield running


@pytest.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as client:
        yield client


@pytest.fixture
def cluster(admin: KubeClient, platform: Up) -> Cluster:
    return Cluster(admin)


def kubeconfig_of(platform: Up, service: str) -> Path:
    return platform.state / "kube" / f"{service}.kubeconfig"


async def test_gangs_and_bare_pods_are_bound(cluster: Cluster) -> None:
    await cluster.add_nodes("n1", "n2")
    await cluster.add_pods("gang", 8, gang=True)
    await cluster.add_pods("bare", 4)
    await until(lambda: _all_bound(cluster, "gang", 8), "the gang", timeout_s=30)
    await until(lambda: _all_bound(cluster, "bare", 4), "bare pods", timeout_s=30)
    await cluster.clear()


async def test_pods_that_wait_are_told_why(cluster: Cluster) -> None:
    await cluster.add_pods("many", 20)
    await until(lambda: _all_bound(cluster, "many", 16), "as many as there are cards", timeout_s=30)

    async def is_named() -> bool:
        conditions = [c for pod in await cluster.pods("many") for c in pod["status"].get("conditions", ())]
        return len([c for c in conditions if c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable"]) == 4

    await until(is_named, "the reason of those that wait", timeout_s=30)
    await cluster.clear()


async def test_what_the_ledger_wants_gone_is_evicted_and_fenced(cluster: Cluster, platform: Up) -> None:
    await cluster.add_pods("victim", 1)
    await until(lambda: _all_bound(cluster, "victim", 1), "the victim", timeout_s=30)
    async with admin_bus(asdict(Layout(platform.state).running())) as bus:
        (epoch, _), claims = await read_claims(bus)
        (claim,) = [claim for claim in claims if claim.pod == "victim-0"]
        for kind in (EvictKind.REVOKE, EvictKind.EVICT):
            wish = Evict(
                id=DecisionId(f"test-{kind}"), kind=kind, claim=claim.id, generation=100, job=claim.job, namespace=SPACE, pod=claim.pod,
                pod_uid=claim.pod_uid, reason="test",
            )  # fmt: skip
            await bus.publish(EvictDecided(epoch=Epoch(epoch), evictions=(wish,)), "0")

    async def gone() -> bool:
        return not await cluster.pods("victim")

    await until(gone, "the eviction", timeout_s=30)


async def test_a_faulty_node_is_cordoned(cluster: Cluster) -> None:
    await cluster.report_fault("n1", faulty=True)

    async def cordoned() -> bool:
        return bool((await cluster.node("n1"))["spec"].get("unschedulable"))

    await until(cordoned, "the cordon", timeout_s=30)


async def test_a_cordon_by_hand_made_before_the_marks_of_an_earlier_one_are_removed_stays(
    cluster: Cluster, admin: KubeClient, platform: Up
) -> None:
    await asyncio.sleep(1.0)  # health-monitor sees its cordon
    binder = platform.pids()["binder"]
    os.kill(binder, signal.SIGSTOP)
    try:
        for unschedulable in (None, True):  # as `kubectl uncordon` and `kubectl cordon` do
            body = {"spec": {"unschedulable": unschedulable}}
            await admin.json("PATCH", NODES.path(name="n1"), body=body, content_type=MERGE_PATCH)
            await asyncio.sleep(1.0)  # health-monitor sees both
    finally:
        os.kill(binder, signal.SIGCONT)

    async def unmarked() -> bool:
        return CORDONED_BY not in (await cluster.node("n1"))["metadata"].get("annotations", {})

    await until(unmarked, "the end of the marks", timeout_s=60)
    assert (await cluster.node("n1"))["spec"].get("unschedulable"), "the administrator's cordon"


async def test_each_service_came_as_itself_and_was_never_refused(cluster: Cluster, plane: ControlPlane) -> None:
    async def gang_reported() -> bool:
        return any(r.resource == "podgroups" and r.verb == "patch" for r in requests(plane.audit_log))

    await until(gang_reported, "the gang's status", timeout_s=30)
    seen = [r for r in requests(plane.audit_log) if r.agent != "test"]
    assert [r for r in seen if r.decision != "allow" or r.code in (401, 403)] == []
    assert {(r.service, r.agent) for r in seen} == {
        (s, f"hbox-{s}") for s in ("topology-collector", "job-controller", "quota-ledger", "binder")
    }
    discovery = {f"get /apis/{kind} by topology-collector" for kind in DISCOVERED}  # anybody with an account may
    discovery.add("get /apis/scheduling.volcano.sh/v1beta1 by job-controller")
    assert {f"{r.verb} {r.resource} by {r.service}" for r in seen} - discovery - {
        f"{right.verb} {right.resource} by {service}" for service, rights in RIGHTS.items() for right in rights
    } == set()
    assert {
        "list nodes by topology-collector",
        "list queues by quota-ledger",
        "patch pods/status by job-controller",
        "patch podgroups by job-controller",
        "patch queues/status by quota-ledger",
        "create events by job-controller",
        "create pods/binding by binder",
        "patch pods/status by binder",
        "create pods/eviction by binder",
        "patch nodes by binder",
    } <= {f"{r.verb} {r.resource} by {r.service}" for r in seen}


async def test_binders_rights_taken_away_hold_its_work_up_and_no_more(
    cluster: Cluster, platform: Up, plane: ControlPlane
) -> None:
    rights = [one for one in IDENTITIES["binder"].manifests if one["kind"] == "ClusterRoleBinding"]
    before = platform.pids()
    for one in rights:
        await cluster.client.json("DELETE", BINDINGS.path(name=one["metadata"]["name"]))
    asked = len(requests(plane.audit_log))
    try:
        await cluster.add_pods("held", 4)
        await until(lambda: "cannot create resource" in _said_of("binder", platform), "what the binder lacks", timeout_s=30)
        await asyncio.sleep(10.0)
        assert await cluster.bound("held") == 0
        binds = [one for one in requests(plane.audit_log)[asked:] if one.resource == "pods/binding"]
        assert 4 <= len(binds) < 60, "each of the four tries less and less often"
    finally:
        for one in rights:
            await apply(cluster.client, dict(one), field_manager="test")
    await until(lambda: _all_bound(cluster, "held", 4), "the rights are back", timeout_s=30)
    assert platform.pids() == before
    await cluster.clear()


@pytest.mark.parametrize("service", sorted(SERVICES))
async def test_a_service_has_the_rights_that_are_listed_and_no_others(admin: KubeClient, platform: Up, service: str) -> None:
    identity = IDENTITIES[service]
    rights = RIGHTS[service]
    named = {r.name for r in rights if r.name}
    # Without a name is more than with one: who may get one lease may not get any.
    given = {
        (r.group, r.resource, r.verb, space, r.name) for r in rights for space in ((r.namespace,) if r.namespace else SPACES)
    }
    kinds = {*KINDS, *((r.group, r.resource) for r in itertools.chain.from_iterable(RIGHTS.values()))}
    asked = [
        (group, kind, verb, space, name)
        for (group, kind), verb in itertools.product(kinds, VERBS)
        for space in SPACES
        for name in (("", service, "another", *(named - {service})) if kind == "leases" else ("",))
    ] + [(group, kind, verb, SPACE, "") for group, kind, verb in SPECIAL]
    asked += [(r.group, r.resource, r.verb, r.namespace, r.name) for r in rights if r.namespace not in ("", *SPACES)]
    limit = asyncio.Semaphore(16)

    async def allowed(right: tuple[str, str, str, str, str]) -> bool:
        async with limit:
            return await _may(admin, identity, right)

    async with asyncio.TaskGroup() as tasks:
        answers = {right: tasks.create_task(allowed(right)) for right in asked}
    # A right to create leases is a right to create one of any name.
    creates = {right for right in given if right[1:3] == ("leases", "create")}
    given |= {(*right[:4], name) for right in creates for name in (service, "another", *named)}
    assert {right for right, answer in answers.items() if answer.result()} == given


async def test_refused_is_what_a_stolen_token_would_be_used_for(platform: Up, cluster: Cluster) -> None:
    await cluster.add_pods("prey", 1)
    prey = PODS.path(SPACE, "prey-0")
    binding = {"metadata": {"name": "prey-0"}, "target": {"kind": "Node", "name": "n2"}}
    attempts: list[tuple[str, str, str, Any]] = [
        ("binder", "GET", SECRETS.path(), None),
        ("binder", "GET", PODS.path(), None),
        ("binder", "DELETE", prey, None),
        ("binder", "POST", ACCOUNT_OBJECTS.path(NAMESPACE, "quota-ledger", "token"), {"spec": {}}),
        ("job-controller", "POST", f"{prey}/binding", binding),
        ("job-controller", "POST", f"{prey}/eviction", {"metadata": {"name": "prey-0"}}),
        ("quota-ledger", "GET", prey, None),
        ("scheduler-core", "GET", NODES.path(), None),
        ("topology-collector", "DELETE", NODES.path(name="n2"), None),
    ]
    for service, method, path, body in attempts:
        async with KubeClient.connect(str(kubeconfig_of(platform, service)), user_agent="test") as client:
            with pytest.raises(InvalidRequest, match="HTTP 403"):
                await client.json(method, path, body=body)


def test_tokens_are_for_our_eyes_only_and_none_is_made_for_who_needs_none(platform: Up) -> None:
    folder = platform.state / "kube"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    assert {file.stem for file in folder.glob("*.token")} == SERVICES - {"node-agent"}
    for service in SERVICES - {"node-agent"}:  # a pod on each node: no process of a platform outside
        environment = (Path("/proc") / str(platform.pids()[service]) / "environ").read_bytes()
        assert str(platform.state / "kubeconfig").encode() not in environment


async def test_a_renewed_token_is_borne_by_the_next_request_of_the_same_client(
    plane: ControlPlane, platform: Up, admin: KubeClient, tmp_path: Path
) -> None:
    tokens = Tokens(tmp_path / "kube", plane.kubeconfig)
    paths = tokens.write_kubeconfigs()
    assert await tokens.issue(admin) == pytest.approx(2880)
    token = tmp_path / "kube" / "topology-collector.token"
    first = token.read_text()
    said: list[str] = []
    async with KubeClient.connect(paths["topology-collector"], user_agent="renewed") as client:
        await client.json("GET", NODES.path())
        renewal = asyncio.ensure_future(tokens.renew(0.0, said.append))
        try:

            async def renewed() -> bool:
                return token.read_text() != first

            await until(renewed, "a new token", timeout_s=30)
        finally:
            renewal.cancel()
        await client.json("GET", NODES.path())

    async def logged() -> list[Request]:
        mine = [r for r in requests(plane.audit_log) if r.agent == "renewed"]
        return mine if len(mine) == 2 else []

    before, after = await until(logged, "both requests in the log", timeout_s=30)
    assert before.token
    assert before.token != after.token
    assert said == []


async def test_who_may_not_give_rights_is_told_what_to_do(platform: Up) -> None:
    async with KubeClient.connect(str(kubeconfig_of(platform, "quota-ledger")), user_agent="test") as client:
        with pytest.raises(InvalidRequest, match="--as-given") as refused:
            await bring(client, lambda _: None)
    assert "HTTP 403" in refused.value.message


def test_as_given_all_services_act_as_the_kubeconfigs_user(plane: ControlPlane, platform: Up, tmp_path: Path) -> None:
    assert platform.stop() == 0  # two platforms would schedule the same pods
    with up(tmp_path / "state", "--kubeconfig", str(plane.kubeconfig), "--as-given") as running:
        assert not (running.state / "kube").exists()


async def _all_bound(cluster: Cluster, prefix: str, count: int) -> bool:
    return await cluster.bound(prefix) >= count


def _said_of(service: str, platform: Up) -> str:
    """What `hbox check` says of it."""
    said = platform.hbox("check").stdout.splitlines()
    return next((line for line in said if line.split()[1:2] == [service]), "")


async def _may(admin: KubeClient, identity: Identity, right: tuple[str, str, str, str, str]) -> bool:
    group, kind, verb, namespace, name = right
    resource, _, sub = kind.partition("/")
    attributes = {"group": group, "resource": resource, "subresource": sub, "verb": verb, "namespace": namespace, "name": name}
    groups = ["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}"]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": f"{ACCOUNTS}{identity.service}", "groups": groups, "resourceAttributes": attributes},
    }
    answer = await admin.json("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=review)
    return bool(answer["status"]["allowed"])
