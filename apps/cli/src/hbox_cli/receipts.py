"""Receipts of evictions, which the broker keeps: the job that gets the place, the rule, and when the evicted pods may return."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from hbox_common.bus import Bus, Delivery, Start
from hbox_common.errors import NotFound, Unavailable
from hbox_common.events import EvictionReceipt
from hbox_common.model.annotations import EVICTION_DEADLINE

from .output import put
from .session import ASK_S

PODS_SHOWN = 8


async def receipts_of(bus: Bus) -> list[EvictionReceipt]:
    """All that are kept, oldest first. Raises Unavailable."""
    found: list[EvictionReceipt] = []
    read = asyncio.Event()

    async def take(deliveries: Sequence[Delivery]) -> None:
        found.extend(d.event for d in deliveries if isinstance(d.event, EvictionReceipt))

    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(bus.follow([EvictionReceipt], take, start=Start.ALL, on_ready=read.set, writers_only=True))
        try:
            await asyncio.wait_for(read.wait(), ASK_S)
        except TimeoutError as e:
            raise Unavailable(f"the broker did not hand out the receipts within {ASK_S:g} s", hint="hbox check") from e
        reading.cancel()
    return found


def about(receipts: Iterable[EvictionReceipt], name: str, *, jobs: Iterable[str] = ()) -> list[EvictionReceipt]:
    """Those of the pod or job of this name, or uid, with the pods that are meant. `jobs`: uids of jobs of that name. A job that has no pods any more is
    found by what controllers call pods of theirs: its name, `-`, and more. Raises NotFound."""
    kept, ids = list(receipts), {name, *jobs}
    found = [meant for one in kept if (meant := one if one.job in ids else _with(one, lambda *names: name in names))]
    found = found or [
        meant for one in kept if (meant := _with(one, lambda *names: any(n.startswith(f"{name}-") for n in names)))
    ]
    if not found:
        raise NotFound(
            f"no eviction of {name} is on record", hint="receipts of a week are kept; name the job, one of its pods, or a uid"
        )
    return found


def _with(receipt: EvictionReceipt, meant: Callable[[str, str, str], bool]) -> EvictionReceipt | None:
    """Of its pods those of which the uid, the name, or the name with the namespace is meant; nothing where none is."""
    pods = tuple(one for one in receipt.pods if meant(one.pod_uid, one.pod, f"{receipt.namespace}/{one.pod}"))
    return receipt.model_copy(update={"pods": pods}) if pods else None


def item(receipt: EvictionReceipt) -> dict[str, Any]:
    """As it is printed by machines."""
    fields = receipt.model_dump(mode="json")
    return {
        "at": _time(receipt.at),
        "job": fields["job"],
        "namespace": fields["namespace"],
        "queue": fields["queue"],
        "rule": fields["rule"],
        "pods": fields["pods"],
        "for": {
            "job": fields["for_job"],
            "namespace": fields["for_namespace"],
            "name": fields["for_name"],
            "queue": fields["for_queue"],
        },
        "message": fields["message"],
        "kept": {"pods": fields["pods_kept"], "cards": fields["cards_kept"]},
        "returns": fields["returns"],
        "noticeSeconds": fields["notice_s"] if receipt.notice_s >= 0 else None,
    }


def show(receipt: EvictionReceipt) -> None:
    names = [f"{receipt.namespace}/{one.pod}" for one in receipt.pods]
    more = f" and {len(names) - PODS_SHOWN} more" if len(names) > PODS_SHOWN else ""
    put(f"{_time(receipt.at)}  {', '.join(names[:PODS_SHOWN])}{more}  queue {receipt.queue}  rule {receipt.rule}")
    put(f"  why:      {receipt.message}")
    if receipt.notice_s >= 0:
        put(
            f"  notice:   {receipt.notice_s} s at most from the eviction; the pod's annotation {EVICTION_DEADLINE} has the deadline"
        )
    put(f"  kept:     {receipt.pods_kept} pods of its job, with {receipt.cards_kept} cards")
    put(f"  returns:  {receipt.returns}")


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
