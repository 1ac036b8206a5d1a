"""`hbox topo` on files."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest
from click.testing import CliRunner

from hbox_cli.__main__ import cli
from hbox_cli.fabrics.drawing import Box, colour, drawing
from hbox_common.errors import HBoxError, InvalidRequest, NotFound
from hbox_sandbox.fabric import FabricPlan, ibnetdiscover_text


@pytest.fixture
def fabric(tmp_path: Path) -> Path:
    """Two units of four hosts, of which one has no link on rail 3."""
    snapshot = FabricPlan().snapshot()
    kept = tuple(link for link in snapshot.hosts if (link.host, link.hca) != ("node-0001", "mlx5_4"))
    path = tmp_path / "fabric.txt"
    path.write_text(ibnetdiscover_text(replace(snapshot, hosts=kept)))
    return path


def printed(*words: str) -> str:
    result = CliRunner().invoke(cli, ["topo", *words], standalone_mode=False)
    if isinstance(result.exception, HBoxError | click.ClickException):
        raise result.exception
    assert result.exit_code == 0, result.exception
    return result.stdout


def test_the_tree_names_pods_units_and_hosts_without_a_rail(fabric: Path) -> None:
    assert printed("tree", str(fabric)).splitlines() == [
        "fabric  8 hosts, 2 units",
        "└ spine-p1  8 hosts, 2 units, 4 spines",
        "  ├ leaf-p1u01  4 hosts, 8 leaves (rail-optimised), 1 fault",
        "  └ leaf-p1u02  4 hosts, 8 leaves (rail-optimised)",
        "1 fault: hbox topo gaps",
    ]
    assert "    node-0001  without rail 3" in printed("tree", str(fabric), "--hosts").replace("│", " ")
    assert [unit["name"] for unit in json.loads(printed("tree", str(fabric), "-o", "json"))["units"]] == [
        "leaf-p1u01",
        "leaf-p1u02",
    ]


def test_gaps_say_what_is_wrong_and_where(fabric: Path) -> None:
    [gap] = json.loads(printed("gaps", str(fabric), "-o", "json"))["items"]
    assert (gap["kind"], gap["host"], gap["rails"]) == ("link-down", "node-0001", [3])
    assert gap["message"] == "node-0001 has no link on rail 3 (mlx5_4)"


def test_the_matrix_of_units_and_of_the_rails_of_one(fabric: Path) -> None:
    assert printed("matrix", str(fabric)).splitlines() == ["leaf-p1u01  1  2", "leaf-p1u02  2  1"]
    lines = printed("matrix", str(fabric), "--unit", "leaf-p1u01").splitlines()
    assert lines[2].split() == ["node-0001", "mlx5_0", "mlx5_3", "-", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11"]
    with pytest.raises(NotFound, match="no unit x"):
        printed("matrix", str(fabric), "--unit", "x")


def test_packed_files_are_read_and_others_refused(fabric: Path, tmp_path: Path) -> None:
    packed = tmp_path / "fabric.txt.gz"
    packed.write_bytes(gzip.compress(fabric.read_bytes()))
    assert printed("tree", str(packed)) == printed("tree", str(fabric))
    packed.write_bytes(fabric.read_bytes())
    with pytest.raises(InvalidRequest, match="cannot be read"):
        printed("tree", str(packed))
    with pytest.raises(NotFound):
        printed("tree", str(tmp_path / "none"))
    fabric.write_text("<html>log in</html>")
    with pytest.raises(InvalidRequest, match="no line names a switch"):
        printed("tree", str(fabric))


def test_differences_of_two_files(fabric: Path, tmp_path: Path) -> None:
    later = tmp_path / "later.txt"
    later.write_text(ibnetdiscover_text(FabricPlan().snapshot()))
    [change] = json.loads(printed("diff", str(fabric), str(later), "-o", "json"))["items"]
    assert (change["sign"], change["message"]) == ("-", "no longer: node-0001 has no link on rail 3 (mlx5_4)")


def test_hypernodes_of_a_file_are_what_a_cluster_takes(fabric: Path) -> None:
    items = json.loads(printed("hypernodes", str(fabric), "-o", "json"))["items"]
    assert [(one["metadata"]["name"], one["spec"]["tier"]) for one in items] == [
        ("leaf-p1u01", 1),
        ("leaf-p1u02", 1),
        ("fabric", 2),
    ]
    assert printed("hypernodes", str(fabric)).count("kind: HyperNode") == 3


def test_the_drawing_has_every_machine_and_marks_the_broken_one(fabric: Path) -> None:
    root = ElementTree.fromstring(printed("draw", str(fabric)))
    said = [title.text or "" for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert said[1:] == [f"node-{n:04}: free" + ("; without rail 3" if n == 1 else "") for n in range(8)]
    marked = [one for one in root.iter("{http://www.w3.org/2000/svg}rect") if "stroke-width" in one.attrib]
    assert len(marked) == 2, "the machine, and what its edge means"
    assert [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")][-2:] == [
        "free",
        "a rail is down, slow or at another leaf",
    ]


def test_the_legend_names_the_largest_jobs_says_how_many_are_left_out_and_stays_inside() -> None:
    hosts = [f"n{number}" for number in range(120)]
    jobs = {host: [f"team/job-{number:03}" if number >= 9 else "team/large"] for number, host in enumerate(hosts)}
    root = ElementTree.fromstring(drawing("one", [Box("u", "p", hosts)], jobs))
    texts = list(root.iter("{http://www.w3.org/2000/svg}text"))
    assert "team/large: 9" in [one.text for one in texts]
    assert "and 72 jobs more" in [one.text for one in texts]
    assert max(int(one.attrib["y"]) for one in texts) < int(root.attrib["height"])
    assert max(int(one.attrib["x"]) for one in texts) + 280 <= int(root.attrib["width"])
    assert len({colour(f"job-{number}") for number in range(50)}) > 45


def test_names_in_a_drawing_are_text_and_nothing_else() -> None:
    evil = '<script>"&\x1b[31m' + "x" * 500
    root = ElementTree.fromstring(drawing(evil, [Box(evil, evil, [evil])], {evil: [evil, "b"]}, broken={evil: [1]}))
    assert {one.tag.rpartition("}")[2] for one in root.iter()} == {"svg", "title", "rect", "text"}
