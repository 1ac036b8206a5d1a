"""The ports of a platform: any free ones, or fixed ones in an order that does not depend on what else runs."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count

from hbox_common.errors import Conflict, InvalidRequest
from hbox_common.ports import held, reserved

from ..services import SERVICES

API_SERVER, BROKER, CONSOLE, MONITORING, ROUTES = "API server", "broker", "HTTP API", "broker's monitoring", "broker's routes"


def metrics_of(process: str) -> str:
    """The role of a process' port for health and metrics."""
    return f"health and metrics of {process}"


#: Roles by their distance from the first port. Behind them: further schedulers, standbys, further brokers.
FIXED = (API_SERVER, BROKER, CONSOLE, MONITORING, ROUTES, *map(metrics_of, SERVICES))
LAST_PORT = 65_535


def offsets(processes: Mapping[str, str], brokers: int) -> dict[str, int]:
    """Role -> distance from the first port. `processes`: service by name of the process; `brokers`: own ones."""
    found: dict[str, int] = {}
    extra = count(len(FIXED))
    taken = set[str]()
    for process, service in processes.items():
        first = service not in taken
        taken.add(service)
        found[metrics_of(process)] = FIXED.index(metrics_of(service)) if first else next(extra)
    for number in range(1, brokers + 1):
        for role in (BROKER, MONITORING, ROUTES):
            found[role if number == 1 else f"{role} {number}"] = FIXED.index(role) if number == 1 else next(extra)
    return found | {CONSOLE: FIXED.index(CONSOLE), API_SERVER: FIXED.index(API_SERVER)}


@contextmanager
def ports(processes: Mapping[str, str], brokers: int, *, first: int | None) -> Iterator[list[int]]:
    """Reserved ports: of the processes in their order, three of each broker (clients, monitoring, routes), of the HTTP API, and of the API server. `first`:
    the lowest of fixed ports; None: any. Raises InvalidRequest if the fixed ones end behind the last port, Conflict if one is taken, OSError if there are no
    free ones."""
    wanted = offsets(processes, brokers)
    if first is None:
        with reserved(len(wanted)) as found:
            yield found
        return
    if first > (highest := LAST_PORT - max(wanted.values())):
        raise InvalidRequest(f"--ports-from {first}: too few ports follow for this platform", hint=f"{highest} at most")
    with ExitStack() as stack:
        for role, offset in sorted(wanted.items(), key=lambda item: item[1]):
            try:
                stack.enter_context(held(first + offset))
            except OSError as e:
                raise Conflict(
                    f"port {first + offset} of 127.0.0.1, for the {role}, cannot be used: {e.strerror}",
                    hint=f"`ss -ltnp 'sport = :{first + offset}'` shows its program; end it, or choose another --ports-from",
                ) from e
        yield [first + offset for offset in wanted.values()]


def table() -> str:
    """The fixed ports, for --help: a line each."""
    lines = [f"  PORT+{offset:<3} {role}" for offset, role in enumerate(FIXED)]
    return "\n".join(
        [*lines, f"  PORT+{len(FIXED)} and up: further schedulers, standbys, and three ports of each further broker"]
    )
