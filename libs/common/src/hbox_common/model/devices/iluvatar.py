"""Iluvatar's cards, shared by HAMi: each model is a kind of its own, with resources of its own (sources: hami-iluvatar)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .asking import Ask
from .hami import HamiVendor
from .handshake import NODE_LOCK
from .vendor import Completion, Quantity

#: HAMi's words.
MODELS = ("MR-V100", "MR-V50", "BI-V150", "BI-V100")

#: In which the plugin looks for it (HAMi pkg/device/iluvatar).
CONTAINER_NAME = "SOL_CONTINER_NAME"

_NO_WISHES: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Iluvatar(HamiVendor):
    """Several cards for one container are whole ones."""

    def ask(self, asked: Mapping[str, Quantity], wishes: Mapping[str, str] = _NO_WISHES) -> Ask | None:
        ask = HamiVendor.ask(self, asked, wishes)
        return ask if ask is None or ask.count == 1 else Ask(self.kind, ask.count)

    def complete(
        self, asked: Mapping[str, Quantity], wishes: Mapping[str, str] = _NO_WISHES, container: str = ""
    ) -> Completion:
        """The container's name, as its plugin reads it; the name is misspelled as there."""
        found = HamiVendor.complete(self, asked, wishes, container)
        return replace(found, default_env={CONTAINER_NAME: container}) if container else found


def kind_of(word: str) -> Iluvatar:
    """The kind of a chip by HAMi's word, with the names that HAMi gives its resources and annotations."""
    use, nouse = f"hami.io/use-{word}-uuid", f"hami.io/no-use-{word}-uuid"
    return Iluvatar(
        name=f"iluvatar-{word.lower()}",
        kind=word,
        cards=f"iluvatar.ai/{word}-vgpu",
        cores=f"iluvatar.ai/{word}.vCore",
        memory=f"iluvatar.ai/{word}.vMem",
        memory_unit_mib=256,
        register_annotation=f"hami.io/node-{word}-register",
        use_uuid=use,
        nouse_uuid=nouse,
        wishes=(use, nouse),
        allocated_annotation=f"hami.io/{word}-devices-allocated",
        to_allocate_annotation=f"hami.io/{word}-devices-to-allocate",
        node_lock=NODE_LOCK,
    )


ILUVATAR = tuple(kind_of(word) for word in MODELS)
