"""How a node is made, of /sys and of the kubelet's files."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hbox_agent.adapters.host import read_machine, whole
from hbox_agent.core import machine
from hbox_cli.check.findings import Level
from hbox_cli.check.machine import compared, findings
from hbox_cli.check.smitopo import read as smi
from hbox_common.errors import InvalidRequest
from hbox_common.model import KubeletRules, NodeName, NodeNuma, NumaZone, PciDevice, PciKind

N = NodeName("n1")
SAMPLES = Path(__file__).parents[4] / "shared" / "samples" / "sysfs"
with_samples = pytest.mark.skipif(not SAMPLES.exists(), reason="no folder ../shared/samples beside the project")

SYS = "/sys/devices/system"
TWO = {
    f"{SYS}/node/online": "0-1\n",
    f"{SYS}/node/node0/cpulist": "0-3,8-11\n",
    f"{SYS}/node/node0/distance": "10 21\n",
    f"{SYS}/node/node0/meminfo": "Node 0 MemTotal:       2097152 kB\nNode 0 MemFree: 1 kB\n",
    f"{SYS}/node/node1/cpulist": "4-7,12-15\n",
    f"{SYS}/node/node1/distance": "21 10\n",
    f"{SYS}/node/node1/meminfo": "Node 1 MemTotal:       1048576 kB\n",
    f"{SYS}/cpu/cpu0/topology/physical_package_id": "0\n",
    f"{SYS}/cpu/cpu0/topology/thread_siblings_list": "0,8\n",
    f"{SYS}/cpu/cpu4/topology/physical_package_id": "1\n",
    "/sys/bus/pci/devices/0000:18:00.0/class": "0x030200\n",
    "/sys/bus/pci/devices/0000:18:00.0/vendor": "0x10de\n",
    "/sys/bus/pci/devices/0000:18:00.0/numa_node": "1\n",
    "/sys/bus/pci/devices/0000:19:00.0/class": "0x020700\n",
    "/sys/bus/pci/devices/0000:19:00.0/numa_node": "-1\n",
    "/sys/bus/pci/devices/0000:03:00.0/class": "0x030000\n",
    "/sys/bus/pci/devices/0000:03:00.0/vendor": "0x1a03\n",
    "/sys/bus/pci/devices/0000:01:00.0/class": "0x010802\n",
    "/sys/class/infiniband/mlx5_0/device/numa_node": "0\n",
    "/proc/mounts": "proc /proc proc rw 0 0\nlxcfs /var/lib/lxcfs fuse.lxcfs rw 0 0\n",
}
CONFIG = """
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
topologyManagerPolicy: restricted
topologyManagerScope: pod
"""


def read(files: Any = TWO, config: str | None = CONFIG, **states: Any) -> NodeNuma:
    return machine(N, files, config=config, at=1.0, **states)


def test_zones_devices_and_rules_are_read() -> None:
    found = read(cpu_state='{"policyName": "static", "checksum": 0}')
    assert found.zones == (NumaZone(0, "0-3,8-11", 2048, (10, 21), 0), NumaZone(1, "4-7,12-15", 1024, (21, 10), 1))
    assert (found.sockets, found.threads_per_core, found.lxcfs, found.cpu_state) == (2, 2, True, "static")
    assert found.devices == (
        PciDevice("0000:18:00.0", PciKind.CARD, 1, vendor="0x10de"),
        PciDevice("", PciKind.HCA, 0, name="mlx5_0"),
        PciDevice("0000:19:00.0", PciKind.NIC, -1),
    )
    assert found.rules == KubeletRules(
        "static", {"full-pcpus-only": "true"}, topology_manager="restricted", topology_scope="pod"
    )
    assert found.problems == ()


@pytest.mark.parametrize(
    ("files", "config", "problem"),
    [
        ({}, CONFIG, "NUMA nodes"),
        (TWO | {f"{SYS}/node/online": "all"}, CONFIG, "no range of CPUs"),
        (TWO | {f"{SYS}/node/online": "0-999"}, CONFIG, "1000 of them"),
        (TWO, None, "configuration is not to be found"),
        (TWO, "[", "configuration"),
        (TWO, "3", "it is no map"),
    ],
)
def test_what_cannot_be_read_is_named_and_the_rest_stands(files: Any, config: str | None, problem: str) -> None:
    found = read(files, config)
    assert problem in "; ".join(found.problems)
    assert found.zones or found.rules is not None


def test_what_the_configuration_does_not_say_is_kubernetes_own() -> None:
    assert read(config="").rules == KubeletRules()


@pytest.mark.hypothesis
@given(
    st.dictionaries(st.sampled_from(sorted(TWO)), st.text(max_size=40)), st.text(max_size=60) | st.none(), st.text(max_size=40)
)
def test_nothing_that_is_written_there_raises(files: dict[str, str], config: str | None, state: str) -> None:
    found = read({**TWO, **files}, config, cpu_state=state, memory_state=state)
    findings(found, None)


def test_files_are_read_below_a_root(tmp_path: Path) -> None:
    for name, text in TWO.items():
        path = tmp_path / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "sys/kernel/iommu_groups/0").mkdir(parents=True)
    kubelet = tmp_path / "kubelet"
    kubelet.mkdir()
    (kubelet / "config.yaml").write_text(CONFIG)
    found = read_machine(N, host=tmp_path, kubelet=kubelet, config=None, at=1.0)
    assert (found.zones, found.devices, found.rules) == (read().zones, read().devices, read().rules)
    assert (found.iommu_groups, found.lxcfs) == (1, True)


def card(address: str, numa: int) -> PciDevice:
    return PciDevice(address, PciKind.CARD, numa)


SMI = """\
        GPU0    GPU1    GPU2    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV18    SYS     PIX     0-31            0               N/A
