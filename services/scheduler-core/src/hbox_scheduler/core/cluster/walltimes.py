"""Walltimes as annotations have them (`hbox.io/walltime`)."""

from collections.abc import Mapping
from functools import lru_cache

from hbox_common.model.annotations import WALLTIME
from hbox_common.model.durations import duration_s

_parsed = lru_cache(maxsize=1024)(duration_s)


def walltime_in(*written: Mapping[str, str]) -> float | None:
    """Seconds, by the first of these annotations that say it."""
    for annotations in written:
        if (text := annotations.get(WALLTIME)) and (found := _parsed(text[:65])) is not None:
            return found
    return None
