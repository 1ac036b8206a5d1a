"""Dated backups in a folder: `hbox backup FOLDER --keep N`, as a CronJob calls it."""

from datetime import UTC, datetime
from pathlib import Path

import click

from hbox_common.clock import wall_s
from hbox_common.errors import InvalidRequest

KEEP = click.option(
    "--keep",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="FILE is a folder: write a dated file into it; once it is verified, remove all but the newest N.",
)


def target(file: Path, keep: int | None, prefix: str) -> Path:
    """The file to write: `file` itself, or, with `keep`, a dated file in the folder `file`.

    Raises InvalidRequest if a folder is named without `keep`, or a file with it.
    """
    if keep is None:
        if file.is_dir():
            raise InvalidRequest(f"{file} is a folder", hint=f"name a file, or add --keep 14 for dated files in {file}")
        return file
    if not file.is_dir():
        raise InvalidRequest(f"--keep: {file} is not a folder", hint="make it first, or leave --keep out")
    return file / f"{prefix}-{datetime.fromtimestamp(wall_s(), UTC):%Y-%m-%dT%H%M%SZ}.db"


def prune(written: Path, keep: int | None, prefix: str) -> list[Path]:
    """Remove all dated files in the folder of `written` but the newest `keep`, and return them; without `keep` none. Names sort by time."""
    if keep is None:
        return []
    digits = "[0-9][0-9]"
    pattern = f"{prefix}-{digits}{digits}-{digits}-{digits}T{digits}{digits}{digits}Z.db"
    old = sorted(written.parent.glob(pattern))[:-keep]
    for file in old:
        file.unlink()
    return old
