"""Names, GUIDs and speeds as the sources of a fabric spell them, and the bounds on a source."""

import re

from hbox_common.errors import InvalidRequest

#: Ten times the size of a fabric with 10,000 cards; a source beyond that is faulty or hostile, and would exceed the memory of the service.
MAX_SWITCHES, MAX_LINKS = 50_000, 600_000
MAX_NAME = 256

_HEX = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})\Z")
#: Description of a card without a name: its model and vendor.
_UNNAMED = re.compile(r"MT\d+\b|ConnectX|.*Mellanox Technologies\Z|.*\bInfiniHost|localhost\b", re.IGNORECASE)
_AGGREGATION = "aggregation node"
_SPEED = re.compile(r"(?:IB_)?(\d{1,3})x([A-Za-z]+\d*)?\Z")

#: Of one lane in units of 2.5 Gbit/s, by InfiniBand's names.
SPEEDS = {"SDR": 1, "DDR": 2, "QDR": 4, "FDR10": 4, "FDR": 6, "EDR": 10, "HDR": 20, "NDR": 40, "XDR": 80}


class NoGuid(InvalidRequest):
    """A text that is no GUID."""


def guid_of(text: str) -> str:
    """16 lower-case hex digits. Sources pad, prefix and capitalise them differently; zeros mean no GUID. Raises NoGuid."""
    found = _HEX.match(text.strip())
    if found is None or not found[1].strip("0"):
        raise NoGuid(f"{text[:40]!r} is no GUID", hint="a GUID is up to 16 hex digits, not all of them 0")
    return found[1].lower().zfill(16)


def is_aggregation_node(description: str) -> bool:
    """SHARP's aggregation nodes look like cards of a host."""
    return _AGGREGATION in description.lower()


def host_and_hca(description: str) -> tuple[str, str]:
    """Host and card of `host mlx5_0`; the host is "" if the description is that of a card without a name."""
    tokens = description[:MAX_NAME].split()
    if not tokens or _UNNAMED.match(description.strip()):
        return "", ""
    return host_of(tokens[0]), tokens[1] if len(tokens) > 1 else ""


def host_of(name: str) -> str:
    """Lower case, without domain, as node descriptions and Kubernetes' names are compared."""
    return name.strip()[:MAX_NAME].lower().partition(".")[0]


def switch_name(description: str) -> tuple[str, str]:
    """Name and model of `MF0;LG01-01:MQM8700/U1`; other descriptions are the name."""
    text = description[:MAX_NAME].strip()
    head, separator, rest = text.partition(";")
    if not separator:
        return text, ""
    name, _, model = rest.partition(":")
    return name.strip() or head, model.partition("/")[0]


def speed_of(text: str) -> tuple[int, str]:
    """Lanes and speed of `4xHDR`, `4x` or `IB_4x`; (0, "") where it says neither."""
    found = _SPEED.match(text.strip())
    return (int(found[1]), (found[2] or "").upper()) if found else (0, "")


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Key of a name so that mlx5_9 comes before mlx5_10."""
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.findall(r"[0-9]{1,15}|[^0-9]+", text))
