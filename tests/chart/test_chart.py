"""What the chart renders, over installations that differ: what must hold in every one of them."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Mapping
from importlib.metadata import distribution, version
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hbox_binder.settings import BinderSettings
from hbox_cli.platform import chart, chart_values, rights
from hbox_cli.platform.crds import CLASSES
from hbox_cli.platform.identities import identities
from hbox_cli.services import ALONE, ON_NODES, PAIRED, REPLICATED, SERVICES
from hbox_common.bus import find_binary, write_config
from hbox_common.bus.users import users
from hbox_common.kube import NAMESPACES, SECRETS, KubeClient
from hbox_common.model.remedy import Verb
from hbox_common.model.shards import Shards, lease_of
from hbox_common.runtime import load
from hbox_common.runtime.certificate import Certificate
from hbox_health.settings import HealthSettings
from hbox_jobs.settings import JobControllerSettings
from hbox_remedy.settings import Mode, RemedySettings
from hbox_sandbox.api.server import ApiServer
from hbox_scheduler.settings import SchedulerSettings

from ..certificates import NONE, OPENSSL, as_secret, make_certificates
from .rendered import CHART, MATRIX, NAMESPACE, helm_anew, lint, objects, of, pods, read, template

ROOT = CHART.parents[1]
BUS = "hbox-bus"
ACCESS = "hbox-access"
CONSOLE = "hbox-console"
#: ClusterRoles for users, not for services.
USER_ROLES = ("hbox-view", "hbox-edit", "hbox-queue-reader")
AGENT = "DaemonSet/hbox-node-agent"
REMEDY = "DaemonSet/hbox-node-remedy"
EVERY = pytest.mark.parametrize("name", MATRIX)


@EVERY
def test_every_pod_runs_where_pod_security_is_restricted(name: str) -> None:
    for who, _, spec in pods(name):
        if who in (AGENT, REMEDY):
            continue
        pod = spec["securityContext"]
        chosen = None if name == "OpenShift" else 65532
        assert (pod["runAsNonRoot"], *map(pod.get, ("runAsUser", "runAsGroup", "fsGroup"))) == (True, *[chosen] * 3), who
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}, who
        forbidden = {"hostPID", "hostIPC"} | ({"hostNetwork"} - {value.split("=")[0].split(".")[-1] for value in MATRIX[name]})
        assert not forbidden & set(spec), who
        assert all(
            set(v) - {"name"} <= {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}
            for v in spec["volumes"]
        )
        for container in spec["containers"] + spec.get("initContainers", []):
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False, who
            assert security["readOnlyRootFilesystem"] is True, who
            assert security["capabilities"] == {"drop": ["ALL"]}, who
            assert {"cpu", "memory"} <= set(container["resources"]["requests"]), who
            assert "memory" in container["resources"]["limits"], who


@EVERY
def test_every_service_is_a_deployment_with_probes_and_time_to_drain(name: str) -> None:
    found = {d["metadata"]["labels"]["app.kubernetes.io/component"]: d["spec"] for d in of(name, "Deployment")}
    found.pop("callout", None)  # a command, not a service
    assert set(found) - set(ALONE) == set(SERVICES) - set(ON_NODES)
    assert ("admission" in found) == ("admission.webhook.enabled=true" in MATRIX[name])
    for service, spec in found.items():
        pod = spec["template"]["spec"]
        [container] = pod["containers"]
        assert container["args"] == [service]
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)
        assert pod["terminationGracePeriodSeconds"] > 10
        if service in ALONE:
            continue  # replicas that are alike
        env = {e["name"]: e.get("value") for e in container["env"]}
        assert env["HBOX_LEADER_ELECTION"] == ("true" if service in PAIRED else "false")
        rolls = spec["strategy"]["type"] == "RollingUpdate"
        assert not rolls or service in (*PAIRED, *REPLICATED), f"two of {service} would act at once"
        assert spec["replicas"] == 1 or service in (*PAIRED, *REPLICATED)


@pytest.mark.parametrize("name", MATRIX)
def test_services_hand_over_one_after_the_other(name: str) -> None:
    """Each within a second: together they would pause bindings for the sum of it."""
    after = {
        found["metadata"]["labels"]["app.kubernetes.io/component"]: found["spec"]["minReadySeconds"]
        for found in of(name, "Deployment")
        if found["spec"]["strategy"]["type"] == "RollingUpdate"
        and not found["metadata"]["name"].endswith(("-admission", "-console", "-callout"))
    }
    assert set(PAIRED) - after.keys() == ({"health-monitor"} if "postgres" not in name else set())
    assert after.keys() <= set(PAIRED)
    times = sorted(after.values())
    assert all(later - earlier >= 3 for earlier, later in pairwise([0, *times]))


@pytest.mark.parametrize("name", MATRIX)
def test_an_upgrade_changes_the_streams_of_a_closed_broker_of_the_chart(name: str) -> None:
    jobs = [job for job in of(name, "Job") if job["metadata"]["name"] == "hbox-streams"]
    values = MATRIX[name]
    assert bool(jobs) == ("nats.enabled=false" not in values and "nats.closed=false" not in values)
    for job in jobs:
        assert "post-upgrade" in job["metadata"]["annotations"]["helm.sh/hook"]
        pod = job["spec"]["template"]["spec"]
        assert pod["containers"][0]["command"] == ["hbox", "bus", "streams"]
        [bus] = [volume["secret"]["secretName"] for volume in pod["volumes"] if volume["name"] == "bus"]
        assert bus == "hbox-bus-admin"
        assert pod["automountServiceAccountToken"] is False
        env = {one["name"]: one["value"] for one in pod["containers"][0]["env"]}
        assert ("HBOX_NATS_CA" in env) == env["HBOX_NATS_URL"].startswith("tls:")


def test_agents_are_root_on_their_node_and_have_nothing_else() -> None:
    [[_, _, spec]] = [found for found in pods("node agents") if found[0] == AGENT]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert spec["automountServiceAccountToken"] is False
    [container] = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    of_node = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    assert of_node == {"kubelet": "/var/lib/kubelet", "kubelet-config": "/etc/kubelet.yaml"}
    assert all(mount["readOnly"] for mount in container["volumeMounts"] if mount["name"] != "tmp")
    assert spec["tolerations"] == [{"operator": "Exists"}], "nodes of pools are tainted"
    assert {"name": "HBOX_NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}} in container["env"]
    assert not [who for who, _, _ in pods("default") if who == AGENT], "a namespace has to allow it"


def bus_of_agents(*values: str) -> tuple[dict[str, Any], list[dict[str, Any]], str]:
    """The agents' volume with their key or token, the objects of the callout, and the command by which the broker's pod writes its authorization."""
    rendered = read(template("services.node-agent.enabled=true", *values).stdout)
    [agent] = [one for one in rendered if one["kind"] == "DaemonSet"]
    [bus] = [volume for volume in agent["spec"]["template"]["spec"]["volumes"] if volume["name"] == "bus"]
    [broker] = [one for one in rendered if one["kind"] == "StatefulSet"]
    [users] = broker["spec"]["template"]["spec"]["initContainers"]
    return bus, [one for one in rendered if one["metadata"]["name"] == "hbox-callout"], " ".join(users["command"])


def test_agents_are_admitted_by_the_tokens_of_their_pods() -> None:
    bus, of_callout, command = bus_of_agents()
    [source] = bus["projected"]["sources"]
    assert source["serviceAccountToken"] == {"path": "token", "audience": "hbox-bus", "expirationSeconds": 3600}
    assert "--agents-by-node" in command
    [callout] = [one for one in of_callout if one["kind"] == "Deployment"]
    mounted = [volume for volume in callout["spec"]["template"]["spec"]["volumes"] if volume["name"] == "bus"]
    assert mounted[0]["secret"]["secretName"] == "hbox-bus-callout"
    [role] = [one for one in objects("node agents") if (one["kind"], one["metadata"]["name"]) == ("ClusterRole", CALLOUT)]
    assert role["rules"] == [{"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}]


def test_agents_share_a_key_where_tokens_name_no_node() -> None:
    bus, of_callout, command = bus_of_agents("nats.agentsByNode=false")
    assert (bus["secret"]["secretName"], of_callout) == ("hbox-bus-node-agent", [])
    assert "--agents-by-node" not in command


@EVERY
def test_only_node_remedy_is_privileged_and_only_where_it_is_enabled(name: str) -> None:
    remedies = "services.node-remedy.enabled=true" in MATRIX[name]

    def privileged(spec: Mapping[str, Any]) -> bool:
        containers = (*spec["containers"], *spec.get("initContainers", ()))
        return "hostPID" in spec or any(one["securityContext"].get("privileged") for one in containers)

    found = [who for who, _, spec in pods(name) if privileged(spec)]
    assert found == ([REMEDY] if remedies else [])
    assert ("node-remedy" in [one["metadata"]["name"] for one in of(name, "ServiceAccount")]) == remedies


def test_node_remedy_has_the_rights_of_its_table() -> None:
    """services/node-remedy/README.md#rights."""
    [[_, _, spec]] = [found for found in pods("remedies") if found[0] == REMEDY]
    [container] = spec["containers"]
    assert container["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True}
    assert {"hostPID", "hostNetwork", "hostIPC"} & set(spec) == {"hostPID"}
    assert {v["hostPath"]["path"] for v in spec["volumes"] if "hostPath" in v} == {"/var/lib/hbox/remedy"}
    assert {m["name"] for m in container["volumeMounts"] if not m.get("readOnly")} == {"tmp", "state"}
    assert spec["nodeSelector"] == {"hbox.io/remedy": "true"}
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("node-remedy", False)
    bound = [s["name"] for one in of("remedies", "ClusterRoleBinding", "RoleBinding") for s in one["subjects"]]
    assert "node-remedy" not in bound
    [bus] = [volume["projected"]["sources"] for volume in spec["volumes"] if volume["name"] == "bus"]
    assert bus == [{"serviceAccountToken": {"path": "token", "audience": "hbox-bus", "expirationSeconds": 3600}}]
    [callout] = [one for one in of("remedies", "Deployment") if one["metadata"]["name"] == "hbox-callout"]
    command = callout["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[-2:] == ["--remedy-account", f"{NAMESPACE}:node-remedy"]
    assert "--remedy-account" not in str(objects("node agents"))


def test_verbs_that_node_remedy_executes_are_the_ones_that_health_monitor_decides(tmp_path: Path) -> None:
    [text] = [c["data"]["hbox.yaml"] for c in of("remedies", "ConfigMap") if c["metadata"]["name"] == "hbox-settings"]
    (tmp_path / "hbox.yaml").write_text(text)
    read = {
        name: load(chart_values.SETTINGS[name], name, {"HBOX_CONFIG": str(tmp_path / "hbox.yaml")})
        for name in chart_values.SETTINGS
    }
    health, remedy = read["health-monitor"], read["node-remedy"]
    assert isinstance(health, HealthSettings)
    assert isinstance(remedy, RemedySettings)
    assert health.remedies == "reboot,reset"
    assert (remedy.rule(Verb.RESET).most, remedy.rule(Verb.ACS_OFF).mode, remedy.enter[0]) == (4, Mode.OFF, "nsenter")
    own = template("services.node-remedy.enabled=true", "services.health-monitor.settings.remedies=reset").stdout
    assert "remedies: reset" in own


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("nats.agentsByNode=false", "the broker has to admit it by the token of its pod"),
        ("nats.closed=false", "the broker has to admit it by the token of its pod"),
        ("services.node-remedy.nodeSelector=null", "has to name the label"),
        ("services.node-remedy.settings.verbs.format.mode=on", "verbs"),
        ("services.node-remedy.settings.enter={sh}", "enter"),
    ],
)
def test_node_remedy_is_not_rendered_with_more_rights_than_its_nodes(value: str, message: str) -> None:
    refused = template("services.node-remedy.enabled=true", value)
    assert refused.returncode != 0
    assert message in refused.stderr


