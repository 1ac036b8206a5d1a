"""The resources that a pod requests, by Kubernetes' own formula.

The rule is the API server's (KEP-753 sidecars, KEP-2837 pod-level resources): containers run together with all sidecars; an init container runs with only the
sidecars started before it; the pod requests the larger of the two, by resource; pod-level requests replace that; the runtime's overhead is added. A container
with a limit and no request requests the limit.

For a container that is resized in place, the largest of its request, the kubelet's allocation and its actual resources counts; if the resize is infeasible on
its node, only the latter two (KEP-1287; component-helpers resource.PodRequests with UseStatusResources).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS, Resources, request_units
from hbox_common.model.bounds import MOST_OF_A_POD, RESOURCES
from hbox_common.model.resources import CPU, EPHEMERAL, MEMORY, PODS, add

_EVERYWHERE = frozenset({PODS, CPU, MEMORY, EPHEMERAL})


@dataclass(frozen=True, slots=True)
class Container:
    """`sidecar`: an init container with restartPolicy Always, which continues to run with the others."""

    name: str
    requests: Mapping[str, str | float] = field(default_factory=dict)
    limits: Mapping[str, str | float] = field(default_factory=dict)
    sidecar: bool = False
    given: Mapping[str, str | float] = field(default_factory=dict)  #: from its status; cpu and memory only
    infeasible: bool = False  #: what it asks for of those is never given
    privileged: bool = False  #: it has every device of its node, whatever it asks for

    def asked(self, name: str) -> str | float | None:
        """The quantity asked for of one resource; None where it is not named."""
        return self.requests.get(name, self.limits.get(name))


def pod_requests(
    containers: Sequence[Container],
    init_containers: Sequence[Container] = (),
    *,
    overhead: Mapping[str, str | float] | None = None,
    pod_level: Mapping[str, str | float] | None = None,
) -> Resources:
    """What the pod takes, in base units, of each resource MOST_OF_A_POD at most; `pods: 1` is in it, zeros are not.

    Raises InvalidRequest for a quantity that is none, or negative.
    """
    sidecars: Resources = {}
    peak: Resources = {}
    for container in init_containers:
        own = _units(container)
        add(own, sidecars)
        if container.sidecar:
            sidecars = own
        _raise_to(peak, own)
    together: Resources = dict(sidecars)
    for container in containers:
        add(together, _units(container))
    _raise_to(together, peak)
    together.update(_read("pod", pod_level or {}))
    add(together, _read("overhead", overhead or {}))
    together[PODS] = 1
    return {name: min(units, MOST_OF_A_POD) for name, units in together.items() if units > 0}


#: Maximum containers that are published one by one; a pod's further ones are not aligned.
MOST_CONTAINERS = 64


def is_guaranteed(containers: Sequence[Container], init_containers: Sequence[Container]) -> bool:
    """Whether the QoS class is Guaranteed (pkg/apis/core/helper/qos): every container limits cpu and memory, and asks for just that. Raises InvalidRequest
    for a quantity that is none."""

    def exact(container: Container) -> bool:
        limits, asked = _read("limits", container.limits), _read("requests", dict(container.limits) | dict(container.requests))
        return all(0 < limits.get(name, 0) == asked.get(name) for name in (CPU, MEMORY))

    return bool(containers) and all(map(exact, (*containers, *init_containers)))


def by_container(containers: Sequence[Container], *, guaranteed: bool) -> tuple[Resources, ...]:
    """What each asks for of what kubelets align: cpu and devices, and memory where the pod is Guaranteed."""
    left_out = _EVERYWHERE - ({CPU, MEMORY} if guaranteed else {CPU})
    return tuple(
        {name: units for name, units in _units(container).items() if units > 0 and name not in left_out}
        for container in containers[:MOST_CONTAINERS]
    )


def bounded(requests: Resources) -> Resources:
    """The first RESOURCES of them, in the order of the names, those that every node has before: what a pod is accounted for that asks for more of them."""
    names = sorted(requests, key=lambda name: (name not in _EVERYWHERE and name not in VENDORS, name))
    return {name: requests[name] for name in names[:RESOURCES]}


def _units(container: Container) -> Resources:
    asked = _read(f"container {container.name}", {**container.limits, **container.requests})
    given = _read(f"status of container {container.name}", container.given)
    return asked | {name: units if container.infeasible else max(units, asked.get(name, 0)) for name, units in given.items()}


def _read(where: str, quantities: Mapping[str, str | float]) -> Resources:
    try:
        return {name: request_units(name, quantity) for name, quantity in quantities.items() if name not in VENDORS.no_amounts}
    except InvalidRequest as e:
        raise InvalidRequest(f"{where}: {e.message}", hint=e.hint) from e


def _raise_to(into: Resources, other: Mapping[str, int]) -> None:
    for name, units in other.items():
        into[name] = max(into.get(name, 0), units)
