"""Tables of `nvidia-smi topo -m` of many machines, and what they are held against."""

import json
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_cli.check.smitopo import MAX_TEXT, read
from hbox_common.errors import InvalidRequest

SAMPLES = next((p / "shared/samples/nvidia_smi_topo" for p in Path(__file__).parents if (p / "shared/samples").is_dir()), None)
NAMES = sorted(path.name for path in SAMPLES.glob("*.txt")) if SAMPLES is not None else []

SMALL = """\
        GPU0    GPU1    GPU2    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV18    SYS     PIX     SYS     0-31,64-95      0               N/A
GPU1    NV18     X      SYS     PXB     SYS     0-31,64-950
GPU2    SYS     SYS      X      SYS     NODE    32-63,96-127    1               N/A
NIC0    PIX     PXB     SYS      X      SYS
NIC1    SYS     SYS     NODE    SYS      X

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_bond_0
"""


@pytest.mark.skipif(not NAMES, reason="the samples are not there")
@pytest.mark.parametrize("name", NAMES)
def test_each_sample_is_read_as_it_was_by_hand(name: str) -> None:
    assert SAMPLES is not None
    wanted = json.loads((SAMPLES / "expected.json").read_text())[name]
    found = read((SAMPLES / name).read_text())
    assert (len(found.gpus), list(found.nics)) == (wanted["gpus"], wanted["nic_names"])
    assert Counter(found.links[pair] for pair in combinations(found.gpus, 2)) == wanted["gpu_pair_kinds"]
    assert {gpu: list(cells) for gpu, cells in found.affinity.items()} == wanted["affinity_tokens"]
    if "nearest_nics_pix_or_pxb" in wanted:
        assert {gpu: found.near(gpu) for gpu in found.gpus} == wanted["nearest_nics_pix_or_pxb"]


def test_a_table_says_who_is_near_whom_on_which_node_and_who_has_no_link() -> None:
    found = read(SMALL)
    assert (found.near("GPU0"), found.near("GPU2")) == (["mlx5_0"], [])
    assert [found.numa(gpu) for gpu in found.gpus] == [0, 0, 1]
    assert found.affinity["GPU1"][:2] == ("0-31,64-95", "0")
    assert found.without_nvlink() == ["GPU2"]


def test_where_no_card_has_links_of_its_own_none_has_lost_them() -> None:
    assert read(SMALL.replace("NV18", "PHB ")).without_nvlink() == []


def test_headers_whose_names_are_glued_are_read() -> None:
    assert read(SMALL.replace("NIC0    NIC1    CPU", "NIC0NIC1CPU")).nics == ("mlx5_0", "mlx5_bond_0")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no line with GPU0"),
        ("command not found\n", "no line with GPU0"),
        (
            SMALL.replace("GPU2    SYS     SYS      X      SYS     NODE    32-63,96-127    1               N/A\n", ""),
            "no row of GPU2",
        ),
        (SMALL.replace("X      NV18    SYS     PIX     SYS     0-31,64-95      0               N/A", "X NV18"), "has 2 cells"),
        (SMALL.replace("GPU0    GPU1    GPU2", "GPU0    GPU0    GPU2"), "one twice"),
        (" GPU0" * MAX_TEXT, "less than"),
    ],
)
def test_what_is_no_table_is_refused_with_the_reason(text: str, told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        read(text)


@given(st.text(max_size=60), st.integers(0, len(SMALL)))
def test_nothing_else_comes_of_any_text(noise: str, at: int) -> None:
    try:
        read(SMALL[:at] + noise + SMALL[at:])
    except InvalidRequest:
        pass
