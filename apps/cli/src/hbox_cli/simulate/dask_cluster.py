"""Runs over a Dask cluster. Its workers need the same HBox installed; traces are sent to them, so that they need no folder in common."""

import logging
import re
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from hbox_common.errors import InvalidRequest, Unavailable

from .fgd import Outcome, Work, outcome_of
from .openb import Arrivals, read

if TYPE_CHECKING:
    from distributed import Client

ADDRESS = re.compile(r"(?:(?:tcp|tls|wss?)://)?(?:\[[0-9a-fA-F:]+\]|[^\s/:\[\]]+):\d{1,5}|inproc://\S+")
CONNECT_S = 10.0
DISTRIBUTION = "hbox-cli"


def spread(address: str, works: Sequence[Work]) -> Iterator[tuple[Work, Outcome]]:
    """Each work with its outcome, as they come. What a run raises is raised here.

    address: the cluster's scheduler, such as tcp://host:8786. Raises InvalidRequest where Dask is not installed here, or HBox not there; Unavailable where
    the cluster cannot be reached, or is lost.
    """
    try:
        from distributed import CancelledError, Client, KilledWorker, as_completed  # noqa: PLC0415  an extra
    except ImportError as e:
        raise InvalidRequest("--dask needs Dask, which is not installed", hint="pip install 'hbox-cli[dask]'") from e
    if not ADDRESS.fullmatch(address):  # Dask itself waits for one that it cannot read
        raise InvalidRequest(f"--dask {address}: that is no address of a Dask scheduler", hint="write it as tcp://host:8786")
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # errors are raised here, in one line
    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except OSError as e:
        raise Unavailable(f"--dask {address}: {e}", hint="is that the address that dask scheduler printed?") from e
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_S)
        except OSError as e:
            raise Unavailable(f"--dask {address}: the cluster has no worker", hint=f"dask worker {address}") from e
        check_workers(address, client, version(DISTRIBUTION))
        sent: dict[tuple[Path, str], object] = {}
        for work in works:
            if (work.folder, work.trace) not in sent:
                sent[work.folder, work.trace] = client.scatter(read(work.folder, work.trace), hash=False)
        waiting = {client.submit(_run, work, sent[work.folder, work.trace], pure=False): work for work in works}
        try:
            for done in as_completed(list(waiting), loop=client.loop):
                yield waiting.pop(done), done.result()
        except KilledWorker as e:
            raise Unavailable(f"--dask {address}: a worker was killed", hint="most likely its memory ran out") from e
        except (CancelledError, OSError) as e:
            raise Unavailable(
                f"--dask {address}: the cluster was lost", hint="the same command continues where it stopped"
            ) from e


def check_workers(address: str, client: "Client", ours: str) -> None:
    """Raises InvalidRequest for a worker that has no HBox, or another one than `ours`."""
    for worker, theirs in client.run(version, DISTRIBUTION, on_error="return").items():
        if theirs != ours:
            has = f"HBox {theirs}" if isinstance(theirs, str) else "no HBox"
            raise InvalidRequest(
                f"--dask {address}: the worker {worker} has {has}, here is {ours}", hint="install the same there"
            )


def _run(work: Work, arrivals: Arrivals) -> Outcome:
    return outcome_of(arrivals, work)
