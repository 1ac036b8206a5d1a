"""Whether scheduler-core's policy divides by weight: read from the file that both services get.

The operator controls the file, like a setting. Any client could publish a policy on the bus, so no entitlement follows from one.
"""

from pathlib import Path
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.runtime import WatchedFile
from hbox_common.yamltext import content_of

#: The plugin by whose shares queues take from each other.
BY_WEIGHT = "proportion"


def by_weight(text: str) -> bool:
    """Whether a volcano-scheduler.conf has the plugin. What else is in it is scheduler-core's to judge. Raises InvalidRequest where it is none."""
    content = content_of(text)
    if not isinstance(content, dict):
        raise InvalidRequest("has no actions and tiers", hint="`hbox policy check` shows its faults")
    return any(
        _key(plugin, "name") == BY_WEIGHT for tier in _items(content.get("tiers")) for plugin in _items(_key(tier, "plugins"))
    )


def policy_file(path: Path) -> WatchedFile[bool]:
    """`by_weight` of the file as it is, while it can be read. Raises InvalidRequest where it cannot at the start."""
    return WatchedFile(path, by_weight, setting="HBOX_SCHEDULER_CONF", what="a volcano-scheduler.conf")


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _key(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None
