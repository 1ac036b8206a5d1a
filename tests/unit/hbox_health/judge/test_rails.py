"""Ports over time: down, flapping, slow, gone; and the ports that do not count."""

from typing import Any

import pytest

from hbox_health.core.judge.rails import Rails

UP = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand"}
DOWN = {**UP, "state": "1: DOWN", "phys_state": "2: Polling", "rate": "10 Gb/sec (4X SDR)"}
INIT = {**UP, "state": "2: INIT"}
NAMES = [f"mlx5_{n}" for n in range(8)]


def decided(
    *polls: tuple[float, dict[str, Any]], at: float | None = None, every: dict[str, Any] | None = None
) -> dict[str, tuple[str, str]]:
    """Decisions by port at `at` (the last poll), each poll with what differs from eight active ports; None: not there."""
    rails = Rails(expected=8, rate=400)
    for t, differing in polls:
        ports = dict.fromkeys(NAMES, every or UP) | differing
        rails.poll(t, {name: port for name, port in ports.items() if port is not None})
    return {f.entity: (f.severity, f.action) for f in rails.findings(polls[-1][0] if at is None else at)}


OFF = {"rail:mlx5_4": ("degraded", "isolate-rail")}
WATCHED = {"rail:mlx5_4": ("suspect", "watch")}


def test_a_port_is_off_after_four_minutes_down_and_back_after_ten_clean_ones() -> None:
    down = [(0.0, {}), (60.0, {"mlx5_4": DOWN}), (299.0, {"mlx5_4": DOWN})]
    assert decided(*down) == WATCHED
    dropped = [*down, (300.0, {"mlx5_4": DOWN})]
    assert decided(*dropped) == OFF
    assert decided(*dropped, (400.0, {}), at=999) == OFF
    assert decided(*dropped, (400.0, {}), at=1000) == {}


def test_a_short_drop_leaves_nothing() -> None:
    assert decided((0, {}), (60, {"mlx5_4": DOWN}), (90, {})) == {}


def flap(start: float, down_s: float = 30) -> list[tuple[float, dict[str, Any]]]:
    return [(start, {"mlx5_4": DOWN}), (start + down_s, {})]


def test_a_port_that_returns_three_times_in_twelve_hours_is_off_for_twelve_hours() -> None:
    polls = [(0.0, {}), *flap(3600), *flap(7200)]
    assert decided(*polls) == {}
    polls += flap(10800)
    assert decided(*polls) == OFF
    assert decided(*polls, at=10830 + 12 * 3600 - 1) == OFF
    assert decided(*polls, at=10830 + 12 * 3600) == {}


def test_returns_from_short_drops_and_old_returns_do_not_count() -> None:
    assert decided((0, {}), *flap(3600, 24), *flap(7200, 24), *flap(10800, 24)) == {}
    assert decided((0, {}), *flap(3600), *flap(7200), *flap(3600 + 12 * 3600 + 30)) == {}


def test_a_slow_port_is_reported_and_off_after_three_readings() -> None:
    slow = {"mlx5_4": {**UP, "rate": "200 Gb/sec (4X HDR)"}}
    assert decided((0, {}), (60, slow), (120, slow)) == {"rail:mlx5_4": ("degraded", "report")}
    assert decided((0, {}), (60, slow), (120, slow), (180, slow)) == OFF


def test_an_adapter_that_is_gone_counts_after_three_readings() -> None:
    gone: dict[str, Any] = {"mlx5_4": None}
    assert decided((0, {}), (60, gone), (120, gone)) == WATCHED
    assert decided((0, {}), (60, gone), (120, gone), (180, gone)) == OFF


def test_all_ports_in_init_are_the_subnet_manager() -> None:
    assert decided((0, {}), every=INIT) == {"node": ("degraded", "report")}


@pytest.mark.parametrize(
    "port",
    [
        {**UP, "rate": "100 Gb/sec (4X EDR)"},  # C7: 18, a ninth port for storage
        {**UP, "physfn": "0000:18:00.0"},
        {**UP, "link_layer": "Ethernet", "rate": "25 Gb/sec (1X EDR)"},
        DOWN,  # never active: the second port of an adapter
    ],
)
def test_ports_that_carry_no_traffic_of_jobs_do_not_count(port: dict[str, Any]) -> None:  # C7: 6
    down = {**port, **{key: DOWN[key] for key in ("state", "phys_state")}}
    assert decided((0, {"mlx5_9": port}), (60, {"mlx5_9": down}), (900, {"mlx5_9": down})) == {}


def test_a_port_that_was_never_active_counts_where_the_box_lacks_one() -> None:
    assert decided((0, {"mlx5_4": DOWN}), (900, {"mlx5_4": DOWN})) == OFF


@pytest.mark.parametrize(
    ("name", "more", "bad"),
    [
        ("symbol_error", 600, False),
        ("symbol_error", 601, True),
        ("port_rcv_errors", 601, True),
        ("link_error_recovery", 6, True),
        ("port_xmit_discards", 6001, True),
        ("rnr_nak_retry_err", 1, True),
        ("carrier_changes", 2, False),
        ("carrier_changes", 3, True),
        ("link_downed", 1, False),
        ("symbol_error", -5000, False),
    ],
)
def test_counters_count_by_their_growth(name: str, more: int, bad: bool) -> None:
    first = {"mlx5_4": {**UP, name: 9000}}
    then = {"mlx5_4": {**UP, "counters": {name: str(9000 + more)}}}
    assert decided((0, first), (60, then)) == ({"rail:mlx5_4": ("degraded", "ticket")} if bad else {})
