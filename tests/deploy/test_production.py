"""The profile production as a whole: pairs, three brokers, TLS with clients' certificates, PostgreSQL; what a tenant's pod gets out of its ports; upgrade,
rollback, uninstall. In this order, on one release."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..certificates import NONE, OPENSSL
from .cluster import CARDS, CHART, IMAGE, NAMESPACE, NEXT, RELEASE, SERVICES, TENANT, WAIT, Cluster, gang, uids, until
from .production import BROKERS, DATABASE, PAIRED, address, prepare

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1500)]

SCAN = Path(__file__).with_name("scan.py")
SCAN_S = 400

#: Ports that answer whoever reaches them, with what they are: they are read, and nothing else.
HEALTH, CLIENTS, ROUTES, MONITOR = 8080, 4222, 6222, 8222


@dataclass(frozen=True, slots=True)
class Installed:
    cluster: Cluster
    before: set[str]  #: every object that there was without HBox
    values: Path


@pytest.fixture(scope="module")
def installed(cluster: Cluster, postgres_on_nodes: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    if OPENSSL is None:
        pytest.skip(NONE)
    cluster.clear()
    cluster.set_cards(2 * CARDS)  # its gangs have ten on one node
    cluster.make_namespaces()
    values = prepare(cluster, postgres_on_nodes, tmp_path_factory.mktemp("production"))
    before = cluster.objects()
    cluster.helm("install", RELEASE, str(CHART), "--values", str(values), *WAIT)
    yield Installed(cluster, before, values)
    cluster.kubectl("delete", "namespace", DATABASE, "--ignore-not-found", "--wait=false")


def _component(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    return cluster.pods(NAMESPACE, "-l", f"app.kubernetes.io/component={name}")


def _leader(cluster: Cluster, service: str) -> str:
    [lease] = [
        one["spec"]["holderIdentity"]
        for one in cluster.get("leases", "-n", NAMESPACE)["items"]
        if one["metadata"]["name"].endswith(service)
    ]
    return str(lease)


def _broker(cluster: Cluster, number: int, path: str) -> Any:
    """What a broker's monitoring says, asked in its own pod."""
    ask = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{MONITOR}/{path}', timeout=10).read().decode())"
    return json.loads(cluster.kubectl("exec", "-n", NAMESPACE, f"hbox-nats-{number}", "-c", "nats", "--", "python", "-c", ask))


def test_every_pair_and_every_broker_is_ready(installed: Installed) -> None:
    cluster = installed.cluster
    ready = {
        d["metadata"]["labels"]["app.kubernetes.io/component"]: d["status"].get("readyReplicas")
        for d in cluster.get("deployments", "-n", NAMESPACE)["items"]
    }
    assert ready == {name: 2 if name in (*PAIRED, "console") else 1 for name in SERVICES}
    assert cluster.get("statefulsets", "hbox-nats", "-n", NAMESPACE)["status"]["readyReplicas"] == BROKERS
    budgets = {b["metadata"]["name"]: b["status"]["disruptionsAllowed"] for b in cluster.get("pdb", "-n", NAMESPACE)["items"]}
    assert budgets == dict.fromkeys((*(f"hbox-{name}" for name in (*PAIRED, "console")), "hbox-nats"), 1)
    assert cluster.get("pvc", "-n", NAMESPACE)["items"], "each broker has a volume"
    assert not [p for p in cluster.get("pvc", "-n", NAMESPACE)["items"] if p["metadata"]["name"] == "hbox-ledger"]
    cluster.assert_no_restarts()


def test_services_and_brokers_speak_by_tls_alone(installed: Installed) -> None:
    cluster = installed.cluster
    connections = [c for i in range(BROKERS) for c in _broker(cluster, i, "connz?auth=1&limit=1024")["connections"]]
    assert len(connections) >= len(SERVICES), "one of each; who stands by has none yet"
    assert {c["tls_version"] for c in connections} <= {"1.2", "1.3"}
    assert all(c["authorized_user"].startswith("U") for c in connections), "each by its own key"
    routes = _broker(cluster, 0, "routez")
    assert routes["num_routes"] >= BROKERS - 1
    assert _broker(cluster, 0, "varz")["cluster"]["tls_required"]


