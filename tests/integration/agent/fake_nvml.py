"""NVIDIA's library with cards that are not there, compiled where a compiler is."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "deploy" / "nvml" / "fake_nvml.c"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
with_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler, by which the library without cards is made")


@dataclass(frozen=True)
class FakeNvml:
    """`folder`: where libnvidia-ml.so.1 is; `script`: what it reads anew whenever somebody begins with it (fake_nvml.c)."""

    folder: Path
    script: Path

    def says(self, *lines: bytes | str) -> None:
        self.script.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines))


def build(folder: Path) -> FakeNvml:
    assert COMPILER is not None
    folder.mkdir(parents=True, exist_ok=True)
    command = [COMPILER, "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(folder / "libnvidia-ml.so.1"), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    (folder / "script").write_text("")
    return FakeNvml(folder, folder / "script")


@contextmanager
def environment(fake: FakeNvml, *, cards: int) -> Iterator[dict[str, str]]:
    yield os.environ | {"FAKE_GPUS": str(cards), "FAKE_NVML": str(fake.script)}
