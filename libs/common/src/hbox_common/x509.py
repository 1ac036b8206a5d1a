"""Validity periods of certificates (X.509, RFC 5280). Python's `ssl` returns them only for a verified certificate that a peer has sent."""

import re
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime

from .errors import InvalidRequest

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
    """The content of the first element, and the bytes behind it."""
    if der[0] != tag:
        raise ValueError(f"0x{der[0]:02x} instead of 0x{tag:02x}")
    length, start = der[1], 2
    if length > 0x7F:
        start += length & 0x7F
        length = int.from_bytes(der[2:start], "big")
    if start + length > len(der):
        raise ValueError("it is cut off")
    return der[start : start + length], der[start + length :]


def _moment(tag: int, text: bytes) -> float:
    date = text.decode("ascii")
    if tag == _UTC_TIME:
        date = ("19" if date[:2] >= "50" else "20") + date
    elif tag != _TIME:
        raise ValueError("a date is missing")
    return datetime.strptime(date, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def in_pem(text: str) -> list[Validity]:
    """Of the certificates in a PEM file's text, in its order. Raises InvalidRequest."""
    try:
        return [validity(ssl.PEM_cert_to_DER_cert(found)) for found in _PEM.findall(text)]
    except ValueError as e:
        raise InvalidRequest(f"this is no certificate: {e}") from e
