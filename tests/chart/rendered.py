"""`helm template` of the chart, as objects: each distinct set of values is rendered once in a process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "helm" / "hbox"
NAMESPACE = "gpu-platform"

#: Values of installations that differ in what is rendered.
MATRIX: Mapping[str, Sequence[str]] = {
    "default": (),
    "dev": ("profile=dev",),
    "production": ("profile=production",),
    "production with one broker": ("profile=production", "nats.replicas=1"),
    "airgap": ("profile=airgap", "global.imageRegistry=registry.local:5000/mirror", "global.imagePullSecrets[0].name=pull"),
    "postgres": (
        "profile=production",
        "database.secret.name=pg",
        "database.secret.key=url",
        "database.secret.healthKey=health_url",
    ),
    "TLS": ("profile=production", "nats.tls.secret=broker-tls", "nats.tls.clientSecret=services-tls"),
    "own broker by TLS": ("nats.enabled=false", "nats.externalUrl=tls://a:4222", "nats.tls.secret=authority"),
    "own broker": ("nats.enabled=false", "nats.externalUrl=nats://a:4222\\,nats://b:4222"),
    "own broker by a secret": ("nats.enabled=false", "nats.secret.name=bus"),
    "own broker that is closed": ("nats.enabled=false", "nats.externalUrl=nats://a:4222", "nats.usersPrefix=mine"),
    "open broker": ("nats.closed=false",),
    "use of queues": (
        "admission.use.required=true",
        "admission.use.controllers={system:serviceaccount:volcano-system:volcano-controllers}",
    ),
    "cards need HBox": ("admission.cardsNeedHBox.enabled=true", "admission.cardsNeedHBox.exceptNamespaces={gpu-operator}"),
    "node agents": (
        "services.node-agent.enabled=true",
        "services.node-agent.kubeletConfig=/etc/kubelet.yaml",
        "nats.tls.secret=broker-tls",
        "nats.tls.clientSecret=services-tls",
    ),
    "own broker with agents by node": (
        "services.node-agent.enabled=true",
        "nats.enabled=false",
        "nats.externalUrl=nats://a:4222",
        "nats.usersPrefix=mine",
        "nats.agentsByNode=true",
    ),
    "kernel log": ("services.node-agent.enabled=true", "services.node-agent.kernelLog.enabled=true"),
    "remedies": (
        "services.node-remedy.enabled=true",
        "services.node-remedy.settings.verbs.reset.most=4",
        "services.node-remedy.settings.verbs.reboot.mode=dry-run",
        "services.node-remedy.settings.verbs.acs-off.mode=off",
        "nats.tls.secret=broker-tls",
        "nats.tls.clientSecret=services-tls",
    ),
    "NVML": (
        "services.node-agent.enabled=true",
        "services.node-agent.nvml.enabled=true",
        "services.node-agent.nvml.runtimeClassName=nvidia",
        "services.node-agent.nvml.folder=/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
        "services.node-agent.nvml.events=true",
    ),
    "admission": (
        "admission.webhook.enabled=true",
        "admission.webhook.certManager.enabled=true",
        "services.job-controller.settings.scheduler_names=hbox\\,volcano",
        "deviceConfig=nvidia: null",
        "sizes=[]",
    ),
    "admission in production": (
        "profile=production",
        "admission.webhook.enabled=true",
        "admission.webhook.tls.secret=mine",
        "admission.webhook.tls.caBundle=TUlORQ==",
        "networkPolicy.apiServerFrom[0].ipBlock.cidr=10.0.0.1/32",
    ),
    "readers": ("nats.readers.slurm={batch}", "nats.readers.grafana={ml,vision}"),
    "another nats-server": ("nats.image.repository=nats", "nats.image.tag=2.12.2-alpine"),
    "fabric": (
        "profile=production",
        "fabric.sources=fabrics: []",
        "fabric.secret=ufm-login",
        "fabric.port=8443",
        "fabric.to[0].ipBlock.cidr=10.1.2.3/32",
        "fabric.export=true",
    ),
    "files": ("policy=actions: allocate", "pools=pools: []", "healthRules.policies\\.yaml=mute_s: 60"),
    "devices": ("deviceConfig=nvidia: null", "services.node-agent.enabled=true", "services.node-remedy.enabled=true"),
    "placement": (
        "profile=production",
        "pods.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key=role",
        "pods.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator=Exists",
        "pods.topologySpreadConstraints[0].maxSkew=2",
        "pods.topologySpreadConstraints[0].topologyKey=rack",
        "pods.topologySpreadConstraints[0].whenUnsatisfiable=DoNotSchedule",
        "pods.extraEnv[0].name=HTTPS_PROXY",
        "pods.extraEnv[0].value=http://proxy:3128",
        "pods.extraVolumes[0].name=authority",
        "pods.extraVolumes[0].emptyDir.medium=Memory",
        "pods.extraVolumeMounts[0].name=authority",
        "pods.extraVolumeMounts[0].mountPath=/authority",
        "services.binder.nodeSelector.role=binder",
        "services.binder.extraEnv[0].name=BINDER_ONLY",
        "services.binder.serviceAccount.annotations.role=arn:binder",
        "services.binder.topologySpreadConstraints[0].maxSkew=1",
        "services.binder.topologySpreadConstraints[0].topologyKey=row",
        "services.binder.topologySpreadConstraints[0].whenUnsatisfiable=ScheduleAnyway",
        "services.node-remedy.enabled=true",
        "services.node-remedy.serviceAccount.annotations.role=arn:remedy",
        "nats.nodeSelector.role=broker",
        "nats.tolerations[0].operator=Exists",
        "admission.webhook.enabled=true",
        "admission.webhook.certManager.enabled=true",
        "admission.webhook.hostNetwork=true",
        "admission.webhook.ports.https=18443",
        "admission.webhook.ports.health=18080",
    ),
    "backups": ("backup.enabled=true",),
    "backups of postgres": (
        "profile=production",
        "backup.enabled=true",
        "backup.claim=shared",
        "backup.keep=3",
        "database.secret.name=pg",
        "database.secret.key=url",
        "database.secret.healthKey=health_url",
    ),
    "OpenShift": (
        "pods.podSecurityContext.runAsUser=null",
        "pods.podSecurityContext.runAsGroup=null",
        "pods.podSecurityContext.fsGroup=null",
    ),
    "all that is off": (
        "admission.enabled=false",
        "userRoles.aggregate=false",
        "userRoles.queueReaders=null",
        "podMonitor.enabled=true",
        "podMonitor.cards=true",
        "podMonitor.token.name=mine",
        "dashboards.annotations.grafana_folder=HBox",
        "prometheusRule.enabled=true",
        "prometheusRule.labels.release=prometheus",
        "prometheusRule.runbooks=https://git.example.com/hbox/",
        "prometheusRule.disabled={HBoxPendingOld,HBoxCycleSlow}",
        "networkPolicy.enabled=true",
        "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.team=monitoring",
        "networkPolicy.brokerFrom[0].podSelector.matchLabels.bus=reader",
        "networkPolicy.egress[0].ports[0].port=4318",
        "telemetry.endpoint=http://collector:4318",
        "pods.priorityClassName=high",
        "pods.labels.team=a",
        "pods.annotations.note=b",
        "pods.nodeSelector.role=control",
        "pods.tolerations[0].operator=Exists",
        "services.binder.replicas=2",
        "services.binder.settings.binds_per_s=500",
        "services.binder.labels.tier=one",
        "database.storage.keep=true",
        "nats.storage.keep=true",
        "image.digest=sha256:" + "a" * 64,
    ),
}


def helm() -> str:
    """The wheel's beside this Python, else the first on PATH."""
    beside = Path(sys.executable).with_name("helm")
    found = str(beside) if beside.exists() else shutil.which("helm")
    assert found is not None, "there is no helm: `make install` brings one"
    return found


