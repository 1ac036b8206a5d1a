"""Scheduler names that HBox serves: it schedules pods whose `spec.schedulerName` is one of them."""

import re

from hbox_common.errors import InvalidRequest

from .ids import SCHEDULER_NAME

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_MAX_BYTES = 253


def scheduler_names(text: str) -> tuple[str, ...]:
    """`hbox,volcano` as names, each once, in their order. Raises InvalidRequest for none, or one that no pod can have."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if len(name) > _MAX_BYTES or not _NAME.fullmatch(name):
            raise InvalidRequest(f"{name!r} is no name of a scheduler", hint=f"write them like {SCHEDULER_NAME},volcano")
    return names
