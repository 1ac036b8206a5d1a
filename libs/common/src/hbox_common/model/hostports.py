"""Host ports as resource amounts, so that claims, allocations and columns treat them as any other resource.

A node has `WHOLE` units of every port, without reporting them. A pod on one address takes the whole of that port of that address and one unit of the port; a
pod on all addresses takes the whole port. So two pods conflict exactly if they do in Kubernetes (same protocol and port, and the same address or one of them on
all): kube-scheduler's NodePorts. Names have two slashes, which no Kubernetes resource can have.
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
    """Whether a resource names a host port."""
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