def helm_anew(*values: str, release: str = "hbox") -> subprocess.CompletedProcess[str]:
    words = [helm(), "template", release, str(CHART), "--namespace", NAMESPACE]
    for value in values:
        words += ["--set", value]
    env = os.environ | {"GOGC": "off"}  # to collect garbage is a third of what so short a process costs
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=env)


template = cache(helm_anew)


def lint(*values: str) -> subprocess.CompletedProcess[str]:
    words = [helm(), "lint", str(CHART), "--namespace", NAMESPACE, *(word for value in values for word in ("--set", value))]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def read(text: str) -> list[dict[str, Any]]:
    """All objects of a text, by libyaml's scanner: `yaml.safe_load_all` takes eight times as long for the same."""
    return [found for found in yaml.load_all(text, yaml.CSafeLoader) if found]


@cache
def objects(name: str) -> tuple[dict[str, Any], ...]:
    """All objects of one installation of the MATRIX, hooks among them."""
    done = template(*MATRIX[name])
    assert done.returncode == 0, done.stderr
    return tuple(read(done.stdout))


def of(name: str, *kinds: str) -> list[dict[str, Any]]:
    return [found for found in objects(name) if found["kind"] in kinds]


def pods(name: str) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """What makes pods: its kind and name, the pod's labels, the pod's spec."""
    for found in of(name, "Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "Pod"):
        owner = found["spec"]["jobTemplate"] if found["kind"] == "CronJob" else found
        pod = found if found["kind"] == "Pod" else owner["spec"]["template"]
        yield f"{found['kind']}/{found['metadata']['name']}", pod["metadata"]["labels"], pod["spec"]
