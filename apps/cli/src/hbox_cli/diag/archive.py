"""A bounded archive without secrets: `Scrub` filters every file that is added."""

import asyncio
import io
import json
import os
import sys
import tarfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hbox_common.errors import HBoxError, InvalidRequest

from ..exits import leaf
from .scrub import Scrub

#: For one step.
STEP_S = 20.0

#: What a step brings: text by file name; anything but text becomes JSON.
Files = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    take: Callable[[], Awaitable[Files]]


@dataclass(slots=True)
class Collected:
    files: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)  #: step -> why there is nothing of it
    cut: list[str] = field(default_factory=list)  #: files that are not there whole, since the archive is full


class Archive:
    """A tar.gz that gets its name when it is complete, readable by its owner alone. Raises InvalidRequest if it cannot be written."""

    def __init__(self, path: Path, scrub: Scrub, *, most_bytes: int) -> None:
        self._path, self._draft = path, path.with_name(path.name + ".part")
        self._scrub, self.left = scrub, most_bytes
        try:
            descriptor = os.open(self._draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
        except OSError as e:
            raise self._unwritten(e) from e
        self._file = os.fdopen(descriptor, "wb")
        self._tar = tarfile.open(fileobj=self._file, mode="w:gz")  # noqa: SIM115  closed with this object
        self._folder = path.name.removesuffix(".gz").removesuffix(".tar")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._tar.close()
                self._file.close()
                self._draft.replace(self._path)
        except OSError as e:
            raise self._unwritten(e) from e
        finally:
            with suppress(OSError):  # what was not written yet, where there is no room for it
                self._file.close()
            self._draft.unlink(missing_ok=True)

    def _unwritten(self, error: OSError) -> InvalidRequest:
        return InvalidRequest(f"{self._draft} cannot be written: {error.strerror}", hint="name another file with -f")

    def add(self, name: str, content: Any) -> bool:
        """Whether all of it is in. Of what does not fit its end is: of logs that is what happened last."""
        text = content if isinstance(content, str) else json.dumps(content, indent=1, ensure_ascii=False, default=str) + "\n"
        raw = self._scrub(text).encode("utf-8", "replace")
        whole = len(raw) <= self.left
        if not whole:
            raw = raw[len(raw) - self.left :]
        self.left -= len(raw)
        entry = tarfile.TarInfo(f"{self._folder}/{name}")
        entry.size, entry.mode, entry.mtime = len(raw), 0o600, int(time.time())
        try:
            self._tar.addfile(entry, io.BytesIO(raw))
        except OSError as e:
            raise self._unwritten(e) from e
        return whole


async def collect(archive: Archive, steps: Sequence[Step], about: Mapping[str, Any]) -> Collected:
    """Run the steps one after the other. The result names the steps that failed."""
    done = Collected()
    for number, step in enumerate(steps):
        _progress(f"{number + 1}/{len(steps)} {step.name}")
        try:
            async with asyncio.timeout(STEP_S):
                files = await step.take()
        except (Exception, BaseExceptionGroup) as e:  # a faulty answer of one component must not stop the other steps
            error = leaf(e)
            if not isinstance(error, Exception):
                raise
            ours = isinstance(error, HBoxError | OSError)
            failure = str(error) if ours else f"an answer that cannot be read: {type(error).__name__}: {error}"
            failure = f"not within {STEP_S:g} s" if isinstance(error, TimeoutError) else failure
            done.missing[step.name] = failure.splitlines()[0][:500] if failure else type(error).__name__
            continue
        for name, content in files.items():
            if not archive.add(name, content):
                done.cut.append(name)
            done.files.append(name)
    _progress("")
    archive.left += 65_536  # the list of what is there has to be
    archive.add("index.json", {**about, "files": done.files, "missing": done.missing, "cut": done.cut})
    return done


def _progress(text: str) -> None:
    """On a terminal one line that is overwritten, else a line for each step."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)
