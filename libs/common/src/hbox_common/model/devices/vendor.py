"""The interface of a device vendor: its names and rules enter HBox only through it.

A vendor is one kind of device, by HAMi's common word for it. Its file is in this folder, with a value for each kind of its maker, listed in the
registry (`registry`). All other code handles cards of any vendor:

    names      the resource that counts the cards, and those for a part of each    all components, by the registry
    register   a node's annotations -> its cards                                   topology-collector, `hbox audit`
    ask        a container's requests -> number of cards and amount of each        job-controller
    complete   a container's requests -> the missing ones                          the admission endpoint, previews
    fit        cards and their allocations -> the slices, or why not               scheduler-core, `hbox simulate`
    admits     whether slices fit on a card in addition to others                  quota-ledger
    annotate   the slices of a pod's containers -> its device plugin's annotations binder, in the call that binds the pod
    rebuild    a pod's annotations by another scheduler -> its layout              `hbox simulate`, `hbox audit`
    figures    properties of the vendor's models                                   scheduler-core's plugin `card-models`

A vendor reports faults of a node or pod as the message of its InvalidRequest; the reason why cards do not fit as a `DeviceLabel`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from hbox_common.errors import InvalidRequest

from ..resources import parse_quantity
from .asking import Ask, CardRequest
from .cards import MAX_CARDS, Card, CardAllocation, CardSlice
from .handshake import assignment
from .layout import Layout
from .offer import Offer, Refused

#: As Kubernetes writes it.
Quantity: TypeAlias = str | float

_NO_WISHES: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one card. NaN = not known."""

    compute_tflops: float = float("nan")  #: dense FP16, on tensor cores where it has them
    link_gb_s: float = float("nan")  #: both ways together, by the maker's own link or else PCIe


