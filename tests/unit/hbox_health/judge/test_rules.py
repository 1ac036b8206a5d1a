"""The tables: what they hold, and how an invalid one is refused."""

from importlib import resources

import pytest

from hbox_health.core.judge.rules import BadRules, parse_rules
from hbox_health.data import shipped_rules


def shipped() -> list[str]:
    return [
        resources.files("hbox_health.data").joinpath(f"{name}.yaml").read_text() for name in ("codes", "nvlink5", "profiles")
    ]


def test_the_shipped_tables_hold_every_code_and_row_of_the_catalogue() -> None:
    rules = shipped_rules()
    assert sorted(rules.codes) == list(range(1, 173))
    assert sum(len(unit.rows) for unit in rules.units) == 95
    assert {"A100", "A800", "H800", "H100", "H200", "L20", "generic"} <= set(rules.profiles)


@pytest.mark.parametrize(
    ("box", "name"),
    [
        ("h100", "H100"),
        ("h800-sxm5-80", "H800"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A800-SXM4-80GB", "A800"),
        ("NVIDIA L20", "L20"),
        ("NVIDIA L40S", "L40"),
        ("NVIDIA H100 PCIe", "generic"),  # no NVSwitch
        ("NVIDIA-A100-PCIE-40GB-MIG-1g.5gb", "generic"),
        ("NVIDIA H100 NVL", "generic"),
        ("gb200-nvl72", "GB200"),
        ("NVIDIA A10", "generic"),
        ("gb200", "GB200"),
        ("", "generic"),
    ],
)
def test_a_box_is_found_by_its_name_or_by_the_model_of_its_cards(box: str, name: str) -> None:
    assert shipped_rules().profile(box).name == name


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (0, "class: reboot", "class: explode", "xid 79"),
        (0, "action: reset-when-idle", "action: kill", "kill is not one of"),
        (0, "workflow: nvlink4", "workflow: other", "unknown workflow other"),
        (0, "recovery: R570", "recovery: soon", "xid 109"),
        (0, "xid:\n", "codes:\n", "wrong form"),
        (0, "xid:\n", "xid: [\n", "invalid YAML"),
        (0, "  79:", "  1079:", "xid: 79 is missing"),
        (0, "  oom:", "  oon:", "kernel: oon: no kind of message"),
        (0, "  oom:", "  segfault:", "kernel: oom is missing"),
        (0, "action: isolate-rail", "action: isolate-port", "kernel: mlx5 health-poll: action: isolate-port is not one of"),
        (0, "    10003,", "    ten,", "wrong form"),
        (1, "old: [0x3ff, 0x21]", "old: [0x3ff]", "xid 144"),
        (1, "bucket: IGNORE", "basket: IGNORE", "wrong form"),
        (1, "bucket: RESET_GPU", "bucket: RESET", "xid 144: .* RESET is not one of"),
        (2, "  generic:", "  other:", "generic is missing"),
        (2, "cards: 8,", "kards: 8,", "profile A100"),
        (2, "cards: 8,", "cards: eight,", "profile A100: cards: eight is no whole number"),
    ],
)
def test_an_invalid_table_is_refused_with_its_entry(file: int, old: str, new: str, message: str) -> None:
    texts = shipped()
    assert old in texts[file]
    texts[file] = texts[file].replace(old, new)
    with pytest.raises(BadRules, match=message):
        parse_rules(*texts)
