"""Messages from the items that the HTTP API serves, for commands that print messages. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from hbox_common.errors import InvalidRequest
from hbox_common.events import Budget, Event, Usage, UsageKey
from hbox_common.views.events import PUBLIC_TYPES, TYPES
from hbox_common.views.usage import CARD_HOUR

Item = Mapping[str, Any]


def events_of(items: Iterable[Item]) -> Iterator[Event]:
    """Types that this version does not know are left out."""
    types: tuple[type[Event], ...] = (*PUBLIC_TYPES, *TYPES)
    known = {one.ce_type(): one for one in types}
    for item in items:
        type_ = known.get(str(item.get("type")))
        if type_ is None:
            continue
        try:
            yield type_.model_validate({name: value for name, value in item.items() if name != "type"})
        except ValidationError as e:
            raise InvalidRequest(f"the server sent an event that is none: {e.error_count()} errors") from e


def usage_of(items: Iterable[Item], by: Sequence[UsageKey]) -> list[Usage]:
    """Rows as the ledger sends them, of items in card-hours."""
    return [
        Usage(
            **{key: _key(key, item.get(key, item["name"])) for key in by},
            own=_units(item.get("own")),
            borrowed=_units(item.get("borrowed")),
            idle=_units(item.get("idle")),
        )
        for item in items
    ]


def budgets_of(items: Iterable[Item]) -> list[Budget]:
    return [
        Budget(
            queue=str(item["name"]),
            month=int(datetime.strptime(budget["month"], "%Y-%m").replace(tzinfo=UTC).timestamp()),
            card_hours=budget["cardHours"],
            spent=_units(budget["used"]),
        )
        for item in items
        if isinstance(budget := item.get("budget"), Mapping)
    ]


def _units(hours: object) -> int:
    return round(float(hours) * CARD_HOUR) if isinstance(hours, int | float) else 0


def _key(key: UsageKey, value: Any) -> Any:
    return (
        int(datetime.strptime(str(value), "%Y-%m-%dT%H:%MZ").replace(tzinfo=UTC).timestamp()) if key is UsageKey.HOUR else value
    )
