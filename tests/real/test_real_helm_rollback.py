"""`helm upgrade` and `helm rollback` of the chart on a real API server: after a good upgrade, after one that was killed before it changed anything, after a
hook that failed, and where a value takes objects away. No pod runs here: what hooks and brokers' pods do, the tests do for them.

Helm refuses to roll back over an object that the target and the cluster have and the last revision has not. The worst that can befall is therefore an upgrade
that ends before it has changed anything: all that it would have taken away is still there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from hbox_cli.platform.assets import API_SERVER, ETCD

from ..chart.rendered import CHART, helm
from .control_plane import control_plane
from .kubectl import PROGRAM as KUBECTL

pytestmark = pytest.mark.timeout(900)

HBOX = Path(sys.executable).with_name("hbox")
READER = ("--set", "nats.readers.grafana={ml}")
ONE, TWO, THREE = (("--set", f"image.tag={name}") for name in ("one", "two", "three"))
_NUMBERS = count(1)

#: Jobs of the chart's hooks: before and after Helm changes the release.
BEFORE, AFTER = "hbox-definitions", "hbox-streams"

#: What the Job controller would write; the API server checks that it fits together.
DONE = {
    "startTime": "2026-01-01T00:00:00Z",
    "completionTime": "2026-01-01T00:00:01Z",
    "succeeded": 1,
    "conditions": [{"type": kind, "status": "True"} for kind in ("SuccessCriteriaMet", "Complete")],
}


@dataclass(frozen=True, slots=True)
class Release:
    kubeconfig: Path
    namespace: str

    def kubectl(self, *words: str) -> str:
        return self._run(KUBECTL, "--namespace", self.namespace, *words)

    def helm(self, verb: str, *words: str) -> str:
        return self._run(*self.words(verb, *words))

    def words(self, verb: str, *words: str) -> list[str]:
        chart = [str(CHART)] if verb in ("install", "upgrade") else []
        return [helm(), verb, "hbox", *chart, "--namespace", self.namespace, *words]

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}

    def _run(self, *words: str | Path) -> str:
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, env=self.env)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def get(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def install(self, *values: str) -> None:
        """With brokers that run, and keys that they have made."""
        self.do("install", *values)
        self.brokers_start(*values)

    def brokers_start(self, *values: str) -> None:
        readers = [word for value in values if "readers" in value for word in ("--reader", "grafana=ml")]
        out = self.kubeconfig.with_name(f"{self.namespace}.conf")
        self._run(HBOX, "bus", "keys", "--kubeconfig", self.kubeconfig, "--namespace", self.namespace, "--out", out, *readers)
        replicas = self.get("statefulset", "hbox-nats")["spec"]["replicas"]
        status = json.dumps({"status": {"replicas": replicas, "readyReplicas": replicas}})
        self.kubectl("patch", "statefulset", "hbox-nats", "--subresource=status", "--type=merge", "-p", status)

    def images(self) -> dict[str, str]:
        """Tags by Deployment and StatefulSet."""
        return {
            one["metadata"]["name"]: one["spec"]["template"]["spec"]["containers"][0]["image"].rpartition(":")[2]
            for one in self.get("deployments,statefulsets")["items"]
        }

    def seeds(self) -> dict[str, Any]:
        return {
            one["metadata"]["name"]: one.get("data")
            for one in self.get("secrets", "-l", "app.kubernetes.io/part-of=hbox")["items"]
        }

    def objects(self) -> set[str]:
        """All that belongs to the release, as kind/name."""
        kinds = "deployments,statefulsets,services,configmaps,secrets,serviceaccounts,roles,rolebindings,pdb,networkpolicies,leases,pvc,jobs"
        return set(self.kubectl("get", kinds, "-l", "app.kubernetes.io/instance=hbox", "-o", "name").split())

    def hook(self, job: str) -> bool:
        return bool(self.kubectl("get", "job", job, "--ignore-not-found", "-o", "name"))

    def end_hook(self, job: str) -> None:
        self.kubectl("patch", "job", job, "--subresource=status", "--type=merge", "-p", json.dumps({"status": DONE}))

    def do(self, verb: str, *words: str, good: bool = True) -> str:
        """Run Helm, and report its hook Jobs as complete: `BEFORE` and, if Helm changes the release, `AFTER`. Returns the output."""
        with self.begun(verb, *words) as process:
            self.end_hook(BEFORE)
            until(lambda: process.poll() is not None or self.hook(AFTER))
            if process.poll() is None:
                self.end_hook(AFTER)
            said, _ = process.communicate(timeout=120)
        assert (process.returncode == 0) == good, said
        return said

    @contextmanager
    def begun(self, verb: str, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Helm, in its hook."""
        process = subprocess.Popen(
            self.words(verb, *words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.env
        )
        try:
            until(lambda: self.hook(BEFORE))
            yield process
        finally:
            process.kill()
            process.communicate()

    def killed_in_its_hook(self, *words: str) -> None:
        """An upgrade whose hook does not end, killed: it is recorded, and nothing is changed."""
        with self.begun("upgrade", *words):
            pass
        assert json.loads(self.helm("status", "-o", "json"))["info"]["status"] == "pending-upgrade"
        self.kubectl("delete", "job", BEFORE)


def until(good: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not good():
        assert time.monotonic() < end, "nothing comes of it"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with control_plane(tmp_path_factory.mktemp("plane"), (ETCD, API_SERVER)) as plane:
        yield plane.kubeconfig


@pytest.fixture
def release(kubeconfig: Path) -> Iterator[Release]:
    one = Release(kubeconfig, f"gpu-{next(_NUMBERS)}")
    one.kubectl("create", "namespace", one.namespace)
    yield one
    one.helm("uninstall", "--no-hooks", "--debug")


def test_brokers_stay_through_an_upgrade_and_a_rollback_and_keep_all_keys(release: Release) -> None:
    release.install(*ONE, *READER)
    before, seeds = release.get("statefulset", "hbox-nats")["spec"], release.seeds()
    assert {name for name, data in seeds.items() if not data} == {"hbox-bus-routes", "hbox-console-tls"}
    release.do("upgrade", *TWO, *READER, "--set", "settings.log_level=debug")
    assert release.get("statefulset", "hbox-nats")["spec"] == before
    assert set(release.images().values()) == {"one", "two"}
    release.do("rollback", "1")
    assert release.get("statefulset", "hbox-nats")["spec"] == before
    assert set(release.images().values()) == {"one"}
    assert release.seeds() == seeds


def test_brokers_are_started_anew_for_what_is_another_in_them_where_one_is_not_ready_and_when_asked_to(
    release: Release,
) -> None:
    release.install(*ONE)
    release.do("upgrade", *TWO, *READER)
    assert release.images()["hbox-nats"] == "two", "who may hear what is another"
    release.brokers_start(*READER)
    release.do("upgrade", *THREE, *READER, "--set", "nats.keep=false")
    assert release.images()["hbox-nats"] == "three"
    release.brokers_start(*READER)
    down = json.dumps({"status": {"replicas": 1, "readyReplicas": 0}})
    release.kubectl("patch", "statefulset", "hbox-nats", "--subresource=status", "--type=merge", "-p", down)
    release.do("upgrade", *ONE, *READER)
    assert release.images()["hbox-nats"] == "one", "as where its image cannot be had"


def test_an_upgrade_killed_before_it_changed_anything_is_rolled_back(release: Release) -> None:
    release.install(*ONE, *READER)
    before, seeds = release.objects(), release.seeds()
    release.killed_in_its_hook(*TWO)  # and without the reader
    release.do("rollback", "1")
    assert (release.objects(), release.seeds()) == (before, seeds)
    assert set(release.images().values()) == {"one"}
    assert "deployed" in release.helm("status")


def test_an_upgrade_whose_hook_failed_is_rolled_back(release: Release) -> None:
    release.install(*ONE, *READER)
    before = release.objects()
    with release.begun("upgrade", *TWO, "--timeout", "2s") as process:
        assert "failed" in process.communicate(timeout=120)[0]
    assert process.returncode != 0
    release.kubectl("delete", "job", BEFORE)
    release.do("rollback", "1")
    assert release.objects() == before
    assert set(release.images().values()) == {"one"}


def test_the_ledgers_volume_that_is_kept_is_no_obstacle(release: Release) -> None:
    keep = ("--set", "database.storage.keep=true")
    release.install(*ONE, *keep)
    release.do("upgrade", *TWO, *keep, "--set", "database.secret.name=pg")
    release.do("rollback", "1")
    assert "persistentvolumeclaim/hbox-ledger" in release.objects()


def test_rollback_succeeds_with_the_ledger_volume_kept_by_production(release: Release) -> None:
    production = ("--set", "profile=production")
    release.install(*ONE, *production)
    release.do("upgrade", *TWO, *production, "--set", "database.secret.name=pg")
    assert "persistentvolumeclaim/hbox-ledger" in release.objects()
    release.do("rollback", "1")
    assert "persistentvolumeclaim/hbox-ledger" in release.objects()


def test_where_helm_refuses_the_same_rollback_again_goes_through(release: Release) -> None:
    """Of an object that the cut upgrade was to take away: the refused rollback counts as the last revision, and it has the object."""
    release.install(*ONE, "--set", "services.binder.replicas=2")
    before = release.objects()
    release.killed_in_its_hook(*TWO)
    assert 'no PodDisruptionBudget with the name "hbox-binder" found' in release.do("rollback", "1", good=False)
    release.do("rollback", "1")
    assert release.objects() == before
    assert set(release.images().values()) == {"one"}
