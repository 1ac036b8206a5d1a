"""The vendors whose cards HBox knows. A new one is a file beside this, and its name in VENDORS."""

from collections.abc import Iterator, Mapping, Sequence

from hbox_common.errors import Bug

from .amd import AMD
from .hygon import HYGON
from .nvidia import NVIDIA
from .vendor import Figures, Vendor


class Vendors:
    """By the names of their resources. `default`: the one that tables show where nobody says which."""

    def __init__(self, *vendors: Vendor) -> None:
        self.adopt(vendors)

    def adopt(self, vendors: Sequence[Vendor]) -> None:
        """Take these for all that there are, the first as the default. Raises Bug where two have a resource in common."""
        names = [name for vendor in vendors for name in (vendor.cards, *vendor.parts)]
        if len(set(names)) < len(names):
            raise Bug(f"two vendors have a resource in common: {sorted(names)}")
        self._vendors = tuple(vendors)
        #: the resources that count cards
        self.cards = tuple(vendor.cards for vendor in vendors)
        #: resources of each card, not of a pod: they have columns of their own (`CardRequest`)
        self.parts = frozenset(name for vendor in vendors for name in vendor.parts)
        #: key of a ResourceQuota -> the resource that it limits
        self.limits: Mapping[str, str] = {
            f"limits.{name}": name for vendor in vendors for name in (vendor.cards, vendor.cores, vendor.memory) if name
        }
        #: annotations of pods: the models that they may have, and wishes that cannot be honoured
        self.models_annotations = tuple(vendor.models_annotation for vendor in vendors if vendor.models_annotation)
        self.unsupported = tuple(name for vendor in vendors for name in vendor.unsupported)
        self.model_prefixes = tuple(f"{name}." for name in self.cards)
        self.no_models = frozenset(self.model_prefixes).union(*(vendor.no_models for vendor in vendors))
        self.figures: Mapping[str, Figures] = {name: found for vendor in vendors for name, found in vendor.figures.items()}

    def __iter__(self) -> Iterator[Vendor]:
        return iter(self._vendors)

    @property
    def default(self) -> Vendor:
        return self._vendors[0]

    def of(self, amounts: Mapping[str, int]) -> Vendor | None:
        """Whose cards these amounts name: a pod's requests, or what a node has to give."""
        for vendor in self._vendors:
            if amounts.get(vendor.cards):
                return vendor
        return next((vendor for vendor in self._vendors if vendor.cards in amounts), None)

    def asked(self, requests: Mapping[str, int]) -> int:
        """How many cards a pod asks for."""
        return sum([requests.get(name, 0) for name in self.cards])


VENDORS = Vendors(NVIDIA, AMD, HYGON)