def test_the_binder_may_create_jobs_in_the_namespace_of_the_gate_alone(tmp_path: Path) -> None:
    """ADR 121. Without a namespace it has no right to Jobs."""
    assert "batch" not in str(
        [one["rules"] for one in of("remedies", "ClusterRole", "Role") if "binder" in one["metadata"]["name"]]
    )
    done = template("gate.namespace=gate")
    assert done.returncode == 0, done.stderr
    rendered = [one for one in yaml.safe_load_all(done.stdout) if one]
    [role] = [one for one in rendered if one["kind"] == "Role" and one["metadata"]["namespace"] == "gate"]
    assert role["rules"] == [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "delete"]}]
    [bound] = [one for one in rendered if one["kind"] == "RoleBinding" and one["metadata"]["namespace"] == "gate"]
    assert bound["subjects"] == [{"kind": "ServiceAccount", "name": "binder", "namespace": NAMESPACE}]
    assert bound["roleRef"]["name"] == role["metadata"]["name"]
    [text] = [
        one["data"]["hbox.yaml"]
        for one in rendered
        if one["kind"] == "ConfigMap" and one["metadata"]["name"] == "hbox-settings"
    ]
    (tmp_path / "hbox.yaml").write_text(text)
    read = load(chart_values.SETTINGS["binder"], "binder", {"HBOX_CONFIG": str(tmp_path / "hbox.yaml")})
    assert isinstance(read, BinderSettings)
    assert read.gate_namespace == "gate"
    refused = template(f"gate.namespace={NAMESPACE}")
    assert refused.returncode != 0
    assert "name another namespace than that of HBox" in refused.stderr


def test_agents_see_nvidias_cards_only_where_that_is_said() -> None:
    [[_, _, plain]] = [found for found in pods("node agents") if found[0] == AGENT]
    assert "runtimeClassName" not in plain
    assert not [e for e in plain["containers"][0]["env"] if e["name"].startswith("NVIDIA")]
    [[_, _, spec]] = [found for found in pods("NVML") if found[0] == AGENT]
    [container] = spec["containers"]
    env = {e["name"]: e.get("value") for e in container["env"]}
    assert (spec["runtimeClassName"], env["NVIDIA_VISIBLE_DEVICES"], env["NVIDIA_DRIVER_CAPABILITIES"]) == (
        "nvidia",
        "all",
        "utility",
    )
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    [library] = [volume["hostPath"]["path"] for volume in spec["volumes"] if volume["name"] == "nvml"]
    assert library == "/run/nvidia/driver/usr/lib/x86_64-linux-gnu"
    assert {"name": "nvml", "mountPath": "/host/nvml", "readOnly": True} in container["volumeMounts"]
    [settings] = [one for one in of("NVML", "ConfigMap") if one["metadata"]["name"] == "hbox-settings"]
    said = yaml.safe_load(settings["data"]["hbox.yaml"])["node-agent"]
    assert (said["nvml"], said["nvml_library"], said["nvml_events"]) == (True, "/host/nvml", True)
    [settings] = [one for one in of("kernel log", "ConfigMap") if one["metadata"]["name"] == "hbox-settings"]
    assert "nvml_events" not in yaml.safe_load(settings["data"]["hbox.yaml"])["node-agent"]


def test_agents_get_a_capability_only_where_they_read_the_kernels_log() -> None:
    [[_, _, spec]] = [found for found in pods("kernel log") if found[0] == AGENT]
    [container] = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["SYSLOG"]},
    }
    assert {volume["name"] for volume in spec["volumes"] if "hostPath" in volume} == {"kubelet"}
    [settings] = [one for one in of("kernel log", "ConfigMap") if one["metadata"]["name"] == "hbox-settings"]
    assert yaml.safe_load(settings["data"]["hbox.yaml"])["node-agent"]["kernel_log"] is True
    privileged = [who for name in ("kernel log", "NVML", "node agents") for who, _, pod in pods(name) for one in pod["containers"]
                  if one["securityContext"].get("privileged")]  # fmt: skip
    assert privileged == []


def test_agents_are_admitted_by_tokens_to_a_broker_of_ones_own() -> None:
    name = "own broker with agents by node"
    [[_, _, spec]] = [found for found in pods(name) if found[0] == AGENT]
    assert {"name": "HBOX_NATS_TOKEN", "value": "/etc/hbox/bus/token"} in spec["containers"][0]["env"]
    [callout] = [one for one in of(name, "Deployment") if one["metadata"]["name"] == "hbox-callout"]
    [container] = callout["spec"]["template"]["spec"]["containers"]
    assert {"name": "HBOX_NATS_URL", "value": "nats://a:4222"} in container["env"]
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)
    [bus] = [volume for volume in callout["spec"]["template"]["spec"]["volumes"] if volume["name"] == "bus"]
    assert bus["secret"]["secretName"] == "mine-callout"
    refused = template("services.node-agent.enabled=true", "nats.closed=false", "nats.agentsByNode=true")
    assert "nats.agentsByNode: the broker needs users" in refused.stderr


def settings_of_collector(*values: str) -> dict[str, Any]:
    [settings] = [
        one
        for one in read(template(*values).stdout)
        if one["kind"] == "ConfigMap" and one["metadata"]["name"] == "hbox-settings"
    ]
    found: dict[str, Any] = yaml.safe_load(settings["data"]["hbox.yaml"]).get("topology-collector", {})
    return found


def test_new_nodes_wait_for_node_agent_where_the_chart_installs_it() -> None:
    assert "agent_wait_s" not in settings_of_collector()
    agent = "services.node-agent.enabled=true"
    assert settings_of_collector(agent)["agent_wait_s"] == 90
    selected = settings_of_collector(
        agent,
        "services.node-agent.nodeSelector.nvidia\\.com/gpu\\.present=yes",
        "services.topology-collector.settings.agent_wait_s=20",
    )
    assert (selected["agent_wait_s"], selected["agent_nodes"]) == (20, "nvidia.com/gpu.present=yes")


