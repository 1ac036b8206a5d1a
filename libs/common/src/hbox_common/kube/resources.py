"""Where the kinds that HBox touches live in the API."""

import re
from dataclasses import dataclass
from urllib.parse import quote

#: What nearly all names are made of, and no URL escapes.
_PLAIN = re.compile(r"[a-z0-9.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind's collection; `group` is empty for the core API."""

    group: str
    version: str
    plural: str
    namespaced: bool

    @property
    def list_of_kinds(self) -> str:
        """Discovery document of this group and version, including subresources: every user may read it."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path, escaped. Without a namespace, a namespaced kind's path covers all namespaces."""
        parts = [self.list_of_kinds]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", _escaped(namespace)]
        parts.append(self.plural)
        if name is not None:
            parts.append(_escaped(name))
        if subresource is not None:
            parts.append(subresource)
        return "/".join(parts)


def _escaped(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quote(name, safe="")


PODS = Resource("", "v1", "pods", namespaced=True)
NODES = Resource("", "v1", "nodes", namespaced=False)
EVENTS = Resource("", "v1", "events", namespaced=True)
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
PERSISTENTVOLUMES = Resource("", "v1", "persistentvolumes", namespaced=False)
PERSISTENTVOLUMECLAIMS = Resource("", "v1", "persistentvolumeclaims", namespaced=True)
STORAGECLASSES = Resource("storage.k8s.io", "v1", "storageclasses", namespaced=False)
RESOURCEQUOTAS = Resource("", "v1", "resourcequotas", namespaced=True)
CONFIGMAPS = Resource("", "v1", "configmaps", namespaced=True)
SECRETS = Resource("", "v1", "secrets", namespaced=True)
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", namespaced=False)
JOBS = Resource("batch", "v1", "jobs", namespaced=True)
LEASES = Resource("coordination.k8s.io", "v1", "leases", namespaced=True)
PRIORITYCLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)
PODDISRUPTIONBUDGETS = Resource("policy", "v1", "poddisruptionbudgets", namespaced=True)
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", namespaced=False)
PODGROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", namespaced=True)
NODE_METRICS = Resource("metrics.k8s.io", "v1beta1", "nodes", namespaced=False)
HYPERNODES = Resource("topology.volcano.sh", "v1alpha1", "hypernodes", namespaced=False)
