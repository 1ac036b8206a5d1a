"""Which facts of health are published, and how raw values of cards and ports become them."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from hbox_agent.core.kernelfacts import observations
from hbox_agent.core.reports import MOST_EVENTS, MOST_REPEATED, REPORT_BYTES, WINDOW_S, Observation, Reports
from hbox_common.events import HealthReport, encode
from hbox_common.health.nvmlfacts import card_state, cards_of
from hbox_common.health.ports import compute_ports, growth, port_states
from hbox_common.health.report import Check, Fact, value_of
from hbox_common.model import NodeName
from hbox_common.model.nodenuma import PciDevice, PciKind

NODE = NodeName("n1")


def reports() -> Reports:
    return Reports(NODE, "boot-1", "agent-1")


def port(state: str) -> Observation:
    return Observation(Check.PORTS, "rail:mlx5_0", "port", {"state": state})


def xid(code: int, *, card: str = "a") -> Observation:
    return Observation(Check.KERNEL_LOG, f"gpu:{card}", str(code), {"code": code}, event=True)


def facts_of(given: Reports, *, now: float) -> list[Fact]:
    found: list[Fact] = []
    while (report := given.due(now=now)) is not None:
        found += report.facts
        given.published()
    return found


def test_a_state_is_published_when_it_changes_and_an_event_each_time() -> None:
    given = reports()
    for state in ("ACTIVE", "ACTIVE", "DOWN", "DOWN"):
        given.add([port(state), xid(13)], now=1.0)
        facts_of(given, now=1.0)
    given.add([port("ACTIVE")], now=2.0)
    (back,) = facts_of(given, now=2.0)
    assert (back.seq, back.value) == (7, {"state": "ACTIVE"})


def test_a_report_that_could_not_be_published_is_published_again_unchanged() -> None:
    given = reports()
    given.add([xid(48)], now=1.0)
    first = given.due(now=1.0)
    given.add([xid(63)], now=2.0)
    again = given.due(now=2.0)
    assert again == first
    assert again is not None
    assert again.own_id == "n1.agent-1.1"
    given.published()
    assert [(fact.seq, fact.code) for fact in facts_of(given, now=2.0)] == [(2, "63")]


def test_a_heartbeat_has_no_facts_and_states_where_a_restarted_agent_continues() -> None:
    given = reports()
    given.log_seq, given.cards["GPU-a"] = 7, 0
    given.add([port("ACTIVE"), xid(13)], now=1.0)
    facts_of(given, now=1.0)
    beat = given.heartbeat()
    assert (beat.facts, beat.last_seq, beat.log_seq, beat.cards) == ((), 2, 7, {"GPU-a": 0})
    assert beat.lasts_s


def test_of_a_flood_of_one_event_the_first_are_published_and_the_rest_counted() -> None:
    given = reports()
    given.add([xid(13) for _ in range(5000)], now=1.0)
    given.add([xid(79)], now=1.0)
    assert [fact.code for fact in facts_of(given, now=1.0)] == ["13"] * MOST_REPEATED + ["79"]
    assert facts_of(given, now=1.0 + WINDOW_S / 2) == []
    (rest,) = facts_of(given, now=1.0 + WINDOW_S)
    assert (rest.code, rest.value["count"]) == ("13", 5000 - MOST_REPEATED)


def test_a_full_memory_drops_the_oldest_events_and_states_how_many() -> None:
    given = reports()
    given.add([xid(13, card=f"c{place % 500}") for place in range(MOST_REPEATED * 500)], now=1.0)
    facts = facts_of(given, now=1.0)
    assert (facts[0].check, facts[0].code, facts[0].value) == ("agent", "lost", {"count": MOST_REPEATED * 500 - MOST_EVENTS})
    assert len(facts) == 1 + MOST_EVENTS
    assert [fact.seq for fact in facts] == list(range(1, len(facts) + 1))


def test_every_report_fits_into_its_message_whatever_the_kernel_writes() -> None:
    given = reports()
    given.add(
        [
            Observation(
                Check.KERNEL_LOG, f"gpu:{n}", "13", {str(k): "\U0001f4a5" * 200 for k in range(48)}, "x" * 9000, event=True
            )
            for n in range(300)
        ],
        now=1.0,
    )
    count = 0
    while (report := given.due(now=1.0)) is not None:
        assert len(encode(report)) <= HealthReport.about.max_bytes
        count += len(report.facts)
        given.published()
    assert count == 300
    assert HealthReport.about.max_bytes > REPORT_BYTES


def test_the_log_is_resumed_after_the_last_record_whose_facts_are_published() -> None:
    given = reports()
    many = [
        Observation(Check.KERNEL_LOG, f"gpu:{n}", "13", {str(k): "x" * 200 for k in range(40)}, event=True) for n in range(100)
    ]
    given.add(many, now=1.0)
    given.log_seq = 77
    first = given.due(now=1.0)
    assert first is not None
    assert len(first.facts) < 100
    assert first.log_seq == -1, "further facts of these records are not published yet"
    given.published()
    last = [first]
    while (report := given.due(now=1.0)) is not None:
        last.append(report)
        given.published()
    assert last[-1].log_seq == 77


def test_values_of_any_kind_become_values_of_a_message() -> None:
    value = value_of({"n": 2**70, "f": float("nan"), "t": "a\x1bb", "l": [[1, [2]], 3], "d": {"x": {"y": [1]}}, "o": object})
    fact = Fact(1, 1.0, "nvml", "node", "x", value)
    encode(HealthReport(node=NODE, boot_id="b", agent="a", facts=(fact,)))
    assert value["l"] == ((1, "[2]"), 3)
    assert value["t"] == "a\ufffdb"


def test_a_record_is_about_the_card_switch_or_adapter_whose_address_it_has() -> None:
    cards, rails = {"0000:18:00": "GPU-1"}, {"0000:19:00": "mlx5_0"}
    records: list[dict[str, Any]] = [
        {"kind": "xid", "code": 48, "pci": "0000:18:00", "seq": 5, "at": 2.5},
        {"kind": "xid", "code": 79, "pci": "0000:2a:00"},
        {"kind": "sxid", "code": 12028, "pci": "0000:a9:00.0"},
        {"kind": "mlx5", "pci": "0000:19:00.0"},
        {"kind": "aer", "pci": "0000:18:00.0"},
        {"kind": "oom", "name": "python"},
        {"kind": "records-lost", "from": 3, "to": 9},
    ]
    found = observations(records, cards=cards, rails=rails, booted_at=100.0)
    assert [(one.entity, one.code) for one in found] == [
        ("gpu:GPU-1", "48"), ("gpu:0000:2a:00", "79"), ("switch:0000:a9:00", "12028"), ("rail:mlx5_0", "mlx5"), ("gpu:GPU-1", "aer"),
        ("node", "oom"), ("node", "gap"),
    ]  # fmt: skip
    assert found[0].at == 102.5
    assert all(one.event for one in found)


WELL: dict[str, Any] = {
    "index": 3, "address": "00000000:4E:00.0", "recovery_action": 0, "remapped": [0, 0, 0, 0], "histogram": [640, 0, 0, 0, 0], "sram": [0, 0, 0],
    "ecc_dbe_volatile": 0, "reasons": 4, "persistence": 1, "tlimit_margin": 48, "links": [[0, "switch"], [1, "switch"]], "mig": [0, 0], "ecc": [1, 1],
}  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "right"),
    [
        ({"recovery_action": 1}, {"recovery_action": 1}),
        ({"recovery_action": 42}, {"recovery_action": 42}),
        (
            {"remapped": [1, 2, 1, 0]},
            {"remapped_rows": {"correctable": 1, "uncorrectable": 2, "pending": True, "failure": False}},
        ),
        (
            {"remapped": {"error": 3}, "histogram": {"error": 3}},
            {"remapped_rows": "NOT_SUPPORTED", "histogram": "NOT_SUPPORTED"},
        ),
        ({"sram": [1, 0, 1]}, {"sram_threshold_exceeded": True, "ecc_aggregate": {"sram_parity": 1, "sram_secded": 0}}),
        ({"repair": [1, 0]}, {"channel_repair_pending": True, "tpc_repair_pending": False}),
        ({"links": [[0, "switch"], [1, ""]]}, {"nvlinks_active": 1, "nvlinks_inactive": [1]}),
        ({"reasons": 4 | 0x40}, {"clocks_event_reasons": 0x40}),
        ({"tlimit_margin": -3, "slowdown_tlimit": -2}, {"tlimit_margin": -3, "slowdown_tlimit": -2}),
        ({"inforom_validate": 14}, {"inforom_validate": 14}),
        (
            {"fabric": {"state": 3, "status": 0, "health": 0b01}},
            {"fabric": {"state": "completed", "status": 0, "health": 1}},
        ),
        ({"sram": {"error": 4}}, {"errors": {"sram": 4}}),
    ],
)
def test_raw_values_of_a_card(raw: Mapping[str, Any], right: Mapping[str, Any]) -> None:
    state = card_state({**WELL, **raw})
    assert {key: state.get(key) for key in right} == right
    assert (state["pci"], state["index"]) == ("0000:4e:00", 3)


def test_values_that_move_all_the_time_are_no_change() -> None:
    moved = {**WELL, "reasons": 0, "tlimit_margin": 31}
    assert card_state(WELL) == card_state(moved)


def test_a_function_that_an_old_driver_does_not_know_is_left_out() -> None:
    state = card_state({**WELL, "repair": {"error": 13}, "recovery_action": {"error": 13}, "unrepairable_memory": {"error": 3}})
    assert not {"recovery_action", "channel_repair_pending", "unrepairable_memory", "errors"} & state.keys()


def test_a_card_with_mig_has_no_links_by_design() -> None:
    assert "nvlinks_inactive" not in card_state({**WELL, "mig": [1, 1], "links": [[0, ""], [1, ""]]})


def test_a_lost_card_and_one_that_answers_nothing_have_their_return_code() -> None:
    assert card_state({**WELL, "ecc_dbe_volatile": {"error": 15}})["every_call"] == 15
    stuck = {name: {"error": 16} for name in ("remapped", "histogram", "sram", "ecc_dbe_volatile", "reasons", "persistence")}
    assert card_state({**WELL, **stuck, "recovery_action": 1}) == {
        "index": 3,
        "pci": "0000:4e:00",
        "recovery_action": 1,
        "every_call": 16,
    }


def test_an_answer_that_ended_too_early_does_not_say_which_cards_are_there() -> None:
    lines = [
        json.dumps({"card": {"index": 0, "uuid": "GPU-0", "health": {}}}),
        json.dumps({"asking": 1}),
        "no JSON",
        "[" * 50_000,
    ]
    node, cards = cards_of(lines, problem="no answer within 30 s")
    assert node == {"init": 0, "problem": "no answer within 30 s", "asking": 1}
    assert [uuid for uuid, _ in cards] == ["GPU-0"]
    assert cards_of([json.dumps({"init": 9, "problem": "NVML does not start"})])[0] == {
        "init": 9,
        "problem": "NVML does not start",
    }


def hca(name: str, path: str, numa: int = 0) -> PciDevice:
    return PciDevice("", PciKind.HCA, numa, name=name, path=path)


def test_compute_ports_are_those_below_a_switch_with_a_card() -> None:
    card = PciDevice("0000:17:00.0", PciKind.CARD, 0, path="pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0")
    rail = hca("mlx5_0", "pci0000:15/0000:15:01.0/0000:16:01.0/0000:18:00.0")
    storage = hca("mlx5_4", "pci0000:60/0000:60:01.0/0000:61:00.0")
    assert compute_ports([card, rail, storage]) == {"mlx5_0": "0000:18:00.0"}
    assert compute_ports([rail, storage]) == {}, "without a card no port is of a rail"
    guest = PciDevice("0000:00:05.0", PciKind.CARD, 0, path="pci0000:00/0000:00:05.0")
    assert compute_ports([guest, hca("mlx5_0", "pci0000:00/0000:00:06.0"), hca("mlx5_1", "", 1)]) == {"mlx5_0": "0000:00:06.0"}


def test_states_and_error_counters_of_ports_and_nothing_else() -> None:
    folder = "/sys/class/infiniband/mlx5_0/ports"
    files = {
        f"{folder}/1/state": "4: ACTIVE\n", f"{folder}/1/rate": "200 Gb/sec (2X NDR)\n", f"{folder}/1/counters/link_downed": "3\n",
        f"{folder}/1/counters/port_rcv_data": "9\n", f"{folder}/1/hw_counters/rnr_nak_retry_err": "1\n", f"{folder}/2/state": "1: DOWN\n",
        "/sys/class/infiniband/mlx5_9/ports/1/state": "4: ACTIVE\n", f"{folder}/1/counters/symbol_error": "many\n",
    }  # fmt: skip
    states = port_states(files, {"mlx5_0": "0000:18:00.0"})
    assert states == {
        "mlx5_0": {
            "pci": "0000:18:00.0", "state": "4: ACTIVE", "rate": "200 Gb/sec (2X NDR)", "gbps": 200.0, "width": 2, "link_downed": 3,
            "rnr_nak_retry_err": 1,
        },
        "mlx5_0:2": {"pci": "0000:18:00.0", "state": "1: DOWN"},
    }  # fmt: skip


def test_counters_of_a_port_grow_since_the_last_reading_and_a_reset_counter_from_the_next_one_on() -> None:
    assert growth({}, {"symbol_error": 7}) == {}
    assert growth({"symbol_error": 7, "link_downed": 1}, {"symbol_error": 9, "link_downed": 1}) == {"symbol_error": 2}
    assert growth({"symbol_error": 9}, {"symbol_error": 3}) == {}
