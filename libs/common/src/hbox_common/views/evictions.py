"""Receipts of evictions for the output. Pure."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from hbox_common.errors import NotFound
from hbox_common.events import EvictionReceipt


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


def receipt_item(receipt: EvictionReceipt) -> dict[str, Any]:
    """As it is printed by machines."""
    fields = receipt.model_dump(mode="json")
    return {
        "at": time_text(receipt.at),
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


def time_text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
