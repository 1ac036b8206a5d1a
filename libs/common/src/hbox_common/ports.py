"""Ports of 127.0.0.1 for servers about to start: found free, and reserved until the servers listen.

A port that was free a moment ago may be taken when its server starts. So it stays bound, by a socket that does not listen: other searches for a free port skip
it, while a server that sets SO_REUSEADDR (asyncio's, Go's) may listen on it, also after a restart.
"""

import errno
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

#: Below the ephemeral range (from 32768 on): on a busy machine an ephemeral port would be taken before its server is up.
_PORTS = range(10_240, 32_768)
_TRIES = 500
#: Not the generator that tests seed: processes with one seed would look at the same ports.
_RANDOM = random.SystemRandom()


@contextmanager
def reserved(count: int) -> Iterator[list[int]]:
    """`count` different ports that no other process gets while the block runs. Raises OSError if there are none."""
    ports: list[int] = []
    with ExitStack() as held:
        for port in _RANDOM.sample(_PORTS, _TRIES):
            s = held.enter_context(socket.socket())
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                s.close()
                continue
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            ports.append(port)
            if len(ports) == count:
                break
        else:
            raise OSError(errno.EADDRINUSE, f"of {_TRIES} ports of 127.0.0.1 fewer than {count} are free")
        yield ports


@contextmanager
def held(port: int) -> Iterator[None]:
    """This port, which no other process gets while the block runs. Raises OSError if another process listens on it, or it may not be bound."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections of an earlier server do not count
        s.bind(("127.0.0.1", port))
        yield


def free_ports(count: int) -> list[int]:
    """Ports that are free now, all different; for callers that cannot reserve them. Raises OSError if there are none."""
    with reserved(count) as ports:
        return ports


def free_port() -> int:
    """A port that is free now. Raises OSError if there is none."""
    return free_ports(1)[0]
