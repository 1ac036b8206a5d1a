"""Commands of a user who has a kubeconfig, and no folder of a platform."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from hbox_cli.exits import Exit
from hbox_common.events import JobPlaced, JobPlacement, NodeDrain, NodeDrained, NodePlace
from hbox_common.model import CardId, JobId, NodeName, QueueName
from hbox_common.views.events import document_of, item_of

from ...certificates import NONE, OPENSSL, make_certificates
from .console_world import TOKEN, Console, Kubernetes, Served, exec_plugin, job, kubeconfig

pytestmark = pytest.mark.skipif(OPENSSL is None, reason=NONE)

GROUPS, PODS = "/apis/scheduling.volcano.sh/v1beta1/podgroups", "/api/v1/pods"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@dataclass
class User:
    """One whose home is `home`; `console` and `kubernetes` are what the cluster has."""

    home: Path
    console: Console
    kubernetes: Kubernetes
    server: Served
    api: Served
    certificates: Path
    environ: dict[str, str] = field(default_factory=dict)

    def hbox(self, *args: str, program: str = "hbox") -> subprocess.CompletedProcess[str]:
        binary = Path(sys.executable).with_name(program)
        sources = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}  # of a tree with a planted fault
        environ = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", **sources, **self.environ}
        return subprocess.run(
            [binary, *args], cwd=self.home, env=environ, capture_output=True, text=True, timeout=60, check=False
        )

    def hbox_starts(self, *args: str) -> subprocess.Popen[str]:
        """The command, started."""
        environ = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", **self.environ}
        environ |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        return subprocess.Popen(
            [Path(sys.executable).with_name("hbox"), *args], cwd=self.home, env=environ, stdout=subprocess.PIPE, text=True
        )

    def with_kubeconfig(self, **user: object) -> None:
        path = self.home / "kubeconfig"
        self.environ["KUBECONFIG"] = str(kubeconfig(path, self.api.url, self.certificates / "ca.pem", user or {"token": TOKEN}))

    def announce(self) -> None:
        self.kubernetes.announced = {"url": self.server.url, "ca.crt": (self.certificates / "ca.pem").read_text()}


@pytest.fixture
def alice(tmp_path: Path, certificates: Path) -> Iterator[User]:
    console, kubernetes = Console(jobs=[job("ml/train"), job("ml/eval", waiting=True), job("web/serve")]), Kubernetes()
    server, api = Served(console.answer, certificates=certificates), Served(kubernetes.answer, certificates=certificates)
    user = User(tmp_path, console, kubernetes, server, api, certificates)
    user.announce()
    user.with_kubeconfig()
    yield user
    server.stop()
    api.stop()


def test_jobs_come_from_the_server_that_the_cluster_announces(alice: User) -> None:
    done = alice.hbox("jobs", "-o", "json")
    assert (done.returncode, done.stderr) == (Exit.OK, "")
    assert [one["name"] for one in json.loads(done.stdout)["items"]] == ["ml/train", "ml/eval", "web/serve"]
    assert [request.query.get("continue") for request in alice.console.seen] == [None, "2"]  # both pages


def _placed(name: str) -> JobPlaced:
    place = NodePlace(node=NodeName("node-0001"), pods=1, cards=(CardId("gpu:1"),), card_count=1)
    data = JobPlacement(
        job=JobId("j"), namespace="ml", name=name, queue=QueueName("research"), attempt=1, nodes=(place,), node_count=1, pod_count=1,
        card_count=1,
    )  # fmt: skip
    return JobPlaced.of(data, at=5.0, id=f"placed/{name}")


def test_events_are_cloud_events_as_over_the_broker(alice: User) -> None:
    drained = NodeDrained.of(NodeDrain(node=NodeName("n1"), uid="u", cordoned_by="root"), at=8.0, id="d")
    events = [_placed("train"), _placed("eval"), drained]
    alice.console.events = [None, None, *(event.attributes() for event in events)]  # the first page has events of others only
    done = alice.hbox("events", "-o", "json")
    assert (done.returncode, done.stderr) == (Exit.OK, "")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [document_of(event) for event in events]
    lines = alice.hbox("events").stdout.splitlines()
    assert [line.partition("  ")[2] for line in lines] == [f"{one['about']:5}  {one['text']}" for one in map(item_of, events)]


def test_new_events_are_followed(alice: User) -> None:
    with alice.hbox_starts("events", "-f", "-o", "json") as following:
        try:
            assert following.stdout is not None
            for name in ("train", "eval"):
                alice.console.events.append(_placed(name).attributes())
                assert json.loads(following.stdout.readline())["data"]["name"] == name
        finally:
            following.kill()
    assert all("since" in request.query for request in alice.console.seen)


def test_filters_are_applied_by_the_server(alice: User) -> None:
    done = alice.hbox("jobs", "-n", "ml", "--state-is", "waiting", "-o", "name")
    assert done.stdout == "job/ml/eval\n"
    query = alice.console.seen[0].query
    assert (query["namespace"], query["state"]) == ("ml", "WAITING")


def test_why_finds_a_job_of_the_context_by_one_request(alice: User) -> None:
    found = json.loads(alice.hbox("why", "eval", "-o", "json").stdout)
    assert (found["name"], found["explanation"]["code"]) == ("ml/eval", "CardsInUse")
    assert [request.path for request in alice.console.seen] == ["/api/v1/jobs/ml/eval", "/api/v1/jobs/ml/eval/explanation"]


def test_why_finds_a_job_by_its_pod(alice: User) -> None:
    assert json.loads(alice.hbox("why", "serve-0", "-o", "json").stdout)["name"] == "web/serve"


def test_same_program_as_a_plugin_of_kubectl_shows_that_name(alice: User) -> None:
    done = alice.hbox("jobs", "--help", program="kubectl-hbox")
    assert done.stdout.startswith("Usage: kubectl hbox jobs ")
    alice.console.status = 403
    assert alice.hbox("jobs", program="kubectl-hbox").stderr.startswith("kubectl hbox jobs did not succeed (not allowed,")


def test_placement_and_evictions_come_from_the_server(alice: User) -> None:
    on = {
        "node": "n1", "pods": ["train-0"], "chosen": {"node": "n1", "total": 5.0, "terms": {"binpack": 5.0}},
        "runner_up": None, "why": "it is 2 behind",
    }  # fmt: skip
    decision = {"plan": "p", "at": 2.0, "policy": "the default policy", "nodes": [on], "made_room": None, "victims": 0}
    alice.console.items["/jobs/ml/train/placement"] = {"name": "ml/train", "id": "u", "since": 1.0, "decisions": [decision]}
    lines = alice.hbox("why", "train", "--placed").stdout.splitlines()
    assert lines[1].startswith("  plan p  1970-01-01T00:00:02.000Z  1 pods on 1 nodes")
    assert "score      5: binpack 5" in lines[4]
    receipt = {
        "at": "1970-01-01T00:00:06Z", "job": "u", "namespace": "ml", "queue": "research", "rule": "reclaim", "pods": [{"pod": "train-0"}],
        "for": {}, "message": "(another job) takes its place", "kept": {"pods": 0, "cards": 0}, "returns": "soon", "noticeSeconds": None,
    }  # fmt: skip
    alice.console.items["/evicted"] = {"name": "ml/train", "receipts": [receipt], "now": [alice.console.jobs[0]]}
    done = alice.hbox("why", "ml/train", "--evicted")
    assert "1970-01-01T00:00:06Z  ml/train-0  queue research  rule reclaim" in done.stdout, done
    assert done.stdout.splitlines()[-1].startswith("now:        ml/train: ")
    assert alice.console.seen[-1].query["name"] == "ml/train"
    alice.console.items["/evictions/pause"] = {"paused": True, "message": "1001 evictions", "released": ""}
    assert alice.hbox("evictions", "show").stdout == "evictions pause: 1001 evictions\n"


def test_rules_of_a_node_come_from_the_server(alice: User) -> None:
    failed = [{"label": "NodeUnschedulable", "code": "NodeUnschedulable"}]
    alice.console.items["/jobs/ml/train/nodes/n1"] = {"name": "ml/train", "id": "u", "node": "n1", "failed": failed}
    done = alice.hbox("why", "train", "--node", "n1")
    assert done.stdout.splitlines()[1:] == ["  n1 fails 1 rule:", "    NodeUnschedulable  Nodes are cordoned"]


@pytest.mark.parametrize(("status", "exit_status"), [(401, Exit.NOT_ALLOWED), (403, Exit.NOT_ALLOWED), (404, Exit.NOT_FOUND)])
def test_refusal_of_the_server_is_reported_in_three_lines(alice: User, status: int, exit_status: Exit) -> None:
    alice.console.status = status
    done = alice.hbox("queue", "show", "research")
    assert (done.returncode, done.stdout) == (exit_status, "")
    assert len(done.stderr.splitlines()) == 3
    assert "the answer is no" in done.stderr
    assert TOKEN not in done.stderr


def test_token_that_the_server_quotes_is_not_printed(alice: User) -> None:
    async def quote(request: web.Request) -> web.StreamResponse:
        return web.json_response({"detail": f"odd header {request.headers['Authorization']}"}, status=400)

    elsewhere = Served(quote, certificates=alice.certificates)
    done = alice.hbox("jobs", "--server", elsewhere.url, "--ca", str(alice.certificates / "ca.pem"))
    elsewhere.stop()
    assert (done.returncode, "odd header Bearer ***" in done.stderr) == (Exit.INVALID, True)


@pytest.mark.parametrize("body", [{}, [], {"items": [{"name": "x"}, 7], "metadata": {}}])
def test_json_of_another_server_is_reported_as_such(alice: User, body: object) -> None:
    async def other(_: web.Request) -> web.StreamResponse:
        return web.json_response(body)

    elsewhere = Served(other, certificates=alice.certificates)
    for command in ("jobs", "why ml/train", "queue ls", "queue show q", "nodes", "share q"):
        done = alice.hbox(*command.split(), "--server", elsewhere.url, "--ca", str(alice.certificates / "ca.pem"))
        assert (done.returncode, len(done.stderr.splitlines())) == (Exit.UNAVAILABLE, 3), done.stderr
        assert "something else than HBox's API" in done.stderr
    elsewhere.stop()


def test_answer_that_ends_early_is_named(alice: User) -> None:
    async def half(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "1000"})
        await answer.prepare(request)
        await answer.write(b'{"items": [')
        assert request.transport is not None
        request.transport.close()
        return answer

    elsewhere = Served(half, certificates=alice.certificates)
    done = alice.hbox("jobs", "--server", elsewhere.url, "--ca", str(alice.certificates / "ca.pem"))
    elsewhere.stop()
    assert (done.returncode, "the connection ended before the answer did" in done.stderr) == (Exit.UNAVAILABLE, True)


def test_absent_cluster_is_reported_without_a_remark_on_its_objects(alice: User) -> None:
    alice.api.stop()
    done = alice.hbox("jobs")
    assert (done.returncode, len(done.stderr.splitlines())) == (Exit.UNAVAILABLE, 3)
    assert f"the Kubernetes API at {alice.api.url} does not answer" in done.stderr


def test_exec_plugin_that_fails_runs_once(alice: User) -> None:
    plugin = exec_plugin(alice.home, expires="")
    plugin.write_text(f"#!/bin/sh\necho run >> {alice.home}/runs\nexit 7\n")
    alice.with_kubeconfig(exec={"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)})
    done = alice.hbox("jobs")
    assert (done.returncode, len(done.stderr.splitlines())) == (Exit.UNAVAILABLE, 3)
    assert "failed with exit status 7" in done.stderr
    assert (alice.home / "runs").read_text() == "run\n"


def test_absent_server_is_unavailable_with_status_6(alice: User) -> None:
    alice.server.stop()
    done = alice.hbox("nodes")
    assert (done.returncode, len(done.stderr.splitlines())) == (Exit.UNAVAILABLE, 3)
    assert f"{alice.server.url} does not answer" in done.stderr


def test_jobs_come_from_kubernetes_objects_if_the_server_is_absent(alice: User) -> None:
    alice.kubernetes.announced = None
    metadata = {"namespace": "ml", "name": "train", "uid": "u1", "creationTimestamp": "2026-11-28T12:00:00Z"}
    condition = {"type": "Unschedulable", "status": "True", "message": "16 nodes: all cards in use"}
    status = {"phase": "Inqueue", "conditions": [condition]}
    alice.kubernetes.lists[GROUPS] = [{"metadata": metadata, "spec": {"minMember": 2, "queue": "research"}, "status": status}]
    annotations = {"scheduling.k8s.io/group-name": "train"}
    cards = {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
    alice.kubernetes.lists[PODS] = [
        {
            "metadata": {"namespace": "ml", "name": f"train-{n}", "annotations": annotations},
            "spec": {"schedulerName": "hbox", "containers": [cards]},
            "status": {"phase": "Pending"},
        }
        for n in range(2)
    ]
    done = alice.hbox("jobs", "-o", "json")
    [found] = json.loads(done.stdout)["items"]
    assert (found["name"], found["queue"], found["state"]) == ("ml/train", "research", "WAITING")
    assert (found["cards"], found["pods"]) == (16, {"bound": 0, "members": 2, "min": 2})
    assert "announces no server" in done.stderr
    assert "from the objects of cluster" in done.stderr
    done = alice.hbox("why", "train-1")
    assert (done.returncode, "16 nodes: all cards in use" in done.stdout) == (Exit.OK, True)


def test_user_without_the_right_to_all_namespaces_sees_the_objects_of_one(alice: User) -> None:
    alice.kubernetes.announced = None
    alice.kubernetes.forbidden = {GROUPS}
    within = "/apis/scheduling.volcano.sh/v1beta1/namespaces/ml/podgroups"
    pod = {"metadata": {"namespace": "ml", "name": "p"}, "spec": {"schedulerName": "hbox"}, "status": {}}
    alice.kubernetes.lists |= {within: [], "/api/v1/namespaces/ml/pods": [pod]}
    assert alice.hbox("jobs", "-o", "name").stdout == "job/ml/p\n"


def test_queues_that_the_user_may_not_see_are_counted_in_a_remark(alice: User) -> None:
    others = {
        "queues": 2,
        "used": {"nvidia.com/gpu": 24, "cpu": 4000, "memory": 4 * 2**30},
        "pendingJobs": 3,
        "pendingCards": 8,
    }
    metadata = {"revision": 1, "continue": "", "others": others}
    alice.console.items["/queues"] = {"kind": "QueueList", "metadata": metadata, "items": []}
    done = alice.hbox("queue", "ls", "-o", "json")
    assert json.loads(done.stdout)["items"] == []
    assert done.stderr == "hbox: 2 more queues, which you may not see, use 24 nvidia.com/gpu, 4 cpu, 4Gi memory\n"


def test_queues_come_from_kubernetes_objects_if_the_server_is_absent(alice: User) -> None:
    alice.kubernetes.announced = None
    used = {"nvidia.com/gpu": "6"}
    queues = [
        {"metadata": {"name": "org"}, "spec": {"deserved": {"nvidia.com/gpu": "16"}}, "status": {"allocated": used}},
        {"metadata": {"name": "ml"}, "spec": {"parent": "org"}, "status": {"allocated": used, "pending": 1, "inqueue": 2}},
    ]
    alice.kubernetes.lists["/apis/scheduling.volcano.sh/v1beta1/queues"] = queues
    found = {one["name"]: one for one in json.loads(alice.hbox("queue", "ls", "-o", "json").stdout)["items"]}
    assert found["org"]["used"] == found["ml"]["used"] == {"nvidia.com/gpu": 6}
    assert (found["ml"]["pendingJobs"], found["org"]["idle"]) == (3, {"nvidia.com/gpu": 10})


def test_server_with_a_certificate_of_another_authority_gets_no_token(alice: User) -> None:
    other = str(alice.certificates / "other.pem")
    done = alice.hbox("jobs", "--server", alice.server.url, "--ca", other)
    assert done.returncode == Exit.UNAVAILABLE
    assert "certificate" in done.stderr
    assert alice.console.seen == []


def test_unencrypted_server_gets_no_token(alice: User) -> None:
    done = alice.hbox("jobs", "--server", "http://hbox.example:8080")
    assert (done.returncode, "not encrypted" in done.stderr) == (Exit.INVALID, True)


def test_redirect_to_another_host_is_not_followed(alice: User) -> None:
    async def redirect(request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound(f"{alice.server.url}{request.path}")

    elsewhere = Served(redirect, certificates=alice.certificates)
    done = alice.hbox("jobs", "--server", elsewhere.url, "--ca", str(alice.certificates / "ca.pem"))
    elsewhere.stop()
    assert (done.returncode, "redirects to another host" in done.stderr) == (Exit.UNAVAILABLE, True)
    assert alice.console.seen == []


def test_client_certificate_is_presented(alice: User) -> None:
    names = {"client-certificate": "client.pem", "client-key": "client.key"}
    alice.with_kubeconfig(**{name: str(alice.certificates / file) for name, file in names.items()})
    done = alice.hbox("jobs", "-o", "name", "--server", alice.server.url, "--ca", str(alice.certificates / "ca.pem"))
    assert done.stdout.splitlines()[0] == "job/ml/train"


def test_exec_plugin_runs_once_until_its_credential_expires(alice: User) -> None:
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(exec_plugin(alice.home, expires=later))}
    alice.with_kubeconfig(exec=plugin)
    assert [alice.hbox("jobs").returncode for _ in range(2)] == [Exit.OK, Exit.OK]
    assert (alice.home / "runs").read_text() == "run\n"
    [cached] = (alice.home / ".cache/hbox/exec").iterdir()
    assert stat.S_IMODE(cached.stat().st_mode) == 0o600
    exec_plugin(alice.home, expires="2026-01-01T00:00:00Z")
    cached.unlink()
    assert [alice.hbox("jobs").returncode for _ in range(2)] == [Exit.OK, Exit.OK]
    assert (alice.home / "runs").read_text() == "run\n" * 5  # twice a command: for the cluster, and for the server


def test_login_tests_and_stores_the_access(alice: User) -> None:
    alice.console.items["/whoami"] = {"user": "alice", "groups": []}
    done = alice.hbox("ctx", "login", "here")
    assert (done.returncode, "knows you as alice" in done.stderr) == (Exit.OK, True)
    path = alice.home / ".config/hbox/contexts.yaml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert TOKEN not in path.read_text()
    alice.kubernetes.seen.clear()
    assert alice.hbox("jobs", "-o", "name").stdout.splitlines()[0] == "job/ml/train"
    assert alice.kubernetes.seen == []  # its address is stored
    shown = alice.hbox("ctx", "show", "--origin").stdout
    assert alice.server.url in shown
    assert "contexts.yaml" in shown
    assert TOKEN not in shown


def test_refused_login_stores_nothing(alice: User) -> None:
    alice.console.status = 401
    assert alice.hbox("ctx", "login").returncode == Exit.NOT_ALLOWED
    assert not (alice.home / ".config/hbox/contexts.yaml").exists()


def test_context_is_named_by_option_environment_and_file(alice: User) -> None:
    alice.console.items["/whoami"] = {"user": "alice"}
    alice.hbox("ctx", "login", "here")
    for args, environ in ((("--context", "here"), {}), ((), {"HBOX_CONTEXT": "here"}), (("--context", "prod"), {})):
        alice.environ |= environ
        done = alice.hbox(*args, "jobs", "-o", "name")
        assert done.stdout.splitlines()[0] == "job/ml/train"
        alice.environ.pop("HBOX_CONTEXT", None)
    done = alice.hbox("--context", "her", "jobs")
    assert (done.returncode, "did you mean here?" in done.stderr) == (Exit.NOT_FOUND, True)


@pytest.mark.parametrize("command", ["audit", "check", "diag"])
def test_command_of_operators_names_what_it_needs(alice: User, command: str) -> None:
    for access in ((), ("--server", alice.server.url)):
        done = alice.hbox(command, *access)
        assert done.returncode == Exit.INVALID, done
        assert "--nats-url" in done.stderr.splitlines()[2]
    assert alice.console.seen == []
    assert list(alice.home.glob("hbox-diag-*")) == []


def test_diag_reads_the_folder_of_a_platform_that_stopped(alice: User) -> None:
    """Its logs are what the archive is for: the context of kubectl is not asked."""
    (alice.home / ".hbox" / "logs").mkdir(parents=True)
    done = alice.hbox("diag", "-o", "json")
    assert done.returncode == Exit.OK, done
    assert "no platform runs" in json.loads(done.stdout)["missing"]["platform"]


def test_kubeconfig_that_skips_verification_is_refused(alice: User) -> None:
    path = alice.home / "kubeconfig"
    kubeconfig(path, alice.api.url, alice.certificates / "ca.pem", {"token": TOKEN}, **{"insecure-skip-tls-verify": True})
    done = alice.hbox("jobs")
    assert (done.returncode, "insecure-skip-tls-verify" in done.stderr) == (Exit.INVALID, True)
    assert alice.kubernetes.seen == []
