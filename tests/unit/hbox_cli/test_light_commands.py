"""`hbox jobs` over HTTP imports neither the broker's client nor the message models: they take ten times as long to import as the list takes to read."""

import subprocess
import sys

#: What a short command does not import: 0.2 to 0.4 s each.
HEAVY = (
    "asyncio",
    "aiohttp",
    "nats",
    "pydantic",
    "hbox_common.model",
    "hbox_common.events",
    "hbox_common.bus",
    "hbox_common.kube",
)


def test_a_list_of_jobs_over_http_imports_no_client_of_the_broker() -> None:
    """No server listens on port 9: the imports are the same, and the command ends with exit status 6."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "hbox_cli", "--server", "http://127.0.0.1:9", "jobs"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 6, done.stderr[-500:]
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "hbox_cli.access.serversource" in imported
    assert sorted(imported & {*HEAVY}) == []


def test_the_state_folder_is_read_without_the_model() -> None:
    code = "import sys, hbox_cli.platform.layout; sys.exit('hbox_common.model' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
