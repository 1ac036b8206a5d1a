"""The chart on nodes that run pods, as a user has it: install, test, a gang, upgrade, rollback, uninstall; in this order, on one release."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hbox_common.clock import monotonic_s

from ..chart.rendered import MATRIX, objects
from ..chart.rendered import NAMESPACE as RENDERED_IN
from .cluster import CARDS, CHART, IMAGE, NAMESPACE, NEXT, RELEASE, ROOT, SERVICES, WAIT, Cluster, gang, uids, until
from .tenant import Others, Tenant

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1500)]

VALUES = ("--set", "image.repository=hbox")
GUIDE = ROOT / "docs" / "guides" / "install.md"
ACCESS = GUIDE.with_name("access.md")
#: Of other projects' operators, whose definitions this cluster does not have.
OF_OTHERS = ("monitoring.coreos.com/", "cert-manager.io/")
#: From `helm install` to a gang that runs, by the guide's lines alone: issue 14's bar.
FIRST_GANG_S = 300
#: How nodes call what has no registry in its name.
LOCAL = "docker.io/library"


@dataclass(frozen=True, slots=True)
class Installed:
    cluster: Cluster
    before: set[str]  #: every object that there was without HBox
    took_s: float  #: until `helm install` was back


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Installed:
    cluster.clear()
    cluster.set_cards(CARDS)  # all cards are idle, and a node of two cores keeps most of its cores for them
    cluster.make_namespaces()
    before = cluster.objects()
    [install] = [line for line in _lines() if line.startswith("helm upgrade --install")]
    began = monotonic_s()
    cluster.shell(install, REGISTRY=LOCAL)
    return Installed(cluster, before, monotonic_s() - began)


def _lines() -> list[str]:
    """What the guide tells a newcomer to type."""
    section = GUIDE.read_text().partition("## From nothing to the first gang\n")[2].partition("\n## ")[0]
    return [line.strip() for line in section.splitlines() if line.startswith("    ")]


@pytest.mark.parametrize("name", MATRIX)
def test_the_api_server_takes_what_other_values_render(cluster: Cluster, name: str) -> None:
    """Strictly: no field that it does not know. A pod needs its account first, and what other projects' operators read their definitions."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RENDERED_IN}})
    items = [f for f in objects(name) if f["kind"] != "Pod" and not f["apiVersion"].startswith(OF_OTHERS)]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    said = cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)
    assert len(said.splitlines()) == len(items)


def test_install_waits_until_every_service_is_ready(installed: Installed) -> None:
    ready = {
        d["metadata"]["labels"]["app.kubernetes.io/component"]: d["status"].get("readyReplicas")
        for d in installed.cluster.get("deployments", "-n", NAMESPACE)["items"]
    }
    assert ready == dict.fromkeys(SERVICES, 1)
    installed.cluster.assert_no_restarts()


def test_the_guides_lines_lead_to_the_first_gang(installed: Installed) -> None:
    cluster = installed.cluster
    lines = _lines()
    after = lines[[line.startswith("helm upgrade --install") for line in lines].index(True) + 1 :]
    said, took_s = {}, {}
    for line in after:
        began = monotonic_s()
        said[line] = cluster.shell(line, REGISTRY=LOCAL)
        took_s[line] = monotonic_s() - began
    [waited] = [i for i, line in enumerate(after) if line.startswith("kubectl wait")]
    until_gang_s = installed.took_s + sum(list(took_s.values())[: waited + 1])
    print(f"\nhelm install {installed.took_s:.0f} s, to the first gang running {until_gang_s:.0f} s:")
    print("".join(f"    {seconds:5.1f} s  {line}\n" for line, seconds in took_s.items()), end="")
    assert until_gang_s < FIRST_GANG_S
    assert [line.split()[:2] for line in said] == [
        ["helm", "test"],
        ["kubectl", "apply"],
        ["kubectl", "wait"],
        ["kubectl", "get"],
        ["docker", "run"],
    ]
    assert '"bomFormat": "CycloneDX"' in said[after[-1]]
    assert "Phase:          Succeeded" in said[after[0]]
    assert "POD LOGS: hbox-trial" in said[after[0]], "--logs finds the log after the end of the hook"
    assert " runs after " in said[after[0]]
    assert cluster.get("podgroups", "-n", NAMESPACE)["items"] == [], "helm test takes its gang away"
    cluster.kubectl("delete", "-f", str(GUIDE.with_name("first-gang.yaml")))