def test_only_the_collector_reaches_ufm_and_has_its_credentials() -> None:
    having = {}
    for deployment in of("fabric", "Deployment"):
        spec = deployment["spec"]["template"]["spec"]
        having[deployment["metadata"]["name"]] = [v["secret"]["secretName"] for v in spec["volumes"] if v["name"] == "fabric"]
    assert {name for name, secrets in having.items() if secrets == ["ufm-login"]} == {"hbox-topology-collector"}
    [policy] = [one for one in of("fabric", "NetworkPolicy") if one["metadata"]["name"] == "hbox-fabric"]
    assert policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "topology-collector"
    assert policy["spec"]["egress"] == [{"ports": [{"port": 8443}], "to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}]}]
    [settings] = [one for one in of("fabric", "ConfigMap") if one["metadata"]["name"] == "hbox-settings"]
    assert "fabrics_file: /etc/hbox/files/fabrics.yaml" in settings["data"]["hbox.yaml"]
    [role] = [one for one in of("fabric", "ClusterRole") if one["metadata"]["name"] == EXPORT]
    assert role["rules"] == [
        {"apiGroups": ["topology.volcano.sh"], "resources": ["hypernodes"], "verbs": ["create", "update", "delete"]}
    ]


@pytest.mark.parametrize(
    ("key", "services"), [("", {"quota-ledger"}), ("health_url", {"quota-ledger", "health-monitor"})], ids=["ledger", "both"]
)
def test_pods_with_the_address_of_a_database_and_no_others_have_egress_to_its_port(key: str, services: set[str]) -> None:
    values = ("profile=production", "database.secret.name=pg", f"database.secret.healthKey={key}")
    found = read(template(*values, "networkPolicy.databasePort=6543").stdout)
    policies = [
        one["spec"]
        for one in found
        if one["kind"] == "NetworkPolicy" and any({"port": 6543} in rule["ports"] for rule in one["spec"].get("egress", ()))
    ]
    reading, reaching = set(), set()
    for template_ in (one["spec"]["template"] for one in found if one["kind"] in ("Deployment", "StatefulSet", "Job")):
        labels = template_["metadata"]["labels"]
        sources = [one for v in template_["spec"]["volumes"] for one in v.get("projected", {}).get("sources", ())]
        if any(one.get("secret", {}).get("name") == "pg" for one in sources):
            reading.add(labels["app.kubernetes.io/component"])
        if any(_selects(policy["podSelector"], labels) for policy in policies):
            reaching.add(labels["app.kubernetes.io/component"])
    assert (reading, reaching) == (services, services)


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    assert {one["operator"] for one in selector.get("matchExpressions", ())} <= {"In"}
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(one["key"]) in one["values"] for one in selector.get("matchExpressions", ())
    )


@pytest.mark.parametrize(
    ("policy", "manifest"),
    [
        ("spark", {"spec": {"batchSchedulerOptions": {"queue": "research"}}}),  # SparkApplication
        ("spark", {"spec": {"template": {"batchSchedulerOptions": {"queue": "research"}}}}),  # ScheduledSparkApplication
        ("kubeflow", {"spec": {"runPolicy": {"schedulingPolicy": {"queue": "research"}}}}),
        ("podgroups", {"spec": {"queue": "research"}}),
    ],
)
def test_use_of_queues_is_checked_at_the_queue_field_of_the_kind(policy: str, manifest: dict[str, Any]) -> None:
    [spec] = [
        one["spec"]
        for one in of("use of queues", "ValidatingAdmissionPolicy")
        if one["metadata"]["name"] == f"hbox-use-of-queues-{policy}"
    ]
    expressions = {one["name"]: one["expression"] for one in spec["variables"]}
    for variable, root in (("queues", "object"), ("before", "oldObject")):
        paths = re.findall(rf"\b{root}((?:\.\??\w+)+)\.orValue\(''\)", expressions[variable])
        found = []
        for path in paths:
            value: Any = manifest
            for field in re.findall(r"\w+", path):
                value = value.get(field, {})
            found += [value] if value else []
        assert found == ["research"], variable


def test_every_service_is_told_the_same_of_devices() -> None:
    [told] = [one for one in of("devices", "ConfigMap") if one["metadata"]["name"] == "hbox-devices"]
    assert told["data"] == {"device-config.yaml": "nvidia: null\n"}
    [settings] = [one for one in of("devices", "ConfigMap") if one["metadata"]["name"] == "hbox-settings"]
    path = yaml.safe_load(settings["data"]["hbox.yaml"])["device_config"]
    services = [*of("devices", "Deployment"), *of("devices", "DaemonSet")]
    services = [service for service in services if service["metadata"]["name"] != "hbox-callout"]
    assert len(services) == 9
    for service in services:
        template = service["spec"]["template"]
        [container] = template["spec"]["containers"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        volumes = {volume["name"]: volume.get("configMap", {}).get("name") for volume in template["spec"]["volumes"]}
        assert f"{mounts['devices']}/device-config.yaml" == path
        assert volumes["devices"] == "hbox-devices"
    before = of("node agents", "DaemonSet")[0]["spec"]["template"]["metadata"]["annotations"]["checksum/settings"]
    [agent] = [service for service in services if service["metadata"]["name"] == "hbox-node-agent"]
    assert agent["spec"]["template"]["metadata"]["annotations"]["checksum/settings"] != before, "it is read at the start"


#: The one right that is given where the operator asks for it alone.
EXPORT = "hbox:topology-collector:export"
CALLOUT = "hbox:callout"


@EVERY
def test_a_ledger_on_a_volume_is_one_and_the_next_stands_by_beside_it(name: str) -> None:
    [ledger] = [d for d in of(name, "Deployment") if d["metadata"]["name"].endswith("quota-ledger")]
    pod = ledger["spec"]["template"]["spec"]
    env = [e["name"] for e in pod["containers"][0]["env"]]
    assert ledger["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    near = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": ledger["spec"]["selector"]["matchLabels"]},
    }
    here = {"requiredDuringSchedulingIgnoredDuringExecution": [near]}
    if "HBOX_DATABASE_URL" in env:
        assert ledger["spec"]["replicas"] == 1
        on_volume = any("persistentVolumeClaim" in v for v in pod["volumes"])
        assert pod.get("affinity", {}).get("podAffinity") == (here if on_volume else None), (
            "its volume is on one node at a time"
        )
    else:
        assert "postgres" in name
        assert "affinity" not in pod


@EVERY
def test_selectors_match_pods_and_what_is_named_is_there(name: str) -> None:
    labels = [found for _, found, _ in pods(name)]

    def chosen(selector: Mapping[str, str]) -> list[Mapping[str, str]]:
        return [found for found in labels if selector.items() <= found.items()]

    for found in of(name, "Deployment", "StatefulSet"):
        selector = found["spec"]["selector"]["matchLabels"]
        assert selector.items() <= found["spec"]["template"]["metadata"]["labels"].items()
        assert len(chosen(selector)) == 1, f"{found['metadata']['name']} would own pods of others"
    for found in of(name, "Service"):
        assert len(chosen(found["spec"]["selector"])) == 1
    for found in of(name, "PodDisruptionBudget"):
        assert len(chosen(found["spec"]["selector"]["matchLabels"])) == 1
    for found in of(name, "NetworkPolicy"):
        assert chosen(found["spec"]["podSelector"].get("matchLabels", {})), found["metadata"]["name"]
    there = {(f["kind"], f["metadata"]["name"]) for f in objects(name)}
    for who, _, spec in pods(name):
        assert ("ServiceAccount", spec["serviceAccountName"]) in there, who
        volumes = {v["name"]: v for v in spec["volumes"]} | {"data": {}}
        for volume in spec["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in there, who
            if "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]["claimName"]
                assert ("PersistentVolumeClaim", claim) in there or f"backup.claim={claim}" in MATRIX[name], who
        for container in spec["containers"]:
            assert {m["name"] for m in container["volumeMounts"]} <= set(volumes), who


@EVERY
def test_everything_is_in_the_releases_namespace_or_in_none(name: str) -> None:
    #: Events about Queues and HyperNodes, which have no namespace, stand in `default`.
    bindings = ("Role", "RoleBinding")
    elsewhere = {(kind, f"hbox:{who}"): "default" for kind in bindings for who in ("quota-ledger", "topology-collector")}
    #: The client CA is read in `kube-system`, and clients find the HTTP API in `kube-public`.
    elsewhere |= {(kind, "hbox:console"): "kube-system" for kind in bindings}
    elsewhere |= {(kind, ACCESS): "kube-public" for kind in ("ConfigMap", *bindings)}
    published = {(kind, CONSOLE) for kind in bindings}  # in both namespaces
    for found in objects(name):
        where = found["metadata"].get("namespace")
        cluster_wide = found["kind"].startswith(
            ("Cluster", "ValidatingAdmissionPolicy", "MutatingWebhook", "ValidatingWebhook")
        )
        assert cluster_wide == (where is None), found["metadata"]["name"]
        if where not in (NAMESPACE, None):
            key = (found["kind"], found["metadata"]["name"])
            assert elsewhere.get(key) == where or (where == "kube-public" and key in published)
        for subject in found.get("subjects", ()):
            assert subject.get("namespace") == (NAMESPACE if subject["kind"] == "ServiceAccount" else None)
    assert "hbox-system" not in template(*MATRIX[name]).stdout


@EVERY
def test_rights_are_those_of_the_files_and_nobody_else_has_any_for_long(name: str) -> None:
    roles = of(name, "ClusterRole", "Role")
    lasting = [
        r
        for r in roles
        if "helm.sh/hook" not in r["metadata"].get("annotations", {})
        and r["metadata"]["name"] not in (BUS, EXPORT, CALLOUT, ACCESS, CONSOLE, *USER_ROLES)
    ]
    assert any(r["metadata"]["name"] == EXPORT for r in roles) == ("fabric.export=true" in MATRIX[name])
    wanted = [m for i in identities() for m in i.manifests if m["kind"] in ("ClusterRole", "Role")]

    def key(role: Mapping[str, Any]) -> tuple[str, str, str]:
        where = role["metadata"].get("namespace", "")
        return role["kind"], role["metadata"]["name"], where.replace("hbox-system", NAMESPACE)

    assert {key(r): r["rules"] for r in lasting} == {key(r): r["rules"] for r in wanted}
    for role in roles:
        for rule in role["rules"]:
            assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"], role["metadata"]["name"]
            names = (BUS, ACCESS, CONSOLE, "hbox:console")  # the latter: one Secret, and one ConfigMap each
            assert role["metadata"]["name"] in names or not {"secrets", "configmaps", "serviceaccounts"} & set(
                rule["resources"]
            )
            assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])
    accounts = {a["metadata"]["name"]: a.get("automountServiceAccountToken") for a in of(name, "ServiceAccount")}
    assert accounts.get("hbox-nats", False) is False


