"""kubectl, as an administrator of the platform's cluster."""

import subprocess
import sys
from pathlib import Path

from ..e2e.platform_world import SLOWER, Up

PROGRAM = Path(sys.executable).with_name("kubectl")


def kubectl(platform: Up, *words: str, stdin: str = "") -> str:
    """What it prints; it has to succeed."""
    done = subprocess.run(
        [PROGRAM, "--kubeconfig", platform.state / "kubeconfig", "--cache-dir", platform.state / "kubectl", *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60 * SLOWER,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
