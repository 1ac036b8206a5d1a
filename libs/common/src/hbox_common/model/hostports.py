"""Host ports as amounts of resources, so that claims, books and columns treat them as they treat everything else.

A node has `WHOLE` units of every port, though no node says so. A pod on one address takes the whole of that port of that address and one unit of
the port; a pod on all addresses takes the whole port. So two pods clash where Kubernetes says that they clash (same protocol and port, and the
same address or one of them on all): kube-scheduler's NodePorts. Names have two slashes: no resource of Kubernetes can be called so.
"""

from collections.abc import Iterable
from dataclasses import dataclass

PREFIX = "hostport/"
WHOLE = 1 << 16

_ALL_ADDRESSES = ("", "0.0.0.0")  # what Kubernetes writes for it


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node that one container takes; `address` empty or 0.0.0.0 = all."""

    port: int
    protocol: str = "TCP"
    address: str = ""


def is_host_port(resource: str) -> bool:
    """Whether the name of a resource stands for a port of a node."""
    return resource.startswith(PREFIX)


def port_amounts(ports: Iterable[HostPort]) -> dict[str, int]:
    """What a pod with these ports takes of its node. Containers of one pod that name the same port take it once."""
    amounts: dict[str, int] = {}
    for port in set(ports):
        name = f"{PREFIX}{port.protocol or 'TCP'}/{port.port}"
        if port.address in _ALL_ADDRESSES:
            amounts[name] = WHOLE
            continue
        amounts[f"{name}/{port.address}"] = WHOLE
        amounts[name] = min(WHOLE, amounts.get(name, 0) + 1)
    return dict(sorted(amounts.items()))
