"""Certificates that a service makes for itself: Ed25519, signed with their own key, so that a client with the certificate trusts it alone (RFC 5280, 8410)."""

import base64
import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from textwrap import wrap

from nacl.signing import SigningKey

SEED_BYTES = 32

_INTEGER, _BITS, _OCTETS, _OID, _UTF8, _UTC_TIME, _TIME, _SEQUENCE, _SET = 0x02, 0x03, 0x04, 0x06, 0x0C, 0x17, 0x18, 0x30, 0x31
_TRUE = bytes.fromhex("0101ff")
_ED25519, _COMMON_NAME = bytes.fromhex("2b6570"), bytes.fromhex("550403")
_SUBJECT_KEY, _KEY_USAGE, _NAMES, _CONSTRAINTS, _EXTENDED = (
    bytes.fromhex(f"551d{number:02x}") for number in (0x0E, 0x0F, 0x11, 0x13, 0x25)
)
_SERVER_AUTH = bytes.fromhex("2b06010505070301")
#: Of a private key, before its seed (RFC 8410 §7).
_PKCS8 = bytes.fromhex("302e020100300506032b657004220420")
#: digitalSignature and keyCertSign.
_USES = bytes.fromhex("03020284")


def self_signed(name: str, names: Sequence[str], seed: bytes, *, begins: float, ends: float) -> tuple[str, str]:
    """Certificate and key in PEM. `names`: DNS names and IP addresses of the server; `seed`: SEED_BYTES random bytes; times in seconds since the epoch."""
    key = SigningKey(seed)
    public = bytes(key.verify_key)
    algorithm = _tlv(_SEQUENCE, _tlv(_OID, _ED25519))
    called = _tlv(_SEQUENCE, _tlv(_SET, _tlv(_SEQUENCE, _tlv(_OID, _COMMON_NAME) + _tlv(_UTF8, name[:64].encode()))))
    identifier = sha256(public).digest()[:20]
    extensions = (
        _extension(_CONSTRAINTS, _tlv(_SEQUENCE, _TRUE), critical=True)
        + _extension(_KEY_USAGE, _USES, critical=True)
        + _extension(_EXTENDED, _tlv(_SEQUENCE, _tlv(_OID, _SERVER_AUTH)))
        + _extension(_SUBJECT_KEY, _tlv(_OCTETS, identifier))
        + _extension(_NAMES, _tlv(_SEQUENCE, b"".join(map(_name, names))))
    )
    body = _tlv(
        _SEQUENCE,
        _tlv(0xA0, _tlv(_INTEGER, b"\x02"))
        + _tlv(_INTEGER, b"\x01" + sha256(public + str(begins).encode()).digest()[:15])
        + algorithm
        + called
        + _tlv(_SEQUENCE, _moment(begins) + _moment(ends))
        + called
        + _tlv(_SEQUENCE, algorithm + _tlv(_BITS, b"\x00" + public))
        + _tlv(0xA3, _tlv(_SEQUENCE, extensions)),
    )
    signature = key.sign(body).signature
    certificate = _tlv(_SEQUENCE, body + algorithm + _tlv(_BITS, b"\x00" + signature))
    return _pem("CERTIFICATE", certificate), _pem("PRIVATE KEY", _PKCS8 + seed)


def _extension(kind: bytes, value: bytes, *, critical: bool = False) -> bytes:
    return _tlv(_SEQUENCE, _tlv(_OID, kind) + (_TRUE if critical else b"") + _tlv(_OCTETS, value))


def _name(name: str) -> bytes:
    try:
        return _tlv(0x87, ipaddress.ip_address(name).packed)
    except ValueError:
        return _tlv(0x82, name.encode("idna"))


def _moment(at: float) -> bytes:
    when = datetime.fromtimestamp(at, UTC)
    short = when.year < 2050
    return _tlv(_UTC_TIME if short else _TIME, when.strftime("%y%m%d%H%M%SZ" if short else "%Y%m%d%H%M%SZ").encode())


def _tlv(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def _pem(kind: str, der: bytes) -> str:
    text = "\n".join(wrap(base64.b64encode(der).decode(), 64))
    return f"-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n"
