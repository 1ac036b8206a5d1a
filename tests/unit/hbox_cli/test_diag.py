"""What `hbox diag` takes out of text, how its archive is bounded, and what it gathers of an installed chart."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from hbox_cli.diag import Archive, Scrub, Step, cluster, collect, local
from hbox_cli.diag.scrub import of_address, of_environment, of_kubeconfig
from hbox_cli.platform.layout import Layout
from hbox_common.brokerkeys import new_seed
from hbox_common.errors import InvalidRequest, NotFound, Unavailable
from hbox_common.kube import KubeClient

KEY = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIK5sBhSRWQ\nq83VZ5bqvXw1\n-----END EC PRIVATE KEY-----\n"
JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("postgresql+psycopg://hbox:pa55-w0rd@db/hbox", "pa55-w0rd"),
        ("nats://a:s3cr3t1@h:1,nats://a:s3cr3t2@h:2 is away", "s3cr3t"),
        ("https://host/?token=t0ps3cret&x=1", "t0ps3cret"),
        (f"Authorization: Bearer {JWT}", "eyJ"),
        (f'{{"message": "got {JWT}"}}', "eyJ"),
        ("authorization: Basic aGJveDpwYXNz", "aGJveDpwYXNz"),
        ('{"password": "hu nter\\"2", "user": "a"}', "nter"),
        ("PGPASSWORD=hunter2 psql", "hunter2"),
        ("password='hunter 2' host=db", "hunter"),
        ("OTEL_EXPORTER_OTLP_HEADERS=api-key=abcdef123456", "abcdef123456"),
        ('"OTEL_EXPORTER_OTLP_HEADERS": "x-team=abcdef123456"', "abcdef123456"),
        ('{"message": "{\\"api_key\\": \\"abcdef\\"}"}', "abcdef"),
        ("client-key-data: TFMwdExTMUNSVWRKVGlC", "TFMw"),
        (KEY, "MHcC"),
        (json.dumps({"key": KEY}), "MHcC"),
        (f"before\n{KEY[:40]}", "MHcC"),
        ("A" * 64 + "\n", "AAAA"),
    ],
)
def test_what_looks_like_a_secret_goes(text: str, secret: str) -> None:
    assert secret not in Scrub()(text)
    assert "***" in Scrub()(text)


def test_a_seed_of_the_broker_goes_although_nobody_knew_of_it() -> None:
    seed = new_seed()
    assert Scrub()(f"the seed is {seed}.") == "the seed is ***."


@pytest.mark.parametrize(
    "text",
    [
        '{"level": "info", "message": "leading, token 7 of lease binder"}\n',
        'hbox_ledger_plans_total{result="committed"} 4.0\n',
        "write it like postgresql+psycopg://user:password@host/database\n",
        "SCHEDULED\nno newline",
        "",
    ],
)
def test_the_rest_stays(text: str) -> None:
    assert Scrub(["not-in-there"])(text) == text


@pytest.mark.parametrize("secret", ["p", 'with "quotes" and \\', ""])
def test_json_stays_json(secret: str) -> None:
    said = Scrub()(json.dumps({"password": secret, "next": 1}))
    assert json.loads(said) == {"password": "***", "next": 1}
    log = json.dumps({"message": json.dumps({"token": "abc", "next": 1})})
    assert json.loads(json.loads(Scrub()(log))["message"]) == {"token": "***", "next": 1}


def test_what_is_known_goes_wherever_it_stands() -> None:
    scrub = Scrub([*of_address("postgresql://u:p%40ss+word@h/d"), "short", ""])
    assert scrub("said p%40ss+word and p@ss+word") == "said *** and ***"
    assert scrub("short") == "short", "words of five letters would take sentences apart"


def test_secrets_of_environments_and_kubeconfigs_are_known(tmp_path: Path) -> None:
    found = set(
        of_environment(
            {"MY_API_KEY": "key-value", "HBOX_NATS_SEED": "/a/b.nk", "X": "nats://u:pw123456@h", "H_HEADERS": "a=bbbbbb,c=d"}
        )
    )
    assert {"key-value", "pw123456", "bbbbbb"} <= found
    assert "/a/b.nk" not in found
    path = tmp_path / "kubeconfig"
    path.write_text("users:\n- name: a\n  user: {token: the-token, client-key-data: the-key}\n")
    assert set(of_kubeconfig(path)) == {"the-token", "the-key"}
    path.write_text("users: 7")
    assert set(of_kubeconfig(path)) == set(of_kubeconfig(tmp_path / "none")) == set()


def test_a_hostile_line_costs_no_more_than_its_length() -> None:
    for part in ("://", "a:", "password", "eyJ", "S" * 7, "-----BEGIN PRIVATE KEY-----", '\\"', "token=" + "\\"):
        text = part * (2**20 // len(part))
        started = time.process_time()
        Scrub(["secret-word"])(text)
        assert time.process_time() - started < 5, part


def read(path: Path) -> dict[str, str]:
    with tarfile.open(path) as tar:
        return {m.name.partition("/")[2]: tar.extractfile(m).read().decode() for m in tar.getmembers()}  # type: ignore[union-attr]


async def test_an_archive_is_bounded_and_keeps_the_ends(tmp_path: Path) -> None:
    async def large() -> dict[str, Any]:
        return {"a.log": "x\n" * 5000 + "last\n", "b.log": "y\n" * 10_000}

    path = tmp_path / "d.tar.gz"
    with Archive(path, Scrub(), most_bytes=12_000) as archive:
        done = await collect(archive, [Step("logs", large)], {})
    found = read(path)
    assert done.cut == ["b.log"]
    assert found["a.log"].endswith("last\n")
    assert sum(len(text) for name, text in found.items() if name != "index.json") == 12_000
    assert json.loads(found["index.json"])["cut"] == ["b.log"]
    assert path.stat().st_mode & 0o077 == 0


async def test_a_step_that_fails_is_named_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away() -> dict[str, Any]:
        raise Unavailable("it does not answer at nats://u:pw123456@h")

    async def hangs() -> dict[str, Any]:
        await asyncio.sleep(60)
        return {}

    async def good() -> dict[str, Any]:
        return {"good.json": {"a": 1}}

    monkeypatch.setattr("hbox_cli.diag.archive.STEP_S", 0.05)
    path = tmp_path / "d.tar.gz"
    with Archive(path, Scrub(), most_bytes=2**20) as archive:
        done = await collect(archive, [Step("away", away), Step("hangs", hangs), Step("good", good)], {})
    assert set(done.missing) == {"away", "hangs"}
    found = read(path)
    assert json.loads(found["good.json"]) == {"a": 1}
    assert "pw123456" not in "".join(found.values())


async def test_answers_that_nobody_can_read_are_named_too(tmp_path: Path) -> None:
    """An API server that is not well: a list without items, a word in the place of an object."""

    async def half() -> dict[str, Any]:
        return {"pods.json": {"kind": "PodList"}["items"]}

    async def lies() -> dict[str, Any]:
        answer: Any = "no"
        return {"pods.json": answer.items()}

    async def good() -> dict[str, Any]:
        return {"good.json": 1}

    path = tmp_path / "d.tar.gz"
    with Archive(path, Scrub(), most_bytes=2**20) as archive:
        done = await collect(archive, [Step("half", half), Step("lies", lies), Step("good", good)], {})
    assert done.missing["half"] == "an answer that cannot be read: KeyError: 'items'"
    assert done.missing["lies"].startswith("an answer that cannot be read: AttributeError")
    assert "good.json" in read(path)


@pytest.mark.parametrize("room", [0, 100_000])
def test_a_disk_that_is_full_is_told_and_nothing_stays_behind(tmp_path: Path, room: int) -> None:
    """Full while something is added, and as it is closed."""
    path = tmp_path / "d.tar.gz"
    code = (
        "import os, pathlib, resource\n"
        "from hbox_cli.diag import Archive, Scrub\n"
        f"with Archive(pathlib.Path({str(path)!r}), Scrub(), most_bytes=2**30) as archive:\n"
        f"    resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))\n"
        f"    archive.add('a.log', chr(10).join(os.urandom(20).hex() for _ in range(1 + {room} // 15)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "InvalidRequest: " in done.stderr.splitlines()[-1], done.stderr
    assert "d.tar.gz.part cannot be written: File too large" in done.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_a_seed_that_cannot_be_read_keeps_nobody_from_the_rest(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.nats_users.mkdir()
    (layout.nats_users / "admin.nk").write_bytes(b"\xff\xfe")
    (layout.nats_users / "binder.nk").write_text("SUA-the-seed\n")
    assert {"", "SUA-the-seed"} <= set(local.secrets(layout, None))


def test_an_archive_that_cannot_be_written_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be written"):
        Archive(tmp_path / "none" / "d.tar.gz", Scrub(), most_bytes=1)
    with pytest.raises(ZeroDivisionError), Archive(tmp_path / "d.tar.gz", Scrub(), most_bytes=1):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


# --- an installed chart: an API server that has pods, their logs and their pages


def _pod(name: str, **status: Any) -> dict[str, Any]:
    env = [{"name": "HBOX_HEALTH_PORT", "value": "8080"}, {"name": "MINE", "value": "planted-in-env"}]
    container = {"name": "main", "env": env, "ports": [{"name": "health", "containerPort": 8080}]}
    meta = {"name": name, "managedFields": [{"manager": "x"}]}
    return {"metadata": meta, "spec": {"containers": [container]}, "status": status}


@pytest.fixture
async def chart(tmp_path: Path) -> AsyncIterator[KubeClient]:
    restarted = {"containerStatuses": [{"name": "main", "restartCount": 2}]}
    pods = [_pod("binder", **restarted), _pod("ledger")]

    async def answer(request: web.Request) -> web.Response:
        path = request.path
        if path.endswith("/log"):
            if "/ledger/" in path:
                return web.json_response({"kind": "Status", "code": 500, "message": "no kubelet"}, status=500)
            before = request.query["previous"] == "true"
            return web.Response(text=f"{'before' if before else 'now'}: nats://u:planted-in-log@h\n")
        if path.endswith("/proxy/metrics"):
            return web.Response(text="hbox_build_info 1\n")
        if path.endswith("/proxy/readyz"):
            return web.Response(text="{}", status=503)
        if path.endswith("/pods"):
            return web.json_response({"items": pods if "/hbox-system/" in path else []})
        if path.endswith("/configmaps"):
            data = {"hbox.yaml": "nats_url: nats://u:planted-in-map@h\nlog_level: debug\n"}
            return web.json_response({"items": [{"metadata": {"name": "hbox-settings"}, "data": data}]})
        if path.endswith("/events"):
            return web.json_response({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}, status=403)
        return web.json_response({"gitVersion": "v1.34.0"} if path == "/version" else {"items": []})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    config = tmp_path / "kubeconfig"
    server = f"http://127.0.0.1:{runner.addresses[0][1]}"
    context = {"name": "a", "context": {"cluster": "a", "user": "a"}}
    config.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "a", "cluster": {"server": server}}],
                "users": [{"name": "a", "user": {}}],
                "contexts": [context],
                "current-context": "a",
            }
        )
    )
    async with KubeClient.connect(str(config), user_agent="test") as client:
        yield client
    await runner.cleanup()


async def test_of_a_chart_what_can_be_had_is_there_without_secrets(chart: KubeClient, tmp_path: Path) -> None:
    path = tmp_path / "d.tar.gz"
    with Archive(path, Scrub(), most_bytes=2**20) as archive:
        done = await collect(archive, await cluster.steps(chart, "hbox-system"), {})
    assert set(done.missing) == {"log of ledger", "events"}
    found = read(path)
    assert "planted" not in "".join(found.values())
    assert "log_level: debug" in found["settings/hbox-settings/hbox.yaml"]
    assert found["logs/binder.main.previous.log"].startswith("before")
    assert {"metrics/binder.txt", "metrics/ledger.txt", "ready/ledger.json", "kubernetes/pods.json"} <= found.keys()
    assert "managedFields" not in found["kubernetes/pods.json"]
    with pytest.raises(NotFound, match="no pod of HBox is in namespace elsewhere"):
        await cluster.steps(chart, "elsewhere")


def test_names_in_an_archive_stay_in_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "mine.tar.gz"
    with Archive(path, Scrub(), most_bytes=100) as archive:
        archive.add("a/b.txt", "x")
    with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as tar:
        assert tar.getnames() == ["mine/a/b.txt"]
