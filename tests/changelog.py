"""Checks the form of CHANGELOG.md (Keep a Changelog); `make check` runs it.

A release is `## VERSION - YYYY-MM-DD`, newest first, below `## Unreleased`. Its sections are `### Added` and so on, in the order of `SECTIONS`. An entry is one
line: `- component: text`, or `- component, component: text`.
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path

CHANGELOG = Path("CHANGELOG.md")
SECTIONS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
#: Components that have no folder of their own among libs, services and apps.
OTHERS = frozenset(("bus", "chart", "compose", "docs", "image", "services", "tests"))
MAX_ENTRY = 160
MAX_ENTRIES = 60  # of a release; a reader looks for one line, not for the history of the repository
_RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+) - (\d{4}-\d\d-\d\d)")
_ENTRY = re.compile(r"- ([a-z-]+(?:, [a-z-]+)*): \S.*")


def components(root: Path = Path()) -> frozenset[str]:
    """Names that may begin an entry: each folder with a package, and `OTHERS`."""
    return OTHERS | {path.parent.name for path in root.glob("*/*/pyproject.toml")}


def releases(text: str) -> list[str]:
    """Versions of the releases, newest first."""
    return re.findall(r"^## (\d+\.\d+\.\d+) - ", text, re.M)


def faults(text: str, known: frozenset[str]) -> Iterator[str]:
    """Each fault of a changelog, with its line number. `known`: components that an entry may name."""
    release, section, newest = "", "", None
    entries: Counter[str] = Counter()
    lines = text.splitlines()
    if not lines or lines[0] != "# Changelog":
        yield "1: the title is not `# Changelog`"
    for number, line in enumerate(lines[1:], 2):
        if line.startswith("## "):
            if not release:
                if line != "## Unreleased":
                    yield f"{number}: the first release is not `## Unreleased`"
            elif found := _RELEASE.fullmatch(line[3:]):
                version = tuple(map(int, found.groups()[:3]))
                if newest is not None and version >= newest:
                    yield f"{number}: releases are not ordered newest first"
                newest = version
                try:
                    date.fromisoformat(found[4])
                except ValueError:
                    yield f"{number}: {found[4]} is no date"
            else:
                yield f"{number}: a release is `## VERSION - YYYY-MM-DD`"
            release, section = line[3:], ""
        elif not release or not line or (not section and line[0].isalpha()):
            continue  # sentences on the release, above its sections
        elif line.startswith("### "):
            if (name := line[4:]) not in SECTIONS:
                yield f"{number}: sections are {', '.join(SECTIONS)}"
            elif section and SECTIONS.index(name) <= SECTIONS.index(section):
                yield f"{number}: section {name} is not in the order {', '.join(SECTIONS)}"
            else:
                section = name
        else:
            if not section:
                yield f"{number}: an entry is in a section such as `### Fixed`"
            if len(line) > MAX_ENTRY:
                yield f"{number}: {len(line)} characters; an entry has at most {MAX_ENTRY}"
            if not (entry := _ENTRY.fullmatch(line)):
                yield f"{number}: an entry is one line, `- component: text`"
            elif unknown := set(entry[1].split(", ")) - known:
                yield f"{number}: no component is called {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}"
            entries[release] += 1
    yield from (
        f"{release}: {count} entries; a release has at most {MAX_ENTRIES}"
        for release, count in entries.items()
        if count > MAX_ENTRIES and release != "Unreleased"
    )


def main() -> int:
    """Print each fault; 1 if there is one."""
    found = list(faults(CHANGELOG.read_text(), components()))
    for fault in found:
        print(f"{CHANGELOG}:{fault}")
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main())
