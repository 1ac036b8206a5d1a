"""Files of the user's own: contexts and cached credentials, readable by the user alone, and replaced as a whole."""

import os
from collections.abc import Mapping
from pathlib import Path


def config_folder(environ: Mapping[str, str] = os.environ) -> Path:
    return _xdg(environ, "XDG_CONFIG_HOME", ".config") / "hbox"


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    return _xdg(environ, "XDG_CACHE_HOME", ".cache") / "hbox"


def _xdg(environ: Mapping[str, str], name: str, default: str) -> Path:
    """Relative paths are ignored, as the XDG base directory specification requires."""
    given = Path(environ.get(name, ""))
    return given if given.is_absolute() else Path.home() / default


def private_folder(folder: Path) -> None:
    """Makes the folder with mode 0700, and its parents by the umask. Raises OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)


def write_private(path: Path, text: str) -> None:
    """Readers see the old file or the new one. Mode 0600 from the first byte on. Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
