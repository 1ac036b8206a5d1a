"""How a service process is set up, watched and stopped."""

from .health import Condition, Health, HealthServer
from .leading import led
from .run import main
from .settings import Settings, load
from .watchedfile import WatchedFile

__all__ = ["Condition", "Health", "HealthServer", "Settings", "WatchedFile", "led", "load", "main"]
