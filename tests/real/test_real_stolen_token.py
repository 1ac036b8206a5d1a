"""Threat T17: somebody has the binder's token. RBAC lets the binder bind and evict any pod and write any node; the chart's policies say which, on a real API
server. The binder of these tests has all rights: what is refused is refused by the policies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hbox_cli.platform.assets import ControlPlane
from hbox_common.errors import HBoxError, InvalidRequest
from hbox_common.kube import MERGE_PATCH, NODES, PODS, KubeClient, cordon, keep_taint, uncordon
from hbox_common.model import TaintEffect
from hbox_common.model.annotations import HEALTH_TAINT

from ..chart.rendered import NAMESPACE
from ..waiting import until
from .admission_world import Audited, account, audited, grant, install, pod, service_account
from .control_plane import control_plane

pytestmark = [pytest.mark.timeout(300)]

SPACE, SYSTEM = "default", "kube-system"
BINDER = f"system:serviceaccount:{NAMESPACE}:binder"
NODE = NODES.path("", "n")
OTHERS_TAINT = {"key": "maintenance", "value": "x", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("stolen"), programs=()) as plane:
        yield plane


@pytest.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as admin:
        yield admin


@pytest.fixture
async def binder(plane: ControlPlane, admin: KubeClient, tmp_path: Path) -> AsyncIterator[KubeClient]:
    """The policies are in force, and there is a node with a label, a note and a taint of somebody else's."""
    async with AsyncExitStack() as stack:
        await install(admin, "default", NAMESPACE)
        with suppress(InvalidRequest):
            await admin.json("DELETE", NODE)
        about = {"name": "n", "labels": {"zone": "a"}, "annotations": {"note": "1"}}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": about, "spec": {"taints": [OTHERS_TAINT]}}
        await admin.json("POST", NODES.path(), body=node)
        path = await account(admin, plane.kubeconfig, tmp_path, NAMESPACE, "binder")
        await grant(admin, "test-binder", "cluster-admin", service_account(NAMESPACE, "binder"))
        client = await stack.enter_async_context(KubeClient.connect(str(path), user_agent="binder"))
        tries = {
            "places and evicts nothing": (PODS.path(SYSTEM, "none", "binding"), "POST", _binding("none")),
            "no labels of nodes": (NODE, "PATCH", {"metadata": {"labels": {"zone": "b"}}}),
        }
        for words, (at, method, body) in tries.items():
            await until(partial(_refused, client, method, at, body, words), words, timeout_s=60)
        yield client


async def _refused(client: KubeClient, method: str, path: str, body: Mapping[str, Any], words: str) -> bool:
    kind = MERGE_PATCH if method == "PATCH" else "application/json"
    try:
        await client.json(method, path, body=body, content_type=kind, params={"dryRun": "All"})
    except HBoxError as e:
        return words in str(e)
    return False


def _was_refused(path: str, one: Audited) -> bool:
    return one.user == BINDER and one.uri == path and one.code == 403


def _binding(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}}


def _eviction(name: str) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}


async def test_the_clusters_own_pods_are_neither_bound_nor_evicted_and_it_is_audited(
    binder: KubeClient, admin: KubeClient, plane: ControlPlane
) -> None:
    for space in (SYSTEM, SPACE):
        await admin.json("POST", PODS.path(space), body=pod("prey"))
    for what, body in (("binding", _binding("prey")), ("eviction", _eviction("prey"))):
        path = PODS.path(SYSTEM, "prey", what)
        with pytest.raises(InvalidRequest, match=f"HBox places and evicts nothing in namespace {SYSTEM}"):
            await binder.json("POST", path, body=body)
        line = await audited(plane.audit_log, partial(_was_refused, path))
        assert line.verb == "create"
        await binder.json("POST", PODS.path(SPACE, "prey", what), body=body)


async def test_hboxs_own_pods_are_not_evicted_and_the_trials_are_bound(binder: KubeClient, admin: KubeClient) -> None:
    await admin.json("POST", PODS.path(NAMESPACE), body=pod("trial"))
    await binder.json("POST", PODS.path(NAMESPACE, "trial", "binding"), body=_binding("trial"))
    with pytest.raises(InvalidRequest, match=f"HBox places and evicts nothing in namespace {NAMESPACE}"):
        await binder.json("POST", PODS.path(NAMESPACE, "trial", "eviction"), body=_eviction("trial"))


async def test_pods_of_other_schedulers_are_not_written(binder: KubeClient, admin: KubeClient) -> None:
    note = {"metadata": {"annotations": {"hbox.io/eviction-deadline": "0"}}}
    await admin.json("POST", PODS.path(SPACE), body=pod("theirs", schedulerName="default-scheduler"))
    await admin.json("POST", PODS.path(SPACE), body=pod("ours"))
    with pytest.raises(InvalidRequest, match="pod of another scheduler"):
        await binder.json("PATCH", PODS.path(SPACE, "theirs", "status"), body=note, content_type=MERGE_PATCH)
    # A claim that it writes in the same breath is none that it had.
    forged = {"metadata": {"annotations": {"hbox.io/claim": "mine"}}}
    with pytest.raises(InvalidRequest, match="pod of another scheduler"):
        await binder.json("PATCH", PODS.path(SPACE, "theirs", "status"), body=forged, content_type=MERGE_PATCH)
    await binder.json("PATCH", PODS.path(SPACE, "ours", "status"), body=note, content_type=MERGE_PATCH)


async def test_of_a_node_only_the_cordon_and_the_pools_taint_are_written(binder: KubeClient, admin: KubeClient) -> None:
    for words, body in (
        ("no labels of nodes", {"metadata": {"labels": {"zone": "b"}}}),
        ("its own and the lock", {"metadata": {"annotations": {"note": "2"}}}),
        ("its own and the lock", {"metadata": {"annotations": {"note": None}}}),
        *(
            ("hbox.io/health:PreferNoSchedule alone", {"spec": {"taints": taints}})
            for taints in (
                [],
                [OTHERS_TAINT, {"key": "mine", "effect": "NoExecute"}],
                [OTHERS_TAINT, {"key": "hbox.io/pool", "effect": "NoExecute"}],
                [OTHERS_TAINT, {"key": "hbox.io/health", "effect": "NoSchedule"}],
            )
        ),
    ):
        with pytest.raises(InvalidRequest, match=words):
            await binder.json("PATCH", NODE, body=body, content_type=MERGE_PATCH)

    # What the binder itself does, by its own functions.
    assert await keep_taint(binder, node="n", key="hbox.io/pool", value="a", effect=TaintEffect.NO_SCHEDULE)
    assert await keep_taint(binder, node="n", key=HEALTH_TAINT, value="degraded", effect=TaintEffect.PREFER_NO_SCHEDULE)
    assert (await cordon(binder, node="n", reason="Xid 79", owner="hbox")).outcome.value == "done"
    assert (await uncordon(binder, node="n", owner="hbox")).outcome.value == "done"
    assert await keep_taint(binder, node="n", key="hbox.io/pool", value=None, effect=TaintEffect.NO_SCHEDULE)
    assert await keep_taint(binder, node="n", key=HEALTH_TAINT, value=None, effect=TaintEffect.PREFER_NO_SCHEDULE)
    found = await admin.json("GET", NODE)
    keys = [taint["key"] for taint in found["spec"]["taints"]]
    assert OTHERS_TAINT["key"] in keys
    assert not {"hbox.io/pool", HEALTH_TAINT} & {*keys}
