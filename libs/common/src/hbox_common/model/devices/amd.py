"""AMD, shared by HAMi (sources: hami-amd), or whole with AMD's own device plugin, whose node labeller names the model."""

from collections.abc import Mapping
from dataclasses import dataclass

from hbox_common.errors import InvalidRequest

from .asking import Ask
from .cards import ALL_CORES, Card, CardSlice
from .hami import HamiVendor
from .handshake import NODE_LOCK
from .vendor import Figures, Quantity, whole_number

_USE_UUID, _NOUSE_UUID, _NOUSE_TYPE = "amd.com/use-gpu-uuid", "amd.com/nouse-gpu-uuid", "amd.com/nouse-gputype"
_NO_WISHES: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Amd(HamiVendor):
    """Compute units cannot be had without any: 1 percent is the least, as in HAMi."""

    def ask(self, asked: Mapping[str, Quantity], wishes: Mapping[str, str] = _NO_WISHES) -> Ask | None:
        if whole_number(self.cores, asked) == 0:
            raise InvalidRequest(f"{self.cores} is 0", hint="write the percentage of one card's compute units, 1 to 100")
        return HamiVendor.ask(self, asked, wishes)

    def device_text(self, card: Card, taken: CardSlice) -> str:
        """With the product's name instead of HAMi's word, and compute in units."""
        units = card.effective_traits.units
        return f"{card.uuid},{card.model},{taken.memory_mib},{min(max(units * taken.cores // ALL_CORES, 1), units)}"


AMD = Amd(
    name="amd",
    kind="AMD",
    cards="amd.com/gpu",
    cores="amd.com/gpucores",
    memory="amd.com/gpumem",
    register_annotation="hami.io/node-amd-register",
    model_label="amd.com/gpu.product-name",
    models_annotation="amd.com/use-gputype",
    nouse_type=_NOUSE_TYPE,
    use_uuid=_USE_UUID,
    nouse_uuid=_NOUSE_UUID,
    wishes=(_USE_UUID, _NOUSE_UUID, _NOUSE_TYPE),
    allocated_annotation="hami.io/amd-devices-allocated",
    to_allocate_annotation="hami.io/amd-devices-to-allocate",
    node_lock=NODE_LOCK,
    cores_unnamed=100,
    cores_in_percent=False,  # allocations count compute units
    # By AMD's data sheets, both ways over all links.
    figures={
        "MI210": Figures(181, 300),
        "MI250X": Figures(383, 800),
        "MI300X": Figures(1307, 896),
        "MI325X": Figures(1307, 896),
    },
)
