"""docs/reference/threats.md: every threat is there once, and what is said to try it exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (T\d+) \| [^|]+ \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)


def test_each_threat_has_a_test_that_exists() -> None:
    rows = ROW.findall((ROOT / "docs" / "reference" / "threats.md").read_text())
    assert [threat for threat, _ in rows] == [f"T{number}" for number in range(1, 24)]
    for threat, tried in rows:
        files = re.findall(r"`([^`]+)`", tried)
        assert files, threat
        assert not [file for file in files if not (ROOT / file).is_file()], threat
