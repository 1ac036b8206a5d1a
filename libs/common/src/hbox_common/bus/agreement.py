"""Compare the device settings (`device_config`, `card_resources`) of this process with those of the services whose messages it receives.

With different settings, one service reads `vendor.example/gpu` as cards and another as an unknown resource, or one counts a unit of memory as 1 MiB and another
as 8. So a process with device settings adds their fingerprint to each message (`DEVICE_CONFIG`), and every reader compares it with its own. A difference is
reported once in the log, in the metric `device_config_differs` and by /readyz. No message is rejected: the ledger judges every plan by its own numbers, and a
half-finished upgrade must not stop a cluster.

Messages stored before this process started are ignored. A difference expires after FORGET_S unless another message repeats it.
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

#: Services that read device settings.
READERS = ("topology-collector", "job-controller", "scheduler-core", "quota-ledger", "binder")

FORGET_S = 600.0

#: Characters of a received fingerprint in the log.
_CHARS = 32


class Agreement:
    """`clock`: seconds since the epoch."""

    def __init__(self, clock: Callable[[], float] = wall_s) -> None:
        self._clock, self._began = clock, clock()
        self._differs: dict[str, tuple[str, float]] = {}  #: by service: its last fingerprint, and when it was received
        for service in READERS:
            metrics.DEVICE_CONFIG_DIFFERS.labels(service).set_function(partial(self._differing, service))

    def observe(self, headers: Mapping[str, str], stored_at: float) -> None:
        """Compare the headers of a received message. `stored_at`: in seconds since the epoch."""
        fingerprint = headers.get(DEVICE_CONFIG, "")
        if fingerprint == VENDORS.fingerprint and not self._differs:  # nearly always
            return
        _, _, service, *_ = (*headers.get("ce-source", "").split("/", 3), "", "", "")
        if service not in READERS or stored_at < self._began:
            return
        if fingerprint == VENDORS.fingerprint:
            self._differs.pop(service, None)
            return
        before = self._differs.get(service)
        self._differs[service] = fingerprint, self._clock()
        if before is None or before[0] != fingerprint:
            log.error(
                "%s has other device settings (%s) than this process (%s): configure the same device_config and card_resources for every service",
                service,
                sanitized(fingerprint, _CHARS) or "none",
                VENDORS.fingerprint or "none",
            )

    def _differing(self, service: str) -> float:
        return float(service in self.differing())

    def differing(self) -> list[str]:
        """The services whose last fingerprint differs."""
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
