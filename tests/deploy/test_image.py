"""The image by itself: what is in it, and what it says of that."""

from __future__ import annotations

import json
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from .cluster import ROOT

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1500)]

SBOM = "/opt/hbox/share/sbom.cdx.json"


def output(docker: str, *words: str) -> str:
    done = subprocess.run([docker, "run", "--rm", *words], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def pins(path: Path) -> set[str]:
    lines = path.read_text().replace("\\\n", " ").splitlines()
    return {line.split()[0] for line in lines if "==" in line and ";" not in line}


def test_its_bill_of_materials_names_what_is_installed(docker: str, image: str) -> None:
    found = json.loads(output(docker, "--entrypoint", "cat", image, SBOM))
    assert found["bomFormat"] == "CycloneDX"
    names = {f"{one['name'].lower().replace('_', '-')}=={one['version']}" for one in found["components"]}
    assert pins(ROOT / "image" / "requirements.lock") <= names
    assert f"hbox-cli=={version('hbox-cli')}" in names


def test_make_sbom_says_the_same_without_an_image(docker: str, image: str) -> None:
    def components(text: str) -> set[tuple[str, str]]:
        return {(one["name"], one["version"]) for one in json.loads(text)["components"]}

    subprocess.run(["make", "sbom"], cwd=ROOT, check=True, timeout=600)
    assert components((ROOT / "sbom.cdx.json").read_text()) == components(output(docker, "--entrypoint", "cat", image, SBOM))


#: Modules that a service imports and that have no bytecode: each start compiles them.
UNCOMPILED = """
import sys, importlib.util, pathlib, hbox_ledger.app, hbox_scheduler.app
files = {file for module in sys.modules.values() if (file := getattr(module, "__file__", None) or "").endswith(".py")}
assert len(files) > 500
print(sorted(file for file in files if not pathlib.Path(importlib.util.cache_from_source(file)).exists()))
"""


def test_nothing_that_a_service_imports_is_compiled_at_its_start(docker: str, image: str) -> None:
    assert output(docker, "--read-only", "--entrypoint", "python", image, "-c", UNCOMPILED).strip() == "[]"


def test_it_runs_as_nobody_on_a_root_that_cannot_be_written(docker: str, image: str) -> None:
    words = ("--read-only", "--tmpfs", "/tmp", "--network", "none", "--entrypoint", "sh", image, "-c", "id -u; hbox --version")
    assert output(docker, *words).split()[0] == "65532"
    assert output(docker, "--entrypoint", "sh", image, "-c", "which gcc cc || true") == "", "no compiler"
