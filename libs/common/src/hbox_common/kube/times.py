"""Kubernetes' spellings of time."""

from datetime import UTC, datetime

from hbox_common.errors import InvalidRequest
from hbox_common.model.bounds import sanitized


def epoch_s(text: str) -> float:
    """RFC 3339 ("2026-11-21T13:00:00Z", with or without a fraction) as seconds since the epoch. Raises InvalidRequest."""
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as e:
        raise InvalidRequest(f"{sanitized(text, 64)!r} is not a time in RFC 3339") from e


def micro_time(seconds: float) -> str:
    """Seconds since the epoch as Kubernetes' MicroTime, which Leases want: always UTC, always six digits."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def rfc3339(seconds: float) -> str:
    """Seconds since the epoch as Kubernetes' Time: UTC, whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
