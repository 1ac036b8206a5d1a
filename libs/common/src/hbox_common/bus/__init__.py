"""NATS JetStream, with its traps closed once for everyone.

async with Bus.connect("nats://127.0.0.1:4222", name="binder", instance="binder-1") as bus:
    await bus.publish(OutcomesObserved(epoch=epoch, outcomes=outcomes), "0")
    await bus.consume("binder", [BindDecided], handle)
"""

from .access import Access
from .batcher import LeadEdgeBatcher
from .client import Bus
from .delivery import Delivery
from .follower import Start
from .micro import Endpoint
from .server import EmbeddedServer, Routes, find_binary, write_config

__all__ = [
    "Access",
    "Bus",
    "Delivery",
    "EmbeddedServer",
    "Endpoint",
    "LeadEdgeBatcher",
    "Routes",
    "Start",
    "find_binary",
    "write_config",
]
