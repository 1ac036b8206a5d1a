"""Which Python `make install` takes (ADR 78)."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAME = f"python{sys.version_info.major}.{sys.version_info.minor}"


def _chosen(folder: Path, on_the_path: str, *words: str, **environment: str) -> str:
    """What the Makefile takes where `python3` on the PATH says that it is `on_the_path`."""
    python = folder / "python3"
    python.write_text(f"#!/bin/sh\necho {on_the_path}\n")
    python.chmod(0o755)
    known = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "MAKEFLAGS", "MAKELEVEL")}
    known |= {"PATH": f"{folder}:{os.environ['PATH']}"} | environment
    asked = ["make", "--silent", "--eval=chosen: ; @echo $(PYTHON)", "chosen", *words]
    return subprocess.run(asked, cwd=ROOT, env=known, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def _makes_environments(python: str) -> bool:
    try:
        return subprocess.run([python, "-c", "import ensurepip"], capture_output=True, check=False, timeout=60).returncode == 0
    except OSError:
        return False


def test_the_systems_build_of_the_version_on_the_path_is_taken(tmp_path: Path) -> None:
    system = f"/usr/bin/{SAME}"
    assert _chosen(tmp_path, SAME) == (system if _makes_environments(system) else "python3")


def test_a_version_that_the_system_does_not_have_is_taken_from_the_path(tmp_path: Path) -> None:
    assert _chosen(tmp_path, "python3.999") == "python3"


def test_a_python_that_cannot_be_asked_is_left_to_the_check_of_its_version(tmp_path: Path) -> None:
    assert _chosen(tmp_path, "; exit 1") == "python3"


def test_who_names_a_python_gets_it(tmp_path: Path) -> None:
    assert _chosen(tmp_path, SAME, "PYTHON=python3.99") == "python3.99"
    assert _chosen(tmp_path, SAME, PYTHON="/opt/python") == "/opt/python"
