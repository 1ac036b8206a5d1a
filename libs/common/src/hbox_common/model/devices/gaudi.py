"""Intel's Gaudi accelerators, whole, by the device plugin of Intel's operator; HAMi does not know them."""

from .hami import CountedVendor
from .vendor import Figures

GAUDI = CountedVendor(
    name="gaudi",
    kind="Gaudi",
    cards="habana.ai/gaudi",
    word="gaudi",
    model="Gaudi",
    # Of Gaudi 2 by Intel's data sheet, in BF16; 21 of its 24 ports of 100 Gbit/s link it to the others of its node.
    figures={"Gaudi": Figures(432, 525)},
)
