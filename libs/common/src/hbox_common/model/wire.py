"""Field names on the bus that differ from the names in code: the wire format stays unchanged."""

from collections.abc import Mapping
from typing import Any

#: Validation bounds of every message and of the dataclasses in it.
BOUNDS: Mapping[str, Any] = {"extra": "ignore", "allow_inf_nan": False, "str_max_length": 65_536}


def wire_names(**names: str) -> dict[str, Any]:
    """A dataclass's `__pydantic_config__`: its fields and their names on the wire. A configuration of its own replaces the message's, so that it repeats
    the bounds."""
    return {**BOUNDS, "alias_generator": lambda field: names.get(field, field)}