@EVERY
def test_helm_lint_finds_no_fault(name: str) -> None:
    done = lint(*MATRIX[name])
    assert done.returncode == 0, done.stdout + done.stderr


def test_cluster_roles_aggregate_tenant_rights_by_default() -> None:
    def roles(name: str) -> dict[str, tuple[list[str], Any]]:
        found = [role for role in of(name, "ClusterRole") if role["metadata"]["name"] in USER_ROLES]
        marks = [[key.rpartition("/")[2] for key in role["metadata"]["labels"] if "/aggregate-to-" in key] for role in found]
        return {role["metadata"]["name"]: (marked, role["rules"]) for role, marked in zip(found, marks, strict=True)}

    group, read_ = ["scheduling.volcano.sh"], ["get", "list", "watch"]
    write = ["create", "update", "patch", "delete", "deletecollection"]
    view = [{"apiGroups": group, "resources": ["podgroups"], "verbs": read_}]
    edit = [{"apiGroups": group, "resources": ["podgroups"], "verbs": write}]
    queues = [{"apiGroups": group, "resources": ["queues"], "verbs": read_}]
    assert roles("default") == {
        "hbox-view": (["aggregate-to-view"], view),
        "hbox-edit": (["aggregate-to-edit"], edit),
        "hbox-queue-reader": ([], queues),
    }
    assert roles("all that is off") == {"hbox-view": ([], view), "hbox-edit": ([], edit)}


def test_trial_pod_stays_for_helm_test_logs_and_belongs_to_the_release() -> None:
    """`helm test --logs` reads the log of each hook by name, after it has deleted the hooks that succeeded."""
    hooks = [one for one in objects("default") if one["metadata"].get("annotations", {}).get("helm.sh/hook") == "test"]
    assert {one["metadata"]["name"] for one in hooks} == {"hbox-trial"}
    [pod] = [one for one in hooks if one["kind"] == "Pod"]
    assert pod["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation"
    [role] = [one for one in hooks if one["kind"] == "Role"]
    command = pod["spec"]["containers"][0]["command"]
    owner = command[command.index("--owner") + 1]
    assert owner in [one["metadata"]["name"] for one in of("default", "Deployment")]
    assert {"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": [owner], "verbs": ["get"]} in role["rules"]


def test_the_job_of_definitions_makes_the_levels_unless_they_are_left_out() -> None:
    off = ("definitions.levels=false", "definitions.listClasses=false")
    for values, word, more in (((), "--levels", ["--list-classes"]), (off, "--no-levels", [])):
        rendered = read(template(*values).stdout)
        [job] = [one for one in rendered if one["kind"] == "Job" and one["metadata"]["name"] == "hbox-definitions"]
        assert job["spec"]["template"]["spec"]["containers"][0]["command"][3:] == [word, *more]
        [role] = [one for one in rendered if one["kind"] == "ClusterRole" and one["metadata"]["name"] == "hbox:definitions"]
        rules = [rule for rule in role["rules"] if rule["resources"] == ["priorityclasses"]]
        names = [rule["resourceNames"] for rule in rules if "resourceNames" in rule]
        assert names == ([[*CLASSES]] if word == "--levels" else [])
        assert [rule["verbs"] for rule in rules] == [["list"], *([["get", "patch"], ["create"]] if names else [])]


def test_brokers_read_and_write_their_users_keys_and_nothing_else() -> None:
    for name in ("open broker", "own broker"):
        assert [s["metadata"]["name"] for s in of(name, "Secret")] == [f"{CONSOLE}-tls"]
    names = [f"{BUS}-{user}" for user in (*users(), "readers", "routes")]
    for name in ("default", "readers", "production"):  # Helm rolls back over no object that a value took away
        assert [s["metadata"]["name"] for s in of(name, "Secret") if s["metadata"]["name"] != f"{CONSOLE}-tls"] == names
    [role] = [r for r in of("readers", "Role") if r["metadata"]["name"] == BUS]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": ["get", "patch"]}]
    [binding] = [b for b in of("readers", "RoleBinding") if b["metadata"]["name"] == BUS]
    assert [s["name"] for s in binding["subjects"]] == ["hbox-nats"]


def test_only_what_makes_the_keys_has_the_brokers_token() -> None:
    for name in ("default", "production", "TLS"):
        [statefulset] = of(name, "StatefulSet")
        pod = statefulset["spec"]["template"]["spec"]
        [users_], [broker] = pod["initContainers"], pod["containers"]
        assert pod["automountServiceAccountToken"] is False
        assert "account" in {m["name"] for m in users_["volumeMounts"]}
        assert "account" not in {m["name"] for m in broker["volumeMounts"]}
    assert not [v for v in of("open broker", "StatefulSet")[0]["spec"]["template"]["spec"]["volumes"] if v["name"] == "account"]


def test_nothing_is_called_by_the_revision_and_no_version_stands_in_a_brokers_pod() -> None:
    assert not [
        file.name for file in (CHART / "templates").rglob("*") if file.is_file() and "Release.Revision" in file.read_text()
    ]
    assert not [j for j in of("production", "Job") if "helm.sh/hook" not in j["metadata"].get("annotations", {})]
    [statefulset] = of("production", "StatefulSet")
    about = statefulset["spec"]["template"]["metadata"]
    assert not {"helm.sh/chart", "app.kubernetes.io/version"} & about["labels"].keys()
    assert chart.broker().items() <= about["annotations"].items()


@pytest.mark.parametrize("name", ["default", "readers", "open broker", "own broker", "own broker that is closed"])
def test_each_service_has_its_own_key_and_no_other(name: str) -> None:
    prefix = {"default": BUS, "readers": BUS, "own broker that is closed": "mine"}.get(name)
    for service, spec in ((d["metadata"]["labels"]["app.kubernetes.io/component"], d["spec"]) for d in of(name, "Deployment")):
        pod = spec["template"]["spec"]
        keys = [v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v]
        assert keys == ([f"{prefix}-{service}"] if prefix else [])
        env = {e["name"]: e.get("value") for e in pod["containers"][0]["env"]}
        assert env.get("HBOX_NATS_SEED") == ("/etc/hbox/bus/seed" if prefix else None)


@EVERY
def test_images_are_versions(name: str) -> None:
    images = {c["image"] for _, _, spec in pods(name) for c in spec["containers"]}
    for image in images:
        assert "@sha256:" in image or (":" in image.rpartition("/")[2] and not image.endswith(":latest")), image
        assert name != "airgap" or image.startswith("registry.local:5000/mirror/")
    if name == "default":
        guide = re.findall(r"image: (\S+)", (ROOT / "docs" / "guides" / "first-gang.yaml").read_text())
        assert sorted({*images, *guide}) == (CHART / "images.txt").read_text().split()


@EVERY
def test_no_secret_is_in_what_is_rendered(name: str) -> None:
    assert all(not {"data", "stringData"} & found.keys() for found in of(name, "Secret"))
    for _, _, spec in pods(name):
        for container in spec["containers"]:
            assert not [e for e in container.get("env", ()) if "secretKeyRef" in e.get("valueFrom", {})]
    for found in of(name, "ConfigMap"):
        for text in found.get("data", {}).values():
            assert not re.search(r"://[^\s/]*@", text)


def test_only_the_services_with_databases_see_their_passwords() -> None:
    def secrets(spec: Mapping[str, Any]) -> list[str]:
        return [
            s["secret"]["name"] for v in spec["volumes"] for s in v.get("projected", {}).get("sources", ()) if "secret" in s
        ]

    assert {who: found for who, _, spec in pods("backups of postgres") if (found := secrets(spec))} == {
        "Deployment/hbox-quota-ledger": ["pg"],
        "Deployment/hbox-health-monitor": ["pg"],
        "CronJob/hbox-backup-ledger": ["pg"],
        "CronJob/hbox-backup-health": ["pg"],
    }
    broker = {who for who, _, spec in pods("own broker by a secret") if secrets(spec) == ["bus"]}
    assert broker == {f"Deployment/hbox-{service}" for service in SERVICES if service not in ON_NODES}


@EVERY
def test_the_services_take_the_settings_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [text] = [c["data"]["hbox.yaml"] for c in of(name, "ConfigMap") if c["metadata"]["name"] == "hbox-settings"]
    path = tmp_path / "hbox.yaml"
    path.write_text(text)
    for variable in [v for v in os.environ if v.startswith("HBOX_")]:
        monkeypatch.delenv(variable)
    got = {service: load(model, service, {"HBOX_CONFIG": str(path)}) for service, model in chart_values.SETTINGS.items()}
    if name == "all that is off":
        assert got["binder"].binds_per_s == 500  # type: ignore[attr-defined]
    if name == "own broker":
        assert got["binder"].nats_url == "nats://a:4222,nats://b:4222"


def test_the_broker_is_set_as_the_embedded_one(tmp_path: Path) -> None:
    [text] = [c["data"]["nats.conf"] for c in of("default", "ConfigMap") if c["metadata"]["name"] == "hbox-nats"]
    ours = write_config(tmp_path, port=4222).read_text() + 'include "../nats-users/authorization.conf"'
    #: Who it is, where it listens, and where it keeps its files.
    own = ("server_name", "host", "store_dir", "http:")

    def said(config: str) -> set[str]:
        return {line.strip() for line in config.splitlines() if line.strip() and not line.strip().startswith(own)}

    assert said(text) == said(ours)


@pytest.mark.parametrize(
    "name",
    [
        "default",
        "another nats-server",
        "readers",
        "open broker",
        "production",
        pytest.param("TLS", marks=pytest.mark.skipif(OPENSSL is None, reason=NONE)),
    ],
)
async def test_nats_server_takes_its_configuration(name: str, tmp_path: Path) -> None:
    [text] = [c["data"]["nats.conf"] for c in of(name, "ConfigMap") if c["metadata"]["name"] == "hbox-nats"]
    config = tmp_path / "nats" / "nats.conf"
    for folder in (config.parent, tmp_path / "nats-users"):
        folder.mkdir()
    if name == "TLS":
        as_secret(make_certificates(tmp_path), tmp_path / "nats-tls")
    config.write_text(text.replace('"/data/', f'"{tmp_path}/').replace('"/etc/nats-tls', f'"{tmp_path}/nats-tls'))
    [statefulset] = of(name, "StatefulSet")
    async with ApiServer(port=0) as api:
        kubeconfig = api.kubeconfig(tmp_path / "kubeconfig")
        async with KubeClient.connect(str(kubeconfig), user_agent="test") as client:
            await client.json("POST", NAMESPACES.path(), body={"metadata": {"name": NAMESPACE}})
            for secret in of(name, "Secret"):
                await client.json("POST", SECRETS.path(NAMESPACE), body=secret)
        for container in statefulset["spec"]["template"]["spec"].get("initContainers", ()):
            words = [word.replace("/etc/nats-", f"{tmp_path}/nats-") for word in container["command"]]
            words = [str(Path(sys.executable).with_name(words[0])), *words[1:], "--kubeconfig", str(kubeconfig)]
            await asyncio.to_thread(subprocess.run, words, check=True, timeout=60)
    env = dict(os.environ) | {"POD_NAME": "hbox-nats-0"}
    words = [str(find_binary()), "-t", "-c", str(config)]
    done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, timeout=30, check=False, env=env)
    assert done.returncode == 0, done.stderr


