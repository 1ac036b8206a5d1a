"""Who asks, and which rights of Kubernetes decide what is shown."""

from collections.abc import Mapping
from dataclasses import dataclass, field

GROUP = "scheduling.volcano.sh"


@dataclass(frozen=True, slots=True)
class Identity:
    """A client as the API server knows it."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Access:
    """One question to the authorizer, as `resourceAttributes`. An empty `namespace` means all of them, an empty `name` any."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def attributes(self) -> Mapping[str, str]:
        return {
            "verb": self.verb,
            "group": self.group,
            "resource": self.resource,
            "namespace": self.namespace,
            "name": self.name,
        }


#: One of these shows all jobs, queues or nodes.
ALL_JOBS = (Access("get", GROUP, "podgroups"), Access("get", "", "pods"))
ALL_QUEUES = (Access("get", GROUP, "queues"),)
ALL_NODES = (Access("list", "", "nodes"),)


def jobs_in(namespace: str) -> tuple[Access, ...]:
    """One of these shows the jobs of a namespace."""
    return (Access("get", GROUP, "podgroups", namespace), Access("get", "", "pods", namespace))


def queue_named(name: str) -> tuple[Access, ...]:
    """One of these shows a queue."""
    return (Access("get", GROUP, "queues", name=name), Access("use", GROUP, "queues", name=name))


@dataclass(slots=True)
class Scope:
    """What one client may see, as far as it was reviewed. None: all of them."""

    namespaces: set[str] | None = field(default_factory=set)
    queues: set[str] | None = field(default_factory=set)

    def sees_namespace(self, name: str) -> bool:
        return self.namespaces is None or name in self.namespaces

    def sees_queue(self, name: str) -> bool:
        return self.queues is None or name in self.queues
