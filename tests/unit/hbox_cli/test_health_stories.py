"""Stories of several nodes through the player of `hbox health judge`: events, what holds at a time, what never happens, totals."""

from typing import Any, TypeAlias

import pytest

from hbox_cli.health.story import Story
from hbox_health.data import shipped_rules

Event: TypeAlias = dict[str, Any]
SLOTS = ("18", "2a", "3c", "4e", "60", "72", "84", "96")


def card(number: int) -> str:
    return f"GPU-5e1f0000-0000-4000-8000-00000000000{number}"


def event(t: float, kind: str, n: str = "n1", **more: Any) -> Event:
    return {"t": t, "node": n, "event": kind, **more}


def xid(t: float, code: int, of: int = 1, n: str = "n1", text: str = "", **more: Any) -> Event:
    return event(t, "kmsg", n, card=card(of), line=f"NVRM: Xid (PCI:0000:{SLOTS[of]}:00): {code}, {text}", **more)


def lost(t: float, of: int = 1, n: str = "n1", **more: Any) -> Event:
    return xid(t, 79, of, n, "GPU has fallen off the bus.", **more)


def double_bit(t: float, of: int = 1, n: str = "n1") -> Event:
    return xid(
        t,
        48,
        of,
        n,
        "pid=1, name=python3, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer.",
    )


def repaired(t: float) -> list[Event]:
    kinds = ((50, "idle"), (60, "reset-begun"), (90, "reset-done"), (120, "validation-passed"))
    return [double_bit(t), *(event(t + after, kind, card=card(1)) for after, kind in kinds)]


