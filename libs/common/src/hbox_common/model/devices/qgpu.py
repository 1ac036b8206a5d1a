"""Tencent's qGPU, in TKE: known, and left to its own scheduler.

A node publishes sums: 100 of `tke.cloud.tencent.com/qgpu-core` per card, with its part of `tke.cloud.tencent.com/qgpu-memory`, in GiB; so its cards can be
counted. TKE's qgpu-scheduler passes a container's card to its qgpu-manager in an unpublished way: a pod placed by HBox would wait on its node for ever, or get
a card in use. So a pod that requests qGPU is rejected with the alternative.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hbox_common.errors import InvalidRequest

from .asking import Ask
from .cambricon import SummedVendor
from .cards import ALL_CORES, Card
from .vendor import NodeReport, Quantity

_NO_WISHES: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QGpu(SummedVendor):
    def ask(self, asked: Mapping[str, Quantity], wishes: Mapping[str, str] = _NO_WISHES) -> Ask | None:  # noqa: ARG002
        named = next((name for name in (*self.parts, self.cards) if name in asked), None)
        if named is None:
            return None
        raise InvalidRequest(
            f"{named} can only be allocated by TKE's qgpu-scheduler: its protocol between scheduler and node is not published",
            hint="leave the pod to TKE's scheduler (spec.schedulerName), or ask for whole cards as nvidia.com/gpu on nodes without qGPU",
        )

    def registered(self, node: NodeReport) -> bool:  # noqa: ARG002
        """Nothing is written on pods."""
        return False

    def offered(self, cards: Sequence[Card], amount: int) -> int:  # noqa: ARG002
        return len(cards)


QGPU = QGpu(
    name="tencent",
    kind="qGPU",
    cards="tke.cloud.tencent.com/qgpu",  # HBox's own name: the node publishes cards as hundreds of compute
    cores="tke.cloud.tencent.com/qgpu-core",
    memory="tke.cloud.tencent.com/qgpu-memory",
    sizes=("tke.cloud.tencent.com/qgpu-core-greedy",),
    memory_unit_mib=1024,
    units=ALL_CORES,
    word="qgpu",
    always_fits=True,
)
