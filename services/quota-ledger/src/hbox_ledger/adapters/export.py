"""Export of sealed segments to files, which are then removed from the database on request.

A file is written and synced under another name first, and its content is compared with the digest in the database before the database loses it. So a command
that is interrupted at any moment loses nothing, and can be repeated.
"""

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import delete
from sqlalchemy.exc import SQLAlchemyError

from hbox_common.errors import InvalidRequest
from hbox_common.store import reading
from hbox_common.store.engine import engine, parse, refused
from hbox_common.store.files import new_file, remove, sync

from ..core.segments import digest_of
from . import segments
from . import tables as t


@dataclass(frozen=True, slots=True)
class Exported:
    """`written`: segments whose files are new; `files`: all that have one; `size`: of these in bytes; `removed`: segments whose contents the database lost."""

    written: int
    files: int
    size: int
    removed: int


def export(url: str, folder: Path, *, removes: bool = False) -> Exported:
    """Write each segment of the database at `url` to a file in `folder`, unless it is there. removes: then delete its content from the database.

    Raises InvalidRequest (`folder` cannot be written, or has a file of another history), NotFound, Unavailable.
    """
    written = size = 0
    there: list[int] = []
    with reading(url, versions=t.VERSIONS) as connection:
        for row in segments.sealed(connection):
            file, content = segments.file_of(folder, row.number), segments.content(connection, row.number)
            if content is not None and digest_of(content) != bytes(row.digest):
                raise InvalidRequest(f"segment {row.number} was altered", hint="`hbox audit --ledger` lists all faults")
            try:
                if not file.exists() and content is not None:
                    _write(file, content)
                    written += 1
                same = not file.exists() or digest_of(file.read_bytes()) == bytes(row.digest)
            except OSError as e:
                raise InvalidRequest(f"{file} cannot be written: {e.strerror or e}", hint="name another folder") from e
            if not same:
                raise InvalidRequest(f"{file} is not segment {row.number} of this database", hint="name another folder")
            if file.exists():
                there.append(row.number)
                size += file.stat().st_size
    return Exported(written, len(there), size, _remove(url, there) if removes else 0)


def _write(file: Path, content: bytes) -> None:
    draft = file.with_name(f"{file.name}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        new_file(draft)
        draft.write_bytes(content)
        sync(draft)
        draft.replace(file)
        sync(file.absolute().parent)
    finally:
        remove(draft)


def _remove(url: str, numbers: list[int]) -> int:
    """One transaction a segment, so that the ledger waits for none of them."""
    made, count = engine(parse(url)), 0
    try:
        for number in numbers:
            with made.begin() as connection:
                count += connection.execute(delete(t.segment_contents).where(t.segment_contents.c.number == number)).rowcount
    except SQLAlchemyError as e:
        raise refused(e, "database") from e
    finally:
        made.dispose()
    return count
