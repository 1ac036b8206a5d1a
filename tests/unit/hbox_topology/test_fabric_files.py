"""Files that say how a fabric is cabled, as anybody might write them."""

import gzip
import json
import os
from pathlib import Path

import pytest

from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.model.fabric import HostLink, Snapshot, Switch
from hbox_sandbox.fabric import FabricPlan, ibnetdiscover_text
from hbox_topology.adapters.sources import IbnetdiscoverSource, LldpSource
from hbox_topology.core.fabric.build import build
from hbox_topology.core.fabric.ibnetdiscover import parse_ibnetdiscover

TEXT = ibnetdiscover_text(FabricPlan(hosts=(2,), rails=2).snapshot())


async def test_a_pipe_in_place_of_a_file_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fabric.txt")
    with pytest.raises(Unavailable, match="is no file"):
        await IbnetdiscoverSource(tmp_path / "fabric.txt").read()
    os.mkfifo(tmp_path / "n1.json")
    with pytest.raises(Unavailable, match="is no file"):
        await LldpSource(tmp_path).read()


async def test_a_compressed_file_is_read_no_further_than_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hbox_topology.adapters.sources.MAX_TEXT", 100_000)
    source = IbnetdiscoverSource(tmp_path / "fabric.txt.gz")
    (tmp_path / "fabric.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    assert (await source.read()).snapshot is not None
    (tmp_path / "fabric.txt.gz").write_bytes(gzip.compress(b"\n" * (64 << 20)))
    with pytest.raises(InvalidRequest, match="more than 0 MiB"):
        await source.read()
    (tmp_path / "fabric.txt.gz").write_bytes(b"no gzip")
    with pytest.raises(Unavailable, match="Not a gzipped file"):
        await source.read()


async def test_a_machine_that_says_too_much_is_left_out_and_one_with_too_many_interfaces_is_cut(tmp_path: Path) -> None:
    about = {"chassis": {"leaf": {"id": {"type": "mac", "value": "b8:ce:f6:00:00:01"}}}}
    (tmp_path / "n1.json").write_text(json.dumps({"lldp": {"interface": {f"e{n}": about for n in range(9000)}}}))
    (tmp_path / "n2.json").write_text(json.dumps({"lldp": {"interface": {"e" * (1 << 20): about}}}))
    (tmp_path / "n3.json").write_text("[" * 100_000)
    snapshot = (await LldpSource(tmp_path).read()).snapshot
    assert snapshot is not None
    assert len(snapshot.hosts) == 256
    assert snapshot.problems == ("LLDP of n2: there is no `lldp`", "LLDP of n3: there is no `lldp`")


async def test_all_machines_together_say_no_more_than_a_fabric_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hbox_topology.core.fabric.lldp.MAX_LINKS", 100)
    about = {"chassis": {"leaf": {"id": {"type": "mac", "value": "b8:ce:f6:00:00:01"}}}}
    for host in ("n1", "n2"):
        (tmp_path / f"{host}.json").write_text(json.dumps({"lldp": {"interface": {f"e{n}": about for n in range(60)}}}))
    with pytest.raises(InvalidRequest, match="LLDP of n2: with those before more than 100 links"):
        await LldpSource(tmp_path).read()


def test_guids_of_zeros_are_nobodys() -> None:
    lines = [*TEXT.splitlines(), 'Switch 41 "S-0000000000000000" # "none"', '[1] "H-0000000000000000"[1] # "n9 mlx5_0" 4xHDR']
    snapshot = parse_ibnetdiscover(lines)
    assert "0" * 16 not in snapshot.switches
    assert all(link.host != "n9" for link in snapshot.hosts)
    assert len(snapshot.problems) == 2


def test_cabling_of_which_a_tree_would_take_hours_is_refused() -> None:
    """Each of 1,000 machines on 64 leaves that no other has in this mixture."""
    leaves = [f"{number:016x}" for number in range(1, 2001)]
    links = tuple(
        HostLink(f"c{host:07x}{rail:08x}", 1, f"n{host}", f"mlx5_{rail}", leaves[(host * 977 + rail * (host % 89 + 1)) % 2000])
        for host in range(1000)
        for rail in range(64)
    )
    with pytest.raises(InvalidRequest, match="more than 500000 pairs of switches have a machine in common"):
        build(Snapshot({guid: Switch(guid, guid) for guid in leaves}, links))
