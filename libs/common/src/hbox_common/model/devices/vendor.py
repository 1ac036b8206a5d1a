"""What HBox asks of a maker of cards: the interface through which names and habits of one maker come in.

A vendor is one file beside this one, with one value in it, and its line in the registry (`registry`). All else deals with cards, whoever made them:

    names      which resource counts the cards, and which say a part of each       everybody, by the registry
    register   what is written on a node -> its cards                              topology-collector, `hbox audit`
    request    what a container asks for -> a request for cards, or why it is none job-controller
    rebuild    what another scheduler wrote on a pod -> the parts that it holds    `hbox simulate`
    figures    what is known of the vendor's models                                scheduler-core's plugin `card-models`

Some moments have no hook, since no vendor differs there: whether cards fit and which are chosen is arithmetic over columns
(`hbox_scheduler.core.devices`), the pod is told by the annotation `hbox.io/cards`, and reasons are labels of scheduler-core. What a vendor itself has to say
against a node's or a pod's words is the message of its InvalidRequest.

A node has cards of one vendor, and so has a pod: an amount of resources names the vendor (`Vendors.of`), which neither a card nor a request repeats.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from hbox_common.errors import InvalidRequest

from ..resources import parse_quantity
from .cards import MAX_CARDS, Card, CardRequest, CardSlice

#: As Kubernetes writes it.
Quantity: TypeAlias = str | float


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one card. NaN = not known."""

    compute_tflops: float = float("nan")  #: dense FP16, on tensor cores where it has them
    link_gb_s: float = float("nan")  #: both ways together, by the maker's own link or else PCIe


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Vendor(ABC):
    """One maker's cards. Names that are empty do not exist: cards without them are taken whole."""

    name: str  #: as people write it, in small letters
    cards: str  #: the resource that counts cards; `<cards>.<model>` counts those of one model in queues
    cores: str = ""  #: the resource for a part of each card's compute, in percent
    memory: str = ""  #: of each card's memory, in MiB
    memory_percent: str = ""  #: of each card's memory, in percent
    no_models: frozenset[str] = frozenset()  #: resources of its device plugin that look like a model's and are none
    models_annotation: str = ""  #: of a pod: the models that it may have, separated by commas
    unsupported: tuple[str, ...] = ()  #: annotations of pods that HBox cannot honour: placing such a pod would break them
    allocated_annotation: str = ""  #: of a pod: what another scheduler gave it, for `rebuild`
    figures: Mapping[str, Figures] = field(
        default_factory=dict
    )  #: by names of models; the longest one that is a word of a card's model counts

    @property
    def parts(self) -> tuple[str, ...]:
        """The resources that say a part of each card, and not an amount of the pod."""
        return tuple(name for name in (self.cores, self.memory, self.memory_percent) if name)

    @abstractmethod
    def register(self, node: str, count: int, labels: Mapping[str, str], annotations: Mapping[str, str]) -> tuple[Card, ...]:
        """The cards of a node. `count`: how many the kubelet would give out, 0 to MAX_CARDS. Raises InvalidRequest that names the label or annotation which
        cannot be understood: the node's cards are out of use until it can."""

    def request(self, asked: Mapping[str, Quantity], models: tuple[str, ...]) -> CardRequest | None:
        """What a container asks for by the vendor's resources, requests before limits; None where that is nothing. Raises InvalidRequest that names the
        resource, with what to write instead as its hint."""
        count = whole_number(self.cards, asked)
        return CardRequest(self.bounded(count), models=models) if count else None

    def rebuild(self, allocated: str, request: CardRequest, cards: Sequence[Card]) -> tuple[CardSlice, ...]:  # noqa: ARG002  a vendor with no such annotation
        """What `allocated_annotation` says that a pod holds of these cards; nothing where it says nothing of them. Never raises."""
        return ()

    def bounded(self, count: int) -> int:
        """As many cards as one pod may ask for. Raises InvalidRequest."""
        if count > MAX_CARDS:
            raise InvalidRequest(f"{self.cards} is {count}", hint=f"at most {MAX_CARDS} cards fit one pod")
        return count


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