GPU1    NV18     X      SYS     PXB     0-31            0               N/A
GPU2    SYS     SYS      X      SYS     32-63           1               N/A
NIC0    PIX     PXB     SYS      X
"""


def test_the_table_of_nvidia_smi_is_held_against_sys() -> None:
    def compare(*cards: PciDevice) -> dict[str, tuple[Level, str]]:
        numa = replace(read(), devices=cards)
        return {one.name: (one.level, one.message) for one in compared(numa, smi(SMI))}

    right = compare(card("a", 0), card("b", 0), card("c", 1))
    assert right["nvidia-smi"] == (Level.OK, "3 cards on the NUMA nodes of /sys")
    assert right["nvlink"] == (Level.FAULT, "GPU2 without a link to any other card, which the others have")
    assert right["adapters"] == (Level.WARNING, "GPU2 without an adapter below the same host bridge")
    assert compare(card("a", 0), card("b", 1), card("c", -1))["nvidia-smi"] == (
        Level.WARNING,
        "it has GPU1 on node 0 (1 by /sys)",
    )
    assert compare(card("a", 0))["nvidia-smi"] == (Level.WARNING, "it lists 3 cards, /sys has 1")


def told(numa: NodeNuma) -> dict[str, tuple[Level, str]]:
    return {one.name: (one.level, one.message) for one in findings(numa, None)}


def test_the_check_names_what_keeps_cores_from_cards() -> None:
    found = told(read(cpu_state='{"policyName": "none"}'))
    assert found["cpu manager"] == (Level.FAULT, "static in the configuration, none in cpu_manager_state")
    assert found["topology manager"][0] is Level.WARNING
    assert found["lxcfs"][0] is Level.WARNING
    good = told(read(config=CONFIG.replace("restricted", "best-effort")))
    assert (good["cpu manager"], good["topology manager"]) == ((Level.OK, "static"), (Level.OK, "best-effort"))
    assert told(read(config=""))["cpu manager"][0] is Level.WARNING


def read_with(*options: str, config: str = CONFIG, files: dict[str, str] | None = None) -> NodeNuma:
    """With options of the CPU manager beside full-pcpus-only."""
    every = ", ".join(f'{option}: "true"' for option in ("full-pcpus-only", *options))
    return read(TWO | (files or {}), config=config.replace('full-pcpus-only: "true"', every))


@pytest.mark.parametrize(
    ("numa", "told"),
    [
        (
            read_with("distribute-cpus-across-cores"),
            "no kubelet starts with both full-pcpus-only and distribute-cpus-across-cores",
        ),
        (
            read_with("align-by-socket", config=CONFIG.replace("restricted", "single-numa-node")),
            "align-by-socket and single-numa-node",
        ),
        (replace(read_with("align-by-socket"), sockets=3), "3 sockets are on 2 NUMA nodes"),
        (read_with("align-by-socket", files={f"{SYS}/cpu/cpu0/topology/physical_package_id": ""}), "without the option"),
    ],
)
def test_options_that_no_kubelet_starts_with_or_that_cannot_be_foreseen_are_named(numa: NodeNuma, told: str) -> None:
    assert [one.message for one in findings(numa, None) if told in one.message]
    assert not [one for one in findings(read_with("align-by-socket"), None) if "align-by-socket" in one.message]


@pytest.mark.parametrize(
    ("word", "on"), [('"true"', True), ('"1"', True), ("True", True), ('"TRUE"', True), ('"yes"', False), ('"false"', False)]
)
def test_options_are_read_as_go_reads_them(word: str, on: bool) -> None:
    rules = read(config=CONFIG.replace('"true"', word)).rules
    assert rules is not None
    assert rules.has("full-pcpus-only") is on


def test_the_socket_of_a_numa_node_is_that_of_its_cpus() -> None:
    assert [zone.socket for zone in read().zones] == [0, 1]
    both = {f"{SYS}/cpu/cpu1/topology/physical_package_id": "1\n"}
    assert [zone.socket for zone in read(TWO | both).zones] == [-1, 1]


def test_cores_that_are_reserved_in_part_are_told() -> None:
    siblings = {f"{SYS}/cpu/cpu1/topology/thread_siblings_list": "1,9\n"}
    numa = read(TWO | siblings, config=CONFIG + "reservedSystemCPUs: 0,1,8\n")
    assert numa.cut_cpus == "9"
    assert [one.message for one in findings(numa, None) if "cores of CPUs 9 are reserved in part" in one.message]


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.yaml")
    found = read_machine(N, host=tmp_path, kubelet=tmp_path, config=None, at=1.0)
    assert "the kubelet's configuration: it is no file" in found.problems


LAUGHS = "a: &a [" + ", ".join(['"%s"' % ("x" * 1000)] * 100) + "]\nb: &b [" + ", ".join(["*a"] * 100) + "]\n"


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (LAUGHS + "topologyManagerPolicy: [" + ", ".join(["*b"] * 90) + "]", "holds a list or map"),
        (LAUGHS + "cpuManagerPolicyOptions: {a: *b}", "holds a list or map"),
        (LAUGHS + "cpuManagerPolicyOptions: [*b]", "no map of at most 32"),
        (LAUGHS + "c: [" + ", ".join(["*b"] * 120) + "]", "stand behind aliases"),
        ("cpuManagerPolicyOptions: {" + ", ".join(f"o{i}: x" for i in range(33)) + "}", "no map of at most 32"),
        ("topologyManagerPolicy: &p\n  x: *p", "is inside the node that it names"),
        ("a: " + "[" * 10_000, "nested too deep"),
        ("topologyManagerPolicy: a\ntopologyManagerPolicy: b", "duplicate key"),
        ("{" + '"a": [' * 100_000, "configuration"),
    ],
    ids=range(9),
)
def test_a_configuration_that_means_harm_is_named_and_bounded(config: str, problem: str) -> None:
    found = read(config=config)
    assert found.rules is None
    assert problem in "; ".join(found.problems)


def test_giant_numbers_and_truths_are_words_of_no_policy() -> None:
    found = read(
        config="topologyManagerPolicy: 1e308\nreservedSystemCPUs: " + "9" * 64 + "\ncpuManagerPolicyOptions: {o: true}"
    )
    assert found.rules is not None
    assert (found.rules.topology_manager, found.rules.cpu_options) == ("1e+308", {"o": "true"})


@pytest.mark.parametrize("state", ["{", "[]", "[" * 100_000, '{"policyName": 1e308}', '{"policyName": ["static"]}', "\ud800"])
def test_a_managers_state_that_is_none_is_named(state: str) -> None:
    found = read(cpu_state=state, memory_state=state)
    assert (found.cpu_state, found.memory_state) == ("", "")
    assert {one.partition(":")[0] for one in found.problems} == {"cpu_manager_state", "memory_manager_state"}


@pytest.mark.parametrize(
    "more",
    [
        {"entries": {"c": "1-2"}},
        {"entries": {"u": {"c": "1-2"}}},
        {"entries": {"u": {"c": "1-2"}}, "podEntries": {"u": {"cpuSet": "1-2"}}},
    ],
    ids=["v1", "v2", "v3"],
)
def test_every_version_of_a_managers_state_is_read(more: dict[str, Any]) -> None:
    found = read(cpu_state=json.dumps({"policyName": "static", "defaultCpuSet": "0-3", "checksum": 1} | more))
    assert (found.cpu_state, found.problems) == ("static", ())


def test_a_file_that_is_too_large_or_written_without_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.yaml").write_text("topologyManagerPolicy: restricted\n" + "#" * 2**18)
    (tmp_path / "cpu_manager_state").mkdir()
    found = read_machine(N, host=tmp_path, kubelet=tmp_path, config=None, at=1.0)
    assert found.rules is None, "half a file may say the opposite of the whole"
    assert {
        "the kubelet's configuration: it has more than 256 KiB",
        "cpu_manager_state: it cannot be read: Is a directory",
    } <= set(found.problems)
    path = tmp_path / "state"
    path.write_text("old")
    times = iter(range(10))
    monkeypatch.setattr(os, "fdopen", lambda fd, mode, opened=os.fdopen: _touching(opened(fd, mode), path, next(times)))
    with pytest.raises(InvalidRequest, match="written all the time"):
        whole(path, 100)
    path.write_text("new")
    times = iter([0, 0, 0])
    assert whole(path, 100) == b"new", "the second reading stands still"


def _touching(file: Any, path: Path, time: int) -> Any:
    """The file is written by somebody while it is read."""

    class Read:
        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            file.close()

        def fileno(self) -> int:
            return int(file.fileno())

        def read(self, most: int) -> Any:
            os.utime(path, (time, time))
            return file.read(most)

    return Read()


def sample(name: str) -> dict[str, str]:
    files: dict[str, str] = json.loads((SAMPLES / f"{name}.json").read_text())["files"]
    return files


@with_samples
@pytest.mark.parametrize("path", sorted(SAMPLES.glob("synth_*.json")), ids=lambda path: path.stem)
def test_samples_of_boxes_are_read_whole(path: Path) -> None:
    found = read(sample(path.stem))
    assert (found.zones != (), found.problems) == (True, ())
    assert any(device.kind is PciKind.CARD for device in found.devices)


@with_samples
def test_layouts_are_what_they_are_called() -> None:
    h100 = read(sample("synth_h100_2socket_192cpu"))
    assert [sum(d.kind is PciKind.CARD and d.numa == zone.id for d in h100.devices) for zone in h100.zones] == [4, 4]
    assert (h100.sockets, h100.threads_per_core) == (2, 2)
    nps4 = told(read(sample("synth_a100_dgx_nps4_256cpu")))
    assert nps4["nps"] == (Level.WARNING, "NUMA nodes 0, 2, 4, 6 have cores and no card: these cores are never near one")
    assert told(read(sample("synth_gb200_4gpu_144cpu_34nodes")))["numa"][0] is Level.FAULT
    assert told(read(sample("synth_h200_vm_single_numa_128cpu")))["cards"][0] is Level.WARNING


@with_samples
def test_the_samples_of_a_kubelets_files_are_read() -> None:
    config = (SAMPLES / "kubelet_config.yaml").read_text()
    state = (SAMPLES / "kubelet_cpu_manager_state.json").read_text()
    memory = (SAMPLES / "kubelet_memory_manager_state.json").read_text()
    found = read(config=config, cpu_state=state, memory_state=memory)
    assert (found.cpu_state, found.memory_state, found.problems) == ("static", "Static", ())
    assert found.rules is not None
    assert found.rules.reserved_cpus == yaml.safe_load(config)["reservedSystemCPUs"]
    assert found.rules.topology_options == {"prefer-closest-numa-nodes": "true"}
