"""When the certificates end by which the broker and a service know each other, as metrics.

Our own and the authorities' are read from their files again and again: a Secret that was renewed is seen as soon as it is mounted. The broker's are looked
at by a handshake of their own, with each broker that is known, since a broker that was told to take a new one keeps its connections, and shows it to nobody.
"""

import asyncio
import json
import re
import ssl
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from hbox_common.errors import InvalidRequest

from . import metrics
from .access import Access
from .connection import Connection

LOOK_S = 60.0
#: Of looks at files: so many for one at the brokers, which say in their logs that somebody came and said nothing.
BROKERS_EVERY = 60
HANDSHAKE_S = 5.0
#: Of a broker's INFO; real ones have less than 1 KiB, and some more where a cluster has many.
LONGEST_INFO = 1 << 16

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION, _UTC_TIME, _TIME = 0x30, 0xA0, 0x17, 0x18


@dataclass(frozen=True, slots=True)
class Validity:
    """In seconds since the epoch."""

    begins: float
    ends: float


def validity(der: bytes) -> Validity:
    """Of a certificate (RFC 5280 §4.1). Raises InvalidRequest where it is none."""
    try:
        body = _inside(_inside(der, _SEQUENCE)[0], _SEQUENCE)[0]
        if body[0] == _VERSION:
            body = _inside(body, _VERSION)[1]
        for _ in ("serial number", "signature", "issuer"):
            body = _inside(body, body[0])[1]
        dates = _inside(body, _SEQUENCE)[0]
        begins, rest = _inside(dates, dates[0])
        ends, _ = _inside(rest, rest[0])
        return Validity(_moment(dates[0], begins), _moment(rest[0], ends))
    except (IndexError, ValueError) as e:
        raise InvalidRequest(f"this is no certificate: {e}") from e


def _inside(der: bytes, tag: int) -> tuple[bytes, bytes]:
    """What is in the first element, and what follows it."""
    if der[0] != tag:
        raise ValueError(f"0x{der[0]:02x} stands where 0x{tag:02x} should")
    length, start = der[1], 2
    if length > 0x7F:
        start += length & 0x7F
        length = int.from_bytes(der[2:start], "big")
    if start + length > len(der):
        raise ValueError("it is cut off")
    return der[start : start + length], der[start + length :]


def _moment(tag: int, text: bytes) -> float:
    said = text.decode("ascii")
    if tag == _UTC_TIME:
        said = ("19" if said[:2] >= "50" else "20") + said
    elif tag != _TIME:
        raise ValueError("a date is missing")
    return datetime.strptime(said, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def in_file(path: Path) -> list[Validity]:
    """Of the certificates in a PEM file, in its order. Raises InvalidRequest, OSError."""
    text = path.read_text(errors="replace")
    try:
        return [validity(ssl.PEM_cert_to_DER_cert(found)) for found in _PEM.findall(text)]
    except ValueError as e:
        raise InvalidRequest(f"{path}: this is no certificate: {e}") from e


async def watch(connection: Connection, access: Access) -> NoReturn:
    """Until cancelled. What cannot be read or reached keeps what was known of it: whoever connects says why."""
    known: set[str] = set()
    looks = 0
    while True:
        for name, path in (("client", access.certificate), ("ca", access.ca)):
            if path is not None:
                with suppress(OSError, InvalidRequest):
                    # A client's file begins with its own; of several authorities an old one may have ended before the new one is in use everywhere.
                    _note(name, "", in_file(path)[:1] if name == "client" else in_file(path))
        if looks % BROKERS_EVERY == 0 and connection.by_tls:
            known = await _brokers(connection, access, known)
        looks += 1
        await asyncio.sleep(LOOK_S)


async def _brokers(connection: Connection, access: Access, known: set[str]) -> set[str]:
    """Those that were looked at; others are forgotten."""
    servers = list(connection.servers)
    if not servers:
        return known
    name = servers[0][0]  # the one that we were told: brokers tell of each other by their addresses alone
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
    """The certificate that this broker shows, by the first of these names that it is for; nothing where it speaks without TLS."""
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
