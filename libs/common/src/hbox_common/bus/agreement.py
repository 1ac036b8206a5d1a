"""Whether services whose messages come here were told the same of devices as this process (`device_config`, `card_resources`).

One reads `vendor.example/gpu` as cards, another as an amount that it knows nothing of; one counts a unit of memory as 1 MiB, another as 8. So a process that
was told anything says the fingerprint of it with each message (`DEVICE_CONFIG`), and every reader holds that against its own. Who differs is told where it is
looked for: in the log, once; in the metric `device_config_differs`; by /readyz. Nothing is refused: the ledger judges every plan by its own numbers, and half
an upgrade must not stop a cluster.

What was stored before this process began is of another time, and what nobody has said again for FORGET_S is no longer held against anybody.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial

from hbox_common.clock import wall_s
from hbox_common.events import DEVICE_CONFIG
from hbox_common.model import VENDORS
from hbox_common.model.bounds import sanitized

from . import metrics

log = logging.getLogger(__name__)

#: Services that read what is said of cards.
READERS = ("topology-collector", "job-controller", "scheduler-core", "quota-ledger", "binder")

FORGET_S = 600.0

#: Of a fingerprint that another wrote, in the log.
_CHARS = 32


class Agreement:
    """`clock`: seconds since the epoch."""

    def __init__(self, clock: Callable[[], float] = wall_s) -> None:
        self._clock, self._began = clock, clock()
        self._differs: dict[str, tuple[str, float]] = {}  #: by service: its fingerprint, and when it said it last
        for service in READERS:
            metrics.DEVICE_CONFIG_DIFFERS.labels(service).set_function(partial(self._differing, service))

    def hear(self, headers: Mapping[str, str], stored_at: float) -> None:
        """Of each message that is read. `stored_at`: in seconds since the epoch."""
        said = headers.get(DEVICE_CONFIG, "")
        if said == VENDORS.fingerprint and not self._differs:  # nearly always
            return
        _, _, service, *_ = (*headers.get("ce-source", "").split("/", 3), "", "", "")
        if service not in READERS or stored_at < self._began:
            return
        if said == VENDORS.fingerprint:
            self._differs.pop(service, None)
            return
        before = self._differs.get(service)
        self._differs[service] = said, self._clock()
        if before is None or before[0] != said:
            log.error(
                "%s has other device settings (%s) than this process (%s): configure the same device_config and card_resources for every service",
                service,
                sanitized(said, _CHARS) or "none",
                VENDORS.fingerprint or "none",
            )

    def _differing(self, service: str) -> float:
        return float(service in self.differing())

    def differing(self) -> list[str]:
        """The services that differ, by what they said last."""
        since = self._clock() - FORGET_S
        return [service for service, (_, at) in self._differs.items() if at >= since]

    def trouble(self) -> str:
        """In words; empty: all agree."""
        names = ", ".join(sorted(self.differing()))
        return (
            f"{names}: other device settings than this process; all services need the same device_config and card_resources"
            if names
            else ""
        )


AGREEMENT = Agreement()
