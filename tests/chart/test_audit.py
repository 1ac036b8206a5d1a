"""`make audit` ends otherwise where packages are vulnerable than where the advisories could not be read."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

AUDIT = Path(__file__).parents[2] / "image" / "audit.py"
SOUND = {"name": "attrs", "version": "25.1.0", "vulns": []}
VULNERABLE = {
    "name": "idna",
    "version": "3.6",
    "vulns": [{"id": "PYSEC-2024-60", "fix_versions": ["3.7"], "aliases": [], "description": ""}],
}
SKIPPED = {"name": "attrs", "skip_reason": "Dependency not found on PyPI and could not be audited: attrs (25.1.0)"}


@pytest.mark.parametrize(
    ("packages", "status", "says"),
    [
        ([SOUND], 0, "1 packages, none known"),
        ([SOUND, VULNERABLE], 1, "idna 3.6: PYSEC-2024-60, mended in 3.7"),
        ([SOUND, SKIPPED], 3, "Not audited: 1 of 2 packages"),
        ([VULNERABLE, SKIPPED], 1, "Not audited: 1 of 2 packages"),
        ([], 3, ""),
        (None, 3, "Not audited: pip-audit got no advisories"),
    ],
)
def test_the_exit_status_says_whether_it_was_asked(packages: list[dict[str, Any]] | None, status: int, says: str) -> None:
    answer = "" if packages is None else json.dumps({"dependencies": packages, "fixes": []})
    done = subprocess.run(
        [sys.executable, AUDIT, sys.executable, "-c", f"print({answer!r})"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == status, done
    assert says in done.stdout + done.stderr
