"""`hbox simulate trace`: reading job traces, figures, pictures, and the command."""

import csv
import gzip
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hbox_cli.simulate.jobtrace import read, trace_of, training_week
from hbox_cli.simulate.picture import picture
from hbox_cli.simulate.trace import Setting, curves, figures, run
from hbox_common.errors import InvalidRequest, NotFound

from .test_command import hbox

HEAD = "job_id,submit_s,duration_s,num_gpus,vc"


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join([HEAD, *lines]) + "\n")
    return path


def test_a_trace_is_read_zipped_or_not_in_order_of_submission(tmp_path: Path) -> None:
    plain = written(tmp_path / "t.csv", "b,20,60.5,16,x", "a,10,30,1,y", "c,30,10,0,y")
    zipped = tmp_path / "z.csv.gz"
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (plain, zipped):
        found = read(path)
        assert [(job.name, job.submit_s, job.duration_s, job.cards) for job in found.jobs] == [
            ("a", 10, 30, 1),
            ("b", 20, 60.5, 16),
        ]
        assert found.left_out == 1
    excel = tmp_path / "e.csv"  # as spreadsheets write it
    excel.write_bytes(b"\xef\xbb\xbf" + plain.read_bytes().replace(b"\n", b"\r\n"))
    assert read(excel).jobs == read(plain).jobs
    assert read(plain).card_hours == pytest.approx((30 + 60.5 * 16) / 3600)


@pytest.mark.parametrize(
    ("line", "said"),
    [("a,x,30,1,v", "line 2: submit_s = 'x'"), ("a,1,-30,1,v", "duration_s = -30"), ("a,1,30,1.5,v", "not a whole number")],
)
def test_what_is_wrong_is_told_with_file_line_and_column(tmp_path: Path, line: str, said: str) -> None:
    path = written(tmp_path / "t.csv", line)
    with pytest.raises(InvalidRequest, match=said) as told:
        read(path)
    assert str(path) in told.value.message


def test_missing_columns_files_and_jobs_are_told(tmp_path: Path) -> None:
    other = tmp_path / "o.csv"
    other.write_text("a,b\n1,2\n")
    with pytest.raises(InvalidRequest, match="no column 'submit_s'"):
        read(other)
    with pytest.raises(NotFound, match="neither a file nor a profile"):
        trace_of(str(tmp_path / "none.csv"), seed=1, limit=None)
    with pytest.raises(InvalidRequest, match="no job with cards"):
        trace_of(str(written(tmp_path / "e.csv")), seed=1, limit=None)


def test_the_profile_is_the_same_for_the_same_seed_and_has_large_jobs() -> None:
    assert training_week(1) == training_week(1)
    assert training_week(1) != training_week(2)
    assert max(job.cards for job in training_week(1).jobs) >= 32
    assert len(training_week(1).jobs) == 4000


def test_figures_split_by_size_and_pictures_are_drawn() -> None:
    jobs = trace_of("training-week", seed=1, limit=1200).jobs
    outcomes = {
        order: run(Setting(jobs, order, "binpack", nodes=40, cards=8, leaf=4, restart_s=60.0))
        for order in ("backfill", "least-served")
    }
    content = figures(outcomes["least-served"])
    assert content["classes"]["all"]["jobs"] == 1200
    assert sum(content["classes"][name]["jobs"] for name in ("1", "2-8", ">8") if name in content["classes"]) == 1200
    assert 0 < content["sor"] <= 1
    assert content["classes"]["all"]["jct_s"]["mean"] >= content["classes"]["all"]["duration_mean_s"] - 1
    assert content["topology"]["leaves_over_possible_now"] >= 1.0
    drawn = ElementTree.fromstring(picture("a <week>", curves(outcomes)))
    assert len(drawn.findall(".//{http://www.w3.org/2000/svg}polyline")) == 4


def test_the_command_compares_two_policies(tmp_path: Path) -> None:
    trace = written(tmp_path / "t.csv", "long,0,36000,16,x", "short,18000,600,16,x")
    command = ["simulate", "trace", str(trace), "--nodes", "2", "--compare", "backfill", "least-served", "-o"]
    picture_file = tmp_path / "deep" / "p.svg"
    done = hbox(*command, "json", "--plot", str(picture_file))
    assert done.returncode == 0, done.stderr
    policies = json.loads(done.stdout)["policies"]
    assert policies["backfill"]["classes"][">8"]["queueing_s"]["max"] == 18_000
    assert policies["least-served"]["classes"][">8"]["queueing_s"]["max"] == 0
    assert policies["least-served"]["preemptions"] == 1
    assert picture_file.read_text().startswith("<svg")
    done = hbox(*command, "csv")
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert {(row["CARDS"], row["POLICY"]) for row in rows} >= {(">8", "backfill"), (">8", "least-served")}
    assert all(row["JOBS"].isdigit() for row in rows)
