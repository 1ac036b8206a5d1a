"""kubectl's commands and what they print on a real control plane: the emulator has to give the same exit statuses and first lines.

    python -m tests.conformance.kubectl_commands     # records them anew, by the programs of `make kube-assets`

`kubectl_commands.txt` has a command a line: exit status, first line of what it prints, command. Random parts of names, ids and times are written as `*`.
Commands run one after the other on one cluster; `&` in front of one stops it after its first line.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer

from hbox_cli.platform.assets import find_programs
from hbox_common.errors import InvalidRequest
from hbox_common.kube.definitions import DEFINITIONS

from ..real.control_plane import control_plane

HERE = Path(__file__).parent
TABLE = HERE / "kubectl_commands.txt"
MANIFESTS = HERE / "kubectl_commands.yaml"
#: kubectl of the newest version that the environment has.
NEWEST = Path(sys.executable).with_name("kubectl")
_TIMEOUT_S = 120
#: Commands of which the last line is compared, and those whose lines depend on time or on the writes of kubelets.
_PROGRESS = ("apply", "api-versions", "rollout status")
_UNSTABLE = ("wait --for=delete", "apply --dry-run")
_IGNORED = ("Warning: version difference", "diff -u")
_RANDOM = (
    (re.compile(r"/tmp/(LIVE|MERGED)-\d+/(\S+)\s.*"), r"\1 \2"),
    (re.compile(r"v\d+\.\d+\.\S+"), "VERSION"),
    (re.compile(r"\b(web|sum|db)-[a-z0-9]{8,10}(-[a-z0-9]{5})?\b"), r"\1-*"),
    (re.compile(r"\bsum-[a-z0-9]{5}\b"), "sum-*"),
    (re.compile(r"https?://[\w.:]+"), "URL"),
    (re.compile(r"\b\d+(s|m|ms)\b"), "*"),
    (re.compile(r" {2,}"), "  "),
)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    line: str  #: the first line of the output, or of the error where there is none
    command: str


def older() -> Path | None:
    """kubectl of the version of the control plane: `make kube-assets` builds it."""
    try:
        program = find_programs() / "kubectl"
    except InvalidRequest:
        return None
    return program if os.access(program, os.X_OK) else None


def commands() -> list[str]:
    return [line.split("\t")[2] for line in TABLE.read_text().splitlines()]


def recorded() -> list[Answer]:
    lines = (line.split("\t") for line in TABLE.read_text().splitlines())
    return [Answer(int(status), line, command) for status, line, command in lines]


def ask(program: Path, kubeconfig: Path, texts: Sequence[str]) -> Iterator[Answer]:
    """Run the commands in their order in the cluster of `kubeconfig`."""
    with TemporaryDirectory() as cache:
        start = [str(program), "--kubeconfig", str(kubeconfig), "--cache-dir", cache]
        env = {
            **os.environ,
            "KUBECTL_EXTERNAL_DIFF": "diff -u -N",
            "KUBE_EDITOR": "true",
            "DEFINITIONS": _definitions(Path(cache)),
        }
        for text in texts:
            arguments = [
                word.replace("FILE", str(MANIFESTS)).replace("DEFINITIONS", env["DEFINITIONS"]) for word in shlex.split(text)
            ]
            if arguments[0] == "&":
                yield _watched([*start, *arguments[1:]], env, text)
                continue
            done = subprocess.run(
                [*start, *arguments], env=env, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
            )
            pick = _last if text.startswith(_PROGRESS) else _first
            line = "" if text.startswith(_UNSTABLE) else pick(done.stdout) or pick(done.stderr)
            yield Answer(done.returncode, line, text)


def _watched(arguments: Sequence[str], env: dict[str, str], text: str) -> Answer:
    """Stop the command once it printed a line, or after the limit of time."""
    process = subprocess.Popen(arguments, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    limit = Timer(_TIMEOUT_S, process.kill)
    limit.start()
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
    finally:
        limit.cancel()
        process.terminate()
        process.communicate()
    return Answer(0, _first(line), text)


def _first(text: str) -> str:
    return next(iter(_lines(text)), "")


def _last(text: str) -> str:
    """Of what reports progress: how much of it depends on time."""
    return next(reversed(_lines(text)), "")


def _lines(text: str) -> list[str]:
    lines = [line.strip() for line in text.splitlines() if not line.startswith(_IGNORED)]
    for pattern, mark in _RANDOM:
        lines = [pattern.sub(mark, line) for line in lines]
    return [line for line in lines if line]


def _definitions(folder: Path) -> str:
    file = folder / "definitions.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": DEFINITIONS}))
    return str(file)


def main() -> int:
    program = older() or NEWEST
    with TemporaryDirectory() as folder, control_plane(Path(folder)) as plane:
        lines = [f"{each.status}\t{each.line}\t{each.command}\n" for each in ask(program, plane.kubeconfig, commands())]
    TABLE.write_text("".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
