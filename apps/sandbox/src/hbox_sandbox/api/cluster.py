"""The emulated cluster's state: the store, the served types, and where time and ids come from."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from uuid import UUID

from .errors import Json, not_found
from .resources import NAMESPACES, PRIORITY_CLASSES, Registry, ResourceType
from .selectors import field_values
from .store import Store, Version

_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(slots=True)
class Cluster:
    """All that a request may read or change. `clock`: seconds since 1970; `random`: uids and generated names. `pod_topology_labels`: as with the feature gate
    PodTopologyLabelsAdmission (alpha, and off, up to Kubernetes 1.34) a pod gets the labels of its Binding."""

    clock: Callable[[], float]
    random: Random
    pod_topology_labels: bool = False
    store: Store = field(default_factory=Store)
    registry: Registry = field(default_factory=Registry)

    def __post_init__(self) -> None:
        for resource in self.registry:
            if resource.from_stored is None and "create" in resource.verbs and "list" in resource.verbs:
                self.store.open(resource.storage, field_values(resource))
        for name in ("default", "kube-node-lease", "kube-public", "kube-system"):
            self._seed(NAMESPACES, name, _namespace_body(name))
        for name, value in (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)):
            self._seed(PRIORITY_CLASSES, name, {"value": value, "preemptionPolicy": "PreemptLowerPriority"})

    def _seed(self, resource: ResourceType, name: str, body: Json) -> None:
        meta: Json = {"name": name, "uid": self.new_uid(), "creationTimestamp": self.now()}
        meta |= body.pop("metadata", {}) | ({"generation": 1} if resource.has_generation else {})
        self.store.create(
            resource.storage, {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, **body}
        )

    def now(self) -> str:
        """The present as a Kubernetes Time."""
        return timestamp(self.clock())

    def new_uid(self) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))

    def name_suffix(self) -> str:
        """Five characters for `generateName`."""
        return "".join(self.random.choices(_SUFFIX, k=5))

    def find(self, resource: ResourceType, namespace: str, name: str) -> Version:
        """The present version; 404."""
        version = self.store.get(resource.storage, f"{namespace}/{name}" if namespace else name)
        if version is None:
            raise not_found(resource.plural, resource.group, name)
        return version


def _namespace_body(name: str) -> Json:
    return {
        "metadata": {"labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(text: str) -> str:
    """A Kubernetes MicroTime in UTC. ValueError unless `text` is one: RFC 3339 with exactly six digits of fraction."""
    if not _MICRO_TIME.fullmatch(text):
        raise ValueError(f"{text!r} is no time with microseconds")
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
