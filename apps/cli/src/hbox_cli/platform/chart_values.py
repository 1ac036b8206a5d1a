"""The schema of the chart's values: types, ranges and a description of each.

Settings of services come from their settings classes, the only source of their names, ranges and descriptions. The schema lacks the settings that the chart
sets itself: Helm rejects a value for one instead of overriding it.
"""

from collections.abc import Mapping
from typing import Any

from hbox_admission.settings import AdmissionSettings
from hbox_agent.settings import AgentSettings
from hbox_binder.settings import BinderSettings
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

Schema = dict[str, Any]


def _value(description: str, /, **keywords: Any) -> Schema:
    return {"description": description, **keywords}


def _text(description: str, pattern: str = "") -> Schema:
    return _value(description, type="string", **({"pattern": pattern} if pattern else {}))


def _name(description: str) -> Schema:
    return _text(description, "^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$")


def _flag(description: str) -> Schema:
    return _value(description, type="boolean")


def _map(description: str) -> Schema:
    return _value(description, type="object")


def _texts(description: str) -> Schema:
    """A map of texts, as labels are."""
    return _value(description, type="object", additionalProperties={"type": "string"})


def _list(description: str, **items: Any) -> Schema:
    return _value(description, type="array", items=items or {"type": "object"})


def _names(description: str) -> Schema:
    return _list(description, **{key: value for key, value in _name("").items() if key != "description"})


def _port(description: str) -> Schema:
    return _value(description, type="integer", minimum=1, maximum=65535)


def _quantity(description: str) -> Schema:
    return _text(description, "^[0-9]+(\\.[0-9]+)?([EPTGMk]i?)?$")


def _interval(description: str) -> Schema:
    return _text(description, "^[0-9]+(ms|s|m)$")


def _closed(description: str, /, **properties: Schema) -> Schema:
    """An object with these keys and no others."""
    return {"type": "object", "description": description, "additionalProperties": False, "properties": properties}


def _or_null(schema: Mapping[str, Any]) -> Schema:
    """Null: the profile's. Not by `anyOf`: of a wrong value Helm would say that it is none of these, and then what it may be."""
    if "enum" in schema:
        return {**schema, "enum": [None, *schema["enum"]]}
    return {**schema, "type": ["null", schema["type"]]}


def _settings(description: str, model: type[Settings]) -> Schema:
    """The fields of `model` that the chart does not set itself, as JSON Schema without references."""
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

    return _closed(description, **{name: plain(field) for name, field in made["properties"].items() if name not in DECIDED})


def _image(what: str) -> Mapping[str, Schema]:
    return {
        "repository": _text(f"Repository of {what}, without the registry."),
        "tag": _text("A version; `latest` is rejected, because a tag that moves cannot be rolled back.")
        | {"not": {"const": "latest"}},
        "digest": _text("`sha256:...`, which replaces the tag.", "^(sha256:[0-9a-f]{64})?$"),
    }


def _tls() -> Schema:
    return _closed(
        "A certificate of yours; empty: the chart's own.",
        secret=_name("A Secret with tls.crt and tls.key."),
        caBundle=_text("The authority that signed tls.crt, as base64 of PEM.", "^[A-Za-z0-9+/=]*$"),
    )


def _spread() -> Schema:
    return _or_null(
        _list(
            "Topology spread constraints; without a labelSelector, the pod's own labels. Null: replicas are spread where possible."
        )
    )


def _extras(what: str) -> Mapping[str, Schema]:
    return {
        "extraEnv": _list(f"Additional environment variables of {what}."),
        "extraVolumes": _list(f"Additional volumes of {what}."),
        "extraVolumeMounts": _list(f"Additional mounts of {what}."),
    }