@EVERY
def test_broker_monitor_listens_on_loopback_only_and_exec_probes_query_it(name: str) -> None:
    """Without enforced NetworkPolicies, each pod of the cluster could read connections, streams and subjects there."""
    for [text] in [[c["data"]["nats.conf"]] for c in of(name, "ConfigMap") if c["metadata"]["name"] == "hbox-nats"]:
        [line] = [line for line in text.splitlines() if line.startswith("http")]
        assert line == 'http: "127.0.0.1:8222"'
    for who, _, spec in pods(name):
        if who != "StatefulSet/hbox-nats":
            continue
        [broker] = spec["containers"]
        assert 8222 not in [port["containerPort"] for port in broker["ports"]]
        asks = {"wget"} if broker["image"].startswith("nats:") else {"hbox-service"}
        probes = [broker[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness")]
        assert {probe["exec"]["command"][0] for probe in probes} == asks
        assert all(probe["exec"]["command"][-1].startswith("http://127.0.0.1:8222/healthz") for probe in probes)


def test_several_brokers_find_each_other_by_name_and_password() -> None:
    [statefulset] = of("production", "StatefulSet")
    assert statefulset["spec"]["replicas"] == 3
    [users_] = statefulset["spec"]["template"]["spec"]["initContainers"]
    servers = users_["command"][users_["command"].index("--servers") + 1].split(",")
    assert servers == [f"hbox-nats-{i}.hbox-nats-headless.{NAMESPACE}.svc:6222" for i in range(3)]
    [settings] = [c["data"]["hbox.yaml"] for c in of("production", "ConfigMap") if c["metadata"]["name"] == "hbox-settings"]
    assert yaml.safe_load(settings)["nats_replicas"] == 3


def test_services_verify_the_broker_and_show_their_own_certificate() -> None:
    for name, own in (("TLS", True), ("own broker by TLS", False)):
        for deployment in of(name, "Deployment"):
            pod = deployment["spec"]["template"]["spec"]
            env = {e["name"]: e.get("value", "") for e in pod["containers"][0]["env"]}
            assert env["HBOX_NATS_CA"] == "/etc/hbox/bus-tls/ca.crt"
            assert ("HBOX_NATS_CERTIFICATE" in env, "HBOX_NATS_KEY" in env) == (own, own)
            [files] = [v["projected"]["sources"] for v in pod["volumes"] if v["name"] == "bus-tls"]
            names = {source["secret"]["name"]: [i["key"] for i in source["secret"]["items"]] for source in files}
            assert names == (
                {"broker-tls": ["ca.crt"], "services-tls": ["tls.crt", "tls.key"]} if own else {"authority": ["ca.crt"]}
            ), "no service has the broker's key"
    [settings] = [c["data"]["hbox.yaml"] for c in of("TLS", "ConfigMap") if c["metadata"]["name"] == "hbox-settings"]
    assert yaml.safe_load(settings)["nats_url"] == f"tls://hbox-nats.{NAMESPACE}.svc:4222"


def test_a_budget_where_there_are_two_and_none_where_there_is_one() -> None:
    assert of("default", "PodDisruptionBudget") == []
    every = {"hbox-nats", *(f"hbox-{s}" for s in (*PAIRED, *REPLICATED))}
    on_volumes = {"hbox-quota-ledger", "hbox-health-monitor"}
    assert {b["metadata"]["name"] for b in of("postgres", "PodDisruptionBudget")} == every
    assert {b["metadata"]["name"] for b in of("production", "PodDisruptionBudget")} == every - on_volumes
    one = of("production with one broker", "PodDisruptionBudget")
    assert {b["metadata"]["name"] for b in one} == every - on_volumes - {"hbox-nats"}


def test_health_monitor_has_a_standby_on_postgres_and_no_volume() -> None:
    found = read(template("profile=production", "database.secret.name=pg", "database.secret.healthKey=health_url").stdout)
    [spec] = [one["spec"] for one in found if one["kind"] == "Deployment" and one["metadata"]["name"] == "hbox-health-monitor"]
    pod = spec["template"]["spec"]
    assert spec["replicas"] == 2
    assert "HBOX_HEALTH_DATABASE_URL" not in {one["name"] for one in pod["containers"][0]["env"]}
    [secrets] = [one["projected"]["sources"] for one in pod["volumes"] if one["name"] == "secrets"]
    assert {"secret": {"name": "pg", "items": [{"key": "health_url", "path": "health_database_url"}]}} in secrets
    assert "hbox-health" not in {one["metadata"]["name"] for one in found if one["kind"] == "PersistentVolumeClaim"}


@pytest.mark.parametrize(
    "values",
    [(), ("profile=production",), ("database.secret.name=pg", "database.secret.healthKey=health_url")],
    ids=["small", "production", "PostgreSQL without a standby"],
)
def test_health_monitor_without_a_standby_ends_before_its_successor_starts(values: tuple[str, ...]) -> None:
    """The health-monitor of HBox 0.1.0 has no lease."""
    found = read(template(*values).stdout)
    [spec] = [one["spec"] for one in found if one["kind"] == "Deployment" and one["metadata"]["name"] == "hbox-health-monitor"]
    assert (spec["replicas"], spec["strategy"], "minReadySeconds" in spec) == (1, {"type": "Recreate"}, False)
    assert "affinity" not in spec["template"]["spec"]


def test_guides_change_releases_where_they_are_and_take_what_is_new_from_the_chart() -> None:
    """By `--reuse-values` Helm takes the values of the chart before for those of this one: what is new in it is nil."""
    lines = [
        (page.name, line.strip())
        for page in sorted((ROOT / "docs" / "guides").glob("*.md"))
        for line in page.read_text().splitlines()
        if line.strip().startswith(("helm upgrade", "helm install", "helm rollback", "helm uninstall", "helm test"))
    ]
    assert len(lines) > 10
    assert [one for one in lines if "-n hbox-system" not in one[1] and "--namespace hbox-system" not in one[1]] == []
    upgrades = [one for one in lines if one[1].startswith("helm upgrade") and "--install" not in one[1]]
    assert [one for one in upgrades if "--reset-then-reuse-values" not in one[1]] == []


@pytest.mark.parametrize(
    ("file", "service", "variable"),
    [
        ("restore.yaml", "quota-ledger", "HBOX_DATABASE_URL"),
        ("restore-health.yaml", "health-monitor", "HBOX_HEALTH_DATABASE_URL"),
    ],
)
def test_pod_of_the_restore_guide_has_the_volume_and_the_address_of_its_service(file: str, service: str, variable: str) -> None:
    spec = yaml.safe_load((ROOT / "docs" / "guides" / file).read_text())["spec"]
    [pod] = [pod for who, _, pod in pods("default") if who == f"Deployment/hbox-{service}"]
    [own], [restoring] = pod["containers"], spec["containers"]
    assert [v for v in spec["volumes"] if v["name"] == "data"] == [v for v in pod["volumes"] if v["name"] == "data"]
    assert restoring["image"] == own["image"]
    assert restoring["env"] == [e for e in own["env"] if e["name"] == variable] != []
    assert restoring["securityContext"] == own["securityContext"]
    assert spec["securityContext"].items() <= pod["securityContext"].items()


def test_every_container_has_what_all_are_to_have_but_for_what_is_said_of_its_own() -> None:
    more = ("services.node-agent.enabled=true", "admission.webhook.enabled=true")
    done = template(
        *more, "pods.resources.limits.cpu=2", "services.binder.resources.limits.cpu=3", "nats.resources.requests.cpu=1m"
    )
    found = {}
    for one in (f for f in read(done.stdout) if f["kind"] in ("Deployment", "StatefulSet", "DaemonSet", "Job", "Pod")):
        spec = one["spec"] if one["kind"] == "Pod" else one["spec"]["template"]["spec"]
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            found[one["metadata"]["name"], container["name"]] = container["resources"]
    assert len(found) == 7 + 2 + 1 + 2 + 2 + 1  # services, broker, callout, agent and endpoint, jobs, trial
    assert found["hbox-binder", "binder"] == {"limits": {"cpu": 3}}
    assert found["hbox-nats", "nats"] == {"requests": {"cpu": "1m"}, "limits": {"cpu": 2}}
    assert found["hbox-definitions", "definitions"] == {
        "requests": {"cpu": "10m", "memory": "96Mi"},
        "limits": {"cpu": 2, "memory": "512Mi"},
    }
    assert all(resources["limits"]["cpu"] == 2 for (name, _), resources in found.items() if name != "hbox-binder")


def test_all_that_pulls_an_image_has_the_secrets_for_it() -> None:
    wanted = [{"name": "pull"}]
    assert all(spec["imagePullSecrets"] == wanted for _, _, spec in pods("airgap"))
    [trial] = of("airgap", "Pod")
    assert trial["spec"]["containers"][0]["command"][-2:] == ["--pull-secret", "pull"], "the gang's pods run the same image"


def test_the_same_values_render_the_same_text() -> None:
    assert helm_anew(*MATRIX["production"]).stdout == template(*MATRIX["production"]).stdout


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (("profile=big",), "profile"),
        (("profil=dev",), "profil"),
        (("image.tag=latest",), "image.tag"),
        (("profile=airgap",), "global.imageRegistry names the registry inside"),
        (("services.binder.settings.binds_per_second=1",), "binds_per_second"),
        (("services.binder.settings.binds_per_s=0",), "binds_per_s"),
        (("services.scheduler-core.settings.policy=best",), "policy"),
        (("services.topology-collector.replicas=2",), "replicas"),
        (("services.health-monitor.replicas=2",), "more than one needs PostgreSQL: database.secret.healthKey"),
        (("services.health-monitor.replicas=2", "database.secret.name=pg"), "database.secret.healthKey"),
        (("services.quota-ledger.replicas=2",), "more than one needs PostgreSQL"),
        (("settings.nats_url=nats://elsewhere:4222",), "nats_url"),
        (("nats.enabled=false",), "nats.externalUrl or nats.secret.name must name the broker"),
        (("nats.enabled=false", "nats.externalUrl=nats://user:pw@host"), "externalUrl"),
        (("nats.replicas=2",), "replicas"),
        (("nats.replicas=3", "nats.closed=false"), "nats.closed has to be true"),
        (("services.biner.replicas=1",), "biner"),
        (("pods.resources=2",), "resources"),
        (("backup.enabled=true", "profile=dev"), "backup.enabled: databases that end with their pods"),
        (("backup.schedule=daily",), "backup.schedule"),
        (("settings.log_level=loud",), "settings.log_level"),
        (("services.binder.settings.log_level=loud",), "services.binder.settings.log_level"),
        (("admission.webhook.failurePolicy=Maybe",), "failurePolicy"),
        (("admission.webhook.enabled=true", "admission.webhook.tls.secret=mine"), "tls.caBundle"),
        (("admission.webhook.enabled=true", "admission.webhook.tls.caBundle=TUlORQ=="), "needs tls.secret"),
    ],
)
def test_a_wrong_value_is_refused_by_name(values: tuple[str, ...], says: str) -> None:
    done = template(*values)
    assert done.returncode != 0
    assert says in done.stderr
    assert "anyOf" not in done.stderr, "that it is none of several helps nobody"


