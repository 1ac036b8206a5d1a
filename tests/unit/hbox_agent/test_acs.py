"""Which bridges between cards and adapters redirect what these send each other."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hbox_agent.adapters.host import read_machine
from hbox_agent.core.acs import redirect_of
from hbox_cli.check.findings import Level
from hbox_cli.check.machine import findings
from hbox_common.model import NodeName, NodeNuma, PciBridge, Redirect
from hbox_sandbox.kubelet.pci import TREES, tree_of

PLACES = (0, 0, 0, 0, 1, 1, 1, 1)


def config(*capabilities: tuple[int, int, int], length: int = 4096, control: int = 0) -> bytes:
    """capabilities: where each is, its id, and where the next is."""
    found = bytearray(4096)
    for at, id_, after in capabilities:
        found[at : at + 4] = (id_ | 1 << 16 | after << 20).to_bytes(4, "little")
        if id_ == 0x0D:
            found[at + 6 : at + 8] = control.to_bytes(2, "little")
    return bytes(found[:length])


AER_THEN_ACS = ((0x100, 0x01, 0x148), (0x148, 0x0D, 0))


@pytest.mark.parametrize(
    ("said", "redirect"),
    [
        (config(*AER_THEN_ACS, control=0x001D), Redirect.ON),
        (config(*AER_THEN_ACS, control=0x0008), Redirect.ON),
        (config(*AER_THEN_ACS, control=0x0000), Redirect.OFF),
        (config(*AER_THEN_ACS, control=0x0051), Redirect.OFF),
        (config((0x100, 0x01, 0)), Redirect.NONE),
        (config(*AER_THEN_ACS, length=64), Redirect.UNREAD),
        (config(*AER_THEN_ACS, length=0x14C), Redirect.UNREAD),
        (config((0x100, 0x01, 0x148), (0x148, 0x02, 0x100)), Redirect.UNREAD),
        (config((0x100, 0x01, 0x040)), Redirect.UNREAD),
        (b"\xff" * 4096, Redirect.UNREAD),
        (b"", Redirect.UNREAD),
    ],
)
def test_a_bridge_redirects_where_its_control_register_says_so(said: bytes, redirect: Redirect) -> None:
    assert redirect_of(said) is redirect


@given(st.binary(max_size=5000), st.lists(st.tuples(st.integers(0x40, 0x3FF), st.binary(min_size=4, max_size=4)), max_size=40))
@example(b"\0" * 4096, [(0x40, b"\x01\0\x01\x10")])
def test_bytes_of_any_kind_have_an_end(said: bytes, words: list[tuple[int, bytes]]) -> None:
    found = bytearray(said)
    for place, word in words:
        found[4 * place : 4 * place + 4] = word
    assert redirect_of(bytes(found)) in Redirect


def box(root: Path, name: str = "h100", *, acs: bool = False, cut: int = 4096, guest: bool = False) -> NodeNuma:
    files, links = tree_of(name, PLACES, acs=acs)
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text[:cut] if isinstance(text, bytes) else text.encode())
    for path, leads in links.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).symlink_to(leads)
    (root / "host/proc").mkdir()
    (root / "host/proc/cpuinfo").write_text(f"processor\t: 0\nflags\t\t: fpu sse2{' hypervisor' if guest else ''} lahf_lm\n")
    return read_machine(NodeName("n1"), host=root / "host", kubelet=root, config=None, at=1.0)


def acs_findings(numa: NodeNuma) -> list[tuple[Level, str, str]]:
    return [(one.level, one.message, one.fix) for one in findings(numa, None) if one.name == "acs"]


def test_redirect_between_cards_and_adapters_is_named_with_what_turns_it_off(tmp_path: Path) -> None:
    ((level, message, fix),) = acs_findings(box(tmp_path, "h800", acs=True))
    assert level is Level.WARNING
    assert message.startswith(
        "redirects at 16 of 16 bridges between cards and adapters, so that transfers go by the root complex: 0000:12:00.0"
    )
    assert fix.endswith("setpci -s 0000:12:00.0 ECAP_ACS+0x6.w=0000")
    assert "at each boot" in fix


def test_in_a_guest_redirect_stays_on(tmp_path: Path) -> None:
    ((level, _, fix),) = acs_findings(box(tmp_path, acs=True, guest=True))
    assert (level, "ATS_ENABLED" in fix, "setpci" in fix) == (Level.WARNING, True, False)


def test_bridges_without_redirect_are_well(tmp_path: Path) -> None:
    ((level, message, _),) = acs_findings(box(tmp_path, "h800"))
    assert (level, message) == (Level.OK, "no redirect at 16 bridges between cards and adapters")


def test_who_may_read_64_bytes_says_that_it_cannot_be_read(tmp_path: Path) -> None:
    """Root without CAP_SYS_ADMIN, as in the chart's pod."""
    numa = box(tmp_path, acs=True, cut=64)
    assert {one.redirect for one in numa.bridges} == {Redirect.UNREAD}
    ((level, message, fix),) = acs_findings(numa)
    assert (level, message.startswith("cannot be read at "), "CAP_SYS_ADMIN" in fix) == (Level.WARNING, True, True)


def test_root_ports_of_devices_that_meet_nowhere_below_do_not_count(tmp_path: Path) -> None:
    numa = box(tmp_path, "l20")
    root_ports = [PciBridge(one.address, Redirect.ON) for one in numa.bridges if one.address.endswith("0:01.0")]
    others = [one for one in numa.bridges if not one.address.endswith("0:01.0")]
    assert [level for level, _, _ in acs_findings(replace(numa, bridges=(*root_ports, *others)))] == [Level.OK]


@pytest.mark.parametrize("name", sorted(TREES))
def test_every_box_has_bridges_that_say_it(name: str, tmp_path: Path) -> None:
    numa = box(tmp_path, name, acs=True)
    assert {one.redirect for one in numa.bridges} == {Redirect.ON, Redirect.NONE}
    assert [level for level, _, _ in acs_findings(numa)] == [Level.WARNING]
