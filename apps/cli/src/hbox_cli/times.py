"""Durations that users type, and moments as they are printed: in UTC, with the date."""

import re
from datetime import UTC, datetime

import click

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")


class _Duration(click.ParamType[float]):
    """Seconds of `90`, `90s`, `10m`, `2h30m`, `7d`."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        text = str(value)
        if not text or "".join(f"{number}{unit}" for number, unit in _PART.findall(text)) != text:
            self.fail(f"{text!r} is no duration: write it like 90s, 10m, 2h30m or 7d", param, ctx)
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


DURATION = _Duration()


def utc(seconds: float) -> str:
    """`2026-11-28 14:40:03Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def utc_minutes(seconds: float) -> str:
    """`2026-11-28 14:40Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%MZ")
