"""One version in every file: `tests.version`."""

import re
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest

from ..version import SOURCE, faults, places, source, write

ROOT = Path(__file__).parents[2]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files with the version, in a folder of their own."""
    for file in (ROOT / SOURCE, ROOT / "CHANGELOG.md", *(found.file for found in places(ROOT))):
        target = tmp_path / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    return tmp_path


def test_all_files_have_the_version_of_pyproject() -> None:
    assert list(faults(ROOT)) == []
    assert version("hbox-cli") == source(ROOT)


def test_new_version_is_written_everywhere_but_in_the_changelog(copy: Path) -> None:
    old = source(copy)
    write(copy, "7.8.9")
    assert list(faults(copy)) == [f"CHANGELOG.md: the newest release is {old}; pyproject.toml has 7.8.9"]
    changed = {found.file.relative_to(copy): found.versions for found in places(copy) if found.versions}
    assert {name for versions in changed.values() for name in versions} == {"7.8.9"}
    assert {Path("helm/hbox/Chart.yaml"), Path("Dockerfile"), Path("compose.yaml"), Path("docs/guides/install.md")} < set(
        changed
    )
    release = copy / "CHANGELOG.md"
    release.write_text(re.sub(r"^## Unreleased$", "## Unreleased\n\n## 7.8.9 - 2027-01-31", release.read_text(), flags=re.M))
    assert list(faults(copy)) == []


def test_version_changed_in_pyproject_alone_names_every_other_file(copy: Path) -> None:
    old = source(copy)
    file = copy / SOURCE
    file.write_text(file.read_text().replace(f'version = "{old}"', 'version = "7.8.9"'))
    named = {fault.partition(":")[0] for fault in faults(copy)}
    assert named == {"CHANGELOG.md", *(str(found.file.relative_to(copy)) for found in places(copy) if found.versions)}


def test_file_without_a_version_is_a_fault(copy: Path) -> None:
    (copy / "Dockerfile").write_text("FROM scratch\n")
    assert list(faults(copy)) == ["Dockerfile: 0 versions found, 1 expected"]
