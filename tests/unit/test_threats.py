"""docs/reference/threats.md: every threat is there once, and what is said to try it exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (T\d+) \| [^|]+ \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
#: Nobody tries these: each says in its row what is not built.
NOT_BUILT = {"T14", "T16"}


def test_each_threat_has_a_test_that_exists_or_says_that_it_has_none() -> None:
    rows = ROW.findall((ROOT / "docs" / "reference" / "threats.md").read_text())
    assert [threat for threat, _ in rows] == [f"T{number}" for number in range(1, 24)]
    for threat, tried in rows:
        files = re.findall(r"`([^`]+)`", tried)
        assert bool(files) == (threat not in NOT_BUILT), threat
        assert not [file for file in files if not (ROOT / file).is_file()], threat
