"""Expiry metrics of the certificates of the broker, its clients and their authorities.

The client's and the authorities' certificates are read from their files periodically, so a renewed Secret is seen as soon as it is mounted. Each known broker's
certificate is read by a separate handshake: a broker that reloads its certificate keeps its connections, which still show the old one.
"""

import asyncio
import json
import ssl
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NoReturn

from hbox_common.errors import InvalidRequest
from hbox_common.x509 import Validity, in_pem, validity

from . import metrics
from .access import Access
from .connection import Connection

LOOK_S = 60.0
#: File reads per handshake with the brokers; each handshake leaves a line about an incomplete connection in the broker's log.
BROKERS_EVERY = 60
HANDSHAKE_S = 5.0
#: Of a broker's INFO; real ones have less than 1 KiB, and some more where a cluster has many.
LONGEST_INFO = 1 << 16


async def watch(connection: Connection, access: Access) -> NoReturn:
    """Runs until cancelled. If a file or broker cannot be read, its last values stay; the connection reports the error."""
    known: set[str] = set()
    looks = 0
    while True:
        for name, path in (("client", access.certificate), ("ca", access.ca)):
            if path is not None:
                with suppress(OSError, InvalidRequest):
                    found = in_pem(path.read_text(errors="replace"))
                    # A client's file begins with its own; of several authorities an old one may have ended before the new one is in use everywhere.
                    _note(name, "", found[:1] if name == "client" else found)
        if looks % BROKERS_EVERY == 0 and connection.by_tls:
            known = await _brokers(connection, access, known)
        looks += 1
        await asyncio.sleep(LOOK_S)


async def _brokers(connection: Connection, access: Access, known: set[str]) -> set[str]:
    """Returns the brokers that were examined; the metrics of all others are removed."""
    servers = list(connection.servers)
    if not servers:
        return known
    name = servers[0][0]  # the configured name: brokers advertise each other by address only
    for host, port in servers:
        with suppress(OSError, ValueError, InvalidRequest, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(HANDSHAKE_S):
                _note("broker", f"{host}:{port}", await _shown(host, port, access, (host, name)))
    now = {f"{host}:{port}" for host, port in servers}
    for server in known - now:
        for gauge in (metrics.CERTIFICATE_ENDS, metrics.CERTIFICATE_BEGAN):
            with suppress(KeyError):
                gauge.remove("broker", server)
    return now


async def _shown(host: str, port: int, access: Access, names: Iterable[str]) -> list[Validity]:
    """The certificate that this broker shows for the first of these names that it is valid for; empty if the broker does not use TLS."""
    for name in names:
        reader, writer = await asyncio.open_connection(host, port, limit=LONGEST_INFO)
        try:
            info = json.loads((await reader.readline()).partition(b" ")[2])
            if not isinstance(info, dict) or not info.get("tls_required"):
                return []
            with suppress(ssl.SSLCertVerificationError):
                await writer.start_tls(access.context() or ssl.create_default_context(), server_hostname=name)
                shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
                return [validity(shown)]
        finally:
            writer.close()
    return []


def _note(certificate: str, server: str, found: list[Validity]) -> None:
    for one in _last(found):
        metrics.CERTIFICATE_ENDS.labels(certificate, server).set(one.ends)
        metrics.CERTIFICATE_BEGAN.labels(certificate, server).set(one.begins)


def _last(found: list[Validity]) -> Iterator[Validity]:
    if found:
        yield max(found, key=lambda one: one.ends)
