"""The form of CHANGELOG.md: `tests.changelog`."""

from pathlib import Path

import pytest

from ..changelog import MAX_ENTRIES, components, faults, releases

KNOWN = frozenset(("binder", "cli"))
GOOD = """# Changelog

## Unreleased

### Added

### Fixed

- binder, cli: a text.

## 0.2.0 - 2027-01-31

A sentence on the release.

### Added

- cli: a text.

## 0.1.0 - 2026-11-28

### Added

- cli: a text.
"""


def test_changelog_in_form_has_no_fault() -> None:
    assert list(faults(GOOD, KNOWN)) == []
    assert releases(GOOD) == ["0.2.0", "0.1.0"]


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("# Changelog", "# Changes", "1: the title is not `# Changelog`"),
        ("## Unreleased", "## 0.3.0 - 2027-02-01", "3: the first release is not `## Unreleased`"),
        ("## 0.2.0 - 2027-01-31", "## 0.2.0", "11: a release is `## VERSION - YYYY-MM-DD`"),
        ("2027-01-31", "2027-02-31", "11: 2027-02-31 is no date"),
        ("## 0.2.0", "## 0.1.0", "19: releases are not ordered newest first"),
        ("### Added\n\n### Fixed", "### Fixed\n\n### Added", "7: section Added is not in the order"),
        ("### Fixed", "### Mended", "7: sections are Added, Changed,"),
        ("### Added\n\n### Fixed\n", "", "6: an entry is in a section such as `### Fixed`"),
        ("- binder, cli: a text.", "- a text.", "9: an entry is one line, `- component: text`"),
        ("- binder, cli: a text.", "- binder: a\n  text.", "10: an entry is one line, `- component: text`"),
        (
            "- binder, cli: a text.",
            "- binder, scheduler: a text.",
            "9: no component is called scheduler; there are binder, cli",
        ),
        ("- binder, cli: a text.", f"- binder: {'a' * 151}", "9: 161 characters; an entry has at most 160"),
        ("- cli: a text.\n", "- cli: a text.\n" * (MAX_ENTRIES + 1), f"0.2.0 - 2027-01-31: {MAX_ENTRIES + 1} entries"),
    ],
)
def test_changelog_fault_is_found_with_its_line(old: str, new: str, fault: str) -> None:
    assert old in GOOD
    assert [one for one in faults(GOOD.replace(old, new, 1), KNOWN) if one.startswith(fault)]


def test_unreleased_has_no_limit_of_entries() -> None:
    many = GOOD.replace("- binder, cli: a text.\n", "- binder: a text.\n" * (MAX_ENTRIES + 1))
    assert list(faults(many, KNOWN)) == []


def test_components_are_the_packages_folders(tmp_path: Path) -> None:
    for name in ("services/binder", "libs/cli"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "pyproject.toml").touch()
    assert {"binder", "cli", "chart"} <= components(tmp_path)
    assert "scheduler" not in components(tmp_path)
