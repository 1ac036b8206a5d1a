"""What pods ask for, as written, and as placement reads it.

A `Shape` is worked out once for all pods that ask for the same: their `key`s are equal then.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS, CardRequest, HostPort, NodeTerm, PreferredTerm, Resources, Toleration, port_amounts
from hbox_common.model.bounds import RESOURCES, sanitized
from hbox_common.model.bounds import oversized as too_many
from hbox_common.model.devices.sizes import PREFIX as SIZE

from .cards import card_request, counted
from .requests import Container, bounded, by_container, is_guaranteed, pod_requests


@dataclass(frozen=True, slots=True)
class PodSpec:
    """The part of a pod that decides where it may run and what it takes there. Quantities are as Kubernetes writes them."""

    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] = ()
    overhead: Mapping[str, str | float] = field(default_factory=dict)
    pod_requests: Mapping[str, str | float] = field(default_factory=dict)  #: spec.resources: for the whole pod, where named
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[NodeTerm, ...] | None = None
    preferred: tuple[PreferredTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    ports: tuple[HostPort, ...] = ()  #: of containers and sidecars; init containers have ended when others look for theirs
    device_annotations: Mapping[str, str] = field(
        default_factory=dict
    )  #: of the pod, those that vendors read: models that it may have, other wishes
    images: tuple[str, ...] = ()  #: of its containers
    unsupported: frozenset[str] = frozenset()  #: which annotations that no vendor's cards can honour are written on it


@dataclass(frozen=True, slots=True)
class Shape:
    """The requests of one pod, in base units. `problem`: why it can never be placed as written; empty if it can."""

    key: str
    requests: Resources = field(compare=False)
    cards: CardRequest | None = field(default=None, compare=False)
    node_selector: dict[str, str] = field(default_factory=dict, compare=False)
    affinity: tuple[NodeTerm, ...] | None = field(default=None, compare=False)
    preferred: tuple[PreferredTerm, ...] = field(default=(), compare=False)
    tolerations: tuple[Toleration, ...] = field(default=(), compare=False)
    images: tuple[str, ...] = field(default=(), compare=False)
    guaranteed: bool = field(default=False, compare=False)
    of_containers: tuple[Resources, ...] = field(default=(), compare=False)  #: as `PodGroupTask.containers`
    of_init_containers: tuple[Resources, ...] = field(default=(), compare=False)
    problem: str = field(default="", compare=False)
    oversized: bool = field(default=False, compare=False)  #: where it may run is too long to be carried, and left out
    written: int = field(default=0, compare=False)  #: bytes of what is carried of it


def shape_of(key: str, spec: PodSpec, *, problem: str = "", oversized: bool = False, written: int = 0) -> Shape:
    """The shape of `spec`, to be known by `key`. Never raises: what is wrong becomes its `problem`, after one handed in."""
    requests: Resources = {"pods": 1}
    cards: CardRequest | None = None
    guaranteed, of_containers, of_init = False, tuple[Resources, ...](), tuple[Resources, ...]()
    try:
        requests = pod_requests(spec.containers, spec.init_containers, overhead=spec.overhead, pod_level=spec.pod_requests)
        if (size := next((name for name in requests if name.startswith(SIZE)), None)) is not None:
            raise InvalidRequest(
                f"{size} is a standard size, not a resource", hint="write the manifest by `hbox sizes apply FILE`"
            )
        if (wrong := next((name for name in requests if name in VENDORS.misnamed), None)) is not None:
            raise InvalidRequest(f"no device plugin has the resource {wrong}", hint=f"write {VENDORS.misnamed[wrong]}")
        requests |= port_amounts(spec.ports)
        if (asked := len(requests)) > RESOURCES:
            requests = bounded(requests)
            raise InvalidRequest(too_many("resources and host ports", asked, RESOURCES))
        cards = card_request(spec.containers, spec.init_containers, spec.device_annotations, spec.unsupported)
        if cards is not None and cards.devices is not None:
            requests |= counted(cards.devices)
        # Of a pod with amounts of its own kubelets align devices alone.
        guaranteed = not spec.pod_requests and is_guaranteed(spec.containers, spec.init_containers)
        if len(spec.containers) > 1 or spec.init_containers or spec.overhead or spec.pod_requests:
            sidecars = [one for one in spec.init_containers if one.sidecar]
            of_containers = by_container((*sidecars, *spec.containers), guaranteed=guaranteed)
            of_init = by_container([one for one in spec.init_containers if not one.sidecar], guaranteed=guaranteed)
    except InvalidRequest as e:
        problem = problem or str(e)
    return Shape(
        key=key,
        requests=requests,
        cards=cards,
        node_selector=dict(spec.node_selector),
        affinity=spec.affinity,
        preferred=spec.preferred,
        tolerations=spec.tolerations,
        images=spec.images,
        guaranteed=guaranteed,
        of_containers=of_containers,
        of_init_containers=of_init,
        problem=sanitized(problem),
        oversized=oversized,
        written=written,
    )
