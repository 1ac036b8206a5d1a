"""The emulator as a program: what it prints, how it ends; and the in-process server's long lists."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import aiohttp
import pytest

from hbox_sandbox.api import ApiServer
from hbox_sandbox.api.resources import PODS
from hbox_sandbox.api.writes import Options, Target, create

PROGRAM = [sys.executable, "-m", "hbox_sandbox"]


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_it_says_when_it_is_ready_writes_its_kubeconfig_and_ends_cleanly(tmp_path: Path, ending: signal.Signals) -> None:
    config = tmp_path / "config"
    with subprocess.Popen(
        [*PROGRAM, "--kubeconfig-out", str(config)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        word, _, url = process.stdout.readline().strip().partition(" ")
        assert word == "ready"
        assert json.loads(config.read_text())["clusters"][0]["cluster"]["server"] == url
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as response:
            assert response.read() == b"ok"
        process.send_signal(ending)
        assert process.wait(timeout=10) == 0
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--faults", "no-such-file"], "No such file"),
        (["--faults", "bad.json"], "the fault plan is not valid"),
        (["--kubeconfig-out", "no/such/folder"], "No such file"),
        (["--time-scale", "0"], "--time-scale must be above 0"),
    ],
)
def test_what_it_cannot_use_is_one_clear_line(tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "bad.json").write_text('{"rules": [{"verbs": "get"}]}')
    done = subprocess.run([*PROGRAM, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode in (1, 2)
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


async def test_an_unpaged_list_of_many_pods_comes_in_pieces_and_is_whole() -> None:
    async with ApiServer(seed=1) as api, aiohttp.ClientSession() as session:
        for number in range(600):
            meta = {"name": f"p{number:03}", "annotations": {"pad": "x" * 2000}}
            spec = {"containers": [{"name": "main", "image": "x"}]}
            create(api.cluster, Target(PODS, "default", ""), {"metadata": meta, "spec": spec}, Options())
        async with session.get(api.url + "/api/v1/pods") as response:
            assert response.headers["Transfer-Encoding"] == "chunked"
            names = [each["metadata"]["name"] for each in json.loads(await response.read())["items"]]
        assert names == [f"p{number:03}" for number in range(600)]


async def test_an_object_of_an_odd_shape_neither_passes_nor_ends_the_control_plane() -> None:
    async with ApiServer(seed=1) as api, aiohttp.ClientSession() as session:
        pods = api.url + "/api/v1/namespaces/default/pods"
        async with session.post(pods, json={"metadata": {"name": "a"}, "spec": {"containers": "many"}}) as response:
            assert (response.status, (await response.json())["kind"]) == (400, "Status")
        budgets = api.url + "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        async with session.post(budgets, json={"metadata": {"name": "a"}, "spec": {"minAvailable": "some"}}) as response:
            assert response.status == 201
        async with session.get(budgets) as response:
            assert response.status == 200
