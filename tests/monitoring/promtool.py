"""Prometheus' promtool, where this machine has it."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

MAKE = "there is no promtool: `make promtool` builds it from Go modules, or HBOX_PROMTOOL names it"


@cache
def binary() -> str | None:
    """HBOX_PROMTOOL, else the first on PATH, else the one that `make promtool` built."""
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hbox" / "promtool" / "promtool"
    return os.environ.get("HBOX_PROMTOOL") or shutil.which("promtool") or (str(kept) if kept.exists() else None)


def promtool(*words: str | Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Skips the test where there is none."""
    found = binary()
    if found is None:
        pytest.skip(MAKE)
    return subprocess.run([found, *words], input=given, capture_output=True, timeout=900, check=False)
