"""The streams: what each keeps and for how long. Nothing exists only here, so every limit may be reached without loss (design §4).

Streams of facts drop the oldest when full: whoever missed something asks its owner. The stream of decisions refuses new ones instead, since
the ledger's outbox keeps what is refused and sends it again.
"""

from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig

from hbox_common.events import Stream

_MINUTE = 60.0
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_MIB = 2**20

#: A retried publish is recognised for so long; publishers give up well before (reference reliability §2).
DUPLICATE_WINDOW_S = 2 * _MINUTE


def _stream(
    name: Stream, *subjects: str, age_s: float, mib: int, last_value: bool = False, refuse: bool = False
) -> StreamConfig:
    return StreamConfig(
        name=name,
        subjects=list(subjects),
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        discard=DiscardPolicy.NEW if refuse else DiscardPolicy.OLD,
        max_msgs_per_subject=1 if last_value else -1,
        max_age=age_s,
        max_bytes=mib * _MIB,
        duplicate_window=DUPLICATE_WINDOW_S,
        deny_delete=True,
        num_replicas=1,
    )


STREAMS: tuple[StreamConfig, ...] = (
    _stream(Stream.STATE, "hbox.v1.node.state.*", "hbox.v1.health.verdict.*", "hbox.v1.queue.state.*", age_s=0, mib=1024, last_value=True),
    _stream(Stream.JOBS, "hbox.v1.job.pending.*", "hbox.v1.job.withdrawn.*", "hbox.v1.job.waiting.*", "hbox.v1.pod.observed.*", age_s=6 * _HOUR, mib=1024),
    _stream(Stream.PLANS, "hbox.v1.plan.>", "hbox.v1.claim.changed.*", age_s=6 * _HOUR, mib=1024),
    _stream(Stream.DECISIONS, "hbox.v1.decision.>", age_s=3 * _DAY, mib=1024, refuse=True),
    _stream(Stream.OUTCOMES, "hbox.v1.binding.result.*", "hbox.v1.node.result.*", age_s=3 * _DAY, mib=1024),
    _stream(Stream.EVENTS, "hbox.v1.job.phase.>", "hbox.v1.health.event.*", "hbox.v1.quota.>", age_s=3 * _DAY, mib=1024),
    _stream(Stream.DEAD, "hbox.v1.dead.>", age_s=21 * _DAY, mib=256),
)  # fmt: skip
