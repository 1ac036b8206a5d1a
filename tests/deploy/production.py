"""What the profile production needs on a cluster for tests: PostgreSQL, certificates, and values whose requests fit on small nodes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from ..certificates import make_certificates
from .cluster import IMAGE, NAMESPACE, SERVICES, Cluster

PAIRED = ("job-controller", "scheduler-core", "quota-ledger", "binder")
BROKERS = 3
#: As values.yaml says which names the broker's certificate has to be for.
BROKER_NAMES = f"DNS:hbox-nats.{NAMESPACE}.svc,DNS:*.hbox-nats-headless.{NAMESPACE}.svc"
DATABASE = "database"
URL = f"postgresql+psycopg://hbox:{{password}}@postgres.{DATABASE}.svc/hbox"

#: The profile's 500m for each of 13 pods is more than a node for tests has.
SMALL = {"requests": {"cpu": "20m", "memory": "96Mi"}, "limits": {"memory": "2Gi"}}
VALUES: dict[str, Any] = {
    "profile": "production",
    "image": {"repository": "hbox", "tag": IMAGE.rpartition(":")[2]},
    "services": {name: {"resources": SMALL} for name in SERVICES},
    "nats": {
        "resources": SMALL,
        "storage": {"size": "1Gi"},
        "tls": {"secret": "broker-tls", "clientSecret": "services-tls"},
    },
    "database": {"secret": {"name": "hbox-database"}},
}


def prepare(cluster: Cluster, postgres: str, folder: Path) -> Path:
    """Secrets, a database that answers, and the file of values. `postgres`: its image, which the nodes have."""
    made = make_certificates(folder, broker=BROKER_NAMES, client=f"DNS:services.{NAMESPACE}.svc")
    cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": DATABASE}},
        _secret("broker-tls", {"tls.crt": made / "broker.pem", "tls.key": made / "broker.key", "ca.crt": made / "ca.pem"}),
        _secret("services-tls", {"tls.crt": made / "client.pem", "tls.key": made / "client.key", "ca.crt": made / "ca.pem"}),
        address("hbox"),
        *_database(postgres),
    )
    cluster.kubectl("wait", "-n", DATABASE, "pod/postgres", "--for=condition=Ready", "--timeout=120s", timeout_s=130)
    values = folder / "values.json"
    values.write_text(json.dumps(VALUES))
    return values


def address(password: str) -> dict[str, Any]:
    """The Secret with the database's address."""
    about = {"name": "hbox-database", "namespace": NAMESPACE}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": about,
        "stringData": {"database_url": URL.format(password=password)},
    }


def _secret(name: str, files: dict[str, Path]) -> dict[str, Any]:
    data = {key: base64.b64encode(path.read_bytes()).decode() for key, path in files.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": data,
    }


def _database(image: str) -> tuple[dict[str, Any], ...]:
    env = {"POSTGRES_USER": "hbox", "POSTGRES_DB": "hbox", "POSTGRES_PASSWORD": "hbox"}
    probe = {
        "exec": {"command": ["pg_isready", "--username=hbox", "--dbname=hbox", "--host=127.0.0.1"]},
        "periodSeconds": 2,
        "timeoutSeconds": 10,
    }
    container = {
        "name": "postgres",
        "image": image,
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "ports": [{"containerPort": 5432}],
        "readinessProbe": probe,
    }
    about = {"name": "postgres", "namespace": DATABASE, "labels": {"app": "postgres"}}
    pod = {
        "securityContext": {"runAsUser": 70},  # of the image's user postgres, who owns the folder in it
        "containers": [container],
        "terminationGracePeriodSeconds": 5,
    }
    return (
        {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": pod},
        {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": {"selector": {"app": "postgres"}, "ports": [{"port": 5432}]}},
    )  # fmt: skip
