"""`make test-deploy` says what it left out, and of which file nothing was tried: skipped tests alone end like passed ones."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
WHOLE = """
import pytest

@pytest.mark.skip(reason="no node")
def test_a(): ...

@pytest.fixture
def docker(): pytest.skip("no docker")

def test_b(docker): ...
"""
PART = """
import pytest

def test_a(): ...

@pytest.mark.skip(reason="no plugin")
def test_b(): ...
"""


def test_files_of_which_nothing_was_tried_are_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "test_whole.py").write_text(WHOLE)
    (tmp_path / "test_part.py").write_text(PART)
    words = ("-q", "-p", "tests.deploy.conftest", "--rootdir", tmp_path, "-c", "/dev/null", "-p", "no:cacheprovider", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.partition("not tried")[2]
    assert "test_part.py: 1 of 2: no plugin" in said
    assert "test_whole.py: NOTHING of it was tried: no node" in said
    assert "test_whole.py: NOTHING of it was tried: no docker" in said
