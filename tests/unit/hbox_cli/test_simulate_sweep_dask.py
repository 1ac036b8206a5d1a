"""`hbox simulate sweep --dask` on a cluster of Dask's own, in this process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hbox_cli.simulate import dask_cluster
from hbox_cli.simulate.fgd import Work, run
from hbox_cli.simulate.openb import NODES, PODS_PREFIX
from hbox_common.errors import InvalidRequest, Unavailable

from ... import forked

if TYPE_CHECKING:
    from distributed import LocalCluster


def cluster_of(workers: int) -> "LocalCluster":
    """In this process, reached over TCP."""
    from distributed import LocalCluster  # noqa: PLC0415  a sixth of a second for each of those who only collect these tests

    return LocalCluster(
        n_workers=workers,
        threads_per_worker=2,
        processes=False,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two nodes of four cards; pods that ask for 9 of 8."""
    (tmp_path / f"{NODES}.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,64000,65536,4,T4\nb,64000,65536,4,G2\n")
    pods = "".join(f"p{i},4000,1024,1,{500 if i % 3 else 1000},\n" for i in range(14))
    (tmp_path / f"{PODS_PREFIX}tiny.csv").write_text(f"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n{pods}")
    return tmp_path


@pytest.fixture
def address() -> Iterator[str]:
    """One worker with two threads."""
    with cluster_of(1) as cluster:
        yield cluster.scheduler_address


def test_a_cluster_gives_the_outcomes_that_this_machine_gives(folder: Path, address: str) -> None:
    works = [Work(folder, "tiny", seed, policy) for seed in (42, 43) for policy in ("binpack", "least-waste")]
    assert dict(dask_cluster.spread(address, works)) == {work: run(work) for work in works}


def test_a_sweep_that_was_stopped_goes_on_over_a_cluster(folder: Path, address: str, tmp_path: Path) -> None:
    def sweep(*more: str) -> subprocess.CompletedProcess[str]:
        words = [
            "simulate",
            "sweep",
            "--data",
            str(folder),
            "--out",
            str(tmp_path / "out"),
            "-o",
            "json",
            "--policies",
            "binpack",
        ]
        return forked.run(*words, *more, timeout_s=110, env=os.environ)

    assert sweep("--seeds", "1", "--jobs", "1").returncode == 0
    done = sweep("--seeds", "3", "--dask", address)
    assert done.returncode == 0, done.stderr
    assert "1 of 3 runs are in" in done.stderr
    assert json.loads(done.stdout)["traces"]["tiny"]["binpack"]["seeds"] == 3
    both = sweep("--dask", address, "--jobs", "2")
    assert both.returncode == 2
    assert "--jobs is about this machine" in both.stderr


def test_without_dask_it_is_told_how_to_install_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InvalidRequest, match=r"needs Dask, which is not installed \(pip install 'hbox-cli\[dask\]'\)"):
        list(dask_cluster.spread("tcp://127.0.0.1:8786", [Work(folder, "tiny", 42, "binpack")]))


@pytest.mark.parametrize("address", ["head", "foo://head:8786", "tcp://head", "tcp://head:8786/x", "tcp://:8786"])
def test_what_is_no_address_is_told_at_once(folder: Path, address: str) -> None:
    with pytest.raises(InvalidRequest, match="that is no address of a Dask scheduler"):
        list(dask_cluster.spread(address, [Work(folder, "tiny", 42, "binpack")]))


def test_a_cluster_without_a_worker_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_S", 0.2)
    with (
        cluster_of(0) as cluster,
        pytest.raises(Unavailable, match="the cluster has no worker"),
    ):
        list(dask_cluster.spread(cluster.scheduler_address, [Work(folder, "tiny", 42, "binpack")]))


def test_workers_that_have_another_hbox_are_refused(address: str) -> None:
    from distributed import Client  # noqa: PLC0415  as above

    with (
        Client(address, set_as_default=False) as client,
        pytest.raises(InvalidRequest, match=r"has HBox 0\.1\.0, here is 0\.0\.1"),
    ):
        dask_cluster.check_workers(address, client, "0.0.1")
