"""An upgrade from an older commit's image to this one, and the rollback, while jobs come all the time. The older one is HBOX_DEPLOY_OLDER, a commit, or the one
before this."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hbox_common.clock import monotonic_s

from ..chaos.versions import checkout
from .cluster import CHART, IMAGE, RELEASE, ROOT, WAIT, Cluster
from .conftest import BUILD_S, to_nodes
from .load import load

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1500)]

OLDER = "hbox:older"
#: Issue 14's bar, without a binding.
PAUSE_S = 5.0
#: Members of a gang are bound by one binder, one after the other, or by two across a handover.
TORN_S = 10.0
CALM_S = 5.0
#: So long before the longest pause what happened to the platform is told from.
BEFORE_S = 5.0


@pytest.fixture(scope="module")
def older(docker: str, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The older commit's chart, whose image the nodes have."""
    if not (ROOT / ".git").exists():
        pytest.skip("there is no history here to take an older commit from")
    base = os.environ.get("HBOX_DEPLOY_BASE")
    with checkout(os.environ.get("HBOX_DEPLOY_OLDER", "HEAD~1")) as sources:
        words = [docker, "build", "--tag", OLDER, *(("--build-arg", f"BASE={base}") if base else ()), str(sources)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=BUILD_S, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        to_nodes(docker, tmp_path_factory.mktemp("image") / "older.tar", OLDER)
        yield sources / "helm" / "hbox"


@pytest.fixture(scope="module")
def installed(cluster: Cluster, older: Path) -> Cluster:
    cluster.clear()
    cluster.set_cards(0)
    cluster.make_namespaces()
    cluster.helm("install", RELEASE, str(older), *_tag(OLDER), *WAIT)
    return cluster


def _tag(image: str) -> tuple[str, str]:
    return "--set", f"image.tag={image.rpartition(':')[2]}"


async def _meanwhile(cluster: Cluster, *words: str) -> float:
    """The longest time without a binding while Helm does that, and a few seconds more."""
    async with load(cluster.kubeconfig) as seen:
        await asyncio.sleep(CALM_S)
        begin = monotonic_s()
        await asyncio.to_thread(cluster.helm, *words, *WAIT)
        took_s = monotonic_s() - begin
        await asyncio.sleep(CALM_S)
        end = monotonic_s()
    (last, first), (calm, again) = seen.longest_pause(begin, end), seen.longest_pause(begin - CALM_S, begin)
    pause_s = first - last
    print(f"\n{words[0]}: {took_s:.0f} s, {len(seen.bound)} pods, longest pause {pause_s:.1f} s ({again - calm:.1f} s before)")
    print(*seen.platform.between(last - BEFORE_S, first), sep="\n")
    assert not seen.unbound()
    assert not seen.torn(TORN_S)
    return pause_s


async def test_an_upgrade_pauses_bindings_for_seconds_and_loses_no_job(installed: Cluster) -> None:
    assert await _meanwhile(installed, "upgrade", RELEASE, str(CHART), *_tag(IMAGE)) < PAUSE_S


async def test_a_rollback_does_too(installed: Cluster) -> None:
    assert await _meanwhile(installed, "rollback", RELEASE, "1") < PAUSE_S
