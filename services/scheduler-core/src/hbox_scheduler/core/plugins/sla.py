"""sla: a longest waiting time (reference volcano §4). It orders gangs by their deadlines and opens the gate when one has passed; it reserves nothing."""

import re
from typing import TYPE_CHECKING

from hbox_common.errors import InvalidRequest
from hbox_common.model.annotations import WAITING_TIME

from ..session.hooks import Vote
from ..session.nouns import Gang
from .arguments import Arguments

if TYPE_CHECKING:
    from ..policy.conf import PluginConf
    from ..session.session import Session

_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_NEVER = float("inf")


class Sla:
    """Argument: sla-waiting-time, a duration such as 30m, for gangs without an annotation of that name."""

    name = "sla"

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        text = arguments.text(WAITING_TIME)
        arguments.done()
        self._default_s: float | None = None
        if text:
            self._default_s = duration_s(text)
            if self._default_s is None and not text.lstrip("-").isdigit():
                raise InvalidRequest(
                    f"plugin sla, argument {WAITING_TIME}: {text!r} is not a duration", hint="write it as 30m or 1h30m"
                )

    def open(self, session: "Session") -> None:
        self._now = session.now

    def gang_key(self, gang: Gang) -> float:
        return self._deadline(gang)

    def enqueueable(self, gang: Gang) -> Vote:
        return Vote.PERMIT if self._deadline(gang) < self._now else Vote.ABSTAIN

    pipelined = enqueueable

    def _deadline(self, gang: Gang) -> float:
        waiting_s = None
        for key in (WAITING_TIME, f"volcano.sh/{WAITING_TIME}"):
            if key in gang.annotations:
                waiting_s = duration_s(gang.annotations[key])
        if waiting_s is None or waiting_s <= 0:
            waiting_s = self._default_s
        return _NEVER if waiting_s is None else gang.created_at + waiting_s


def duration_s(text: str) -> float | None:
    """A duration as Go writes it (1h30m, 300ms); None = it is none."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts)
