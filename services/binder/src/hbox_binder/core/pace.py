"""How fast the binder may act."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """All limits of the core."""

    slots: int = 32  #: calls to the API server under way at once
    urgent_slots: int = 4  #: of these, kept for fences and evictions
    binds_per_s: float = 2000.0
    evictions_per_min: float = 2000.0  #: further evictions are delayed: such a number is more likely a fault than intended
    retries_per_s: float = 50.0  #: evictions asked for again: those that are blocked may be many, and go on for hours
    patience_s: float = 3.0  #: a call that has not settled a decision by then is reported as unknown
    unknown_every_s: float = 10.0  #: and again after so long each, as is what is blocked
    retry_base_s: float = 0.1
    retry_cap_s: float = 10.0
    volume_poll_s: float = 1.0  #: the longest pause between two reads of a PVC whose volume is being created
    volume_reads_per_s: float = 200.0  #: pods whose PVCs are read again; each read costs the API server about 2 ms
    remembered: int = 50_000  #: decisions whose outcome is answered again without a call
