"""Orders of an operator to health-monitor, and their record."""

import getpass
import re
import socket
from datetime import datetime
from typing import Any, TypeAlias

from hbox_common.bus import Bus
from hbox_common.clock import new_id, wall_s
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import (
    HealthOrderAsked,
    HealthOrdersAsked,
    HealthOrdersPage,
    HealthOrderTaken,
    HealthPolicyAsked,
    HealthPolicyPage,
)
from hbox_common.model import NodeName
from hbox_common.model.healthorder import HealthOrder, OrderVerb

Item: TypeAlias = dict[str, Any]

ASK_S = 15.0
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def operator() -> str:
    """USER@HOST. The platform cannot verify it: the key `hbox-orders` is what admits an order."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # a container whose user has no name
        return f"unknown@{socket.gethostname()}"


def seconds(text: str) -> float:
    """Of a duration such as 90m, 2h or 7d. Raises InvalidRequest."""
    found = re.fullmatch(r"(\d{1,6})([smhd])", text.strip())
    if found is None or int(found[1]) == 0:
        raise InvalidRequest(f"{text} is no duration", hint="such as 30m, 2h or 7d")
    return float(int(found[1]) * _UNITS[found[2]])


def end_of(text: str, now: float) -> float:
    """Seconds since the epoch of a duration from now, a date, or a time in ISO 8601; of this machine's time zone unless it names one. Raises InvalidRequest."""
    if re.fullmatch(r"\d+[smhd]", text.strip()):
        return now + seconds(text)
    try:
        return datetime.fromisoformat(text.strip()).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise InvalidRequest(f"{text} is no time", hint="such as 7d, 2026-12-24 or 2026-12-24T18:00") from None


async def order(bus: Bus, verb: OrderVerb, reason: str, *, by: str = "", ends: str = "", **more: Any) -> Item:
    """Have health-monitor store and apply an order. `ends`: a duration or a time, by the platform's clock. Raises InvalidRequest, Unavailable."""
    if ends:
        more["until"] = end_of(ends, wall_s())
    wanted = HealthOrder(id=new_id(), verb=verb, operator=by or operator(), reason=reason, **more)
    try:
        [taken] = await bus.ask(HealthOrderAsked(asker="cli", order=wanted), HealthOrderTaken, timeout_s=ASK_S)
    except Unavailable as e:
        raise Unavailable(e.message, hint="`hbox health audit` shows whether the order is stored") from e
    return order_item(taken.order)


async def orders(bus: Bus, node: str | None, *, last: str) -> list[Item]:
    """Stored orders, newest first."""
    since = wall_s() - seconds(last)
    asked = HealthOrdersAsked(asker="cli", since=since, node=NodeName(node or ""))
    pages = await bus.ask(asked, HealthOrdersPage, timeout_s=ASK_S)
    return [order_item(one) for page in reversed(pages) for one in reversed(page.orders)]


async def policy(bus: Bus) -> Item:
    """The rules and policies in force, with the source of each, and the exemptions."""
    pages = await bus.ask(HealthPolicyAsked(asker="cli"), HealthPolicyPage, timeout_s=ASK_S)
    return {
        "version": pages[0].version,
        "fault": pages[0].fault,
        "tables": dict(pages[0].tables),
        "values": [value.model_dump() for value in pages[0].values],
        "exemptions": [
            {
                "id": one.id,
                "node": one.node,
                "label": one.label,
                "check": one.check,
                "code": one.code,
                "owner": one.owner,
                "reason": one.reason,
                "until": one.until,
            }
            for page in pages
            for one in page.exemptions
        ],
    }


def order_item(one: HealthOrder) -> Item:
    return {
        "id": one.id,
        "verb": one.verb.value,
        "operator": one.operator,
        "reason": one.reason,
        "node": one.node,
        "target": one.target,
        "owner": one.owner,
        "until": one.until,
        "at": one.at,
        "effect": one.effect,
    }
