"""A record of scheduler-core, read and replayed, as a document."""

from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import TypeAdapter

from hbox_common.errors import InvalidRequest
from hbox_scheduler.core.simulate.record import Reader
from hbox_scheduler.core.simulate.replay import Replay

from .runs import Runs

_ANY: TypeAdapter[Any] = TypeAdapter(Any)


def replayed(path: Path) -> dict[str, Any]:
    """What came of it, for `-o json`. Raises InvalidRequest where the file is no record, of another format, or damaged."""
    with opened(path) as file:
        reader = Reader(file, str(path))
        replay = Replay(reader.head)
        whole = max(1, path.stat().st_size)
        with Runs(whole, "bytes") as tick:
            shown = 0
            for call in reader.calls():
                replay.run(call)
                if reader.read > shown:
                    tick(reader.read - shown)
                    shown = reader.read
            tick(whole - shown)
    head = reader.head
    return {
        "record": str(path),
        "version": head.version,
        "scheduler": head.scheduler,
        "end": reader.end,
        "seconds": round((replay.last_now or 0.0) - (replay.first_now or 0.0), 3),
        "calls": replay.calls,
        "cycles": replay.cycles,
        "plans": replay.plans,
        "placements": replay.placements,
        "victims": replay.victims,
        "verdicts": replay.verdicts,
        "differences": replay.differences,
        "first": None if replay.first is None else _ANY.dump_python(asdict(replay.first), mode="json"),
        "warnings": warnings_of(reader),
    }


def opened(path: Path) -> BinaryIO:
    """The record's file. Raises InvalidRequest."""
    try:
        return path.open("rb")
    except OSError as e:
        raise InvalidRequest(f"{path} cannot be read: {e.strerror}", hint="name a file that HBOX_RECORD made") from e


def warnings_of(reader: Reader) -> list[str]:
    """What is to be said of a record that was read to its end."""
    found = []
    if reader.torn:
        found.append(
            f"the last {reader.torn} bytes are torn: the service was killed while it wrote; what stands before them is whole"
        )
    elif not reader.end:
        found.append("it has no end: the service was killed, and up to a quarter of a second of what it was told is missing")
    if reader.head.version != (own := version("hbox-scheduler")):
        found.append(f"it was written by HBox {reader.head.version}, and this is {own}: another version may decide otherwise")
    return found
