"""`hbox-service NAME`, as a container runs it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from hbox_cli.services import SERVICES
from hbox_common.bus.users import SERVICES as KNOWN
from hbox_common.ports import free_ports

PROGRAM = Path(sys.executable).with_name("hbox-service")


def test_the_names_are_those_of_the_settings_file() -> None:
    assert set(SERVICES) == set(KNOWN)


@pytest.mark.parametrize("words", [[], ["nobody"], ["binder", "binder"]])
def test_what_is_no_service_is_told_with_those_that_are(words: list[str]) -> None:
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert all(name in done.stderr for name in SERVICES)


def test_node_remedy_is_a_service_of_the_image() -> None:
    done = subprocess.run([PROGRAM, "node-remedy", "--help"], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, "HBOX_VERBS" in done.stdout) == (0, True)


def test_a_service_runs_in_the_foreground_until_sigterm(tmp_path: Path) -> None:
    [port] = free_ports(1)
    env = dict(os.environ) | {"HBOX_HEALTH_PORT": str(port), "HBOX_NATS_URL": "nats://127.0.0.1:1"}
    with subprocess.Popen([PROGRAM, "health-monitor"], cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 60
        while True:
            try:
                with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
                    assert answer.status == 200
                    break
            except URLError:
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.1)
        asked = subprocess.run([PROGRAM, "--ready"], env=env, capture_output=True, text=True, timeout=30, check=False)
        assert (asked.returncode, json.loads(asked.stdout)["ready"]) == (1, False), "there is no broker"
        well = [str(PROGRAM), "--ready", f"http://127.0.0.1:{port}/healthz"]
        assert subprocess.run(well, timeout=30, check=False, capture_output=True).returncode == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_nobody_there_is_not_ready() -> None:
    [port] = free_ports(1)
    done = subprocess.run(
        [PROGRAM, "--ready", f"http://127.0.0.1:{port}/readyz"], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert "refused" in done.stdout


def test_sigterm_ends_it_while_it_is_still_importing() -> None:
    with subprocess.Popen([PROGRAM, "scheduler-core"], stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 30
        while not _handles_term(process.pid):
            assert time.monotonic() < until
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def _handles_term(pid: int) -> bool:
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt:")]
    return bool(int(line.split()[1], 16) & 1 << (signal.SIGTERM - 1))
