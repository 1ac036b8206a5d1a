"""What HAMi's device plugins read: annotations of pods and the lock of a node."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import VENDORS
from hbox_common.model.devices import Card, CardSlice, Layout, format_lock, parse_lock

CARDS = tuple(Card(index=i, uuid=f"GPU-{i}", model="A100", memory_mib=40_960, shares=10, kind="NVIDIA") for i in range(4))
NOW = 1_800_000_000.9


def annotations(layout: Layout, registered: tuple[str, ...] = ("NVIDIA",)) -> dict[str, str]:
    return VENDORS.annotate(layout, CARDS, registered, node="n1", now=NOW)


def test_a_slice_is_written_as_hami_writes_it() -> None:
    text = "GPU-2,NVIDIA,3000,30:;"
    assert annotations(((CardSlice(2, 30, 3000),),)) == {
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-time": "1800000000",
        "hami.io/bind-phase": "allocating",
        "hami.io/bind-time": "1800000000",
        "hami.io/vgpu-devices-to-allocate": text,
        "hami.io/vgpu-devices-allocated": text,
    }


def test_each_container_closes_its_cards_also_where_it_has_none() -> None:
    layout = ((), (CardSlice(0, 100, 40_960), CardSlice(3, 100, 40_960)), ())
    assert annotations(layout)["hami.io/vgpu-devices-allocated"] == ";GPU-0,NVIDIA,40960,100:GPU-3,NVIDIA,40960,100:;;"


def test_cards_that_no_plugin_of_hamis_registered_are_not_written() -> None:
    assert annotations(((CardSlice(0, 100, 40_960),),), registered=()) == {}
    assert VENDORS.node_locks((CardSlice(0, 100, 40_960),), CARDS, ()) == ()
    assert VENDORS.node_locks((CardSlice(0, 100, 40_960),), CARDS, ("NVIDIA",)) == ("hami.io/mutex.lock",)


def test_volcanos_plugin_has_a_lock_of_its_own() -> None:
    """Without it the plugin mistakes two pods of one second for each other, which ask for as many cards."""
    cards = (Card(index=0, uuid="GPU-0", model="A100", memory_mib=40_960, shares=10, kind="volcano-vgpu"),)
    assert VENDORS.node_locks((CardSlice(0, 30, 4000),), cards, ("volcano-vgpu",)) == ("hamivgpu",)


@given(
    st.lists(
        st.lists(
            st.builds(CardSlice, st.integers(0, 3), st.integers(0, 100), st.integers(0, 40_960)), max_size=4, unique_by=lambda s: s.index
        ).map(tuple),
        min_size=1,
        max_size=5,
    ).map(tuple)
)  # fmt: skip
def test_what_is_written_reads_back_as_the_layout(layout: Layout) -> None:
    written = annotations(layout)
    if not any(layout):
        assert written == {}
        return
    text = written["hami.io/vgpu-devices-allocated"]
    assert text.count(";") == len(layout)
    assert VENDORS.kind("NVIDIA").rebuild(text, CARDS, ()) == layout


def test_a_lock_names_time_namespace_and_pod() -> None:
    text = format_lock("ml", "train-0", NOW)
    assert text == "2027-01-15T08:00:00Z,ml,train-0"
    lock = parse_lock(text)
    assert (lock.at, lock.of("ml", "train-0"), lock.of("ml", "train-1")) == (int(NOW), True, False)


@pytest.mark.parametrize(
    "text", ["", "garbage", "2027-01-15T08:00:00Z", "2027-01-15T08:00:00Z,ml", "a,b,c,d", "99999999,x,y", "\0,\0,\0"]
)
def test_a_lock_that_is_none_names_nobody_or_no_time(text: str) -> None:
    lock = parse_lock(text)
    assert not lock.pod or math.isnan(lock.at)
