"""Fabrics as no generator of ours would make them: text with anything in it, and any cabling."""

from hypothesis import given
from hypothesis import strategies as st

from hbox_common.errors import InvalidRequest
from hbox_common.model.fabric import HostLink, Snapshot, Switch, Trunk
from hbox_sandbox.fabric import FabricPlan, ibnetdiscover_text
from hbox_topology.core.fabric.build import build
from hbox_topology.core.fabric.graph import Graph
from hbox_topology.core.fabric.ibnetdiscover import parse_ibnetdiscover

TEXT = ibnetdiscover_text(FabricPlan(hosts=(2,), rails=2).snapshot())


@st.composite
def bent(draw: st.DrawFn) -> list[str]:
    """A right text of which some lines are cut, doubled, out of order or anybody's."""
    lines = TEXT.splitlines()
    for _ in range(draw(st.integers(0, 12))):
        place = draw(st.integers(0, len(lines) - 1))
        match draw(st.integers(0, 4)):
            case 0:
                lines[place] = lines[place][: draw(st.integers(0, 80))]
            case 1:
                lines[place] = draw(st.text(max_size=80))
            case 2:
                lines.insert(place, lines[draw(st.integers(0, len(lines) - 1))])
            case 3:
                lines[place] = lines[place].replace('"', "", 1)
            case _:
                lines[place] = lines[place].replace("0", draw(st.sampled_from(["9", "ffff", "[", '"'])))
    return lines


@given(bent())
def test_any_text_is_read_or_refused(lines: list[str]) -> None:
    try:
        snapshot = parse_ibnetdiscover(lines)
    except InvalidRequest:
        return
    sound(build(snapshot))


_LEAVES = [f"{n:016x}" for n in range(1, 9)]


@st.composite
def cablings(draw: st.DrawFn) -> Snapshot:
    names = draw(st.lists(st.sampled_from(["leaf-1", "leaf-2", "", "MQM", "a/b:c", "ÄÖ"]), min_size=8, max_size=8))
    switches = {
        guid: Switch(guid, name, "m", draw(st.sampled_from(["", "c" * 16]))) for guid, name in zip(_LEAVES, names, strict=True)
    }
    link = st.builds(
        HostLink,
        card=st.sampled_from([f"c{n:015x}" for n in range(40)]),
        port=st.integers(0, 2),
        host=st.sampled_from(["", "a", "b", "c", "d", "e"]),
        hca=st.sampled_from(["", "mlx5_0", "mlx5_1", "ibp3"]),
        switch=st.sampled_from([*_LEAVES, ""]),
        switch_port=st.integers(0, 70),
        speed=st.sampled_from(["", "HDR", "NDR", "what"]),
        width=st.sampled_from([0, 1, 4]),
        up=st.booleans(),
    )
    trunk = st.builds(
        lambda ends, n, up: Trunk(min(ends), n, max(ends), n, "NDR", 4, up),
        st.lists(st.sampled_from(_LEAVES), min_size=2, max_size=2, unique=True),
        st.integers(1, 70),
        st.booleans(),
    )
    return Snapshot(switches, tuple(draw(st.lists(link, max_size=40))), tuple(draw(st.lists(trunk, max_size=20))))


@given(cablings(), cablings())
def test_any_cabling_has_a_sound_tree_before_and_after_another(one: Snapshot, other: Snapshot) -> None:
    before = build(one)
    sound(before)
    sound(build(other, former=before))
    assert build(one, former=before).unit_of == before.unit_of


def sound(graph: Graph) -> None:
    hosts = [host for unit in graph.units for host in unit.hosts]
    leaves = [leaf for unit in graph.units for leaf in unit.leaves]
    units = [name for pod in graph.pods for name in pod.units]
    names = [one.name for tier in (graph.units, graph.pods, graph.roots) for one in tier]
    assert len(set(hosts)) == len(hosts)
    assert len(set(leaves)) == len(leaves)
    assert set(units) == {unit.name for unit in graph.units}
    assert len(units) == len(graph.units)
    assert sorted(name for root in graph.roots for name in root.pods) == sorted(pod.name for pod in graph.pods)
    assert len(set(names)) == len(names)
    assert all(name == name.lower() and name.strip("-") == name for name in names)
    assert not set(hosts) & set(graph.others)
    assert all(str(finding) for finding in graph.findings)
