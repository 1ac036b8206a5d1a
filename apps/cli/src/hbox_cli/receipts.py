"""Output of receipts of evictions: the job that gets the place, the rule, and when the evicted pods may return."""

from collections.abc import Mapping
from typing import Any

from hbox_common.model.annotations import EVICTION_DEADLINE

from .output import put

PODS_SHOWN = 8


def show(receipt: Mapping[str, Any]) -> None:
    """`receipt`: an item of `hbox_common.views.evictions`."""
    names = [f"{receipt['namespace']}/{one['pod']}" for one in receipt["pods"]]
    more = f" and {len(names) - PODS_SHOWN} more" if len(names) > PODS_SHOWN else ""
    put(f"{receipt['at']}  {', '.join(names[:PODS_SHOWN])}{more}  queue {receipt['queue']}  rule {receipt['rule']}")
    put(f"  why:      {receipt['message']}")
    if receipt["noticeSeconds"] is not None:
        put(
            f"  notice:   {receipt['noticeSeconds']} s at most from the eviction; the pod's annotation {EVICTION_DEADLINE} has the deadline"
        )
    put(f"  kept:     {receipt['kept']['pods']} pods of its job, with {receipt['kept']['cards']} cards")
    put(f"  returns:  {receipt['returns']}")
