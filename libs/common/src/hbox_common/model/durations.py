"""Durations as annotations and policies have them."""

import re

_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")

#: Longer than any sensible duration. The regular expression needs time quadratic in the length of its input, and annotations may be long.
_LONGEST = 64


def duration_s(text: str) -> float | None:
    """A duration as Go writes it (1h30m, 300ms), in seconds; None = it is none."""
    if len(text) > _LONGEST:
        return None
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts)