def test_helm_test_and_a_gang_of_a_tenant(installed: Installed) -> None:
    cluster = installed.cluster
    assert "Phase:          Succeeded" in cluster.helm("test", RELEASE)
    cluster.apply(*gang("first", members=2, cards=2, image=IMAGE))
    cluster.running("first", 2)


def test_those_who_stand_by_take_over_and_a_broker_is_missed_by_nobody(installed: Installed) -> None:
    """All leaders and one broker go at once, without a word."""
    cluster = installed.cluster
    first = uids(cluster.running("first", 2))
    leaders = {service: _leader(cluster, service) for service in PAIRED}
    names = [pod["metadata"]["name"] for service in PAIRED for pod in _component(cluster, service)]
    gone = [name for name in names if any(name in leader for leader in leaders.values())]
    assert len(gone) == len(PAIRED), leaders
    cluster.kubectl("delete", "pod", "-n", NAMESPACE, *gone, "hbox-nats-1", "--force", "--grace-period=0", "--wait=false")
    cluster.apply(*gang("second", members=2, cards=1, image=IMAGE))
    cluster.running("second", 2)
    assert uids(cluster.running("first", 2)) == first
    assert all(_leader(cluster, service) != was for service, was in leaders.items())
    until(
        lambda: cluster.get("statefulsets", "hbox-nats", "-n", NAMESPACE)["status"].get("readyReplicas") == BROKERS,
        timeout_s=120,
        what=lambda: cluster.kubectl("describe", "pods", "-n", NAMESPACE, "hbox-nats-1")[-3000:],
    )