def _agent() -> Mapping[str, Schema]:
    return {
        "enabled": _flag("Install the DaemonSet."),
        "kubeletRoot": _text("The kubelet's folder on each node.", "^/.+$"),
        "kubeletConfig": _text("The kubelet's configuration on each node; empty: kubeletRoot/config.yaml.", "^(/.*)?$"),
        "nvml": _closed(
            "NVML, the management library of the cards.",
            enabled=_flag("Read cards by NVML too."),
            runtimeClassName=_name(
                "RuntimeClass of the agents' pods; empty: the nodes' default runtime mounts the library, or `folder` is set."
            ),
            visibleDevices=_text("Environment variable by which the runtime gives cards to the container."),
            folder=_text("The folder of NVML's library on each node; empty: the runtime brings it.", "^(/.+)?$"),
            events=_flag(
                "Wait for NVML's events too: a process has all cards open, which node-remedy ends before it resets one."
            ),
        ),
        "kernelLog": _closed("The kernel's log.", enabled=_flag("Read it, with the capability CAP_SYSLOG.")),
    }


def _service(name: str) -> Schema:
    most = 5 if name in PAIRED or name in REPLICATED or name in ALONE else 1
    replicas = _value("Replicas; null: the profile's.", type="integer", minimum=0, maximum=most)
    on_nodes = name in ON_NODES or name in REPAIRING
    if name in ON_NODES:
        own = _agent()
    elif name in REPAIRING:
        own = {"enabled": _flag("Install the DaemonSet.")}
    else:
        own = {"replicas": _or_null(replicas)}
    return _closed(
        f"{name}: see services/{name}/README.md.",
        **own,
        resources=_or_null(_map("Requests and limits of the container; null: the profile's.")),
        settings=_settings("Settings of the service, by the names in its README.", SETTINGS[name]),
        nodeSelector=_texts("Labels of the nodes on which the pods run; they replace those of `pods`."),
        tolerations=_list("Tolerations; they replace those of `pods`."),
        affinity=_map("Affinity; it replaces that of `pods`."),
        **({} if on_nodes else {"topologySpreadConstraints": _spread()}),
        labels=_texts("Additional labels of the pods."),
        annotations=_texts("Additional annotations of the pods."),
        serviceAccount=_closed(
            "Its service account.", annotations=_texts("Annotations, such as the role of a cloud's workload identity.")
        ),
        **_extras("the container, besides those of `pods`"),
    )


def _storage(what: str) -> Schema:
    return _closed(
        f"The volume of {what}.",
        persistent=_or_null(_flag("A PersistentVolumeClaim; false: data is lost with the pod. Null: the profile's.")),
        size=_quantity("Size of the volume."),
        className=_text("StorageClass; empty: the cluster's default."),
        keep=_or_null(_flag("Uninstall keeps the volume. Null: the profile's, true in production.")),
    )


def _webhook() -> Schema:
    return _closed(
        "The admission endpoint, which completes pods that request devices (docs/guides/admission.md).",
        enabled=_flag("Install it."),
        failurePolicy=_value("Fail: API servers reject pods while no replica answers.", enum=["Ignore", "Fail"]),
        reinvocationPolicy=_value(
            "Whether it is called again after other webhooks changed the pod.", enum=["IfNeeded", "Never"]
        ),
        timeoutSeconds=_value("Seconds after which API servers no longer wait for it.", type="integer", minimum=1, maximum=30),
        hostNetwork=_flag("Run in the nodes' network, where API servers cannot reach that of the pods."),
        ports=_closed(
            "Ports of its pods; with hostNetwork also of the nodes.",
            https=_port("Port of the endpoint."),
            health=_port("Port of health and metrics."),
        ),
        watch=_flag("Watch namespaces and queues, for labels of namespaces and for checks of Queues and PodGroups."),
        excludedNamespaces=_names("Namespaces whose pods it does not see, besides HBox's own."),
        namespaceExpressions=_list("Additional expressions of the namespaceSelector."),
        objectExpressions=_list("Additional expressions of the objectSelector, by labels of pods."),
        certManager=_closed(
            "A certificate by cert-manager.",
            enabled=_flag("Create a Certificate."),
            issuerRef=_map("Its issuer; empty: a self-signed issuer of the chart."),
        ),
        tls=_tls(),
    )


