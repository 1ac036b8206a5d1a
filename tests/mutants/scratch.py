"""A scratch copy of the tree, in which one fault at a time is planted and tests run.

The tests run in a separate process. Its PYTHONPATH names the copy's sources, which take precedence over the environment's editable installs.
The bytecode of a patched source is deleted with the patch: Python compares only time (in seconds) and size, and a fault often changes neither.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..searching import UNSHRUNK

#: pytest's exit status where tests failed; all but this and 0 say that they did not run.
TESTS_FAILED = 1


@dataclass(frozen=True, slots=True)
class TestRun:
    """`status`: of pytest; None where it was ended at the time limit."""

    __test__ = False

    status: int | None
    output: str


class Scratch:
    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def copy(cls, tree: Path, root: Path) -> "Scratch":
        """The files of `tree` that git knows or would add, as they are on disk, under `root`."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=tree, check=True, capture_output=True
        )
        for name in listed.stdout.decode().split("\0"):
            if name and (tree / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(tree / name, root / name)
        return cls(root)

    def read(self, file: str) -> str | None:
        """The file's text; None where there is no such file."""
        path = self.root / file
        return path.read_text() if path.is_file() else None

    def write(self, file: str, text: str) -> None:
        path = self.root / file
        path.write_text(text)
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)

    def run(self, tests: Sequence[str], *, limit_s: float, first_failure: bool) -> TestRun:
        """`tests` by pytest, in the copy, up to the first that fails or all of them."""
        sources = [str(path) for folder in ("apps", "libs", "services") for path in sorted((self.root / folder).glob("*/src"))]
        words = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--tb=line",
            f"--hypothesis-profile={UNSHRUNK}",
            *(["-x"] if first_failure else []),
        ]
        process = subprocess.Popen(
            [*words, *tests],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sources)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            _end(process)
            return TestRun(None, process.communicate()[0])
        except BaseException:
            _end(process)
            raise
        return TestRun(process.returncode, output)


def _end(process: subprocess.Popen[str]) -> None:
    """Ends the tests and whatever they started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it ended meanwhile
