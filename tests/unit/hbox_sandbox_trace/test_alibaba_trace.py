"""Reading Alibaba's trace: the published files as they are, and broken ones with the place of the fault."""

import gzip
from pathlib import Path

import pytest

from hbox_common.errors import InvalidRequest
from hbox_sandbox.trace import read_alibaba2023

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn-0,64000,262144,2,P100\nn-1,96000,393216,0,\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "p-0,12000,16384,1,1000,,LS,Running,0,12537496,0\n"
    "p-1,6000,12288,1,460,V100M16|V100M32,LS,Running,427061,12902960,427061.0\n"
    "p-2,1000,0,0,0,,BE,Pending,1,,\n"
)

PUBLISHED = Path(__file__).parents[3] / ".." / "shared" / "traces" / "alibaba2023"


def files(tmp_path: Path, nodes: str = NODES, pods: str = PODS) -> tuple[Path, Path]:
    (tmp_path / "nodes.csv").write_text(nodes)
    (tmp_path / "pods.csv").write_text(pods)
    return tmp_path / "pods.csv", tmp_path / "nodes.csv"


def test_rows_become_nodes_and_pods(tmp_path: Path) -> None:
    trace = read_alibaba2023(*files(tmp_path))
    assert [(n.name, n.cards, n.model) for n in trace.nodes] == [("n-0", 2, "P100"), ("n-1", 0, "")]
    assert [(p.name, p.cards, p.card_milli, p.models) for p in trace.pods] == [
        ("p-0", 1, 1000, ()),
        ("p-1", 1, 460, ("V100M16", "V100M32")),
        ("p-2", 0, 0, ()),
    ]
    assert (trace.capacity_milli, trace.demand_milli) == (2000, 1460)


def test_gzipped_files_are_read_whatever_their_name(tmp_path: Path) -> None:
    pods, nodes = files(tmp_path)
    zipped = tmp_path / "pods"
    zipped.write_bytes(gzip.compress(pods.read_bytes()))
    assert len(read_alibaba2023(zipped, nodes).pods) == 3


def test_files_that_a_spreadsheet_wrote_are_read(tmp_path: Path) -> None:
    given = files(tmp_path)
    before = read_alibaba2023(*given)
    for path in given:
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_alibaba2023(*given) == before


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published traces are not beside the project")
def test_the_published_default_trace_has_its_published_totals() -> None:
    trace = read_alibaba2023(PUBLISHED / "openb_pod_list_default.csv.gz", PUBLISHED / "openb_node_list_gpu_node.csv.gz")
    assert (len(trace.nodes), trace.capacity_milli, len(trace.pods)) == (1213, 6_212_000, 8152)
    assert round(trace.demand_milli / 1000, 1) == 6086.8
    assert trace.name == "openb_pod_list_default"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        (PODS.replace("qos", "colour"), "line 1: unknown column 'colour'"),
        (PODS.replace("name,cpu_milli,", "name,", 1), "line 1: there is no column 'cpu_milli'"),
        (PODS.replace("p-1,6000", "p-1,six"), "line 3: cpu_milli = 'six' is not a whole number"),
        (PODS.replace("p-1,6000", "p-1,-6000"), "line 3: cpu_milli = '-6000' is not a whole number"),
        (PODS.replace("1,460", "1,4600"), "line 3: gpu_milli = 4600: from 0 to 1000 is possible"),
        (PODS.replace("1,460", "0,460"), "line 3: num_gpu = 0 and gpu_milli = 460"),
        (PODS.replace("p-2,1000", "P_2,1000"), "line 4: name = 'P_2' cannot be the name of an object"),
        (PODS.replace("p-2", "p-1"), "the name p-1 comes twice"),
        (PODS + "p-3,1,2\n", "line 5: 3 cells, the first line names 11 columns"),
        (PODS.replace("V100M32", "V 100"), "cannot be the model of a card"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    pods, nodes = files(tmp_path, pods=text)
    with pytest.raises(InvalidRequest) as error:
        read_alibaba2023(pods, nodes)
    assert said in str(error.value)
    assert str(pods) in str(error.value)


def test_a_cut_gzip_stream_is_told(tmp_path: Path) -> None:
    pods, nodes = files(tmp_path)
    pods.write_bytes(gzip.compress(pods.read_bytes() * 50)[:80])
    with pytest.raises(InvalidRequest, match="gzip stream is broken"):
        read_alibaba2023(pods, nodes)


@pytest.mark.parametrize("content", [b"\x00\x01\x02\xff\xfe", b"\x1f\x8bnot really", "name,\u00e9\n".encode("latin-1")])
def test_bytes_that_are_no_text_are_told(tmp_path: Path, content: bytes) -> None:
    pods, nodes = files(tmp_path)
    pods.write_bytes(content)
    with pytest.raises(InvalidRequest):
        read_alibaba2023(pods, nodes)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    _, nodes = files(tmp_path)
    with pytest.raises(InvalidRequest, match="no such file"):
        read_alibaba2023(tmp_path / "absent.csv", nodes)