def test_placement_of_a_service_replaces_that_of_all_pods() -> None:
    found = {owner: spec for owner, _, spec in pods("placement")}
    [role] = found["Deployment/hbox-scheduler-core"]["affinity"]["nodeAffinity"].values()
    assert role["nodeSelectorTerms"] == [{"matchExpressions": [{"key": "role", "operator": "Exists"}]}]
    ledger = found["Deployment/hbox-quota-ledger"]["affinity"]
    assert set(ledger) == {"nodeAffinity", "podAffinity"}, "the rule of its volume stays"
    [spread] = found["Deployment/hbox-scheduler-core"]["topologySpreadConstraints"]
    labels = spread["labelSelector"]["matchLabels"]
    assert (spread["topologyKey"], labels["app.kubernetes.io/component"]) == ("rack", "scheduler-core")
    assert [one["topologyKey"] for one in found["Deployment/hbox-binder"]["topologySpreadConstraints"]] == ["row"]
    assert found["Deployment/hbox-binder"]["nodeSelector"] == {"role": "binder"}
    broker = found["StatefulSet/hbox-nats"]
    assert (broker["nodeSelector"], broker["tolerations"]) == ({"role": "broker"}, [{"operator": "Exists"}])
    annotated = {one["metadata"]["name"]: one["metadata"].get("annotations", {}) for one in of("placement", "ServiceAccount")}
    assert (annotated["binder"], annotated["node-remedy"]) == ({"role": "arn:binder"}, {"role": "arn:remedy"})
    assert annotated["scheduler-core"] == {}