def _secret(description: str, **more: Schema) -> Schema:
    return _closed(
        description,
        name=_name("Name of the Secret; empty: none."),
        key=_text("Key of the Secret.", "^[-._a-zA-Z0-9]+$"),
        **more,
    )


def _admission() -> Schema:
    return _closed(
        "ValidatingAdmissionPolicies, and the admission endpoint.",
        enabled=_flag(
            "Install the policies: only the binder may write HBox's fields of pods, and a job's queue cannot be changed."
        ),
        guardedNamespaces=_names("Namespaces in which the binder's token cannot bind or evict pods."),
        cardsNeedHBox=_closed(
            "Reject pods with cards that name another scheduler.",
            enabled=_flag("Install this policy."),
            exceptNamespaces=_names("Exempt namespaces, besides guardedNamespaces and HBox's own."),
            resources=_list(
                "Further resource names, or their prefixes, that are cards: those of a deviceConfig.",
                type="string",
                pattern="^[-._/A-Za-z0-9]+$",
            ),
        ),
        webhook=_webhook(),
        use=_closed(
            "The verb `use` on queues (docs/guides/queues.md).",
            required=_flag("A user that names a queue needs the verb on it."),
            controllers=_list(
                "Users whose pods and PodGroups are not checked, because the templates of their objects were.",
                type="string",
                minLength=1,
                pattern="^[^'\"\\\\]+$",
            ),
        ),
    )


def _nats() -> Schema:
    return _closed(
        "The broker, NATS JetStream.",
        enabled=_flag("Install brokers; false: externalUrl or secret names one."),
        replicas=_or_null(_value("Brokers, and replicas of each stream; null: the profile's.", enum=[1, 3, 5])),
        image=_closed("The broker's image; empty: HBox's own, which contains nats-server.", **_image("the image")),
        nodeSelector=_texts("Labels of the brokers' nodes; they replace those of `pods`."),
        tolerations=_list("Tolerations; they replace those of `pods`."),
        affinity=_map("Affinity; it replaces that of `pods`."),
        topologySpreadConstraints=_spread(),
        keep=_flag("Ready brokers stay through an upgrade that changes only their image."),
        resources=_or_null(_map("Requests and limits of the broker; null: the profile's.")),
        storage=_storage("each broker"),
        externalUrl=_text("Address of an external broker, without a password.", "^((nats|tls)://[^@]+)?$"),
        secret=_secret("A Secret with the address of an external broker."),
        closed=_flag("One key per service; each may publish and subscribe to its own subjects only."),
        agentsByNode=_or_null(
            _flag("The broker admits each agent by its pod's token, for its own node only. Null: from Kubernetes 1.30 on.")
        ),
        usersPrefix=_name("Prefix of the Secrets with the users' keys of an external closed broker."),
        tls=_closed(
            "Secrets with certificates, in cert-manager's format.",
            secret=_name("The broker's certificate; of an external broker its ca.crt."),
            clientSecret=_name("The services' certificate, which the broker then requires."),
        ),
        readers=_value(
            "Users that may read events of these queues and send requests about them; '*': events of all queues and of nodes.",
            type="object",
            propertyNames={"pattern": "^[a-z0-9-]+$"},
            additionalProperties={"type": "array", "minItems": 1, "items": {"type": "string", "pattern": "^[^,=]+$"}},
        ),
    )


