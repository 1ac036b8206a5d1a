"""One rule a file, each behind the narrow hooks of `framework.hooks`."""

from ..framework.hostports import HostPorts
from ..framework.resources import ResourceFit
from .binpack import Binpack
from .fgd import Fgd, Fragments, Mix, Shape, expected_fragment
from .leastwaste import LeastWaste
from .nodeaffinity import NodeAffinity
from .nodecondition import NodeCondition
from .packing import card_worth
from .taints import Taints
from .volumes import VolumeReach

__all__ = [
    "Binpack",
    "Fgd",
    "Fragments",
    "HostPorts",
    "LeastWaste",
    "Mix",
    "NodeAffinity",
    "NodeCondition",
    "ResourceFit",
    "Shape",
    "Taints",
    "VolumeReach",
    "card_worth",
    "expected_fragment",
]  # fmt: skip
