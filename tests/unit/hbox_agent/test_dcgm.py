"""What the reader of DCGM's exporter publishes."""

import asyncio

from hbox_agent.adapters.readers import DcgmReader, Inventory
from hbox_agent.core.reports import Observation
from hbox_common.health.dcgm import card_states, parse_exporter, scrape_of
from hbox_common.health.report import NODE, value_of


def row(name: str, card: int, value: object, more: str = "") -> str:
    return f'{name}{{gpu="{card}",UUID="GPU-{card}",pci_bus_id="00000000:1{card}:00.0",modelName="NVIDIA H100",Hostname="h1"{more}}} {value}\n'


class Exporter:
    def __init__(self, text: str = "") -> None:
        self.text = text

    def read(self) -> str:
        return self.text


IDLE = "".join(row("DCGM_FI_DEV_GPU_TEMP", card, 41) for card in range(2))
XID = "DCGM_EXP_XID_ERRORS_COUNT"


def reader(exporter: Exporter, *, cards: dict[str, int] | None = None, xids: bool = True) -> DcgmReader:
    return DcgmReader(exporter, Inventory(), cards=cards or {}, xids=xids)


def read(one: DcgmReader) -> list[Observation]:
    return list(asyncio.run(one.read()))


def events(one: DcgmReader) -> list[tuple[str, str]]:
    return [(found.entity, found.code) for found in read(one) if found.event]


def test_values_that_move_all_the_time_are_no_state() -> None:
    warmer = IDLE.replace("} 41", "} 70")
    assert card_states(parse_exporter(IDLE)) == card_states(parse_exporter(warmer)) == {"GPU-0": {}, "GPU-1": {}}


def test_the_samples_of_a_state_are_those_of_the_text() -> None:
    text = (
        row("DCGM_FI_DEV_ROW_REMAP_FAILURE", 0, 1)
        + row("DCGM_FI_DEV_GPU_TEMP", 0, 91)
        + row("DCGM_EXP_CLOCK_EVENTS_COUNT", 0, 7, ',clock_event="hw_slowdown"')
        + row("DCGM_EXP_GPU_HEALTH_STATUS", 0, 20, ',health_watch="NVLINK",health_error_code="DCGM_FR_X"')
    )
    state = value_of(card_states(parse_exporter(text))["GPU-0"])
    wanted = {
        (s.name, s.value, s.labels.get("clock_event"), s.labels.get("health_error_code")) for s in parse_exporter(text).samples
    }
    found = scrape_of("GPU-0", state).samples
    assert {(s.name, s.value, s.labels.get("clock_event"), s.labels.get("health_error_code")) for s in found} == wanted
    assert {s.card for s in found} == {"GPU-0"}


def test_an_xid_is_an_event_each_time_its_count_rises() -> None:
    exporter = Exporter(IDLE)
    one = reader(exporter)
    seen = []
    for count in (0, 1, 1, 3, 1, 2):
        exporter.text = IDLE + row(XID, 1, count, ',xid="79"')
        seen.append(len(events(one)))
    assert seen == [0, 1, 0, 1, 0, 1]


def test_xids_are_left_to_the_kernel_log_if_it_is_read() -> None:
    text = IDLE + row(XID, 1, 1, ',xid="79"')
    assert events(reader(Exporter(text))) == [("gpu:GPU-1", "79")]
    assert events(reader(Exporter(text), xids=False)) == []


def test_the_inventory_is_that_of_nvml_or_what_the_exporter_showed_before() -> None:
    exporter = Exporter(IDLE)
    of_nvml, alone = reader(exporter, cards={"GPU-0": 0, "GPU-1": 1, "GPU-2": 2}), reader(exporter)
    for one in (of_nvml, alone):
        read(one)
    exporter.text = row("DCGM_FI_DEV_GPU_TEMP", 0, 41)
    values = [next(found.value for found in read(one) if found.entity == NODE) for one in (of_nvml, alone)]
    assert [(value["rows"], value["inventory"]) for value in values] == [
        (["GPU-0"], ["GPU-0", "GPU-1", "GPU-2"]),
        (["GPU-0"], ["GPU-0", "GPU-1"]),
    ]