def _monitoring() -> Mapping[str, Schema]:
    return {
        "telemetry": _closed(
            "Traces.", endpoint=_text("An OTLP collector, such as http://host:4318; empty: none.", "^(https?://.+)?$")
        ),
        "podMonitor": _closed(
            "A PodMonitor of the Prometheus operator, whose definitions the cluster needs.",
            enabled=_flag("Install it."),
            labels=_texts("Labels by which Prometheus selects it."),
            interval=_interval("Interval of /metrics."),
            queues=_flag("Also scrape the metrics by queue at /metrics/queues."),
            queuesInterval=_interval("Interval of /metrics/queues."),
            token=_secret("A Secret with the bearer token of /metrics/queues and /metrics/cards; empty: a token of the chart."),
            cards=_flag("Also scrape quota-ledger's metrics per card at /metrics/cards."),
            cardsInterval=_interval("Interval of /metrics/cards."),
        ),
        "prometheusRule": _closed(
            "Alerts and recording rules, as a PrometheusRule.",
            enabled=_or_null(_flag("Install them; null: as the PodMonitor.")),
            labels=_texts("Labels by which Prometheus selects them."),
            runbooks=_text("URL before docs/runbooks in the alerts' runbook_url.", "^(https?://.+/)?$"),
            disabled=_list("Names of alerts to omit.", type="string", pattern="^HBox[A-Za-z]+$"),
        ),
        "dashboards": _closed(
            "Grafana's dashboards, one ConfigMap each.",
            enabled=_or_null(_flag("Install them; null: as the PodMonitor.")),
            labels=_texts("Labels by which Grafana's sidecar selects them."),
            annotations=_texts("Annotations, such as grafana_folder."),
        ),
    }


