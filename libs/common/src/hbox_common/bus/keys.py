"""Keys of the broker's users: ed25519 seeds in files that only their owner reads. The broker's configuration has the public halves alone."""

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

import nkeys

from hbox_common.errors import InvalidRequest

SUFFIX = ".nk"


def new_seed() -> str:
    """A user's secret."""
    seed: bytes = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER)
    return seed.decode()


def public_key(seed: str) -> str:
    """Of a seed. Raises InvalidRequest."""
    try:
        return nkeys.from_seed(bytearray(seed.strip().encode())).public_key.decode()  # type: ignore[no-any-return]
    except (nkeys.NkeysError, ValueError) as e:
        raise InvalidRequest(f"not the seed of an nkey ({type(e).__name__})", hint="it begins with SU") from e


def read_seed(path: Path) -> str:
    """Raises InvalidRequest where it cannot be read or is none."""
    try:
        seed = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as e:
        raise InvalidRequest(f"the seed {path} of the broker's user cannot be read: {e}") from e
    public_key(seed)
    return seed


def keep(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """A seed for each name, `<name>.nk` in `folder`, made where it is missing. Returns the public keys by name. Raises InvalidRequest."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = {}
    for name in names:
        path = folder / f"{name}{SUFFIX}"
        if not path.exists():
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(new_seed() + "\n")
        found[name] = public_key(read_seed(path))
    return found