@dataclass(frozen=True, slots=True)
class Completion:
    """Requests and annotations that a container with devices lacks, or states otherwise than its device plugin or a quota needs: the changes of HAMi's webhook
    (sources: hami-webhook), except amounts without new information, such as all of a card's memory."""

    amounts: Mapping[str, int] = field(default_factory=dict)  #: of the container, replacing its own
    env: Mapping[str, str] = field(default_factory=dict)  #: of the container, replacing its own
    default_env: Mapping[str, str] = field(default_factory=dict)  #: of the container, if it does not set them
    annotations: Mapping[str, str] = field(default_factory=dict)  #: of its pod, if it does not set them


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node's report on its devices."""

    name: str
    amounts: Mapping[str, int] = field(default_factory=dict)  #: allocatable, by resource
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Vendor(ABC):
    """One kind of device. Names that are empty do not exist: cards without them are taken whole."""

    name: str  #: as people write it, in small letters
    kind: str  #: HAMi's common word, as allocations on pods have it
    cards: str  #: the resource that counts cards; `<cards>.<model>` counts those of one model in queues
    cores: str = ""  #: the resource for a part of each card's compute, in percent
    memory: str = ""  #: of each card's memory, in MiB
    memory_percent: str = ""  #: of each card's memory, in percent
    sizes: tuple[str, ...] = ()  #: resources that say a part of each card in another way: slices, cores by number
    priority: str = ""  #: requests the priority of a container's work on a card: no node has such a resource
    memory_unit_mib: int = 1  #: of the resource `memory`, in requests and in quotas
    no_models: frozenset[str] = frozenset()  #: resources of its device plugin that look like a model's and are none
    models_annotation: str = ""  #: of a pod: the models that it may have, separated by commas
    #: pod annotations that `fit` reads, in addition to those of all vendors (`COMMON_WISHES`) and `models_annotation`
    wishes: tuple[str, ...] = ()
    #: annotations and labels of pods that HBox cannot honour: placing such a pod would break them
    unsupported: tuple[str, ...] = ()
    #: resource name that users write by mistake -> the vendor's resource
    misnamed: Mapping[str, str] = field(default_factory=dict)
    partitions: str = ""  #: name prefix of resources that are partitions of its cards, handed out as devices of their own
    facts: tuple[str, ...] = ()  #: labels and annotations of nodes that `fit` reads (`NodeState.device_facts`)
    allocated_annotation: str = ""  #: of a pod: what a scheduler gave it, for `rebuild`
    mode_annotation: str = ""  #: of a pod: which ways of sharing (`CardTraits.mode`) it may have
    to_allocate_annotation: str = ""  #: of a pod: what its device plugin is still to hand over (`handshake`)
    names_containers: bool = False  #: whether its device plugin reads something by names of containers (`by_container`)
    without_init: bool = False  #: whether its device plugin counts containers without init containers
    usual: Mapping[str, str] = field(default_factory=dict)  #: wishes that only state the default
    runtime_class: str = ""  #: of pods that ask for these cards and name none (`runtimeClassName` of device-config.yaml)
    #: a variable and its value that keep the cards from a container which asks for none (`overwriteEnv`)
    hidden: tuple[str, str] | None = None
    clique_label: str = ""  #: of a node: which domain of the vendor's own link it is in, where that reaches over several nodes
    #: node annotation with the plugin's lock; empty: it needs none, and many pods may be in allocation at once
    node_lock: str = ""
    always_fits: bool = False  #: whether `fit` is asked of every request: amounts of its cards do not say all
    #: by names of models; the longest one that is a word of a card's model counts
    figures: Mapping[str, Figures] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[str, ...]:
        """The resources that say a part of each card, and not an amount of the pod."""
        return tuple(name for name in (self.cores, self.memory, self.memory_percent, *self.sizes) if name)

    @abstractmethod
    def register(self, node: NodeReport) -> tuple[Card, ...]:
        """The cards of this kind of a node, at most MAX_CARDS. Raises InvalidRequest that names the label or annotation which cannot be understood: the node's
        cards are out of use until it can."""

    def offered(self, cards: Sequence[Card], amount: int) -> int:  # noqa: ARG002  kubelet's word counts for most
        """Units of the resource `cards` on a node. `amount`: reported by its kubelet, 0 if missing."""
        return amount

    def ask(self, asked: Mapping[str, Quantity], wishes: Mapping[str, str] = _NO_WISHES) -> Ask | None:  # noqa: ARG002  see `wishes`
        """A container's request by the vendor's resources, requests before limits; None if there is none. `wishes`: annotations of its pod, of which the vendor
        reads its own. Raises InvalidRequest that names the resource or annotation, with the correction as its hint."""
        count = whole_number(self.cards, asked)
        return Ask(self.kind, self.bounded(count)) if count else None

    def complete(
        self,
        asked: Mapping[str, Quantity],
        wishes: Mapping[str, str] = _NO_WISHES,
        container: str = "",  # noqa: ARG002  a vendor to which names are nothing
    ) -> Completion:
        """What is to be written into a container of this name that asks for so much, `priority` among it, so that `ask` reads the same of it as before and
        nothing is left to complete. To be asked where `ask` finds something. Raises InvalidRequest as that does, and for a `priority` that is none."""
        ask = self.ask(asked, wishes)
        return Completion(dict.fromkeys(ask.completed, ask.count)) if ask is not None else Completion()

    def amounts_of(self, count: int, memory_mib: int = 0, cores: int = 0) -> Mapping[str, int]:  # noqa: ARG002  a vendor without parts
        """A container's amounts for this number of cards, with these parts of each: the inverse of `ask`. Without `memory_mib`: whole."""
        return {self.cards: count}

    def request(self, asked: Mapping[str, Quantity], models: tuple[str, ...]) -> CardRequest | None:
        """As `ask`, as the request of a pod of which one container asks for cards, and without wishes."""
        ask = self.ask(asked)
        if ask is None:
            return None
        if ask.completed:
            part = next(name for name in self.parts if whole_number(name, asked))
            raise InvalidRequest(f"{part} given without {self.cards}", hint=f"add {self.cards}: 1")
        return CardRequest(ask.count, ask.cores, ask.memory_mib, ask.memory_percent, models)

    @abstractmethod
    def fit(self, offer: Offer, ask: Ask) -> tuple[CardSlice, ...] | Refused:
        """The slices that a container gets of these cards, or why it gets none."""

    def usage_score(self, offer: Offer) -> float:  # noqa: ARG002  a vendor without one
        """How full these cards are: fuller ones come first under binpack, emptier ones under spread."""
        return 0.0

    def choice_score(self, offer: Offer, ask: Ask, chosen: Sequence[CardSlice]) -> float:  # noqa: ARG002  a vendor without one
        """The vendor's addition to the node's score for these slices; `offer`: the cards before their allocation."""
        return 0.0

    def admits(self, card: Card, held: CardAllocation, taken: CardSlice) -> bool:  # noqa: ARG002  a vendor whose amounts say all
        """Whether this slice fits in addition to the card's allocations if cores, memory and shares suffice (`validate_claim`)."""
        return True

    def registered(self, node: NodeReport) -> bool:  # noqa: ARG002  a vendor whose plugin does not register cards
        """Whether a plugin of HAMi's has registered this node's cards of this kind: its pods need `annotate`."""
        return False

    def annotate(
        self,
        layout: Layout,  # noqa: ARG002  a vendor without a protocol
        cards: Mapping[int, Card],  # noqa: ARG002
        *,
        node: str = "",  # noqa: ARG002
        now: float = 0.0,  # noqa: ARG002
    ) -> dict[str, str]:
        """The pod annotations that this kind's device plugin reads, written in the call that binds the pod. `layout`: each container's devices of this kind,
        init containers first, empty for one without; `cards`: those of the node, by index; `now`: seconds since the epoch, for plugins that read a time of
        their own. Pure: annotations common to all kinds (node, time, phase) are in `handshake.assignment`."""
        return {}

    def by_container(
        self,
        layout: Layout,  # noqa: ARG002  a vendor that does not use names
        cards: Mapping[int, Card],  # noqa: ARG002
        containers: Sequence[str],  # noqa: ARG002
    ) -> dict[str, str]:
        """Of `names_containers`: what the device plugin reads besides (`annotate`), by the names of the layout's containers, in its order."""
        return {}

    def device_id(self, card: Card, taken: CardSlice) -> str:  # noqa: ARG002  a vendor whose devices are its cards
        """What is given to a pod, by the name that the device plugin has for it."""
        return card.uuid

    def assignment(self, node: str, now: float) -> dict[str, str]:
        """Where and when (seconds since the epoch) a pod was put, as the device plugin of this kind reads it."""
        return assignment(node, now)

    def allocated(self, annotations: Mapping[str, str]) -> str:
        """What a scheduler wrote on a pod of the devices of this kind that it has, as `rebuild` reads it; empty where nothing is."""
        return annotations.get(self.allocated_annotation, "") if self.allocated_annotation else ""

    @property
    def allocated_annotations(self) -> tuple[str, ...]:
        """Annotations of pods that `allocated` reads."""
        return (self.allocated_annotation,) if self.allocated_annotation else ()

    def rebuild(
        self,
        allocated: str,  # noqa: ARG002  a vendor with no such annotation
        cards: Sequence[Card],  # noqa: ARG002
        asks: Sequence[Ask],  # noqa: ARG002
        wishes: Mapping[str, str] = _NO_WISHES,  # noqa: ARG002
    ) -> Layout:
        """The layout in `allocated` on these cards; () if it contains none of them. `asks`: the requests of the pod's containers for this kind; `wishes`: its
        annotations. Never raises: any client may have written it."""
        return ()

    def bounded(self, count: int) -> int:
        """As many cards as one pod may ask for. Raises InvalidRequest."""
        if count > MAX_CARDS:
            raise InvalidRequest(f"{self.cards} is {count}", hint=f"at most {MAX_CARDS} cards fit one pod")
        return count


#: Annotations of pods that `fit` of every vendor reads (sources: hami-fit).
NODE_POLICY, CARD_POLICY, WEIGHTS = (
    "hami.io/node-scheduler-policy",
    "hami.io/gpu-scheduler-policy",
    "hami.io/device-scoring-weights",
)
COMMON_WISHES = (NODE_POLICY, CARD_POLICY, WEIGHTS)
BINPACK, SPREAD = "binpack", "spread"


def whole_number(name: str, asked: Mapping[str, Quantity]) -> int | None:
    """The amount asked for of one resource; None where it is not named. Raises InvalidRequest."""
    quantity = asked.get(name)
    if quantity is None:
        return None
    try:
        value = parse_quantity(quantity)
    except InvalidRequest as e:
        raise InvalidRequest(f"{name} is {quantity!r}, not a quantity", hint="write a whole number") from e
    if value < 0 or value != value.to_integral_value():
        raise InvalidRequest(f"{name} is {quantity}", hint="write a whole number, 0 or more")
    return int(value)
