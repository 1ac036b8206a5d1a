"""Which policies in a folder the running service accepts, and why not the others: `HBOX_POLICY_FILES=FOLDER python -m tests.conformance.policies`.

The folder may be a checkout of Volcano: scheduler configurations are found where they stand, in files of their own, in ConfigMaps, in Markdown and in Go
strings. Equal ones are judged once. Exits with 1 where one is refused.
"""

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hbox_common.errors import InvalidRequest
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.placement.policycheck import policy_warnings
from hbox_scheduler.core.policy.inputs import check_inputs
from hbox_scheduler.core.policy.registry import PLUGINS

FOLDER = "HBOX_POLICY_FILES"

_KEYS = ("actions:", "tiers:", "configurations:", "metrics:")
_KINDS = (".conf", ".yaml", ".yml", ".md", ".go", ".txt", ".tpl")
_COMMENT = re.compile(r"^\s*(//|\*)\s?")


@dataclass(frozen=True, slots=True)
class Found:
    """A scheduler configuration, and where it stands."""

    path: Path
    line: int
    text: str


def policies(folder: Path) -> Iterator[Found]:
    """All that are in files below the folder, each text once."""
    seen: set[str] = set()
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix not in _KINDS:
            continue
        for found in _of(path):
            if (text := " ".join(found.text.split())) not in seen:
                seen.add(text)
                yield found


def _of(path: Path) -> Iterator[Found]:
    lines = path.read_text(encoding="utf-8", errors="replace").expandtabs(4).splitlines()
    place = 0
    while place < len(lines):
        first = _uncommented(lines[place].partition("`")[2] or lines[place])
        if not first.lstrip().startswith(_KEYS):
            place += 1
            continue
        start, block, indent = place, [first], len(first) - len(first.lstrip())
        place += 1
        while place < len(lines) and "`" not in first:
            line, closes, _ = _uncommented(lines[place]).partition("`")
            if line.strip() and not _goes_on(line, indent):
                break
            if line.strip() != "...":  # of an example that goes on
                block.append(line)
            place += 1
            if closes:
                break
        text = "\n".join(line[indent:] if line.strip() else "" for line in block) + "\n"
        if re.search(r"^tiers:", text, re.MULTILINE) and "name:" in text:
            yield Found(path, start + 1, text)


def _uncommented(line: str) -> str:
    return _COMMENT.sub("", line)


def _goes_on(line: str, indent: int) -> bool:
    own = len(line) - len(line.lstrip())
    return own > indent or (own == indent and line.lstrip().startswith((*_KEYS, "- ", "#")))


def judged(text: str) -> tuple[str, list[str]]:
    """Why the running service refuses the policy, "" = it does not, and what it passes over."""
    try:
        conf = parse_conf(text, plugins=tuple(PLUGINS))
        check_inputs(conf)
        return "", policy_warnings(conf)
    except InvalidRequest as e:
        return str(e), []


def main() -> int:
    folder = os.environ.get(FOLDER, "")
    if not Path(folder).is_dir() or not folder:
        print(f"{FOLDER} names no folder", file=sys.stderr)
        return 2
    accepted = refused = 0
    for found in policies(Path(folder)):
        why, warnings = judged(found.text)
        accepted, refused = accepted + (not why), refused + bool(why)
        print(f"{'refused ' if why else 'accepted'}  {found.path.relative_to(folder)}:{found.line}{f': {why}' if why else ''}")
        for warning in warnings:
            print(f"          {warning}")
    print(f"{accepted} accepted, {refused} refused")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