def test_a_password_of_the_database_that_is_renewed_restarts_no_ledger(installed: Installed) -> None:
    """At the server first; the kubelet hands the Secret on within a minute or two. Meanwhile every session is cut."""
    cluster = installed.cluster
    before = {pod["metadata"]["uid"]: _restarts(pod) for pod in _component(cluster, "quota-ledger")}

    def sql(password: str, words: str) -> None:
        asked = ("psql", "--host=127.0.0.1", "--username=hbox", "--dbname=hbox", "--command", words)
        cluster.kubectl("exec", "-n", DATABASE, "postgres", "--", "env", f"PGPASSWORD={password}", *asked)

    sql("hbox", "ALTER ROLE hbox PASSWORD 'renewed'")
    sql("renewed", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'hbox' AND pid <> pg_backend_pid()")
    cluster.apply(*gang("renewed", members=2, cards=0, image=IMAGE))
    time.sleep(10)
    assert not [
        pod for pod in cluster.pods(TENANT) if pod["metadata"]["name"].startswith("renewed-") and "nodeName" in pod["spec"]
    ]
    cluster.apply(address("renewed"))
    cluster.running("renewed", 2, timeout_s=180)
    assert {pod["metadata"]["uid"]: _restarts(pod) for pod in _component(cluster, "quota-ledger")} == before


def _restarts(pod: dict[str, Any]) -> int:
    return sum(one["restartCount"] for one in pod["status"]["containerStatuses"])


def test_a_port_scan_from_a_tenants_pod_finds_nothing_that_changes_anything(installed: Installed) -> None:
    """Threat T4. These nodes do not enforce NetworkPolicies: what is behind each port has to refuse by itself."""
    cluster = installed.cluster
    pods = cluster.pods(NAMESPACE, "-l", "app.kubernetes.io/instance=hbox", "--field-selector=status.phase=Running")
    seen: dict[str, str] = {}  # one of each kind: their programs are the same
    for pod in pods:
        seen.setdefault(pod["metadata"]["labels"]["app.kubernetes.io/component"], pod["status"]["podIP"])
    assert seen.keys() == {*SERVICES, "nats"}
    before = _state(cluster), uids(pods)
    [_, scanner] = gang("scanner", members=1, cards=0, image=IMAGE)
    scanner["spec"]["schedulerName"] = "default-scheduler"
    scanner["metadata"]["annotations"] = {}
    scanner["spec"]["containers"][0]["resources"]["limits"] = {"memory": "256Mi"}
    cluster.apply(scanner)
    cluster.running("scanner", 1)

    words = ("exec", "-i", "-n", TENANT, "scanner-0", "--", "python3", "-", *seen.values())
    found = json.loads(cluster.kubectl(*words, stdin=SCAN.read_text(), timeout_s=SCAN_S))

    ports = {name: {int(port): said for port, said in found[address].items()} for name, address in seen.items()}
    for service in SERVICES:
        assert ports[service].keys() == {HEALTH}, service
        answers = ports[service][HEALTH]["http"]
        assert {path for path, status in answers.items() if status < 400} <= {"GET /healthz", "GET /readyz", "GET /metrics"}
        assert answers["GET /healthz"] == 200, "it is the service that answered"
    assert ports["nats"].keys() == {CLIENTS, ROUTES}, "the monitor listens on loopback"
    for port, way in ((CLIENTS, "TLS after INFO"), (ROUTES, "TLS")):
        answers = ports["nats"][port]
        assert "certificate" in answers[way].lower(), "TLS is spoken, and a certificate is asked for"
        for answer in (answers["plain"], answers["TLS after INFO"], answers["TLS"]):
            assert not {"+OK", "PONG", "MSG"} & set(answer.split()), (port, answer)
    cluster.kubectl("delete", "pod", "-n", TENANT, "scanner-0")
    pods = cluster.pods(NAMESPACE, "-l", "app.kubernetes.io/instance=hbox", "--field-selector=status.phase=Running")
    assert (_state(cluster), uids(pods)) == before
    cluster.apply(*gang("after-the-scan", members=2, cards=0, image=IMAGE))
    cluster.running("after-the-scan", 2)


def _state(cluster: Cluster) -> Any:
    """What somebody who got in would change: queues, groups, pods of the tenant, streams."""
    specs = [
        (one["kind"], one["metadata"]["name"], one["metadata"].get("annotations"), one["spec"])
        for kind in ("queues.scheduling.volcano.sh", "podgroups.scheduling.volcano.sh")
        for one in cluster.get(kind, "-A")["items"]
    ]
    nodes = [
        (p["metadata"]["name"], p["spec"]["nodeName"]) for p in cluster.pods(TENANT) if p["metadata"]["name"] != "scanner-0"
    ]
    details = _broker(cluster, 0, "jsz?streams=1&config=1")["account_details"]
    streams = sorted(
        (s["name"], json.dumps(s["config"], sort_keys=True)) for account in details for s in account["stream_detail"]
    )
    assert streams
    return specs, nodes, [name for name, _ in streams], [config for _, config in streams]


def test_an_upgrade_and_a_rollback_leave_jobs_running_and_place_new_ones(installed: Installed) -> None:
    cluster = installed.cluster
    running = {name: uids(cluster.running(name, 2)) for name in ("first", "second")}
    later = ("--values", str(installed.values), "--set", f"image.tag={NEXT.rpartition(':')[2]}")
    cluster.helm("upgrade", RELEASE, str(CHART), *later, *WAIT)
    assert {p["spec"]["containers"][0]["image"] for p in _component(cluster, "binder")} >= {NEXT}
    cluster.apply(*gang("third", members=2, cards=1, image=IMAGE))
    running["third"] = uids(cluster.running("third", 2))
    cluster.helm("rollback", RELEASE, "1", *WAIT)
    cluster.apply(*gang("fourth", members=2, cards=1, image=IMAGE))
    cluster.running("fourth", 2)
    assert {name: uids(cluster.running(name, 2)) for name in running} == running


def test_uninstall_leaves_jobs_running_and_nothing_but_definitions_and_volumes(installed: Installed) -> None:
    cluster = installed.cluster
    running = {name: uids(cluster.running(name, 2)) for name in ("first", "second", "third", "fourth")}
    cluster.helm("uninstall", RELEASE, "--wait", "--timeout", "3m")
    until(lambda: not cluster.pods(NAMESPACE), timeout_s=60, what=lambda: cluster.kubectl("get", "pods", "-n", NAMESPACE))
    volumes = {f"data-hbox-nats-{i}" for i in range(3)}
    assert {one["metadata"]["name"] for one in cluster.get("pvc", "-n", NAMESPACE)["items"]} == volumes
    cluster.kubectl("delete", "pvc", "-n", NAMESPACE, "-l", "app.kubernetes.io/instance=hbox")  # the command in the guide
    until(
        lambda: not cluster.left(installed.before), timeout_s=60, what=lambda: "\n".join(sorted(cluster.left(installed.before)))
    )
    assert {name: uids(cluster.running(name, 2)) for name in running} == running
