"""RFC 6902 as far as the admission endpoint writes it, by the RFC's text: an oracle for its patches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any


def patched(document: Any, patch: Iterable[Mapping[str, Any]]) -> Any:
    """What the patch makes of the document, which stays as it is. Raises where the place does not exist."""
    found = deepcopy(document)
    for step in patch:
        assert step["op"] == "add", step
        *places, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        target = found
        for part in places:
            target = target[int(part)] if isinstance(target, list) else target[part]
        assert isinstance(target, dict), f"{step['path']}: only members of objects are written"
        target[last] = deepcopy(step["value"])
    return found
