"""What kubelets gave to whom, on a running platform: the plugin of `plain` says only that it has eight cards, those of `slots` are registered by HAMi's."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NODES, PODS, KubeClient
from hbox_sandbox.trace import TraceNode
from hbox_sandbox.trace.manifests import node_manifest

from ..integration.agent.fake_nvml import FakeNvml, build, environment, with_compiler
from .platform_world import Up, placed, until, up
from .traced_jobs import node, pod

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("agent") / "state") as running:
        asyncio.run(_fill(running))
        yield running


async def _fill(running: Up) -> None:
    slots = TraceNode("slots", cpu_milli=64_000, memory_mib=512 * 1024, cards=8, model="NVIDIA-H100-80GB-HBM3")
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        await client.json("POST", NODES.path(), body=node("plain"))
        await client.json("POST", NODES.path(), body=node_manifest(slots, now="2026-01-01T00:00:00Z"))
        for name, where in (("a", "plain"), ("b", "plain"), ("c", "slots")):
            body = pod(name)
            body["spec"]["nodeSelector"] = {"kubernetes.io/hostname": where}
            body["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "2"
            await client.json("POST", PODS.path("default"), body=body)
        while len(await placed(client, "default")) < 3:  # noqa: ASYNC110  asks the API server
            await asyncio.sleep(0.1)


def holders(item: Any, who: str) -> dict[str, set[int]]:
    """Pod -> the cards that it holds by the books, or by the kubelet."""
    found: dict[str, set[int]] = {}
    for card in item["cards"]:
        for name in card[who]:
            found.setdefault(name, set()).add(card["index"])
    return found


#: Until topology-collector has told of the cards that node-agent found.
NOBODY_SAYS = "the cards of each pod are unknown: the ledger has only their number"


def shown(platform: Up, name: str, pods: int) -> Any:
    def read() -> Any:
        item = platform.json("node", "show", name)
        return item if len(item["containers"]) == pods and item["identity"] != NOBODY_SAYS else None

    return until(read, timeout_s=20, what=f"what the kubelet of {name} says")


def test_the_kubelet_says_which_cards_it_gave(platform: Up) -> None:
    item = shown(platform, "plain", 2)
    assert item["identity"] == "the kubelet chooses and reports the cards"
    assert {card["uuid"][:4] for card in item["cards"]} == {"GPU-"}
    assert [card["numa"] for card in item["cards"]].count(0) == 4
    by_kubelet = holders(item, "kubelet")
    assert {name: len(cards) for name, cards in by_kubelet.items()} == {"default/a": 2, "default/b": 2}
    assert not by_kubelet["default/a"] & by_kubelet["default/b"]
    told = {one["name"]: {id_ for part in one["devices"] for id_ in part["ids"]} for one in item["containers"]}
    uuids = {card["index"]: card["uuid"] for card in item["cards"]}
    assert told["default/a/main"] == {uuids[index] for index in by_kubelet["default/a"]}


def test_the_books_follow_the_kubelet_and_go_on_so_after_a_restart(platform: Up) -> None:
    def agree() -> bool:
        item = shown(platform, "plain", 2)
        return holders(item, "books") == holders(item, "kubelet")

    until(agree, timeout_s=20, what="books that follow the kubelet")
    before = platform.pids()["quota-ledger"]
    os.kill(before, signal.SIGKILL)
    until(lambda: platform.pids()["quota-ledger"] != before, timeout_s=20, what="another ledger")
    until(lambda: platform.hbox("check").returncode == 0, timeout_s=60, what="a platform that is well")
    assert agree()
    audit = platform.json("audit")
    assert audit["faults"] == []
    assert not [note for note in audit["notes"] if "another writer changed them" in note]


async def test_what_is_left_by_the_books_is_what_is_left(platform: Up) -> None:
    """Four cards are free: one pod gets them all, by books and kubelet, and the next waits."""
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        for name, cards in (("rest", "4"), ("late", "1")):
            body = pod(name)
            body["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "plain"}
            body["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = cards
            await client.json("POST", PODS.path("default"), body=body)
            if name == "rest":
                until(
                    lambda: len(holders(shown(platform, "plain", 3), "kubelet").get("default/rest", ())) == 4,
                    timeout_s=20,
                    what="rest",
                )
        item = until(
            lambda: (i := shown(platform, "plain", 3)) and holders(i, "books") == holders(i, "kubelet") and i,
            timeout_s=20,
            what="books",
        )
        assert all(card["freePercent"] == 0 for card in item["cards"])
        assert "late" not in await placed(client, "default")
        for name in ("late", "rest"):
            await client.json("DELETE", PODS.path("default", name))
        until(lambda: shown(platform, "plain", 2), timeout_s=20, what="room")


def test_slots_of_hamis_plugin_say_nothing_of_cards(platform: Up) -> None:
    item = shown(platform, "slots", 1)
    assert item["identity"] == "the device plugin uses the cards that HBox writes on the pod"
    assert holders(item, "kubelet") == {}
    assert sum(len(part["ids"]) for part in item["containers"][0]["devices"]) == 2


def test_an_agent_that_was_killed_goes_on(platform: Up) -> None:
    before = platform.pids()["node-agent"]
    os.kill(before, signal.SIGKILL)
    until(lambda: platform.pids()["node-agent"] != before, timeout_s=20, what="another agent")

    async def leave() -> None:
        async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
            await client.json("DELETE", PODS.path("default", "b"))

    asyncio.run(leave())
    assert set(holders(shown(platform, "plain", 1), "kubelet")) == {"default/a"}


def test_how_a_node_is_made_is_shown_and_checked(platform: Up) -> None:
    numa = until(lambda: platform.json("node", "show", "plain")["numa"], timeout_s=20, what="NUMA nodes")
    zones = [(zone["name"], zone["distances"], zone["cards"] != []) for zone in numa["zones"]]
    assert zones == [("0", [10, 21], True), ("1", [21, 10], True)]
    assert numa["kubelet"]["topologyManager"] == "none"
    done = platform.hbox("node", "show", "plain", "--numa")
    assert "2 sockets, 2 NUMA nodes, 2 threads a core" in done.stdout
    check = platform.hbox("check", "node", "plain")
    assert (check.returncode, "fix: topologyManagerPolicy: best-effort" in check.stdout) == (0, True)
    assert platform.hbox("check", "node", "nobody").returncode == 3


def test_people_read_it_as_a_table(platform: Up) -> None:
    done = platform.hbox("node", "show", "plain")
    assert done.returncode == 0
    assert "cards of pods: the kubelet chooses and reports the cards" in done.stdout
    assert "KUBELET" in done.stdout
    assert platform.hbox("node", "show", "nobody").returncode == 3


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def real(platform: Up, library: FakeNvml, tmp_path: Path) -> Iterator[str]:
    """An agent of a node that no emulated kubelet has: a process of its own with nvidia-ml-py, two cards below /sys, and NVIDIA's library without cards."""
    for number, zone in ((1, 0), (2, 1)):
        folder = tmp_path / f"sys/bus/pci/devices/0000:0{number}:00.0"
        folder.mkdir(parents=True)
        for name, text in (("class", "0x030200"), ("vendor", "0x10de"), ("numa_node", str(zone))):
            (folder / name).write_text(text + "\n")
    running = json.loads((platform.state / "platform.json").read_text())
    settings = {
        "nats_url": running["nats_url"], "nats_seed": f"{running['nats_users']}/node-agent.nk", "node_name": "real",
        "kubelet_root": str(tmp_path), "host_root": str(tmp_path), "nvml": "true", "nvml_library": str(library.folder),
        "nvml_poll_s": "0.5", "nvml_timeout_s": "8",
    }  # fmt: skip
    with environment(library, cards=2) as variables:
        env = variables | {f"HBOX_{key.upper()}": value for key, value in settings.items()}
        agent = subprocess.Popen([sys.executable, "-m", "hbox_agent"], env=env)
    yield "real"
    assert agent.poll() is None, "it is still there"
    agent.terminate()
    agent.wait(20)


@with_compiler
def test_what_nvml_says_is_checked_against_sys(platform: Up, real: str, library: FakeNvml) -> None:
    linked = "nvmlDeviceGetNvLinkState * * =1"

    def found(*words: str) -> bool:
        said = platform.hbox("check", "node", real).stdout
        return all(word in said for word in words)

    library.says(linked)
    until(lambda: found("driver 550.54.15: 2 cards, where /sys has them"), timeout_s=60, what="NVML")
    shown = platform.hbox("check", "node", real)
    assert (shown.returncode, "BAD" in shown.stdout) == (0, False)
    library.says("nvmlDeviceGetNvLinkState 0 3 =0", linked, "nvmlDeviceGetUUID 1 * 15")
    until(
        lambda: found(
            "card 0", "NVLink 3 down", "lost: it answers no call", "/sys has 0000:02:00.0, of which NVML knows nothing"
        ),
        timeout_s=60,
        what="a card that is lost",
    )
    assert platform.hbox("check", "node", real).returncode == 1
    library.says("nvmlDeviceGetCount_v2 * * hang")
    until(lambda: found("no answer within 8 s; its last answer follows", "NVLink 3 down"), timeout_s=60, what="its end")
