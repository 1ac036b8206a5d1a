"""`hbox simulate fgd`: the order of pods, one run, and what is printed."""

import json
import subprocess
from pathlib import Path

import pytest

from hbox_cli.simulate.fgd import Outcome, Work, report, run
from hbox_cli.simulate.openb import NODES, PODS_PREFIX, Arrivals, arrivals_of, folder_of, read
from hbox_cli.simulate.sweep import Journal
from hbox_common.errors import InvalidRequest, NotFound
from hbox_sandbox.trace import Trace, TraceNode, TracePod

from .test_command import hbox

SHARED = Path(__file__).resolve().parents[4] / "shared" / "traces"


def arrivals(nodes: int, *pods: TracePod) -> Arrivals:
    return arrivals_of(Trace("t", tuple(TraceNode(f"n{i}", 64_000, 65_536, 2, "T4") for i in range(nodes)), pods))


def pods(count: int, *, cards: int = 1, milli: int = 1000, cpu: int = 1000) -> list[TracePod]:
    return [TracePod(f"p{cards}-{milli}-{i:03}", cpu, 1024, cards, milli) for i in range(count)]


def asked(of: Arrivals, order: list[int]) -> int:
    return sum(of.milli[which] for which in order)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two nodes of four cards; pods that ask for 8.8 of 8."""
    (tmp_path / f"{NODES}.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,64000,65536,4,T4\nb,64000,65536,4,G2\n")
    lines = [f"p{i},4000,1024,1,1000," for i in range(6)] + [f"s{i},2000,1024,1,{650 if i % 2 else 320}," for i in range(4)]
    lines += ["x0,4000,1024,0,0,", "y0,1000,1024,1,860,T4"]
    (tmp_path / f"{PODS_PREFIX}tiny.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "\n".join(lines) + "\n"
    )
    return tmp_path


def test_copies_of_pods_come_until_130_percent_are_asked_for() -> None:
    of = arrivals(10, *pods(12), *pods(3, milli=500))
    order = of.order(42, percent=130)
    assert 26_000 - 1000 < asked(of, order) <= 26_000
    assert order == of.order(42, percent=130)
    assert order != of.order(43, percent=130)


def test_pods_are_removed_where_more_is_asked_for() -> None:
    of = arrivals(2, *pods(40))
    assert asked(of, of.order(42, percent=130)) == 5000


def test_a_trace_without_demand_for_cards_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no pod requests"):
        arrivals(2, TracePod("a", 1000, 1024))


def test_one_run_places_what_fits_and_says_what_does_not(folder: Path) -> None:
    outcome = run(Work(folder, "tiny", 42, "least-waste"))
    assert len(outcome.allocated) == 131
    assert list(outcome.allocated) == sorted(outcome.allocated)
    assert outcome.allocated[100] <= 100.0
    assert outcome.allocated[130] > 85.0
    assert outcome.placed + outcome.failed == len(read(folder, "tiny").order(42, percent=130))
    assert outcome.failed > 0


def test_the_report_has_means_and_the_published_results_beside_them() -> None:
    def flat(value: float) -> Outcome:
        return Outcome((value,) * 131, (4.0,) * 131, 10, 2)

    content = report(
        {"default": {42: flat(96.0), 43: flat(96.5)}, "mine": {42: flat(50.0)}}, policy="least-waste", seeds=[42, 43]
    )
    row = content["traces"]["default"]
    assert row["alloc_100"] == row["alloc_130"] == 96.25
    assert (row["alloc_130_min"], row["alloc_130_max"]) == (96.0, 96.5)
    assert row["over_fgd_100"] == pytest.approx(96.25 - 95.23)
    assert row["gap_closed"] == pytest.approx((96.25 - 95.23) / (96.91 - 95.23), abs=1e-3)
    assert "published" not in content["traces"]["mine"]
    assert content["mean"]["alloc_100"] == 96.25


def test_a_folder_without_traces_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=NODES) as told:
        folder_of(tmp_path)
    assert "--data" in told.value.hint


def test_the_command_prints_json_that_names_the_traces(folder: Path) -> None:
    words = ["simulate", "fgd", "--data", str(folder), "--seeds", "2", "--jobs", "2", "-o", "json"]
    done = hbox(*words)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["kind"] == "FgdReport"
    assert set(content["traces"]["tiny"]["by_seed"]) == {"42", "43"}
    assert 80 < content["traces"]["tiny"]["alloc_130"] <= 100
    assert "runs 2/2" in done.stderr


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published traces are not on this machine")
def test_least_waste_allocates_more_than_fgd_published_on_a_published_trace() -> None:
    """A cut of the protocol, one seed of one trace; `hbox simulate fgd` runs it whole."""
    outcome = run(Work(folder_of(SHARED), "multigpu50", 42, "least-waste"))
    assert outcome.allocated[100] >= 97.09
    assert outcome.allocated[130] >= 97.18


def test_a_sweep_that_was_stopped_goes_on_where_it_was(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["simulate", "sweep", "--data", str(folder), "--seeds", "2", "--jobs", "1", "--out", str(out), "-o", "json"]

    def sweep(policies: str) -> subprocess.CompletedProcess[str]:
        return hbox(*words, "--policies", policies)

    assert sweep("binpack").returncode == 0
    runs = out / "runs.ndjson"
    runs.write_bytes(runs.read_bytes() + b'{"policy": "binpa')  # killed while it wrote
    done = sweep("binpack,least-waste")
    assert done.returncode == 0, done.stderr
    assert "2 of 4 runs are in" in done.stderr
    content = json.loads(done.stdout)
    assert content["traces"]["tiny"]["binpack"]["seeds"] == content["traces"]["tiny"]["least-waste"]["seeds"] == 2
    assert len(runs.read_text().splitlines()) == 4
    wrong = sweep("nonsense")
    assert wrong.returncode == 2
    assert "'nonsense' is not one of" in wrong.stderr


def test_a_file_that_is_no_sweep_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "runs.ndjson").write_text('{"a": 1}\n')
    with pytest.raises(InvalidRequest, match="line 1 is not a run"):
        Journal.open(tmp_path).read()
