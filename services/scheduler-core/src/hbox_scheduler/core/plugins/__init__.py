"""One rule a file, each behind the narrow hooks of `framework.hooks` and `framework.vectorised`."""

from ..framework.nodeports import NodePorts
from ..framework.resources import ResourceFit
from ..framework.vectorised import FitPlugin, Predicate
from .binpack import Binpack
from .fgd import Fgd, Fragments, Mix, Shape, expected_fragment
from .leastwaste import LeastWaste
from .nodeaffinity import NodeAffinity
from .nodestate import NodeCondition
from .packing import card_worth
from .taints import Taints
from .volumes import VolumeReach

__all__ = [
    "Binpack",
    "Fgd",
    "FitPlugin",
    "Fragments",
    "LeastWaste",
    "Mix",
    "NodeAffinity",
    "NodeCondition",
    "NodePorts",
    "Predicate",
    "ResourceFit",
    "Shape",
    "Taints",
    "VolumeReach",
    "card_worth",
    "expected_fragment",
]  # fmt: skip
