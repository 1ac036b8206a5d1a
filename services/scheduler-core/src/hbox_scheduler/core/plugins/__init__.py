"""One rule a file, each behind a narrow vectorised hook (`base`)."""

from .base import CardChoice, Predicate, Room, Score
from .binpack import Binpack
from .cardmodels import ScarceModels
from .fgd import Fgd, Fragments, Mix, Shape, expected_fragment
from .leastwaste import LeastWaste
from .nodeaffinity import NodeAffinity
from .nodeports import NodePorts
from .nodestate import NodeCondition
from .packing import card_worth
from .resources import ResourceRoom
from .taints import Taints
from .volumes import VolumeReach

__all__ = [
    "Binpack", "CardChoice", "Fgd", "Fragments", "LeastWaste", "Mix", "NodeAffinity", "NodeCondition", "NodePorts", "Predicate",
    "ResourceRoom", "Room", "ScarceModels", "Score", "Shape", "Taints", "VolumeReach", "card_worth", "expected_fragment",
]  # fmt: skip
