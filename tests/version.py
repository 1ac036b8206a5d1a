"""Checks that every file has the version of pyproject.toml; `make check` runs it. `--write VERSION` sets a new one everywhere.

The version is in pyproject.toml of the repository. Each package, the chart, the image and compose.yaml must state it, and so must each image `hbox:VERSION` in
the documents. Programs read it from the installed package.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .changelog import CHANGELOG, releases

SOURCE = "pyproject.toml"
_VERSION = r"(\d+\.\d+\.\d+)"
_IMAGE = re.compile(rf"\bhbox:{_VERSION}")
_PACKAGE = re.compile(rf'^version = "{_VERSION}"$', re.M)
_CHART = re.compile(rf"^(?:version|appVersion): {_VERSION}$", re.M)
#: Files by pattern, the expression that finds versions in them, and how many of them each must have at least.
PLACES = (
    ("*/*/pyproject.toml", _PACKAGE, 1),
    ("helm/hbox/Chart.yaml", _CHART, 2),
    ("helm/hbox/images.txt", _IMAGE, 1),
    ("Dockerfile", re.compile(rf"^ARG VERSION={_VERSION}$", re.M), 1),
    ("compose.yaml", _IMAGE, 1),
    ("README.md", _IMAGE, 0),
    ("docs/**/*.md", _IMAGE, 0),
    ("docs/**/*.yaml", _IMAGE, 0),
)


class Found(NamedTuple):
    """The versions in a file."""

    file: Path
    versions: list[str]
    pattern: re.Pattern[str]
    minimum: int


def source(root: Path) -> str:
    """The version of the project. Raises ValueError if pyproject.toml states none."""
    if not (found := _PACKAGE.search((root / SOURCE).read_text())):
        raise ValueError(f'{SOURCE}: no line `version = "MAJOR.MINOR.PATCH"`')
    return found[1]


def places(root: Path) -> Iterator[Found]:
    """The files that state the version. Raises ValueError for a pattern that no file matches."""
    for pattern, expression, minimum in PLACES:
        files = sorted(root.glob(pattern))
        if minimum and not files:
            raise ValueError(f"{pattern}: no such file")
        for file in files:
            yield Found(file, expression.findall(file.read_text()), expression, minimum)


def faults(root: Path) -> Iterator[str]:
    """Each file that differs from pyproject.toml, and a newest release in the changelog that is another version."""
    version = source(root)
    for file, versions, _, minimum in places(root):
        name = file.relative_to(root)
        yield from (f"{name}: version {other}; {SOURCE} has {version}" for other in versions if other != version)
        if len(versions) < minimum:
            yield f"{name}: {len(versions)} versions found, {minimum} expected"
    if (newest := releases((root / CHANGELOG).read_text())[:1]) != [version]:
        yield f"{CHANGELOG}: the newest release is {' '.join(newest) or 'missing'}; {SOURCE} has {version}"


def write(root: Path, version: str) -> None:
    """Set `version` in pyproject.toml and in every place."""
    for file, pattern in ((root / SOURCE, _PACKAGE), *((found.file, found.pattern) for found in places(root))):
        text = file.read_text()
        changed = pattern.sub(lambda match: match[0].replace(match[1], version), text)
        if changed != text:
            file.write_text(changed)


def main() -> int:
    """Print each file that differs; 1 if there is one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--write", metavar="VERSION", help="set this version everywhere")
    arguments = parser.parse_args()
    if arguments.write:
        if not re.fullmatch(_VERSION, arguments.write):
            parser.error(f"{arguments.write!r} is not MAJOR.MINOR.PATCH")
        write(Path(), arguments.write)
    found = list(faults(Path()))
    for fault in found:
        print(fault)
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main())
