"""The vendors whose cards HBox supports. A new one is another file in this folder, and its name in VENDORS."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from hashlib import sha256

from hbox_common.errors import Bug, InvalidRequest

from .amd import AMD
from .ascend import ASCEND
from .asking import PodDevices
from .biren import BIREN
from .bymodel import CountedByModel
from .cambricon import CAMBRICON
from .cards import MAX_CARDS, Card, CardAllocation, CardSlice
from .cgpu import CGPU
from .deviceconfig import configured
from .enflame import GCU, SHARED_GCU
from .fitting import Fitted, fit
from .gaudi import GAUDI
from .hygon import HYGON
from .iluvatar import ILUVATAR
from .kunlun import KUNLUN, XPU
from .layout import Layout
from .metax import METAX_GPU, METAX_SGPU
from .mthreads import MTHREADS
from .neuron import NEURON
from .nvidia import NVIDIA
from .offer import Refused
from .qgpu import QGPU
from .vastai import VASTAI
from .vendor import COMMON_WISHES, Figures, NodeReport, Vendor
from .volcano import VOLCANO

#: Indices of a second kind start at a multiple of it (`Vendors.cards_of`).
_BLOCK = 16


class Vendors:
    """The vendors by the names of their resources. `default`: the one that tables show if none is specified."""

    def __init__(self, *vendors: Vendor) -> None:
        self.adopt(vendors)

    def adopt(self, vendors: Sequence[Vendor]) -> None:
        """Take these for all that there are, the first as the default. Raises Bug where two have a resource in common."""
        self._built_in = tuple(vendors)
        self._take(vendors)

    def _take(self, vendors: Sequence[Vendor]) -> None:
        names = [name for vendor in vendors for name in (vendor.cards, *vendor.parts)]
        if len(set(names)) < len(names):
            raise Bug(f"two vendors have a resource in common: {sorted(names)}")
        self._vendors = tuple(vendors)
        #: the resources that count cards
        self.cards = tuple(vendor.cards for vendor in vendors)
        self._ranks = {name: rank for rank, name in enumerate(self.cards)}
        self._owners = {name: rank for rank, vendor in enumerate(vendors) for name in (vendor.cards, *vendor.parts)}
        #: resources of each card, not of a pod: they have columns of their own (`CardRequest`)
        self.parts = frozenset(name for vendor in vendors for name in vendor.parts)
        #: resources of which no node has an amount
        self.no_amounts = self.parts.union(vendor.priority for vendor in vendors if vendor.priority)
        #: key of a ResourceQuota -> the resource that it limits
        self.limits: Mapping[str, str] = {
            f"limits.{name}": name for vendor in vendors for name in (vendor.cards, vendor.cores, vendor.memory) if name
        }
        #: key of a ResourceQuota -> MiB to a unit of it, where these are others than 1
        self.units: Mapping[str, int] = {
            f"limits.{vendor.memory}": vendor.memory_unit_mib for vendor in vendors if vendor.memory_unit_mib != 1
        }
        #: annotations of pods: the models that they may have, and wishes that cannot be honoured
        self.models_annotations = tuple(vendor.models_annotation for vendor in vendors if vendor.models_annotation)
        #: annotations of pods that some vendor's `fit` reads
        self.wishes = frozenset(COMMON_WISHES).union(*(vendor.wishes for vendor in vendors))
        self.pod_annotations = self.wishes.union(self.models_annotations)
        #: labels and annotations of nodes that some vendor's `fit` reads
        self.facts = frozenset().union(*(vendor.facts for vendor in vendors))
        #: resource name of no device plugin that users write by mistake -> the name of the resource that exists
        self.misnamed: Mapping[str, str] = {name: meant for vendor in vendors for name, meant in vendor.misnamed.items()}
        self._allocated = frozenset(name for vendor in vendors for name in vendor.allocated_annotations)
        #: annotations of nodes by which device plugins lock one (`handshake`)
        self.locks = frozenset(vendor.node_lock for vendor in vendors) - {""}
        self._kinds = {vendor.kind: vendor for vendor in vendors}
        self._by_name = frozenset(vendor.kind for vendor in vendors if vendor.names_containers)
        self.unsupported = tuple(name for vendor in vendors for name in vendor.unsupported)
        self.model_prefixes = tuple(f"{name}." for name in self.cards)
        #: names of resources that count parts of a vendor's cards (prefixes of names, and replicas of cards) -> the resource that counts its cards
        self.partitioned: Mapping[str, str] = {
            name: vendor.cards for vendor in vendors for name in (vendor.partitions, *vendor.no_models) if name
        }
        self.partition_names = (*self.partitioned, *(f"{vendor.cards}:" for vendor in vendors if vendor.partitions))
        self.partition_prefixes = tuple(vendor.partitions for vendor in vendors if vendor.partitions)
        self.no_models = frozenset(self.model_prefixes).union(self.parts, *(vendor.no_models for vendor in vendors))
        self.figures: Mapping[str, Figures] = {name: found for vendor in vendors for name, found in vendor.figures.items()}
        #: fingerprint of the differences from the built-in settings: equal for processes with equal settings, empty without settings
        self.fingerprint = _fingerprint(self._built_in, vendors)

    def configure(self, text: str) -> tuple[str, ...]:
        """Configure the vendors by a `device-config.yaml`, replacing any previous one. Returns warnings about settings without effect. Raises InvalidRequest,
        and changes nothing, for an invalid text."""
        found = configured((vendor for vendor in self._built_in if not isinstance(vendor, CountedByModel)), text)
        self._combine(found.vendors, [vendor for vendor in self._vendors if isinstance(vendor, CountedByModel)])
        return found.warnings

    @contextmanager
    def configured(self, text: str | None) -> Iterator[tuple[str, ...]]:
        """As `configure`, for the duration of the block; None = unchanged. Raises InvalidRequest for an invalid text."""
        before = self._vendors
        warnings = () if text is None else self.configure(text)
        try:
            yield warnings
        finally:
            if text is not None:
                self._take(before)

    def count_by_model(self, named: Sequence[CountedByModel]) -> None:
        """Add vendors for the resources that count cards by model. Raises InvalidRequest for a resource that a vendor has already."""
        self._combine([vendor for vendor in self._vendors if not isinstance(vendor, CountedByModel)], named)

    def _combine(self, vendors: Sequence[Vendor], named: Sequence[CountedByModel]) -> None:
        taken = {name for vendor in vendors for name in (vendor.cards, *vendor.parts)}
        for vendor in named:
            if vendor.cards in taken:
                raise InvalidRequest(f"{vendor.cards} counts cards of any model", hint="leave it out")
        self._take((*vendors, *named))

    def __iter__(self) -> Iterator[Vendor]:
        return iter(self._vendors)

    def __contains__(self, resource: object) -> bool:
        """Whether this resource counts some vendor's cards."""
        return resource in self._ranks

    @property
    def default(self) -> Vendor:
        return self._vendors[0]

    def of(self, amounts: Mapping[str, int]) -> Vendor | None:
        """The vendor of the cards in these amounts: a pod's requests, or a node's allocatable."""
        if amounts.get(self.cards[0]):
            return self._vendors[0]
        # There are some thirty vendors, and pods and nodes name a handful of resources.
        named = [self._ranks[name] for name in amounts if name in self._ranks]
        if not named:
            return None
        if len(named) > 1:
            named = [rank for rank in named if amounts[self.cards[rank]]] or named
        return self._vendors[min(named)]

    def whose(self, resources: Iterable[str]) -> list[Vendor]:
        """The vendors that have any of these resources, of cards or of parts, in the registry's order."""
        ranks = {self._owners[name] for name in resources if name in self._owners}
        return [self._vendors[rank] for rank in sorted(ranks)]

    def kind(self, kind: str) -> Vendor:
        """The vendor by HAMi's common word. Raises KeyError for an unknown word."""
        return self._kinds[kind]

    def knows(self, kind: str) -> bool:
        return kind in self._kinds

    def cards_of(self, node: NodeReport, complain: Callable[[str], None]) -> tuple[Card, ...]:
        """All cards of a node, each with its kind, by distinct indices: those of a second kind follow those of the first, from the next multiple of 16, so that
        the order of pairs and rows of cards is kept. If the cards of a kind cannot be read, `complain` is called and they are left out."""
        found: list[Card] = []
        for vendor in self._vendors:
            if node.amounts.get(vendor.cards, 0) > MAX_CARDS:
                complain(f"allocatable {vendor.cards}: {node.amounts[vendor.cards]} cards on one node")
                continue
            try:
                cards = vendor.register(node)
            except InvalidRequest as e:
                complain(e.message)
                continue
            shift = -(-(found[-1].index + 1) // _BLOCK) * _BLOCK if found and cards else 0
            ordered = sorted(cards, key=lambda card: card.index)
            found += [replace(card, index=card.index + shift, kind=vendor.kind) for card in ordered]
        if len(found) > MAX_CARDS:
            complain(f"{len(found)} cards on one node, at most {MAX_CARDS} are read")
        return tuple(found[:MAX_CARDS])

    def registered(self, node: NodeReport) -> tuple[str, ...]:
        """The kinds of which a plugin of HAMi's has registered this node's cards."""
        return tuple(vendor.kind for vendor in self._vendors if vendor.registered(node))

    def annotate(
        self,
        layout: Layout,
        cards: Sequence[Card],
        registered: Collection[str],
        *,
        node: str,
        now: float,
        init: int = 0,
        containers: Sequence[str] = (),
    ) -> dict[str, str]:
        """What device plugins read on a pod that is bound to `node` with these cards of it (`handshake`); nothing where none of its cards is of a kind
        `registered`. `now`: seconds since the epoch; `init`: how many of the containers are init containers; `containers`: their names, where some vendor's
        plugin reads these (`by_name`). Raises KeyError for a card that the node does not have."""
        by_index = {card.index: card for card in cards}
        notes: dict[str, str] = {}
        for kind in dict.fromkeys(by_index[s.index].kind for one in layout for s in one):
            if kind in registered and kind in self._kinds:
                vendor = self._kinds[kind]
                own = tuple(tuple(s for s in one if by_index[s.index].kind == kind) for one in layout)
                written = vendor.annotate(own[init:] if vendor.without_init else own, by_index, node=node, now=now)
                if written and vendor.names_containers:
                    written |= vendor.by_container(own, by_index, containers)
                notes |= written | vendor.assignment(node, now) if written else written
        return notes

    def device_id(self, card: Card, taken: CardSlice) -> str:
        """What of a card is given to a pod, as its device plugin calls it."""
        return self._kinds[card.kind].device_id(card, taken) if card.kind in self._kinds else card.uuid

    def allocated(self, annotations: Mapping[str, str]) -> dict[str, str]:
        """By kind of device, the value of the annotation by which a scheduler allocated devices to a pod (`Vendor.allocated`)."""
        if self._allocated.isdisjoint(annotations):
            return {}
        return {vendor.kind: text for vendor in self._vendors if (text := vendor.allocated(annotations))}

    def by_name(self, slices: Sequence[CardSlice], cards: Sequence[Card], registered: Collection[str]) -> bool:
        """Whether a device plugin reads something of these slices by names of containers."""
        if not self._by_name:
            return False
        named = {card.index for card in cards if card.kind in self._by_name and card.kind in registered}
        return bool(named) and any(s.index in named for s in slices)

    def node_locks(self, slices: Sequence[CardSlice], cards: Sequence[Card], registered: Collection[str]) -> tuple[str, ...]:
        """The locks of the node that a pod with these slices takes for its device plugins, sorted. Raises KeyError as `annotate` does."""
        by_index = {card.index: card for card in cards}
        kinds = {by_index[s.index].kind for s in slices}.intersection(registered, self._kinds)
        return tuple(sorted({self._kinds[kind].node_lock for kind in kinds} - {""}))

    def fit(
        self, cards: Sequence[Card], used: Mapping[int, CardAllocation], request: PodDevices, facts: Mapping[str, str]
    ) -> Fitted | Refused:
        """Whether a node's cards can take a pod, and which they take (`fitting.fit`)."""
        return fit(cards, used, request, facts, self.kind)

    def asked(self, requests: Mapping[str, int]) -> int:
        """How many cards a pod asks for."""
        ranks, found = self._ranks, 0
        for name in requests:
            if name in ranks:
                found += requests[name]
        return found

    def owner(self, model: str) -> str:
        """The resource that counts all cards of the vendor one of whose models this resource counts; empty where it counts none's."""
        prefix = next((prefix for prefix in self.model_prefixes if model.startswith(prefix)), "")
        return prefix[:-1]

    def named(self, amounts: Iterable[str]) -> list[str]:
        """Those of these resources that count cards, in the order of the vendors."""
        return sorted((name for name in amounts if name in self._ranks), key=self._ranks.__getitem__)


def _fingerprint(built_in: Sequence[Vendor], vendors: Sequence[Vendor]) -> str:
    known = {vendor.kind: vendor for vendor in built_in}
    lines: list[str] = []
    for vendor in vendors:
        base = known.get(vendor.kind)
        if base is vendor:
            continue
        for one in fields(vendor):
            value = getattr(vendor, one.name)
            # What follows from other fields, and sets, which have no order of their own.
            if isinstance(value, frozenset) or one.name == "figures" or (base is not None and value == getattr(base, one.name)):
                continue
            lines.append(f"{vendor.kind}.{one.name}={value!r}")
    return sha256("\n".join(sorted(lines)).encode()).hexdigest()[:12] if lines else ""


VENDORS = Vendors(
    NVIDIA,
    AMD,
    HYGON,
    *ASCEND,
    CAMBRICON,
    METAX_GPU,
    METAX_SGPU,
    KUNLUN,
    XPU,
    NEURON,
    GCU,
    SHARED_GCU,
    *ILUVATAR,
    MTHREADS,
    BIREN,
    VASTAI,
    GAUDI,
    VOLCANO,
    CGPU,
    QGPU,
)
