"""Usage for the output: periods, card-hours and bars. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.events import Budget, Usage, UsageKey

Item = dict[str, Any]

#: Thousandths of a card-second in a card-hour.
CARD_HOUR = 3_600_000

BAR = 20

#: The price of models that have none of their own.
OTHERS = "*"

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment(text: str, *, now: float) -> int:
    """Seconds since the epoch of `7d` ago, `month` (its beginning), `today`, `2026-11-01` or `2026-11-01T08:00` (UTC without an offset). Raises ValueError."""
    present = datetime.fromtimestamp(now, UTC)
    today = present.replace(hour=0, minute=0, second=0, microsecond=0)
    if text in ("month", "today"):
        return int((today.replace(day=1) if text == "month" else today).timestamp())
    try:
        if ago := re.fullmatch(r"(\d{1,6})([mhdw])", text):
            return max(0, int((present - timedelta(**{_UNITS[ago[2]]: int(ago[1])})).timestamp()))
        given = datetime.fromisoformat(text)
        return max(0, int((given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp()))
    except (ValueError, OverflowError) as e:
        raise ValueError(f"{text!r} is no time; write it like 36h, 7d, today, month, 2026-11-01 or 2026-11-01T08:00") from e


def keys_of(text: str) -> tuple[UsageKey, ...]:
    """`queue,model` as keys. Raises ValueError."""
    keys = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for key in keys:
        if key not in tuple(UsageKey):
            raise ValueError(f"{key!r} is none of {', '.join(UsageKey)}")
    return tuple(UsageKey(key) for key in keys)


def items_of(usage: Sequence[Usage], by: Sequence[UsageKey], prices: Mapping[str, Decimal]) -> list[Item]:
    """One item for each combination of `by`, the largest first, or by the hour; `usage` is summed up by `by`, and by model where there are prices.

    Only items by queue or hour have idle time. Raises InvalidRequest if a used model has no price.
    """
    has_idle = not {UsageKey.USER, UsageKey.MODEL} & set(by)
    sums: dict[tuple[Any, ...], Item] = {}
    for row in usage:
        used = row.own + row.borrowed
        if not used and not (has_idle and row.idle):
            continue
        key = tuple(getattr(row, name) for name in by)
        item = sums.setdefault(key, {"own": 0, "borrowed": 0, "idle": 0, "cost": Decimal(0)})
        item["own"] += row.own
        item["borrowed"] += row.borrowed
        item["idle"] += row.idle
        if prices and used:
            price = prices.get(row.model, prices.get(OTHERS))
            if price is None:
                raise InvalidRequest(
                    f"model {row.model} was used and has no price",
                    hint=f"--price '{row.model}=2.5', or --price '*=1' for all others",
                )
            item["cost"] += price * used / CARD_HOUR
    most = max((item["own"] + item["borrowed"] + item["idle"] * has_idle for item in sums.values()), default=0)
    items = [_item(dict(zip(by, key, strict=True)), sum_, most, has_idle, bool(prices)) for key, sum_ in sums.items()]
    if UsageKey.HOUR in by:
        return sorted(items, key=lambda item: [item[name] for name in (UsageKey.HOUR, *by)])
    return sorted(items, key=lambda item: (-item["cardHours"], item["name"]))


def add_budgets(items: Sequence[Item], budgets: Iterable[Budget]) -> None:
    """Add its budget of the present month to each item that is a queue."""
    by_name = {budget.queue: budget for budget in budgets}
    for item in items:
        if (budget := by_name.get(item["name"])) is not None:
            month = datetime.fromtimestamp(budget.month, UTC).strftime("%Y-%m")
            item["budget"] = {"month": month, "cardHours": budget.card_hours, "used": _hours(budget.spent)}


def budget_text(budget: Mapping[str, Any] | None) -> str:
    """`83 % of 1000`."""
    if budget is None:
        return ""
    return (
        f"{100 * budget['used'] // budget['cardHours']:.0f} % of {budget['cardHours']}"
        if budget["cardHours"]
        else "none left of 0"
    )


def total_of(items: Sequence[Item]) -> Item:
    """The sum of all items."""
    total: Item = {"name": "total"}
    for name in ("cardHours", "own", "borrowed", "idle"):
        if all(name in item for item in items):
            total[name] = round(sum(item[name] for item in items), 6)
    if any("cost" in item for item in items):
        total["cost"] = f"{sum((Decimal(item['cost']) for item in items), Decimal(0)):.2f}"
    return total


def _item(names: dict[UsageKey, Any], sums: Item, most: int, has_idle: bool, priced: bool) -> Item:
    labels = {str(key): _hour(name) if key is UsageKey.HOUR else name for key, name in names.items()}
    item: Item = {
        "name": "/".join(labels.values()),
        **labels,
        "cardHours": _hours(sums["own"] + sums["borrowed"]),
        "own": _hours(sums["own"]),
        "borrowed": _hours(sums["borrowed"]),
    }
    if has_idle:
        item["idle"] = _hours(sums["idle"])
    if priced:
        item["cost"] = str(sums["cost"].quantize(Decimal("0.01"), ROUND_HALF_EVEN))
    item["bar"] = bar(sums["own"], sums["borrowed"], sums["idle"] if has_idle else 0, most)
    return item


def bar(own: int, borrowed: int, idle: int, most: int) -> str:
    """`████▒▒··`: own, borrowed and idle, where `most` is BAR wide."""
    ends = [round(BAR * amount / most) if most else 0 for amount in (own, own + borrowed, own + borrowed + idle)]
    return "█" * ends[0] + "▒" * (ends[1] - ends[0]) + "·" * (ends[2] - ends[1])


def _hours(amount: int) -> float:
    return round(amount / CARD_HOUR, 6)


def _hour(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%MZ")
