"""Amounts of resources: integers in base units, by Kubernetes' resource names.

Base units: `cpu` in thousandths of a core, `memory` and `ephemeral-storage` in bytes, all others as counted: Kubernetes compares integers of these units. In
MiB, ten requests of 1G would not fit a node of 10G. Finer amounts are rounded, requests up and capacities down, so that rounding never over-books a node.
"""

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache
from typing import TypeAlias

from hbox_common.errors import InvalidRequest

from .hostports import WHOLE, is_host_port
from .pools import by_pool

Resources: TypeAlias = dict[str, int]

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL = "ephemeral-storage"
PODS = "pods"

MIB = 2**20
GIB = 2**30

#: More than this counts as this: what every reader of JSON and every float holds exactly, far above any node, and far enough below int64 to be summed.
MOST = 2**53

#: Amounts whose units are kept: clusters use few, and a quantity takes 5 us to parse.
_CACHED = 4096

_SCALE: Mapping[str, Decimal] = {CPU: Decimal(1000)}
_SUFFIX: Mapping[str, Decimal] = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal("1e3"), "M": Decimal("1e6"), "G": Decimal("1e9"), "T": Decimal("1e12"), "P": Decimal("1e15"), "E": Decimal("1e18"),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40), "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][+-]?\d{1,2})?)(?P<suffix>[KMGTPE]i|[numkMGTPE]?)"
)


def parse_quantity(text: str | float) -> Decimal:
    """A Kubernetes quantity ("1500m", "2Gi", "1e3", 4) as a number.

    Raises InvalidRequest for what Kubernetes would not accept.
    """
    found = _QUANTITY.fullmatch(str(text).strip())
    if found is None:
        raise InvalidRequest(f"{text!r} is not a quantity", hint="write it like 500m, 4, 2Gi or 1e3")
    return Decimal(found["number"]) * _SUFFIX[found["suffix"]]


def request_units(name: str, quantity: str | float) -> int:
    """What is asked for, in base units, rounded up. Raises InvalidRequest; negative amounts are refused."""
    return _request_units(name, str(quantity))


@lru_cache(_CACHED)
def _request_units(name: str, quantity: str) -> int:
    value = parse_quantity(quantity) * _SCALE.get(name, Decimal(1))
    if value < 0:
        raise InvalidRequest(f"{name}: {quantity} is negative")
    return min(MOST, int(value.to_integral_value(ROUND_CEILING)))


def capacity_units(name: str, quantity: str | float) -> int:
    """What is there, in base units, rounded down. Raises InvalidRequest."""
    return _capacity_units(name, str(quantity))


@lru_cache(_CACHED)
def _capacity_units(name: str, quantity: str) -> int:
    return min(MOST, int((parse_quantity(quantity) * _SCALE.get(name, Decimal(1))).to_integral_value(ROUND_FLOOR)))


#: Binary suffixes first: of two equally short forms, `quantity` writes the first.
_SUFFIXES = (("Ti", 2**40), ("Gi", GIB), ("Mi", MIB), ("Ki", 2**10), ("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3))


def quantity(name: str, units: int) -> str:
    """Base units in Kubernetes' notation: whole cores or thousandths (`4`, `500m`), bytes with the binary or decimal suffix that makes them shortest (`3Gi`,
    `500G`). `name` may be a resource of a pool (`pools.in_pool`)."""
    name, _ = by_pool(name)
    if name == CPU:
        return f"{units}m" if units % 1000 else str(units // 1000)
    if name in (MEMORY, EPHEMERAL):
        written = (f"{units // size}{suffix}" for suffix, size in _SUFFIXES if units % size == 0)
        return min((str(units), *written), key=len) if units else "0"
    return str(units)


def add(into: Resources, amount: Mapping[str, int], times: int = 1) -> None:
    """`into += times * amount`, in place."""
    for name, units in amount.items():
        into[name] = into.get(name, 0) + times * units


def shortfall(request: Mapping[str, int], used: Mapping[str, int], limit: Mapping[str, int]) -> list[str]:
    """The resources of `request` that `limit` does not name, or of which it leaves too little after `used`; in the request's order.

    Host ports exist on every node and are never named.
    """
    return [
        name
        for name, units in request.items()
        if units > 0 and used.get(name, 0) + units > (limit.get(name, 0) or _everywhere(name))
    ]


def _everywhere(name: str) -> int:
    return WHOLE if is_host_port(name) else 0
