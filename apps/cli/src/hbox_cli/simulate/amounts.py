"""Quantities of a document in base units, with the field named where one is wrong."""

from collections.abc import Mapping

from hbox_common.errors import InvalidRequest
from hbox_common.model import Resources, capacity_units, request_units

from .documents import Document

_QUOTA_PREFIXES = ("requests.", "limits.")


def capacities(document: Document, field: str, quantities: Mapping[str, str | float]) -> Resources:
    """What there is, or may be had: rounded down. Raises InvalidRequest."""
    return {name: _one(document, field, name, quantity, down=True) for name, quantity in quantities.items()}


def requests(document: Document, field: str, quantities: Mapping[str, str | float]) -> Resources:
    """What is asked for: rounded up. Raises InvalidRequest."""
    return {name: _one(document, field, name, quantity, down=False) for name, quantity in quantities.items()}


def quota(document: Document, field: str, quantities: Mapping[str, str | float], *, down: bool) -> Resources:
    """Amounts by quota key: `limits.memory` counts as `memory` does. Raises InvalidRequest."""
    return {key: _one(document, field, key, quantity, down=down) for key, quantity in quantities.items()}


def _one(document: Document, field: str, key: str, quantity: str | float, *, down: bool) -> int:
    name = next((key.removeprefix(prefix) for prefix in _QUOTA_PREFIXES if key.startswith(prefix)), key)
    try:
        units = capacity_units(name, quantity) if down else request_units(name, quantity)
    except InvalidRequest as e:
        raise document.wrong(f"{field}.{key}", e.message, hint=e.hint) from e
    if units < 0:
        raise document.wrong(f"{field}.{key}", f"{quantity} is negative", hint="write 0 or more")
    return units
