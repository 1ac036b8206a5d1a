"""The tour of README.md, command by command, with the outputs that README.md states."""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .platform_world import SLOWER, Up, up

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
#: Parts of an output that differ from run to run: times, ages, ids, which pods of `sweep` are the victims, nodes of the others, numbers of checks.
VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:]+Z"), "TIME"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC, revision \d+"), "TIME"),
    (re.compile(r"\b\d+s\b"), "AGE"),
    (re.compile(r"TRACE +[0-9a-f]{32}"), "TRACE ID"),
    (re.compile(r"sweep-\d"), "sweep-N"),
    (re.compile(r"have nodes: node-\d+(, node-\d+)*"), "have nodes: NODES"),
    (re.compile(r"\d+ checks"), "N checks"),
    (re.compile(r" +"), " "),
)


def tour() -> list[tuple[str, str]]:
    """The commands of the section and the output below each; empty where README.md shows none."""
    section = (ROOT / "README.md").read_text().partition("\n## Five minutes\n")[2].partition("\n## ")[0]
    lines = [line.removeprefix("    ") for line in section.splitlines() if line.startswith("    ")]
    starts = [at for at, line in enumerate(lines) if line.startswith("$ ")]
    return [
        (lines[at].removeprefix("$ "), "\n".join(lines[at + 1 : end]))
        for at, end in zip(starts, [*starts[1:], len(lines)], strict=True)
    ]


def fixed(output: str) -> str:
    for pattern, name in VARYING:
        output = pattern.sub(name, output)
    return output.strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the repository's root looks to the commands, with a state folder of its own."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "docs").symlink_to(ROOT / "docs")
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


@pytest.fixture(scope="module")
def platform(folder: Path) -> Iterator[Up]:
    program, *arguments = shlex.split(tour()[0][0])
    assert (program, arguments[0]) == (".venv/bin/hbox", "up")
    with up(folder / ".hbox", "--levels", *arguments[1:]) as running:
        yield running


def test_tour_prints_what_readme_states(platform: Up, folder: Path) -> None:
    (environment, _), *commands = tour()[1:]
    assert environment.startswith("export ")
    seen = []
    for command, expected in commands:
        writes = command.startswith(("kubectl", "hbox queue create"))
        deadline = time.monotonic() + 20 * SLOWER
        while True:
            done = subprocess.run(
                ["bash", "-c", f"{environment}\n{command}"],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60 * SLOWER,
                check=False,
            )
            if done.returncode == 0 and fixed(expected) in ("", fixed(done.stdout)):
                break
            # Between a command and its effect the platform takes a moment; only what reads may be repeated.
            assert not writes, f"{command}: {done.stdout}"
            assert time.monotonic() < deadline, f"{command}: {fixed(done.stdout)}\nREADME.md: {fixed(expected)}"
        seen.append(command.split()[0])
    assert seen.count("hbox") >= 6
    assert seen.count("kubectl") == 3
