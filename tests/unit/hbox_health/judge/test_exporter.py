"""The text of DCGM's exporter: values, labels, absence against the inventory, and what is no event."""

import pytest

from hbox_common.health.dcgm import parse_exporter
from hbox_health.core.judge.assess import Context
from hbox_health.core.judge.exporter import judge_exporter
from hbox_health.core.judge.finding import Action, Severity
from hbox_health.data import shipped_rules

RULES = shipped_rules()
CONTEXT = Context(RULES.profile("H100"))
UUIDS = [f"GPU-{n}" for n in range(8)]


def row(name: str, card: int, value: object, more: str = "", host: str = "Hostname") -> str:
    labels = f'gpu="{card}",UUID="GPU-{card}",pci_bus_id="00000000:1{card}:00.0",modelName="NVIDIA H100",{host}="h1"{more}'
    return f"{name}{{{labels}}} {value}\n"


def rows(name: str, value: object, cards: range = range(8)) -> str:
    return "".join(row(name, card, value) for card in cards)


TEMPERATURES = rows("DCGM_FI_DEV_GPU_TEMP", 41)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("41", 41.0),
        ("0.5", 0.5),
        ("2147483631", 2147483631.0),
        ("2147483632", None),
        ("2147483634", None),
        ("2147483648", 2147483648.0),
        ("5123456789", 5123456789.0),
        ("9223372036854775792", None),
        ("9223372036854775794", None),
        ("140737488355328.000000", None),
        ("140737488355330.0", None),
        ("NaN", None),
        ("+Inf", None),
    ],
)
def test_a_field_without_a_value_is_none(value: str, expected: float | None) -> None:
    assert parse_exporter(row("F", 0, value)).values("F") == {"GPU-0": expected}


def test_labels_hold_any_text() -> None:
    (sample,) = parse_exporter(row("F", 0, 45, r',err_msg="one, \"two\" {x} = \\ }",pod="p"')).samples
    assert (sample.labels["err_msg"], sample.labels["pod"], sample.value) == (r'one, "two" {x} = \ }', "p", 45.0)


@pytest.mark.parametrize("host", ["Hostname", "hostname"])
def test_the_host_is_found_under_both_names(host: str) -> None:
    assert parse_exporter(row("F", 0, 1, host=host)).node == "h1"


def test_instances_of_a_divided_card_are_one_card() -> None:
    instances = "".join(row("F", 0, n, f',GPU_I_PROFILE="1g.10gb",GPU_I_ID="{n}"') for n in (7, 8))
    scrape = parse_exporter(instances + row("F", 0, 99))
    assert (scrape.cards, scrape.values("F")) == ({"GPU-0": "0000:10:00.0"}, {"GPU-0": 99.0})


def decided(text: str, **given: object) -> list[tuple[Severity, Action]]:
    findings, _ = judge_exporter(parse_exporter(text), RULES, CONTEXT, **given)  # type: ignore[arg-type]
    return [(f.severity, f.action) for f in findings]


LOST = [(Severity.FATAL_NODE, Action.REBOOT)]


def test_a_card_without_rows_is_lost_only_if_nvml_does_not_list_it() -> None:
    seven = rows("DCGM_FI_DEV_GPU_TEMP", 41, range(7))
    assert decided(seven) == []
    assert decided(seven, inventory=UUIDS, nvml_count=7) == LOST
    assert decided(seven, inventory=8, nvml_count=7) == LOST
    assert decided(seven, inventory=UUIDS, nvml_count=8) == [(Severity.INFO, Action.REPORT)]
    assert judge_exporter(parse_exporter(seven), RULES, CONTEXT, inventory=UUIDS)[1] == ["GPU-7"]


def test_an_exporter_without_rows_states_nothing_about_cards() -> None:
    assert decided("", inventory=UUIDS, empty_for_s=119) == []
    assert decided("", inventory=UUIDS, empty_for_s=120) == [(Severity.UNKNOWN, Action.REPORT)]
    assert decided("", inventory=UUIDS, nvml_count=7) == LOST
    assert decided("", inventory=[], empty_for_s=900) == []


def test_the_gauge_of_the_last_xid_is_no_event_and_a_count_of_the_window_is() -> None:
    assert decided(TEMPERATURES + row("DCGM_FI_DEV_XID_ERRORS", 0, 79, ',xid="79"')) == []
    assert decided(TEMPERATURES + row("DCGM_EXP_XID_ERRORS_COUNT", 0, 1, ',xid="79"')) == LOST
    assert decided(TEMPERATURES + row("DCGM_EXP_XID_ERRORS_COUNT", 0, 0, ',xid="79"')) == []


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1, [(Severity.FATAL_GPU, Action.REPLACE)]),
        ("DCGM_FI_DEV_ROW_REMAP_PENDING", 1, [(Severity.DEGRADED, Action.RESET_WHEN_IDLE)]),
        ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 512, [(Severity.FATAL_GPU, Action.REPLACE)]),
        ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 511, []),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 1, [(Severity.FATAL_GPU, Action.RESET)]),
        ("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", 3, []),
        ("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", 99999, []),
        ("DCGM_FI_DEV_GPU_TEMP", 87, [(Severity.DEGRADED, Action.TICKET)]),
        ("DCGM_FI_DEV_GPU_TEMP", 86, []),
        ("DCGM_FI_DEV_POWER_USAGE", 699, []),
        ("DCGM_FI_DEV_GPU_UTIL", 0, []),
    ],
)
def test_a_value_is_judged(name: str, value: float, expected: list[tuple[Severity, Action]]) -> None:
    assert decided(row(name, 3, value)) == expected
