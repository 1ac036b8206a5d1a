"""Detection of connections whose peer vanished without closing them: a host without power, a load balancer that lost its state.

TCP alone waits for such a peer for a quarter of an hour if data was sent, and for ever if not. With keepalive an idle connection is probed; with
TCP_USER_TIMEOUT a connection ends if sent data stays unacknowledged for that long. A peer that is alive but sends nothing is not detected here: see
`freshness`.
"""

import socket
from typing import Protocol

IDLE_S, INTERVAL_S, PROBES = 5, 2, 3
USER_TIMEOUT_MS = 10_000


class _Options(Protocol):
    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


def detect_dead_peers(opened: _Options) -> None:
    """Have a TCP socket end some seconds after its peer is gone. What this system does not offer is left out."""
    wanted = (
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", IDLE_S),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", INTERVAL_S),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", PROBES),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", USER_TIMEOUT_MS),
    )
    for level, name, value in wanted:
        option = getattr(socket, name, None)
        if option is not None:
            opened.setsockopt(level, option, value)
