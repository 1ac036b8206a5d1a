"""Keys of the broker's users: ed25519 seeds in files that only their owner reads. The broker's configuration has the public halves alone.

An account's key signs what the broker's authorization callout answers (callout.py).

A seed and a public key are written as NATS does (https://github.com/nats-io/nkeys): base32 of prefix, 32 bytes and a CRC-16. The library that writes
them so in Python has no wheel, so these few lines are here; the signing itself is libsodium's.
"""

import base64
import binascii
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from nacl.signing import SigningKey

from hbox_common.errors import InvalidRequest

SUFFIX = ".nk"

#: Five bits each: a seed begins with SU or SA, a public key with U or A.
_SEED, _USER, _ACCOUNT = 18 << 3, 20 << 3, 0
_LENGTH = 58  #: of a seed, in characters


def new_seed() -> str:
    """A user's secret."""
    return _new(_USER)


def new_account_seed() -> str:
    """An account's secret."""
    return _new(_ACCOUNT)


def public_key(seed: str) -> str:
    """Of a user's seed. Raises InvalidRequest."""
    return _written(bytes([_USER]) + bytes(_key(seed).verify_key))


def public_account_key(seed: str) -> str:
    """Of an account's seed. Raises InvalidRequest."""
    return _written(bytes([_ACCOUNT]) + bytes(_key(seed, _ACCOUNT).verify_key))


def account_signature(seed: str, text: bytes) -> bytes:
    """64 bytes. Raises InvalidRequest."""
    return _key(seed, _ACCOUNT).sign(text).signature


def signature(seed: str, nonce: bytes) -> bytes:
    """64 bytes, by which the broker sees that the seed is there. Raises InvalidRequest."""
    return _key(seed).sign(nonce).signature


def read_seed(path: Path) -> str:
    """A user's. Raises InvalidRequest where it cannot be read or is none."""
    return _read(path, _USER)


def read_account_seed(path: Path) -> str:
    """An account's. Raises InvalidRequest where it cannot be read or is none."""
    return _read(path, _ACCOUNT)


def keep_account(path: Path) -> str:
    """An account's seed in this file, made where it is missing. Returns its public key. Raises InvalidRequest."""
    _make(path, new_account_seed)
    return public_account_key(read_account_seed(path))


def keep(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """A seed for each name, `<name>.nk` in `folder`, made where it is missing. Returns the public keys by name. Raises InvalidRequest."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = {}
    for name in names:
        path = folder / f"{name}{SUFFIX}"
        _make(path, new_seed)
        found[name] = public_key(read_seed(path))
    return found


def _make(path: Path, seed: Callable[[], str]) -> None:
    if not path.exists():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(seed() + "\n")


def _read(path: Path, kind: int) -> str:
    try:
        seed = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as e:
        raise InvalidRequest(f"the seed {path} cannot be read: {e}") from e
    _key(seed, kind)
    return seed


def _new(kind: int) -> str:
    return _written(bytes([_SEED | kind >> 5, (kind & 31) << 3]) + bytes(SigningKey.generate()))


def _key(seed: str, kind: int = _USER) -> SigningKey:
    """Raises InvalidRequest."""
    try:
        if len(seed) != _LENGTH:
            raise ValueError("its length")
        raw = base64.b32decode(seed + "=" * (-_LENGTH % 8))
        body, check = raw[:-2], raw[-2:]
        if _checksum(body) != check or body[0] & 248 != _SEED or ((body[0] & 7) << 5 | body[1] >> 3) != kind:
            raise ValueError("its checksum or its kind")
    except ValueError as e:
        whose, begins = ("a user's", "SU") if kind == _USER else ("an account's", "SA")
        raise InvalidRequest(f"not the seed of {whose} nkey", hint=f"it begins with {begins} and has 58 characters") from e
    return SigningKey(body[2:])


def _written(body: bytes) -> str:
    return base64.b32encode(body + _checksum(body)).decode().rstrip("=")


def _checksum(body: bytes) -> bytes:
    """CRC-16/XMODEM, the low byte first."""
    return binascii.crc_hqx(body, 0).to_bytes(2, "little")
