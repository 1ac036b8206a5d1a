"""`hbox health judge` on the cases and samples in `../shared`, which state what to answer."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hbox_cli.health.cases import Case, read_case
from hbox_cli.health.judging import judged
from hbox_common.health.lines import read_text

SHARED = Path(__file__).parents[4] / ".." / "shared"
CASES, SAMPLES = SHARED / "cases" / "health", SHARED / "samples"

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="no shared cases and samples at ../shared")


def _inputs() -> list[Path]:
    return sorted(path for path in CASES.glob("*.yaml") if "\nkind: story\n" not in path.read_text())


def _differs(expected: Any, got: Any) -> bool:
    """Whether an answer lacks something expected; more than is expected is no difference."""
    if isinstance(expected, dict):
        return not isinstance(got, dict) or any(
            _differs(value, got.get(key, got.get(str(key)))) for key, value in expected.items()
        )
    if isinstance(expected, list) and any(isinstance(item, dict) for item in expected):
        return not isinstance(got, list) or len(expected) != len(got) or any(map(_differs, expected, got))
    return bool(expected != got)


@pytest.mark.parametrize("path", _inputs(), ids=lambda path: path.stem)
def test_a_case_is_judged_as_it_states(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    expect = document["expect"]
    answer = json.loads(json.dumps(judged(read_case(path))))
    assert answer["action"] in [expect["action"], *expect.get("accept", [])]
    assert answer["action"] not in expect.get("must_not", [])
    left_out = {"action", "accept", "must_not", "repeat"}
    wrong = {
        key: (value, answer.get(key))
        for key, value in expect.items()
        if key not in left_out and _differs(value, answer.get(key))
    }
    assert wrong == {}


#: Names of the older file of expected records.
_RENAMED = {"xid": "code", "sxid": "code", "err": "status"}
_ACTIONS = {"Drain and Reset": 4, "GPU Reset Required": 1}
_KINDS = {"gpu_uuid": "gpu-uuid", "sxid_detail": "sxid-detail", "nic": "mlx5"}


def test_every_line_of_the_kernel_log_sample_is_parsed() -> None:
    lines = (SAMPLES / "xid" / "kernel_lines.log").read_text().splitlines()
    for text in (SAMPLES / "xid" / "kernel_lines.expected.jsonl").read_text().splitlines():
        expected = json.loads(text)
        records = read_text(lines[expected.pop("line") - 1])
        expected.pop("note", None)
        if expected["kind"] == "none":
            assert records == []
            continue
        (record,) = records
        assert record["kind"] == _KINDS.get(expected["kind"], expected["kind"])
        severity = expected.pop("severity", None)
        if severity is not None and "fatal" in record:
            assert record["fatal"] is (severity == "Fatal")
        if "gpc" in expected:
            assert record["places"] == [[expected.pop("gpc"), expected.pop("tpc"), expected.pop("sm")]]
        for old, new in (("action_from", "from"), ("action_to", "to")):
            if old in expected:
                assert record[new] == _ACTIONS[expected.pop(old)]
        if "what" in expected:
            assert record["what"] == expected.pop("what").replace("_", "-")
        if expected.get("link") == -1:
            expected["link"] = None
        del expected["kind"]
        assert {_RENAMED.get(key, key): value for key, value in expected.items()} == {
            key: record.get(key) for key in (_RENAMED.get(key, key) for key in expected)
        }


def _line(code: int, text: str, **context: str) -> dict[str, Any]:
    return judged(Case("x", "xid-line", {"kmsg": f"NVRM: Xid (PCI:0000:18:00): {code}, {text}"}, context))


#: What NVIDIA's bucket leaves open.
_ALLOWED = {
    "CONTACT_SUPPORT": {"report", "watch"},
    "RESTART_APP": {"tell-owner"},
    "IGNORE": {"none", "report", "watch", "tell-owner", "reset-when-idle"},
    "RESET_GPU": {"reset", "replace"},
    "RESTART_BM": {"reboot"},
    "RESTART_VM": {"reboot"},
    "CHECK_MECHANICALS": {"cordon"},
    "UPDATE_SWFW": {"report"},
    "CHECK_UVM": {"report"},
    "WORKFLOW_XID_45": {"tell-owner"},
    "WORKFLOW_XID_48": {"reset"},
    "WORKFLOW_NVLINK_ERR": {"read-recovery-action"},
    "WORKFLOW_NVLINK5_ERR": {"read-recovery-action"},
    "XID_154": {"none"},
    "": {"report", "read-recovery-action", "close-reason", "ticket"},
}


def test_every_code_of_the_catalogue_is_judged_as_its_bucket_asks() -> None:
    with (SAMPLES / "xid" / "xid_catalogue.csv").open() as file:
        for row in csv.DictReader(file):
            answer = _line(int(row["code"]), "pid=7, name=python3, text")
            assert answer["action"] in _ALLOWED[row["nvidia_immediate"]], row["code"]
            assert answer["parse"][0]["code"] == int(row["code"])


@pytest.mark.parametrize(("column", "driver"), [("intrinfo_mask_v1_lt_r575", "570.1"), ("intrinfo_mask_v2_ge_r575", "575.1")])
def test_every_row_of_the_decode_table_is_found_by_its_registers(column: str, driver: str) -> None:
    with (SAMPLES / "xid" / "xid_144_150_decode.csv").open() as file:
        for row in csv.DictReader(file):
            intr = int(row[column].replace("-", "0"), 2)
            for status in (row["error_status_hex"] or "0x0").split("/"):
                unit = row["unit"].split("/")[-1]
                answer = _line(int(row["xid"]), f"{unit} Fatal XC0 i0 Link 01 ({intr:#010x} {status} 0x0 0x0)", driver=driver)
                assert answer["bucket"] == row["recovery_bucket"], row
                assert answer["investigate"].split(" ")[0] == row["investigatory"].split(" ")[0]


@pytest.mark.parametrize(
    "name", ["a100-sxm4-40", "a100-sxm4-80", "a800-sxm4-80", "h100-sxm5-80", "h200-sxm5-141", "h800-sxm5-80", "l20-48"]
)
def test_a_well_node_of_each_box_is_well(name: str) -> None:
    assert judged(read_case(SAMPLES / "nvml" / f"node_{name}.json"))["severity"] == "none"


def _faulty(fault: dict[str, Any]) -> dict[str, Any]:
    """The document of an H100 with the fault of the sample file."""
    node = json.loads((SAMPLES / "nvml" / "node_h100-sxm5-80.json").read_text())
    node |= fault.get("node", {})
    nvml = fault.get("nvml", {})
    node |= {key: value for key, value in nvml.items() if key in ("init", "device_count")}
    for index in range(8) if "set_all" in fault else [fault.get("when", {}).get("index", 0)]:
        card = node["gpus"][index]
        if isinstance(nvml.get("every_getter"), int):
            card["every_call"] = nvml["every_getter"]
        elif "every_getter" in nvml:
            card["nvml_call_s"] = 45
        if "recovery_action" in nvml:
            card["recovery_action"] = nvml["recovery_action"]
        card["load"] = fault.get("load", True)
        for key, value in {**fault.get("set", {}), **fault.get("set_all", {})}.items():
            _set(card, key, value)
    return dict(node)


def _set(card: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.replace("[", ".").replace("]", "").split(".")
    place: Any = card
    for part in path:
        place = place[int(part)] if part.isdigit() else place[part]
    place[last] = value


_EXPECTED: dict[str, tuple[str, str]] = {
    "gpu_lost": ("fatal-node", "reboot"),
    "gpu_vanished": ("fatal-node", "reboot"),
    "reset_required": ("fatal-gpu", "reset"),
    "driver_not_loaded": ("fatal-node", "cordon"),
    "driver_lib_mismatch": ("fatal-node", "reboot"),
    "row_remap_pending": ("degraded", "reset-when-idle"),
    "row_remap_failure": ("fatal-gpu", "replace"),
    "dbe": ("fatal-gpu", "reset"),
    "sbe_storm": ("info", "watch"),
    "nvlink_down": ("degraded", "multi-gpu-off"),
    "fabric_manager_stopped": ("degraded", "restart-fm"),
    "fabric_in_progress": ("degraded", "restart-fm"),
    "pcie_narrow": ("degraded", "ticket"),
    "pcie_slow_idle": ("none", "none"),
    "thermal_slowdown": ("degraded", "ticket"),
    "power_brake": ("degraded", "ticket"),
    "sw_power_cap": ("none", "none"),
    "ecc_disabled": ("misconfigured", "report"),
    "peermem_missing": ("misconfigured", "load-module"),
    "nvml_hang": ("unknown", "report"),
}


def test_every_fault_of_the_nvml_sample_is_judged(tmp_path: Path) -> None:
    faults = json.loads((SAMPLES / "nvml" / "faults.json").read_text())["faults"]
    assert {fault["id"] for fault in faults} == set(_EXPECTED)
    for fault in faults:
        file = tmp_path / f"{fault['id']}.json"
        document = _faulty(fault)
        if fault["id"] == "sbe_storm":  # a series of totals, an hour apart
            document["gpus"][2]["ecc_sbe_per_s"] = (4100 - 900) / 3600
        file.write_text(json.dumps(document))
        answer = judged(read_case(file))
        assert (fault["id"], answer["severity"], answer["action"]) == (fault["id"], *_EXPECTED[fault["id"]])


def test_a_fabric_that_starts_is_given_ten_minutes(tmp_path: Path) -> None:
    fault = {"set_all": {"fabric.state": 2}, "node": {"uptime_s": 120}}
    file = tmp_path / "node.json"
    file.write_text(json.dumps(_faulty(fault)))
    answer = judged(read_case(file))
    assert (answer["severity"], answer["action"]) == ("info", "watch")


@pytest.mark.parametrize(
    ("name", "severity", "action"),
    [
        ("a100_mig", "none", "none"),
        ("older_exporter_lower_case_hostname", "none", "none"),
        ("h200_blank_values", "none", "none"),
        ("h200_exporter_own_counters", "degraded", "multi-gpu-off"),
        ("h200_gpu1_hot_and_throttling", "degraded", "ticket"),
        ("h200_gpu3_gone_from_bus", "none", "none"),  # absence counts against an inventory alone
        ("h200_gpu5_row_remap_failure_and_dbe", "fatal-gpu", "replace"),
        ("h200_healthy_idle_full_counters", "none", "none"),
        ("h200_healthy_training", "none", "none"),
        ("h200_stale_xid_gauge", "none", "none"),
    ],
)
def test_every_exporter_sample_is_judged(name: str, severity: str, action: str) -> None:
    answer = judged(read_case(SAMPLES / "dcgm" / f"{name}.prom"))
    assert (answer["severity"], answer["action"]) == (severity, action)


def test_a_card_without_rows_is_lost_against_the_inventory() -> None:
    text = (SAMPLES / "dcgm" / "h200_gpu3_gone_from_bus.prom").read_text()
    known = [f"GPU-01000100-0000-0000-0000-00000000000{n}" for n in range(8)]
    answer = judged(Case("x", "dcgm", {"metrics": text, "inventory": known, "nvml_count": 7}))
    assert (answer["cards_seen"], answer["lost"], answer["action"]) == (7, [known[3]], "reboot")
    assert judged(Case("x", "dcgm", {"metrics": text, "inventory": known, "nvml_count": 8}))["action"] == "report"


@pytest.mark.parametrize(
    ("name", "severity", "action"),
    [
        ("all_reduce_8gpu_h200_healthy", "none", "none"),
        ("all_reduce_16gpu_2node_slow_rail", "suspect", "retest"),
        ("all_reduce_wrong_results", "fatal-node", "cordon"),
    ],
)
def test_every_run_of_nccl_tests_is_judged(name: str, severity: str, action: str) -> None:
    answer = judged(read_case(SAMPLES / "nccl" / f"{name}.txt"))
    assert (answer["severity"], answer["action"]) == (severity, action)
    assert answer["parse"]["rows"] == 11


def test_the_pair_tests_of_the_sample_find_the_slow_node() -> None:
    expected = json.loads((SAMPLES / "nccl" / "pairwise_20nodes_4rounds.expected.json").read_text())
    answer = judged(read_case(SAMPLES / "nccl" / "pairwise_20nodes_4rounds.csv"))
    assert {key: answer[key] for key in ("slow", "borderline", "healthy_rest")} == {
        key: expected[key] for key in ("slow", "borderline", "healthy_rest")
    }