def test_tenant_with_role_edit_submits_a_gang_and_reads_queues(installed: Installed) -> None:
    cluster = installed.cluster
    binding = ("create", "rolebinding", "edits", "-n", "tenant", "--clusterrole=edit", "--serviceaccount=tenant:default")
    cluster.kubectl(*binding)
    tenant = ("--as", "system:serviceaccount:tenant:default")
    until(
        lambda: "yes" in cluster.kubectl("auth", "can-i", "list", "podgroups", "-n", "tenant", *tenant, check=False),
        timeout_s=60,
        what=lambda: cluster.kubectl("get", "clusterrole", "edit", "-o", "yaml"),
    )
    items = gang("own", members=2, cards=0, image=IMAGE)
    cluster.kubectl("create", *tenant, "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    cluster.running("own", 2)
    assert "own" in cluster.kubectl("get", "podgroups", "-n", "tenant", *tenant)
    assert "default" in cluster.kubectl("get", "queues", *tenant)
    assert "no" in cluster.kubectl("auth", "can-i", "update", "queues", *tenant, check=False)
    assert "no" in cluster.kubectl(
        "auth", "can-i", "patch", "podgroups", "--subresource=status", "-n", "tenant", *tenant, check=False
    )
    cluster.kubectl("delete", "podgroup/own", "pod/own-0", "pod/own-1", "-n", "tenant", *tenant)


def test_a_gang_runs_on_the_nodes_cards_and_one_too_large_says_why_it_waits(installed: Installed) -> None:
    cluster = installed.cluster
    cluster.set_cards(CARDS)
    cluster.apply(*gang("first", members=2, cards=2, image=IMAGE))
    assert {pod["spec"]["schedulerName"] for pod in cluster.running("first", 2)} == {"hbox"}

    cluster.apply(*gang("large", members=2, cards=CARDS, image=IMAGE))

    def said() -> str:
        conditions = [c for pod in cluster.pods("tenant", "-l", "gang=large") for c in pod["status"].get("conditions", ())]
        return " ".join(c.get("message", "") for c in conditions if c["type"] == "PodScheduled")

    until(lambda: bool(said()), timeout_s=60, what=lambda: "no pod has a reason")
    assert all("nodeName" not in pod["spec"] for pod in cluster.pods("tenant", "-l", "gang=large")), said()
    cluster.kubectl("delete", "podgroup,pod", "-n", "tenant", "large", "large-0", "large-1", "--ignore-not-found")


@pytest.fixture
def tenant(installed: Installed) -> Iterator[Tenant]:
    one = Tenant(installed.cluster)
    yield one
    one.clear()


@pytest.fixture
def others(installed: Installed) -> Iterator[Others]:
    one = Others(installed.cluster)
    yield one
    one.clear()


def test_tenants_pod_reads_its_jobs_and_no_name_of_others(installed: Installed, tenant: Tenant, others: Others) -> None:
    """By the pod's service account, in another network namespace and as another user than HBox."""
    installed.cluster.apply(*gang("waits", members=2, cards=CARDS, image=IMAGE))
    until(lambda: "tenant/waits" in tenant.hbox("jobs"), timeout_s=60, what=lambda: tenant.hbox("jobs", "--debug"))
    until(lambda: "VERDICT" in tenant.hbox("why", "waits"), timeout_s=60, what=lambda: tenant.hbox("why", "waits"))
    screens = [
        tenant.hbox(*words, *form)
        for words in (
            ("jobs",),
            ("why", "waits"),
            ("queue", "tree"),
            ("queue", "ls"),
            ("share", "default"),
            ("usage",),
            ("events",),
        )
        for form in ((), ("-o", "json"))
    ]
    assert not [screen for screen in screens if "Traceback" in screen]
    assert "default" in screens[4], "the queue tree"
    screens += [tenant.hbox("nodes"), tenant.pages()]
    assert others.names > 100
    found = [screen for screen in screens if others.mark in screen]
    assert not found, found[0][:3000]
    refusals = {tenant.hbox("why", f"{space}/{others.job}").replace(space, "") for space in (others.namespace, "no-such-space")}
    assert len(refusals) == 1, "whether there is such a namespace"
    assert "you may not see jobs of namespace" in refusals.pop()
    tenant.revoke()
    until(lambda: "tenant/waits" not in tenant.hbox("jobs"), timeout_s=60, what=lambda: tenant.hbox("jobs"))
    installed.cluster.kubectl("delete", "podgroup,pod", "-n", "tenant", "waits", "waits-0", "waits-1", "--ignore-not-found")


def test_access_guides_lines_lead_from_outside_the_cluster_to_its_jobs(installed: Installed, tmp_path: Path) -> None:
    lines = ACCESS.read_text().partition("## From outside the cluster\n")[2].partition("```sh\n")[2].partition("```")[0]
    script = lines.replace("&\n", "& sleep 3\n") + "hbox why first\nkill %1\n"
    path = f"{ROOT / '.venv/bin'}:{os.environ['PATH']}"
    said = installed.cluster.shell(f"cd {tmp_path}; set -me; {script}", HOME=str(tmp_path), XDG_CONFIG_HOME="", PATH=path)
    assert "tenant/first" in said
    assert "placed: all of its pods have nodes" in said


def test_an_upgrade_and_a_rollback_leave_jobs_running_and_place_new_ones(installed: Installed) -> None:
    cluster = installed.cluster
    first = uids(cluster.running("first", 2))

    later = ("--set", f"image.tag={NEXT.rpartition(':')[2]}", "--set", "settings.log_level=debug")
    cluster.helm("upgrade", RELEASE, str(CHART), *VALUES, *later, *WAIT)
    images = {
        pod["spec"]["containers"][0]["image"] for pod in cluster.pods(NAMESPACE, "-l", "app.kubernetes.io/component=binder")
    }
    assert NEXT in images
    cluster.apply(*gang("second", members=2, cards=1, image=IMAGE))
    second = uids(cluster.running("second", 2))
    assert uids(cluster.running("first", 2)) == first

    cluster.helm("rollback", RELEASE, "1", *WAIT)
    cluster.apply(*gang("third", members=2, cards=1, image=IMAGE))
    third = cluster.running("third", 2)
    assert uids(cluster.running("first", 2)) == first
    assert uids(cluster.running("second", 2)) == second
    # 4 + 2 + 2 of 8 cards: the ledger has not lost the books over two restarts, so one more has no room.
    assert sum(int(p["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]) for p in third) == 2


def test_three_brokers_go_on_without_one_of_them(installed: Installed) -> None:
    """They begin with empty streams; books and jobs are what they were."""
    cluster = installed.cluster
    running = {name: uids(cluster.running(name, 2)) for name in ("first", "second", "third")}
    cluster.helm("upgrade", RELEASE, str(CHART), *VALUES, "--set", "nats.replicas=3", *WAIT)
    cluster.kubectl("delete", "pod", "-n", NAMESPACE, "hbox-nats-0", "--force", "--grace-period=0", "--wait=false")
    cluster.apply(*gang("fourth", members=2, cards=0, image=IMAGE))
    cluster.running("fourth", 2)
    assert {name: uids(cluster.running(name, 2)) for name in running} == running
    until(
        lambda: cluster.get("statefulsets", "hbox-nats", "-n", NAMESPACE)["status"].get("readyReplicas") == 3,
        timeout_s=120,
        what=lambda: cluster.kubectl("describe", "pods", "-n", NAMESPACE, "hbox-nats-0")[-3000:],
    )


def test_uninstall_leaves_jobs_running_and_nothing_but_the_definitions(installed: Installed) -> None:
    cluster = installed.cluster
    running = uids(cluster.running("first", 2))
    cluster.helm("uninstall", RELEASE, "--wait", "--timeout", "3m")
    until(lambda: not cluster.pods(NAMESPACE), timeout_s=60, what=lambda: cluster.kubectl("get", "pods", "-n", NAMESPACE))
    assert uids(cluster.running("first", 2)) == running

    until(
        lambda: not cluster.left(installed.before), timeout_s=60, what=lambda: "\n".join(sorted(cluster.left(installed.before)))
    )
