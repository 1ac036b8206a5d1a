"""Fabrics that are not there: plans of them, their faults, and what ibnetdiscover and UFM would say of them."""

from .plan import FabricPlan, disturbed, lingjun
from .server import Faults, UfmServer
from .text import ibnetdiscover_text

__all__ = ["FabricPlan", "Faults", "UfmServer", "disturbed", "ibnetdiscover_text", "lingjun"]
