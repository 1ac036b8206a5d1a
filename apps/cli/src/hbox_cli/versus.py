"""Why another job has places while one waits, from what is known of both. Pure.

Schedulers try the jobs of a queue by priority, then by creation time, and queues by their shares. A job that fits may start before one that goes first and does
not fit: an explanation states what that one lacks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hbox_common.reasons import Language, Text

Item = Mapping[str, Any]


class Relation(StrEnum):
    """The first that holds."""

    NOT_WAITING = "NotWaiting"
    OTHER_WAITS = "OtherWaits"
    PLACED_BEFORE = "PlacedBefore"
    OTHER_QUEUE = "OtherQueue"
    PRIORITY = "HigherPriority"
    AGE = "Older"
    FITS = "Fits"


TEXTS: Mapping[Relation, Text] = {
    Relation.NOT_WAITING: Text("{mine} does not wait: all of its pods have nodes", "{mine} 未在等待：其 Pod 均已有节点"),
    Relation.OTHER_WAITS: Text("{other} has not started either", "{other} 也尚未启动"),
    Relation.PLACED_BEFORE: Text("{other} got its places before {mine} was created", "{other} 在 {mine} 创建之前已获得节点"),
    Relation.OTHER_QUEUE: Text(
        "{other} is in another queue, {queue}: queues are served by their shares, not by the age of their jobs",
        "{other} 属于另一队列 {queue}：队列按份额而非作业先后调度",
    ),
    Relation.PRIORITY: Text(
        "{other} has a higher priority: {theirs} against {ours}", "{other} 的优先级更高：{theirs} 对 {ours}"
    ),
    Relation.AGE: Text("{other} is older, at the same priority", "{other} 优先级相同，但更早提交"),
    Relation.FITS: Text(
        "{mine} precedes {other}, and does not fit where {other} does",
        "{mine} 次序在 {other} 之前，但放不下 {other} 所用之处",
    ),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """`placed_at`: when the other job got its first places, in seconds since the epoch; None: not known."""

    relation: Relation
    placed_at: float | None
    facts: Mapping[str, str]

    def text(self, language: Language) -> str:
        return TEXTS[self.relation].of(language).format(**self.facts)


def compared(mine: Item, other: Item, *, now: float) -> Comparison:
    """`mine`, `other`: jobs' items, the other one with `decisions`; `now`: seconds since the epoch."""
    placed_at = min((decision["at"] for decision in other["decisions"]), default=None)
    facts = {
        "mine": mine["name"], "other": other["name"], "queue": other["queue"],
        "ours": str(mine["priority"]), "theirs": str(other["priority"]),
    }  # fmt: skip
    return Comparison(_relation(mine, other, placed_at, now), placed_at, facts)


def _relation(mine: Item, other: Item, placed_at: float | None, now: float) -> Relation:
    if not mine["waiting"]:
        return Relation.NOT_WAITING
    if not other["placed"]:
        return Relation.OTHER_WAITS
    if placed_at is not None and placed_at < now - mine["ageSeconds"]:
        return Relation.PLACED_BEFORE
    if other["queue"] != mine["queue"]:
        return Relation.OTHER_QUEUE
    if other["priority"] != mine["priority"]:
        return Relation.PRIORITY if other["priority"] > mine["priority"] else Relation.FITS
    return Relation.AGE if other["ageSeconds"] > mine["ageSeconds"] else Relation.FITS