STORIES: dict[str, tuple[list[Event], list[dict[str, Any]], list[str], dict[str, int]]] = {}
STORIES["stale-boot"] = (
    [
        event(0, "boot", boot_id="A"),
        lost(10),
        event(100, "reboot", boot_id="B"),
        event(130, "validation-passed"),
        event(140, "agent-restarts"),
        lost(150, boot_id="A"),
    ],
    [{"t": 200, "node": "n1", "cordoned": False, "state": "closed"}],
    ["reboot-after:120"],
    {"incidents": 1},
)
STORIES["agent-starts-late"] = (
    [event(0, "boot", boot_id="A"), lost(5), event(60, "agent-starts")],
    [{"t": 30, "node": "n1", "state": "well"}, {"t": 65, "node": "n1", "cordoned": True}],
    [],
    {},
)
STORIES["burst-79"] = (
    [
        lost(0, 1),
        lost(0.1, 2),
        lost(0.2, 3),
        xid(0.3, 45, 1, text="pid=7, name=python3, Ch 00000010"),
        xid(0.4, 119, 1, text="pid=1, name=x, Timeout after 6s of waiting for RPC response from GPU0 GSP!"),
        event(1, "nvml-count", count=5, want=8),
        event(11, "nvml-count", count=5, want=8),
    ],
    [{"t": 60, "node": "n1", "cordoned": True}],
    [],
    {"incidents": 1, "nodes_cordoned": 1},
)
STORIES["leaf"] = (
    [event(i, "port", n=f"n{i}", hca="mlx5_4", state="DOWN", leaf="l7") for i in range(5)],
    [{"t": 600, "incident": "switch:l7", "count": 1}],
    ["cordon"],
    {"nodes_cordoned": 0, "incidents": 1},
)
STORIES["port-up"] = (
    [event(0, "port", hca="mlx5_4", state="DOWN"), event(300, "port", hca="mlx5_4", state="ACTIVE")],
    [
        {"t": 100, "rail": "mlx5_4", "state": "suspect"},
        {"t": 260, "rail": "mlx5_4", "state": "confirmed", "action": "isolate-rail"},
        {"t": 260, "node": "n1", "schedulable": True},
        {"t": 950, "rail": "mlx5_4", "state": "closed"},
    ],
    ["cordon"],
    {},
)
STORIES["silent-all"] = (
    [event(0, "agent-silent", n=f"n{i}") for i in range(20)],
    [{"t": 600, "incident": "control-plane", "count": 1}],
    ["cordon"],
    {"nodes_cordoned": 0, "incidents": 1},
)
STORIES["silent-one"] = (
    [event(0, "agent-silent")] + [event(0, "tick", n=f"n{i}") for i in range(2, 9)],
    [{"t": 400, "node": "n1", "cordoned": False, "state": "confirmed"}],
    ["cordon", "evict"],
    {},
)
STORIES["lies"] = (
    [event(0, "publishes", n="n2", subject_node="n1", line="NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.")],
    [{"t": 9, "node": "n1", "cordoned": False}],
    ["cordon"],
    {"refused": 1, "incidents": 0},
)
STORIES["clock"] = (
    [
        event(0, "port", hca="mlx5_4", state="DOWN"),
        event(10, "clock", jump_s=7200),
        event(20, "port", hca="mlx5_4", state="ACTIVE"),
    ],
    [{"t": 30, "rail": "mlx5_4", "state": "closed"}],
    ["isolate-rail"],
    {},
)
STORIES["hangs"] = (
    [event(0, "nvml-hangs"), event(10, "nvml-hangs"), event(20, "nvml-hangs")],
    [{"t": 60, "node": "n1", "severity": "unknown"}],
    ["reboot"],
    {},
)
STORIES["exempt"] = (
    [event(0, "exemption", check="xid-79", until=3600, who="alice", why="x"), lost(10)],
    [{"t": 60, "node": "n1", "cordoned": False, "held_by": "exemption"}, {"t": 3700, "node": "n1", "cordoned": True}],
    ["cordon-before:3600"],
    {"incidents": 1},
)
STORIES["hand-cordon"] = (
    [event(0, "cordoned-by-hand"), lost(10), event(100, "reboot", boot_id="B"), event(130, "validation-passed")],
    [{"t": 200, "node": "n1", "cordoned": True}],
    ["uncordon", "cordon"],
    {},
)
STORIES["hand-uncordon"] = (
    [
        lost(10),
        event(100, "uncordoned-by-hand"),
        event(200, "agent-restarts"),
        xid(4000, 154, 2, text="GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
    ],
    [{"t": 300, "node": "n1", "cordoned": False}, {"t": 4100, "node": "n1", "cordoned": True}],
    [],
    {},
)
STORIES["1451"] = (
    [
        lost(0),
        event(1, "cordoned-by-us"),
        event(100, "reboot", boot_id="B"),
        event(130, "validation-passed"),
        lost(131, 2),
        event(132, "uncordoned-by-us"),
    ],
    [{"t": 200, "node": "n1", "cordoned": True}],
    [],
    {},
)
STORIES["reset-third"] = (
    [
        *repaired(0),
        *repaired(86_400),
        double_bit(2 * 86_400),
        event(2 * 86_400 + 50, "idle", card=card(1)),
    ],
    [{"t": 2 * 86400 + 60, "card": card(1), "action": "ticket"}],
    ["reset-after:172800"],
    {},
)
STORIES["reboot-second"] = (
    [
        lost(0),
        event(10, "idle"),
        event(60, "reboot", boot_id="B"),
        event(120, "validation-passed"),
        lost(1000),
        event(1010, "idle"),
    ],
    [{"t": 1100, "node": "n1", "action": "ticket", "cordoned": True}],
    ["reboot-after:900"],
    {},
)
STORIES["reset-fails"] = (
    [
        double_bit(0),
        event(5, "idle"),
        event(10, "reset-begun", card=card(1)),
        event(20, "reset-failed", card=card(1)),
        event(30, "reset-begun", card=card(1)),
        event(40, "reset-failed", card=card(1)),
    ],
    [{"t": 25, "card": card(1), "action": "reset"}, {"t": 50, "node": "n1", "action": "reboot", "cordoned": True}],
    ["reboot-before:40"],
    {},
)
STORIES["reset-refused"] = (
    [
        double_bit(0),
        event(5, "idle"),
        event(10, "reset-begun", card=card(1)),
        event(20, "reset-refused", card=card(1), holders=["dcgm", "nvidia-persistenced"]),
        event(30, "holders-stopped", card=card(1)),
        event(40, "reset-begun", card=card(1)),
        event(60, "reset-done", card=card(1)),
        event(70, "holders-started", card=card(1)),
        event(90, "validation-passed", card=card(1)),
    ],
    [
        {"t": 25, "card": card(1), "held_by": ["dcgm", "nvidia-persistenced"], "state": "draining"},
        {"t": 95, "card": card(1), "state": "closed"},
    ],
    ["reboot", "ticket"],
    {},
)
STORIES["own-reset"] = (
    [
        double_bit(0),
        event(5, "idle"),
        event(10, "reset-begun", card=card(1)),
        xid(12, 119, 1, text="pid=1, name=x, Timeout after 6s of waiting for RPC response from GPU0 GSP!"),
        event(15, "nvml-count", count=7, want=8),
        event(25, "nvml-count", count=7, want=8),
        event(40, "nvml-count", count=8, want=8),
        event(41, "reset-done", card=card(1)),
        event(60, "validation-passed", card=card(1)),
    ],
    [{"t": 61, "card": card(1), "state": "closed"}],
    ["cordon", "reboot"],
    {"incidents": 1},
)
STORIES["own-reset-noincident"] = (
    [
        event(10, "reset-begun", card=card(1)),
        event(15, "nvml-count", count=7, want=8),
        lost(16),
        event(40, "nvml-count", count=8, want=8),
        event(41, "reset-done", card=card(1)),
    ],
    [{"t": 61, "card": card(1), "state": "well"}],
    ["cordon", "reboot"],
    {"incidents": 0},
)
STORIES["joins-short"] = (
    [
        event(0, "joins", labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, nvml_count=7, sys_count=8),
        event(100, "operator-closes"),
    ],
    [{"t": 60, "node": "n1", "schedulable": False}, {"t": 110, "node": "n1", "schedulable": True}],
    [],
    {},
)
STORIES["two-queues"] = (
    [
        event(0, "pod-of", card=card(1), pid=1, job="a", queue="q1"),
        xid(
            1,
            31,
            1,
            text="pid=1, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted",
        ),
        event(50, "pod-ends", job="a"),
        event(3600, "pod-of", card=card(1), pid=2, job="b", queue="q2"),
        xid(
            3601,
            31,
            1,
            text="pid=2, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted",
        ),
    ],
    [
        {"t": 20, "job": "a", "action": "tell-owner"},
        {"t": 3700, "card": card(1), "action": "run-diagnostics", "blame": "hardware"},
    ],
    ["cordon", "isolate-gpu"],
    {},
)
STORIES["breaker"] = (
    [
        {
            "t": i * 0.1,
            "node": f"m{i}",
            "event": "kmsg",
            "card": card(1),
            "line": "NVRM: Xid (PCI:0000:2a:00): 79, GPU has fallen off the bus.",
        }
        for i in range(12)
    ],
    [{"t": 60, "node": "m11", "cordoned": False, "held_by": "breaker"}],
    [],
    {"nodes_cordoned": 2},
)
STORIES["shrink"] = (
    [event(0, "gang", n="*", job="g1", nodes=["n1", "n2", "n3"], cards_each=8, policy="shrink"), lost(10, 1, "n2")],
    [{"t": 30, "job": "g1", "nodes": ["n1", "n3"]}],
    [],
    {},
)
STORIES["ignore"] = (
    [event(0, "gang", n="n1", job="g1", cards=[card(1)], policy="ignore"), double_bit(10)],
    [{"t": 30, "job": "g1", "nodes": ["n1"]}],
    ["evict"],
    {},
)
STORIES["ckpt-deadline"] = (
    [
        event(0, "gang", n="n1", job="g1", cards=[card(1)], policy="checkpoint", deadline_s=600),
        xid(100, 154, 1, text="GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)"),
    ],
    [{"t": 105, "job": "g1", "noticed": True, "deadline": 700}, {"t": 710, "card": card(1), "action": "reset"}],
    ["evict-before:700"],
    {},
)
STORIES["slow"] = (
    [event(0, "slow-node"), event(600, "slow-node")],
    [{"t": 10, "node": "n1", "action": "retest", "cordoned": False}, {"t": 610, "node": "n1", "cordoned": True}],
    [],
    {},
)
STORIES["dbe-contained"] = (
    [
        event(0, "pods", on={"p1": card(1), "p2": card(2)}),
        xid(
            10, 63, 1, text="pid=1, name=x, Row Remapper: New row (0x00000000abcd) marked for remapping, reset gpu to activate."
        ),
        xid(10.1, 94, 1, text="pid=7, name=python3, Contained: SM (0x1). RST: No, D-RST: No"),
        event(600, "pod-ends", pod="p1"),
    ],
    [
        {"t": 20, "card": card(1), "new_work": False},
        {"t": 20, "card": card(2), "new_work": True},
        {"t": 20, "node": "n1", "cordoned": False},
        {"t": 610, "card": card(1), "action": "reset"},
    ],
    ["evict:p2", "cordon"],
    {},
)
STORIES["remap-63"] = (
    [
        event(0, "pods", on={"p1": card(1)}),
        xid(
            10, 63, 1, text="pid=1, name=x, Row Remapper: New row (0x00000000abcd) marked for remapping, reset gpu to activate."
        ),
        event(600, "pod-ends", pod="p1"),
    ],
    [{"t": 20, "card": card(1), "action": "reset-when-idle", "new_work": True}, {"t": 610, "card": card(1), "action": "reset"}],
    ["evict", "cordon", "isolate-gpu-before:600"],
    {},
)
STORIES["fm-boot"] = (
    [
        event(0, "boot", boot_id="B"),
        event(30, "unit", unit="nvidia-fabricmanager", state="failed", uptime_s=30),
        event(200, "unit", unit="nvidia-fabricmanager", state="active", uptime_s=200),
    ],
    [{"t": 180, "node": "n1", "multi_gpu": True}],
    ["restart-fm"],
    {"incidents": 0},
)
STORIES["154-2"] = (
    [
        xid(0, 154, 1, text="GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
        event(5, "idle"),
        event(100, "reboot", boot_id="B"),
        event(200, "validation-passed"),
    ],
    [{"t": 10, "node": "n1", "cordoned": True, "action": "reboot"}, {"t": 210, "node": "n1", "cordoned": False}],
    [],
    {},
)
STORIES["valid-failed"] = (
    [lost(0), event(5, "idle"), event(60, "reboot", boot_id="B"), event(120, "validation-failed")],
    [{"t": 130, "node": "n1", "cordoned": True, "action": "ticket"}],
    ["reboot-after:100"],
    {},
)
STORIES["unknown"] = (
    [xid(0, 185, 1, text="SPARING_EVENT something")],
    [{"t": 10, "card": card(1), "action": "report"}],
    ["reboot", "cordon", "isolate-gpu"],
    {},
)


@pytest.mark.parametrize("name", STORIES)
def test_a_story_has_its_decisions(name: str) -> None:
    events, asked, never, totals = STORIES[name]
    answer = Story({"events": events}, {}, {"at": asked, "never": never, **totals}, shipped_rules()).play()
    assert answer["at"] == asked
    assert answer["never"] == []
    assert {key: answer[key] for key in totals} == totals
