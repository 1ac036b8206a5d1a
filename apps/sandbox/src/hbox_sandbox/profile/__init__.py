"""Built-in days of work, generated from small tables of published figures."""

from collections.abc import Callable, Mapping

from hbox_common.errors import NotFound
from hbox_sandbox.trace import Trace

from .alibaba2023 import alibaba2023

PROFILES: Mapping[str, Callable[[int], Trace]] = {"alibaba-2023": alibaba2023}


def generate(name: str, *, seed: int) -> Trace:
    """The day of work called `name`; the same for the same seed. Raises NotFound."""
    if name not in PROFILES:
        raise NotFound(f"there is no profile called {name}", hint=f"there are {', '.join(PROFILES)}")
    return PROFILES[name](seed)


__all__ = ["PROFILES", "alibaba2023", "generate"]
