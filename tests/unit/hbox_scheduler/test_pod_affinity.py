"""Required affinity between pods at its edges, as kube-scheduler's InterPodAffinity has them."""

from typing import Any

import pytest

from hbox_cli.simulate.cluster_file import cluster_of
from hbox_cli.simulate.documents import Document
from hbox_scheduler.core.framework import Placing, Session
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy.registry import PLUGINS, plugins_of

CONF = parse_conf('actions: "allocate"\ntiers:\n- plugins: [{name: predicates}]\n', plugins=list(PLUGINS))
ZONES = {"a1": "a", "a2": "a", "b1": "b", "nowhere": ""}


@pytest.mark.parametrize(
    ("there", "labels", "expected"),
    [
        ({}, {"app": "x"}, {"a1", "a2", "b1"}),
        ({}, {"app": "other"}, set()),
        ({"a1": {"app": "x"}}, {"app": "x"}, {"a1", "a2"}),
        ({"nowhere": {"app": "x"}}, {"app": "x"}, {"a1", "a2", "b1"}),
        ({"nowhere": {"app": "x"}}, {"app": "other"}, set()),
        ({"nowhere": {"app": "x"}, "b1": {"app": "x"}}, {"app": "x"}, {"b1"}),
    ],
    ids=["first of its kind", "not of the kind", "company", "company without a domain", "wants such company", "both"],
)
def test_where_a_pod_that_wants_company_in_its_zone_may_go(
    there: dict[str, dict[str, str]], labels: dict[str, str], expected: set[str]
) -> None:
    assert _allowed(there, labels) == expected


def _allowed(there: dict[str, dict[str, str]], labels: dict[str, str]) -> set[str]:
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "10"}
    nodes: list[dict[str, Any]] = [
        {
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"zone": zone} if zone else {}},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
        }
        for name, zone in ZONES.items()
    ]  # fmt: skip
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}
    asking = _pod("asking", labels)
    asking["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    running = []
    for node, of in there.items():
        pod = _pod(f"on-{node}", of)
        pod["spec"]["nodeName"], pod["status"] = node, {"phase": "Running"}
        running.append(pod)
    saved = cluster_of(
        [Document(number, one) for number, one in enumerate([*nodes, *running, asking], 1)], schedulers=["volcano"], now=0.0
    )
    session = Session(columns=saved.columns, cluster=saved.cluster, conf=CONF, tiers=plugins_of(CONF))
    member = next(m for gang in session.gangs for m in gang.members if m.name == "asking")
    placing = Placing(session)
    allowed = placing.allowed(member, saved.columns)
    return {saved.columns.names[row] for row in range(saved.columns.size) if allowed[row]}


def _pod(name: str, labels: dict[str, str]) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels},
        "spec": {"schedulerName": "volcano", "containers": [container]},
    }
