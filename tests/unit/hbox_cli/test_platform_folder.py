"""The state folder: one platform in it, readable by others, and the logs that are followed."""

import asyncio
import fcntl
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hbox_cli.platform import logs, probe
from hbox_cli.platform.layout import Layout, Running
from hbox_common.errors import Conflict, InvalidRequest, NotFound
from hbox_common.ports import free_port

from ...waiting import until

RUNNING = Running(1, "nats://127.0.0.1:1", "/k", "sqlite:///x", True, "fgd", {"binder": "http://127.0.0.1:2"})


def test_what_runs_is_known_to_others_until_it_is_forgotten(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.prepare(print)
    with layout.locked():
        layout.write_running(RUNNING)
        layout.write_pids({"binder": 7})
        assert layout.running() == RUNNING
        assert json.loads((tmp_path / "pids.json").read_text()) == {"binder": 7}
        assert (tmp_path / "platform.json").stat().st_mode & 0o077 == 0, "it may hold the database's password"
        layout.forget()
        with pytest.raises(NotFound):
            layout.running()


def test_one_platform_a_folder(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with layout.locked():
        assert layout.busy
        with pytest.raises(Conflict, match="a platform runs in"), layout.locked():
            pass
    assert not layout.busy


def test_who_only_asks_is_in_nobodys_way(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with (tmp_path / "lock").open("a+") as asks:
        fcntl.flock(asks, fcntl.LOCK_SH)
        assert not layout.busy
        threading.Timer(0.05, lambda: fcntl.flock(asks, fcntl.LOCK_UN)).start()
        with layout.locked():
            assert layout.busy


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_folder_of_somebody_else_is_not_one_where_nothing_runs(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "state")
    layout.prepare(print)
    tmp_path.parent.chmod(0o711)
    tmp_path.chmod(0o711)
    with layout.locked():
        os.seteuid(65534)
        try:
            with pytest.raises(InvalidRequest, match="cannot be looked into"):
                layout.running()
        finally:
            os.seteuid(0)


def test_a_folder_that_a_killed_supervisor_left_is_nobodys(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.write_running(RUNNING)
    with pytest.raises(NotFound, match="no platform runs"):
        layout.running()


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(InvalidRequest, match="cannot be written"):
        Layout(tmp_path / "state").prepare(print)


def test_a_log_is_asked_for_its_last_error(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text('{"level": "critical", "message": "of a former start"}\n')
    since = log.stat().st_size
    assert logs.last_error(log, since).message == ""
    with log.open("a") as file:
        file.write(
            '{"level": "error", "message": "first"}\n{"level": "critical", "message": "the cause", "hint": "do this"}\n{"level": "info", "message": "bye"}\n'
        )
    assert logs.last_error(log, since) == ("critical", "the cause", "do this")
    log.write_text("Traceback\nImportError: no module\n")
    assert logs.last_error(log, 0).message == "ImportError: no module"
    log.write_text(
        '{"level": "warn", "msg": "of etcd"}\npanic: invalid database\n\ngoroutine 68 [running]:\n\tbackend.go:75 +0x1a5\n'
    )
    assert logs.last_error(log, 0).message == "panic: invalid database"
    assert logs.last_error(tmp_path / "absent", 0).message == ""


def test_last_error_are_those_at_the_end_of_a_long_log(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text('{"level": "error", "message": "of last week"}\n' + "x" * 99 + "\n" + ("y" * 99 + "\n") * 12_000)
    assert logs.last_error(log, 0).message == "y" * 99
    with log.open("a") as file:
        file.write('{"level": "critical", "message": "the cause"}\n')
    assert logs.last_error(log, 0).message == "the cause"


async def test_a_log_that_somebody_empties_and_one_with_a_line_without_end_are_followed_on(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("x\n" * 999)
    told: list[str] = []
    following = asyncio.ensure_future(logs.follow({"x": log}, told.append, calm=lambda: True))
    try:
        await asyncio.sleep(0)
        for number, junk in enumerate(("", "z" * 3 * 2**20 + "\n", '{"level":' * 9_999 + "\n")):
            log.write_text(f'{junk}{{"level": "error", "message": "heard {"abc"[number]}"}}\n')
            await until(lambda number=number: len(told) > number, timeout_s=10, what="the error is told")  # type: ignore[misc]
    finally:
        following.cancel()
    assert told == ["x: error: heard a", "x: error: heard b", "x: error: heard c"]


async def test_a_port_where_nobody_listens_is_neither_ready_nor_a_broker() -> None:
    port = free_port()
    assert not (await probe.readiness(port)).ready
    assert str(await probe.readiness(port)) == "no answer"
    assert not await probe.greets(port)


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.usefixtures("umask")
def test_a_folder_that_was_open_to_others_is_closed_with_all_that_is_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    (folder / "kube" / "pki").mkdir(parents=True)
    secrets = [folder / "kubeconfig", folder / "ledger.db", folder / "kube" / "pki" / "ca.key", folder / "platform.json"]
    for path in secrets:
        path.write_text("secret")
    folder.chmod(0o755)
    said: list[str] = []
    Layout(folder).prepare(said.append)
    assert mode(folder) == mode(folder / "nats") == mode(folder / "kube" / "pki") == 0o700
    assert [mode(path) for path in secrets] == [0o600] * 4
    assert said == [f"the state folder {folder} was open to others (mode 0755): it is 0700 now"]
    (folder / "later").write_text("secret")
    assert mode(folder / "later") == 0o600
    Layout(folder).prepare(said.append)
    assert len(said) == 1


@pytest.mark.usefixtures("umask")
def test_a_folder_that_others_use_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(InvalidRequest, match="is one that others use"):
        Layout(shared).prepare(print)
    assert mode(shared) == 0o1777
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    with pytest.raises(InvalidRequest, match="is one that others use"):
        Layout(home).prepare(print)


@pytest.mark.usefixtures("umask")
def test_a_folder_of_somebody_else_is_refused_or_told_to_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711 + os.getuid())
    with pytest.raises(InvalidRequest, match=r"belongs to user \w+, who can read"):
        Layout(tmp_path / "state").prepare(print)
