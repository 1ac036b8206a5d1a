"""What these tests need: a container engine, and a cluster whose nodes run pods. What is not there leaves them out, with the reason."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter

from .cluster import BUSYBOX, IMAGE, NEXT, RELEASED, ROOT, Cluster

#: A build downloads some 60 packages; an image has to go through a pipe.
BUILD_S = 900
LOAD_S = 300

POSTGRES = "postgres:17-alpine"
STAND_IN = "hbox-test-postgres:17"


#: After them kubelets remember devices for a while.
LAST = ("test_admission_on_nodes", "test_device_plugins_on_nodes", "test_kills_on_nodes", "test_node_agent_on_nodes")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules with a device plugin of their own come last: those before patch cards into the nodes' status, which a kubelet with a plugin takes out again."""
    items.sort(key=lambda item: item.path.stem in LAST)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """What was left out, by file: `passed` beside `skipped` reads as if all were well."""
    if said := list(left_out(terminalreporter.stats)):
        terminalreporter.section("not tried", red=True, bold=True)
        for line in said:
            terminalreporter.write_line(line)


def left_out(stats: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """A line a file and reason."""
    of = Counter(
        _file(one)
        for outcome in ("passed", "failed", "error", "skipped")
        for one in stats.get(outcome, ())
        if one.when != "teardown"
    )
    reasons: dict[str, Counter[str]] = {}
    for one in stats.get("skipped", ()):
        why = one.longrepr[2] if isinstance(one.longrepr, tuple) else str(one.longrepr)
        reasons.setdefault(_file(one), Counter())[why.removeprefix("Skipped: ")] += 1
    for file, whys in sorted(reasons.items()):
        whole = whys.total() == of[file]
        for why, times in whys.items():
            yield f"{file}: {'NOTHING of it was tried' if whole else f'{times} of {of[file]}'}: {why}"


def _file(report: Any) -> str:
    return str(report.nodeid).partition("::")[0]


def needed(variable: str, what: str) -> str:
    value = os.environ.get(variable, "")
    if not value:
        pytest.skip(f"{variable} is not set: {what}")
    return value


def engine() -> str:
    """The container engine's program, where its daemon answers."""
    docker = shutil.which("docker")
    if docker is None:
        pytest.skip("there is no docker")
    if subprocess.run([docker, "info"], capture_output=True, timeout=60, check=False).returncode != 0:
        pytest.skip("no docker daemon answers: DOCKER_HOST names one elsewhere")
    return docker


@pytest.fixture(scope="session")
def docker() -> str:
    return engine()


@pytest.fixture(scope="session")
def image(docker: str) -> str:
    """Built as users build it; HBOX_DEPLOY_BASE is the base where no registry has python:3.11-slim, HBOX_DEPLOY_IMAGE one that is built already."""
    if built := os.environ.get("HBOX_DEPLOY_IMAGE"):
        for name in (IMAGE, NEXT, RELEASED):
            subprocess.run([docker, "tag", built, name], check=True, timeout=60)
        return IMAGE
    base = os.environ.get("HBOX_DEPLOY_BASE")
    words = [docker, "build", "--tag", IMAGE, *(("--build-arg", f"BASE={base}") if base else ()), str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=BUILD_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for name in (NEXT, RELEASED):
        subprocess.run([docker, "tag", IMAGE, name], check=True, timeout=60)
    return IMAGE


@pytest.fixture(scope="session")
def postgres(docker: str, image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """PostgreSQL's image where it is or can be had, else one made of the pgserver wheel."""
    for words in ((docker, "image", "inspect", POSTGRES), (docker, "pull", "--quiet", POSTGRES)):
        if subprocess.run(words, capture_output=True, timeout=300, check=False).returncode == 0:
            return POSTGRES
    folder = tmp_path_factory.mktemp("postgres")
    shutil.copytree(Path(__file__).with_name("postgres"), folder, dirs_exist_ok=True)
    for name in ("pgserver/pginstall", "pgserver.libs"):
        shutil.copytree(Path(sysconfig.get_path("purelib")) / name, folder / name.rpartition("/")[2])
    base = os.environ.get("HBOX_DEPLOY_BASE")
    words = (docker, "build", "--tag", STAND_IN, *(("--build-arg", f"BASE={base}") if base else ()), str(folder))
    done = subprocess.run(words, capture_output=True, text=True, timeout=BUILD_S, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return STAND_IN


def _busybox(docker: str) -> None:
    """Where it is not there and no registry has it, our own image does: it has `sleep` too."""
    for words in ((docker, "image", "inspect", BUSYBOX), (docker, "pull", "--quiet", BUSYBOX)):
        if subprocess.run(words, capture_output=True, timeout=300, check=False).returncode == 0:
            return
    subprocess.run([docker, "tag", IMAGE, BUSYBOX], check=True, timeout=60)


@pytest.fixture(scope="session")
def cluster(docker: str, image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose nodes run pods, with the image on its nodes."""
    kubeconfig = needed("HBOX_DEPLOY_KUBECONFIG", "the kubeconfig of a cluster whose nodes run pods, and that is for tests")
    needed("HBOX_DEPLOY_LOAD", "a command that brings the image in the tar file, its last argument, to the nodes")
    for name in ("helm", "kubectl"):
        if shutil.which(name) is None:
            pytest.skip(f"there is no {name} on PATH")
    _busybox(docker)
    to_nodes(docker, tmp_path_factory.mktemp("image") / "hbox.tar", IMAGE, NEXT, RELEASED, BUSYBOX)
    found = Cluster(Path(kubeconfig))
    yield found
    found.clear()


@pytest.fixture(scope="session")
def postgres_on_nodes(cluster: Cluster, docker: str, postgres: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of PostgreSQL's image, which the nodes have."""
    to_nodes(docker, tmp_path_factory.mktemp("image") / "postgres.tar", postgres)
    return postgres


def to_nodes(docker: str, tar: Path, *images: str) -> None:
    """By way of that file, and the command in HBOX_DEPLOY_LOAD."""
    subprocess.run([docker, "save", "--output", str(tar), *images], check=True, timeout=LOAD_S)
    done = subprocess.run(
        [*shlex.split(os.environ["HBOX_DEPLOY_LOAD"]), str(tar)], capture_output=True, text=True, timeout=LOAD_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tar.unlink()