def schema() -> Schema:
    """The whole document. Kubernetes checks what is its own (resources, tolerations)."""
    values = _closed(
        "Values of the chart hbox.",
        profile=_value(
            "Size of the installation: replicas, persistence, resources.", enum=["dev", "small", "production", "airgap"]
        ),
        nameOverride=_name("Replaces `hbox` in the names of the release's objects."),
        fullnameOverride=_name("Replaces the release's name and `hbox` in the names of the release's objects."),
        **{
            "global": _closed(
                "Of all images.",
                imageRegistry=_text("Prefix of every image, such as registry.example.com/mirror."),
                imagePullSecrets=_list("Secrets of the registry, as [{name: pull}]."),
            )
        },
        image=_closed(
            "HBox's image.",
            **_image("the image"),
            pullPolicy=_value("When kubelets pull it.", enum=["Always", "IfNotPresent", "Never"]),
        ),
        settings=_settings("Settings of every service.", Settings),
        policy=_text("A volcano-scheduler.conf for scheduler-core; empty: the default policy."),
        shards=_value(
            "Several schedulers: how many, or pools of nodes by shard, as main=*;lab=lab-a,lab-b (docs/guides/shards.md).",
            type=["string", "integer"],
            minimum=1,
            maximum=64,
            pattern="^([1-9][0-9]?|[a-z0-9][a-z0-9-]* *=[^;=]+(;[a-z0-9][a-z0-9-]* *=[^;=]+)*)?$",
        ),
        pools=_text("The file of node pools, as YAML."),
        deviceConfig=_text("HAMi's device-config.yaml, for every service: names of resources, factors, defaults, templates."),
        healthRules=_closed(
            "health-monitor's own tables and policies, by the name of the file.",
            **{
                file: _text(f"Contents of {file} (services/health-monitor/README.md).")
                for file in ("codes.yaml", "nvlink5.yaml", "profiles.yaml", "policies.yaml", "gate-job.yaml")
            },
        ),
        gate=_closed(
            "Checks of hardware by Jobs of the operator.",
            namespace=_name("The namespace in which the binder creates them; empty: it has no right to create Jobs."),
        ),
        sizes=_text("Standard sizes of devices, as `hbox sizes --default` prints HBox's own."),
        fabric=_closed(
            "The fabric between nodes (docs/guides/topology.md).",
            sources=_text("The file of fabrics, as YAML."),
            secret=_name("A Secret with UFM's credentials and CA, for topology-collector only."),
            port=_port("Port of the source, which topology-collector may reach."),
            to=_list("NetworkPolicyPeers of the source; empty: any."),
            export=_flag("The right to write HyperNodes, for exportHyperNodes."),
        ),
        services=_closed("Values per service.", **{name: _service(name) for name in SETTINGS}),
        console=_closed(
            "The HTTP API (docs/guides/api.md).",
            enabled=_flag("Install it."),
            url=_text("How clients reach it; empty: inside the cluster only.", "^(https://[^/@]+)?$"),
            service=_closed(
                "Its Service.",
                type=_value("Type of the Service.", enum=["ClusterIP", "NodePort", "LoadBalancer"]),
                annotations=_texts("Annotations of the Service."),
            ),
            tls=_tls(),
            **{"from": _list("NetworkPolicyPeers that may call it; empty: any.")},
        ),
        admission=_admission(),
        pods=_closed(
            "For the pods of every service.",
            priorityClassName=_or_null(_name("PriorityClass; null: the profile's.")),
            resources=_map("Requests and limits of every container without its own; they override the profile's."),
            nodeSelector=_texts("Labels of the nodes on which they run."),
            tolerations=_list("Tolerations."),
            affinity=_map("Affinity."),
            topologySpreadConstraints=_spread(),
            annotations=_texts("Additional annotations."),
            labels=_texts("Additional labels."),
            podSecurityContext=_map("Security context of the pods except agents; OpenShift: users and groups are null."),
            **_extras("the containers of services and backups"),
        ),
        database=_closed(
            "Databases of quota-ledger and health-monitor.",
            secret=_secret(
                "A Secret with the address of PostgreSQL for the ledger; without it SQLite.",
                healthKey=_text(
                    "The key with the address of health-monitor's own database; empty: SQLite.", "^[-._a-zA-Z0-9]*$"
                ),
            ),
            storage=_storage("the ledger's SQLite database"),
        ),
        backup=_closed(
            "CronJobs that back up both databases (docs/guides/backup.md).",
            enabled=_flag("Install them."),
            schedule=_text("Cron expression, in the time zone of the control plane.", "^\\S+( +\\S+){4}$|^@[a-z]+$"),
            keep=_value("Backups to keep of each database.", type="integer", minimum=1, maximum=1000),
            claim=_name("An existing PersistentVolumeClaim for both; empty: one each, which uninstall keeps."),
            size=_quantity("Size of each claim."),
            className=_text("StorageClass of the claims; empty: the cluster's default."),
        ),
        nats=_nats(),
        definitions=_closed(
            "Definitions and queues that are applied before install and upgrade, and never deleted.",
            apply=_flag("Apply the CRDs Queue, PodGroup and HyperNode, and the queues root and default."),
            levels=_flag("Apply the PriorityClasses high, medium, low and offline, if they are missing."),
            listClasses=_flag("A new queue `default` accepts only the priority classes of its guide."),
        ),
        userRoles=_closed(
            "Permissions of tenants (docs/guides/rbac.md).",
            aggregate=_flag("Aggregate hbox-view and hbox-edit into the cluster's roles view, edit and admin."),
            queueReaders=_list("Groups that may read queues; empty: no such role.", type="string", minLength=1),
        ),
        networkPolicy=_closed(
            "NetworkPolicies, which deny all other traffic of HBox's pods.",
            enabled=_or_null(_flag("Install them; null: the profile's.")),
            apiServerPorts=_value(
                "Ports on which services may reach API servers.",
                type="array",
                items={"type": "integer", "minimum": 1, "maximum": 65535},
            ),
            apiServerFrom=_list("NetworkPolicyPeers of API servers, which call the admission endpoint; empty: any."),
            metricsFrom=_list("NetworkPolicyPeers that may read /metrics."),
            brokerFrom=_list("NetworkPolicyPeers that may read the bus."),
            databasePort=_port("Port of PostgreSQL."),
            brokerPort=_port("Port of an external broker."),
            egress=_list("Additional egress rules of the services, such as to a collector of traces."),
        ),
        **_monitoring(),
        trial=_closed(
            "The gang that `helm test` submits.",
            queue=_name("Its queue."),
            members=_value("Its pods.", type="integer", minimum=1, maximum=64),
            cards=_value("Cards per pod.", type="integer", minimum=0, maximum=16),
            timeout=_value("Seconds to wait for it.", type="integer", minimum=1),
        ),
        extraObjects=_list("Additional objects, as templates, deployed with the chart."),
    )
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart hbox", **values}