def test_containers_of_services_have_the_additional_environment_and_volumes() -> None:
    for owner, _, spec in pods("placement"):
        [container, *_] = spec["containers"]
        names = [one["name"] for one in container.get("env", ())]
        service = owner.partition("hbox-")[2] in (*SERVICES, *ALONE, "node-remedy")
        assert ("HTTPS_PROXY" in names) == service, owner
        assert ("BINDER_ONLY" in names) == (owner == "Deployment/hbox-binder")
        assert ("authority" in [one["name"] for one in container["volumeMounts"]]) == service
        assert ("authority" in [one["name"] for one in spec["volumes"]]) == service


def test_endpoint_in_the_network_of_nodes_listens_on_its_own_ports() -> None:
    [endpoint] = [one["spec"] for one in of("placement", "Deployment") if one["metadata"]["name"] == "hbox-admission"]
    [container] = endpoint["template"]["spec"]["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {"https": 18443, "health": 18080}
    assert (env["HBOX_LISTEN_PORT"], env["HBOX_HEALTH_PORT"]) == ("18443", "18080")
    assert endpoint["template"]["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert endpoint["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}, "two of a node have the same ports"


def test_backups_of_sqlite_run_where_the_volume_is_and_of_postgres_anywhere() -> None:
    jobs = {owner: spec for owner, _, spec in pods("backups") if owner.startswith("CronJob")}
    for name, service, command in (("ledger", "quota-ledger", ["backup"]), ("health", "health-monitor", ["health", "backup"])):
        spec = jobs.pop(f"CronJob/hbox-backup-{name}")
        [near] = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert near["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == service
        [container] = spec["containers"]
        assert container["command"] == ["hbox", *command, "/backup", "--keep", "14"]
        volumes = {v["name"]: v["persistentVolumeClaim"]["claimName"] for v in spec["volumes"] if "persistentVolumeClaim" in v}
        assert volumes == {"data": f"hbox-{name}", "backup": f"hbox-backup-{name}"}
        [own] = [pod for owner, _, pod in pods("backups") if owner == f"Deployment/hbox-{service}"]
        address = next(e for e in own["containers"][0]["env"] if "DATABASE_URL" in e["name"])
        assert address in container["env"], "the same database"
        assert spec["automountServiceAccountToken"] is False
    assert jobs == {}
    for owner, _, spec in pods("backups of postgres"):
        if owner.startswith("CronJob"):
            assert "affinity" not in spec
            claims = [v["persistentVolumeClaim"]["claimName"] for v in spec["volumes"] if "persistentVolumeClaim" in v]
            assert claims == ["shared"]
            assert {"name": "HBOX_SECRETS", "value": "/etc/hbox/secrets"} in spec["containers"][0]["env"]


@pytest.mark.parametrize(
    ("values", "prefix"),
    [
        (("nameOverride=cards",), "hbox-cards-"),
        (("fullnameOverride=gpu",), "gpu-"),
        (("nameOverride=cards", "fullnameOverride=gpu"), "gpu-"),
    ],
)
def test_names_of_objects_follow_their_overrides(values: tuple[str, ...], prefix: str) -> None:
    done = template(*values)
    names = {f["metadata"]["name"] for f in read(done.stdout) if f["kind"] in ("Deployment", "Service", "StatefulSet")}
    assert all(name.startswith(prefix) for name in names), names


def test_every_value_has_a_description() -> None:
    without = []

    def walk(path: str, found: Mapping[str, Any]) -> None:
        for key, value in found.get("properties", {}).items():
            if not value.get("description"):
                without.append(f"{path}.{key}")
            walk(f"{path}.{key}", value)
        for inner in (found.get("additionalProperties"), found.get("items")):
            if isinstance(inner, Mapping):
                walk(f"{path}.*", inner)

    walk("", chart_values.schema())
    assert without == []


def test_a_release_whose_services_could_not_be_named_is_refused() -> None:
    done = template(release="9-lives")
    assert done.returncode != 0
    assert "a release called 9-lives: names of Services do not begin with a digit" in done.stderr


def test_another_release_name_is_in_every_name_but_those_of_accounts_and_rights() -> None:
    done = template(release="lab")
    names = {f["metadata"]["name"] for f in read(done.stdout) if f["kind"] in ("Deployment", "Service")}
    assert all(name.startswith("lab-hbox-") for name in names)


def test_the_schema_is_what_the_settings_say_and_the_brokers_file_what_the_registry_says() -> None:
    assert {file: (CHART / file).read_text() for file in chart.made(CHART)} == chart.made(CHART)


def test_rights_tables_of_the_guide_match_the_chart_files() -> None:
    guide = (ROOT / "docs" / "guides" / "rbac.md").read_text()
    assert rights.made(CHART, guide) == guide


def test_rights_table_contains_each_rule_with_its_comment(tmp_path: Path) -> None:
    rbac = tmp_path / "files" / "rbac"
    rbac.mkdir(parents=True)
    (tmp_path / "files" / "tenants.yaml").write_text((CHART / "files" / "tenants.yaml").read_text())
    (rbac / "binder.yaml").write_text(
        (CHART / "files" / "rbac" / "binder.yaml").read_text().replace("[get, list, watch, patch]", "[get]")
    )
    shown = rights.services(tmp_path)
    assert "| | core | nodes | get | write the cordons and uncordons that health-monitor" in shown
    assert "| binder | core | pods | get | read the result of a binding" in shown
    with pytest.raises(ValueError, match="the guide has no <!-- services"):
        rights.made(tmp_path, "a guide without markers")


def test_the_ledger_is_given_the_policys_file_that_the_scheduler_follows() -> None:
    [text] = [c["data"]["hbox.yaml"] for c in of("files", "ConfigMap") if c["metadata"]["name"] == "hbox-settings"]
    settings = yaml.safe_load(text)
    assert settings["quota-ledger"]["scheduler_conf"] == settings["scheduler-core"]["scheduler_conf"]


def test_health_monitor_alone_reads_its_own_rules_from_a_folder_that_follows_the_config_map() -> None:
    maps = {c["metadata"]["name"]: c["data"] for c in of("files", "ConfigMap")}
    assert maps["hbox-health-rules"] == {"policies.yaml": "mute_s: 60\n"}
    assert yaml.safe_load(maps["hbox-settings"]["hbox.yaml"])["health-monitor"]["rules_folder"] == "/etc/hbox/health-rules"
    mounted = {
        one["metadata"]["name"]: [mount for mount in one["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] if mount["name"] == "health-rules"]
        for one in of("files", "Deployment")
    }  # fmt: skip
    assert {name for name, mounts in mounted.items() if mounts} == {"hbox-health-monitor"}
    [mount] = mounted["hbox-health-monitor"]
    assert "subPath" not in mount


def test_versions_agree() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert about["version"] == about["appVersion"] == version("hbox-cli")


def _pins(path: Path) -> dict[str, str]:
    """Package -> its line with version and hashes."""
    text = path.read_text().replace("\\\n", " ")
    return {line.partition("==")[0].strip(): " ".join(line.split()) for line in text.splitlines() if "==" in line}


def test_the_image_has_what_the_services_need_by_the_hashes_of_the_lock_file() -> None:
    image, every = _pins(ROOT / "image" / "requirements.lock"), _pins(ROOT / "requirements.lock")
    assert all(every.get(name) == line for name, line in image.items())
    assert all("--hash=sha256:" in line for line in (*image.values(), *_pins(ROOT / "image" / "build.lock").values()))
    needed, seen = [Requirement("hbox-cli")], set[tuple[str, str]]()
    while needed:
        one = needed.pop()
        for extra in ("", *one.extras):
            if (one.name, extra) not in seen:
                seen.add((one.name, extra))
                every_of = [Requirement(line) for line in distribution(one.name).requires or ()]
                needed += [other for other in every_of if other.marker is None or other.marker.evaluate({"extra": extra})]
    names = {canonicalize_name(name) for name, _ in seen}
    assert "psycopg-binary" in names, "what extras bring counts too"
    assert {name for name in names if not name.startswith("hbox-")} <= set(image)


def test_the_webhook_keeps_out_of_what_it_needs_itself_and_lets_by_where_it_is_not() -> None:
    assert not of("default", "MutatingWebhookConfiguration")
    for name in ("admission", "admission in production"):
        [[hook]] = [one["webhooks"] for one in of(name, "MutatingWebhookConfiguration")]
        assert (hook["failurePolicy"], hook["sideEffects"], hook["admissionReviewVersions"]) == ("Ignore", "None", ["v1"])
        assert hook["rules"] == [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "Namespaced"}
        ]
        selectors = {one["key"]: one for one in hook["namespaceSelector"]["matchExpressions"]}
        own = selectors["kubernetes.io/metadata.name"]
        assert (own["operator"], own["values"]) == ("NotIn", ["kube-system", "kube-public", "kube-node-lease", NAMESPACE])
        for label in ("hami.io/webhook", "hbox.io/admission"):
            assert selectors[label] in hook["objectSelector"]["matchExpressions"]
        [service] = [one for one in of(name, "Service") if one["metadata"]["name"] == hook["clientConfig"]["service"]["name"]]
        [deployment] = [one for one in of(name, "Deployment") if one["metadata"]["name"] == "hbox-admission"]
        pod = deployment["spec"]["template"]["spec"]
        [container] = pod["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert service["spec"]["ports"] == [{"name": "https", "port": 443, "targetPort": "https"}]
        env = {e["name"]: e.get("value") for e in container["env"]}
        assert env["HBOX_LISTEN_PORT"] == str(ports["https"])
        assert (pod["automountServiceAccountToken"], env["HBOX_WATCH_CLUSTER"]) == (True, "true")
        assert not [mount for mount in container["volumeMounts"] if "subPath" in mount or mount["name"] == "bus"]
        [policy] = [one for one in of(name, "NetworkPolicy") if one["metadata"]["name"] == "hbox-admission"]
        assert policy["spec"]["egress"] == [{"ports": [{"port": 443}, {"port": 6443}]}]
        assert {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]} == {8443}
    assert policy["spec"]["ingress"][0]["from"] == [{"ipBlock": {"cidr": "10.0.0.1/32"}}]
    assert hook["clientConfig"]["caBundle"] == "TUlORQ=="
    assert [v["secret"]["secretName"] for v in pod["volumes"] if v["name"] == "tls"] == ["mine"]
    assert deployment["spec"]["replicas"] == 2
    assert "hbox-admission" in {b["metadata"]["name"] for b in of("admission in production", "PodDisruptionBudget")}
    [settings] = [c["data"]["hbox.yaml"] for c in of("admission", "ConfigMap") if c["metadata"]["name"] == "hbox-settings"]
    said = yaml.safe_load(settings)
    assert said["admission"] == {"scheduler_names": "hbox,volcano", "sizes_file": "/etc/hbox/sizes/sizes.yaml"}


def test_validation_asks_about_queues_and_podgroups_and_blocks_none_while_no_replica_answers() -> None:
    [validating] = of("admission in production", "ValidatingWebhookConfiguration")
    [mutating] = of("admission in production", "MutatingWebhookConfiguration")
    assert [hook["name"] for hook in validating["webhooks"]] == ["queues.admission.hbox.io", "podgroups.admission.hbox.io"]
    for hook, scope in zip(validating["webhooks"], ("Cluster", "Namespaced"), strict=True):
        assert (hook["failurePolicy"], hook["sideEffects"], hook["clientConfig"]["service"]["path"]) == (
            "Ignore",
            "None",
            "/validate",
        )
        assert hook["clientConfig"]["caBundle"] == mutating["webhooks"][0]["clientConfig"]["caBundle"]
        [rule] = hook["rules"]
        assert (rule["resources"], rule["operations"], rule["scope"]) == (
            [hook["name"].split(".")[0]],
            ["CREATE", "UPDATE"],
            scope,
        )
        assert ("namespaceSelector" in hook) == (scope == "Namespaced")
    done = template("admission.webhook.enabled=true", "admission.webhook.watch=false", "networkPolicy.enabled=true")
    found = {(o["kind"], o["metadata"]["name"]): o for o in read(done.stdout)}
    pod = found["Deployment", "hbox-admission"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert found["NetworkPolicy", "hbox-admission"]["spec"]["egress"] == []


@pytest.mark.skipif(OPENSSL is None, reason=NONE)
def test_the_charts_own_certificate_is_for_the_service_and_its_authority_is_told(tmp_path: Path) -> None:
    done = template("admission.webhook.enabled=true")
    found = {(o["kind"], o["metadata"]["name"]): o for o in read(done.stdout)}
    data = {key: b64decode(text) for key, text in found["Secret", "hbox-admission-tls"]["data"].items()}
    [hook] = found["MutatingWebhookConfiguration", "hbox-admission"]["webhooks"]
    assert b64decode(hook["clientConfig"]["caBundle"]) == data["ca.crt"]
    for key, content in data.items():
        (tmp_path / key).write_bytes(content)
    certificate = Certificate(tmp_path / "tls.crt", tmp_path / "tls.key")
    assert certificate.validity.ends > time.time() + 9 * 365 * 86_400
    name = f"hbox-admission.{NAMESPACE}.svc"
    checked = [str(OPENSSL), "verify", "-CAfile", "ca.crt", "-verify_hostname", name, "tls.crt"]
    assert subprocess.run(checked, cwd=tmp_path, capture_output=True, timeout=30, check=False).returncode == 0


def test_a_volume_that_is_kept_is_there_beside_postgres_too() -> None:
    def claims(*values: str) -> list[str]:
        found = read(template("database.secret.name=pg", *values).stdout)
        return [f["metadata"]["name"] for f in found if f["kind"] == "PersistentVolumeClaim"]

    assert claims() == ["hbox-health"]
    assert claims("database.storage.keep=true") == ["hbox-ledger", "hbox-health"], (
        "Helm could not roll back over what it left in the cluster"
    )


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        (("profile=production",), True),
        (("profile=production", "database.storage.keep=false", "nats.storage.keep=false"), False),
        ((), False),
        (("database.storage.keep=true", "nats.storage.keep=true"), True),
    ],
)
def test_volumes_outlive_a_release_in_production_and_by_value(values: tuple[str, ...], kept: bool) -> None:
    found = read(template(*values).stdout)
    claims = [one for one in found if one["kind"] == "PersistentVolumeClaim"]
    assert [one["metadata"]["name"] for one in claims] == ["hbox-ledger", "hbox-health"]
    for claim in claims:
        assert (claim["metadata"].get("annotations") or {}).get("helm.sh/resource-policy") == ("keep" if kept else None)
    [brokers] = [one for one in found if one["kind"] == "StatefulSet"]
    policy = brokers["spec"]["persistentVolumeClaimRetentionPolicy"]
    assert policy == {"whenDeleted": "Retain" if kept else "Delete", "whenScaled": "Retain"}


def test_queues_are_closed_to_strangers_in_production_unless_somebody_opens_them() -> None:
    def of_ledger(*values: str) -> str | None:
        done = template(*values)
        assert done.returncode == 0, done.stderr
        maps = [one for one in read(done.stdout) if one["kind"] == "ConfigMap"]
        [settings] = [one["data"]["hbox.yaml"] for one in maps if one["metadata"]["name"] == "hbox-settings"]
        return (yaml.safe_load(settings).get("quota-ledger") or {}).get("queues")

    assert of_ledger("profile=production") == "bound"
    assert of_ledger("profile=production", "services.quota-ledger.settings.queues=open") == "open"
    assert of_ledger("profile=small") is None


@pytest.mark.parametrize("text", ["main=*;lab=lab-a,lab-b", "2", "1", "", "only=*"])
def test_each_shard_has_a_scheduler_that_is_told_which_it_is_with_a_lease_of_its_own(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = template("profile=production", f"shards={text}".replace(",", "\\,"))
    assert done.returncode == 0, done.stderr
    found = read(done.stdout)
    shards = Shards.parse(text)
    wanted = {lease_of("scheduler-core", shard): shard for shard in (shards.names if shards.several else [""])}

    def of_scheduler(kind: str) -> dict[str, Mapping[str, Any]]:
        named = {one["metadata"]["name"].removeprefix("hbox-"): one for one in found if one["kind"] == kind}
        return {name: one for name, one in named.items() if name.startswith("scheduler-core")}

    deployments = of_scheduler("Deployment")
    assert set(deployments) == set(of_scheduler("Lease")) == set(of_scheduler("PodDisruptionBudget")) == set(wanted)
    selectors = [one["spec"]["selector"]["matchLabels"] for one in deployments.values()]
    assert len({tuple(sorted(one.items())) for one in selectors}) == len(selectors), "no Deployment has another's pods"
    [role] = [one for one in found if one["kind"] == "Role" and one["metadata"]["name"] == "hbox:scheduler-core"]
    assert [rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule] == [list(wanted)]
    [settings] = [one["data"]["hbox.yaml"] for one in found if one["metadata"]["name"] == "hbox-settings"]
    path = tmp_path / "hbox.yaml"
    path.write_text(settings)
    for variable in [v for v in os.environ if v.startswith("HBOX_")]:
        monkeypatch.delenv(variable)
    for name, deployment in deployments.items():
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        said = {one["name"]: one.get("value", "") for one in container["env"] if one["name"] == "HBOX_SHARD"}
        for variable, value in said.items():
            monkeypatch.setenv(variable, value)
        got = load(SchedulerSettings, "scheduler-core", {"HBOX_CONFIG": str(path), **said})
        assert (got.shard, got.divided) == (wanted[name], shards)
    assert load(JobControllerSettings, "job-controller", {"HBOX_CONFIG": str(path)}).shards == text
