"""How a service process is set up, watched and stopped."""

from .bus import connected
from .health import Condition, Health, HealthServer, complaints
from .leading import led, term, turn
from .run import LongLived, collect_seldom, main
from .settings import Settings, current_secret, load
from .turns import LoopTurns
from .watchedfile import WatchedFile

__all__ = [
    "Condition",
    "Health",
    "HealthServer",
    "LongLived",
    "LoopTurns",
    "Settings",
    "WatchedFile",
    "collect_seldom",
    "complaints",
    "connected",
    "current_secret",
    "led",
    "load",
    "main",
    "term",
    "turn",
]
