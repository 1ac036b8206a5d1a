"""Attribution of waiting as text."""

from collections.abc import Mapping


def waits_text(seconds: Mapping[str, float]) -> str:
    """`1h12m = 8m QueueShareSpent + 52m CardsInUse + 12m Evicted`: the whole wait, and its parts by code in the order in which they began."""
    parts = {code: spent for code, spent in seconds.items() if spent >= 1.0} or dict(list(seconds.items())[-1:])
    if not parts:
        return "it has not waited"
    total = sum(seconds.values())
    return f"{span(total)} = " + " + ".join(f"{span(spent)} {code}" for code, spent in parts.items())


def span(seconds: float) -> str:
    """Hours from the first hour on, so that sums remain comparable: `1h12m`, `52m`, `8s`."""
    s = max(0, int(seconds))
    if s < 60:
        return f"{s}s"
    return f"{s // 60}m" if s < 3600 else f"{s // 3600}h{s % 3600 // 60:02d}m"
