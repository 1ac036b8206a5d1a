"""One reading of one source of the fabric: switches, host ports and cables, before any conclusion from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Switch:
    guid: str
    name: str
    model: str = ""
    chassis: str = ""  #: system image GUID: the chips of a director share one


@dataclass(frozen=True, slots=True)
class HostLink:
    """A port of a card in a machine, and the port of the switch behind it."""

    card: str  #: GUID
    port: int
    host: str  #: lower case, without domain; "" = the card has no name
    hca: str  #: mlx5_0, HCA-2, ibp11s0f0 ...
    switch: str = ""  #: GUID; "" = not known, as of a port that is down
    switch_port: int = 0
    speed: str = ""  #: of one lane: HDR, NDR ...
    width: int = 0  #: lanes, 0 = not known
    up: bool = True


@dataclass(frozen=True, slots=True)
class Trunk:
    """A cable between two switches, `a` < `b`."""

    a: str
    a_port: int
    b: str
    b_port: int
    speed: str = ""
    width: int = 0
    up: bool = True


@dataclass(frozen=True, slots=True)
class Snapshot:
    switches: Mapping[str, Switch]  #: by GUID
    hosts: tuple[HostLink, ...]
    trunks: tuple[Trunk, ...] = ()
    aggregation_nodes: int = 0  #: SHARP's own cards in switches, left out
    problems: tuple[str, ...] = field(default=())  #: what could not be read, and is left out
