"""A bad day of `hbox up`: a full disk, a machine that has no room for one more process, a former cluster's files."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from hbox_cli.platform import child, forks, probe, supervisor, zygote
from hbox_cli.platform.layout import Layout
from hbox_cli.platform.supervisor import Kept, Plan, Platform
from hbox_common.errors import Conflict, InvalidRequest, Unavailable

from ...waiting import until

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]


def platform(folder: Path, said: list[str]) -> Platform:
    layout, plan = Layout(folder), Plan(folder)
    layout.prepare(said.append)
    return Platform(layout, plan, said.append, supervisor._address(layout, plan, [0, 0], []), [], 0)


def kept(folder: Path, argv: list[str]) -> Kept:
    return Kept("binder", argv, dict(os.environ), folder / "binder.log", port=0)


async def test_a_disk_without_room_for_pids_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    runs = platform(tmp_path, said)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Layout, "write_pids", full)
    one = kept(tmp_path, SLEEPS)
    await runs._spawn(one)
    assert one.process is not None
    one.process.kill()
    await one.process.wait()
    assert said == ["pids.json is not up to date: No space left on device"]


async def test_a_process_that_cannot_be_started_now_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But at the start, where it is told and the command ends."""
    said: list[str] = []
    runs = platform(tmp_path, said)
    one = kept(tmp_path, [str(tmp_path / "upgraded-now")])
    monkeypatch.setattr(supervisor, "PAUSES_S", (0.0,))
    with pytest.raises(InvalidRequest, match="cannot be started"):
        await runs._spawn_again(one)
    runs._ready = True
    trying = asyncio.create_task(runs._spawn_again(one))
    await until(lambda: bool(said), timeout_s=10, what="it is told")
    assert said[0].startswith("binder cannot be started now: ")
    one.argv = SLEEPS
    await asyncio.wait_for(trying, 10)
    assert one.process is not None
    one.process.kill()
    await one.process.wait()


async def test_services_live_on_where_one_more_cannot_be_forked(tmp_path: Path) -> None:
    """And a process that forks them, and ends before it is ready, is started anew for those who wait."""
    ends, once = tmp_path / "ended-once", tmp_path / "refused-once"
    site = tmp_path / "sitecustomize.py"
    site.write_text(
        f"""
import os, sys
if not os.path.exists({str(ends)!r}):
    open({str(ends)!r}, "w").close()
    os._exit(9)
fork = os.fork
def refuse():
    if os.path.exists({str(once)!r}):
        os.unlink({str(once)!r})
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork()
os.fork = refuse
"""
    )
    (tmp_path / "sleeps.py").write_text("import time\ntime.sleep(600)\n")
    env: Mapping[str, str] = dict(os.environ) | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    }
    made = forks.Forks(env, tmp_path / "zygote.log")
    async with made.running():
        first = await made.spawn("first", "sleeps", env=env, log=tmp_path / "first.log")
        once.touch()
        with pytest.raises(Unavailable, match="second could not be forked: Resource temporarily unavailable"):
            await made.spawn("second", "sleeps", env=env, log=tmp_path / "second.log")
        second = await made.spawn("second", "sleeps", env=env, log=tmp_path / "second.log")
        assert first.returncode is None
        for one in (first, second):
            await child.stop(one, grace_s=10)
    assert {first.returncode, second.returncode} == {-signal.SIGTERM}


def test_a_former_cluster_is_dropped_and_backups_beside_it_are_not(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "state")
    layout.prepare(print)
    (elsewhere := tmp_path / "elsewhere").mkdir()
    layout.nats.rmdir()
    layout.nats.symlink_to(elsewhere)  # a larger disk
    (elsewhere / "jetstream").mkdir()
    (elsewhere / "nats.conf").touch()
    for name in ("ledger.db", "ledger.db-wal", "ledger.db.lock", "ledger.db.before-restore-1", "ledger.db-monday"):
        (layout.folder / name).touch()
    supervisor._empty(layout, "", keep_broker=False)
    assert list(elsewhere.iterdir()) == []
    assert {path.name for path in layout.folder.glob("ledger*")} == {"ledger.db.before-restore-1", "ledger.db-monday"}
    (layout.folder / "ledger.db").mkdir()
    with pytest.raises(InvalidRequest, match="is of a former cluster"):
        supervisor._empty(layout, "", keep_broker=False)


async def test_who_leaves_out_the_kubeconfig_once_does_not_lose_the_books(tmp_path: Path) -> None:
    layout, given = Layout(tmp_path / "state"), tmp_path / "kubeconfig"
    with pytest.raises(InvalidRequest, match="kubeconfig"):  # there is no such cluster, but it was meant
        async with Platform.run(Plan(layout.folder, given, brokers=1), print):
            pass
    layout.database.write_text("the books")
    with pytest.raises(Conflict, match="are those of --kubeconfig"):
        async with Platform.run(Plan(layout.folder), print):
            pass
    assert layout.database.read_text() == "the books"
    layout.books_of.unlink()
    supervisor._empty(layout, "", keep_broker=True)
    assert not layout.database.exists()


@pytest.mark.parametrize("url", ["nats://host:abc", "nats://host:99999", "nats://[::1", "http://host", "host:4222"])
async def test_what_is_no_address_of_a_broker_is_told(tmp_path: Path, url: str) -> None:
    with pytest.raises(InvalidRequest, match="not an address"):
        await platform(tmp_path, [])._external_broker(url)


async def test_who_answers_without_end_is_no_broker() -> None:
    async def floods(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * 2**20)

    async with await asyncio.start_server(floods, "127.0.0.1", 0) as server:
        assert not await probe.greets(server.sockets[0].getsockname()[1])


@pytest.mark.parametrize("target", ["/dev/full", "a pipe"])
def test_messages_that_cannot_be_told_end_nothing(tmp_path: Path, target: str) -> None:
    says = "from hbox_cli.stdio import take_over; from hbox_cli.output import notify; take_over(); notify('a'); notify('b'); print('done', flush=True)"
    absent = ("-m", "hbox_cli", "--state", str(tmp_path / "none"), "nodes")
    for words, status, out in ((("-c", says), 0, b"done\n"), (absent, 3, b"")):
        if target == "a pipe":
            reads, fd = os.pipe()
            os.close(reads)
        else:
            fd = os.open(target, os.O_WRONLY)
        done = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, stderr=fd, check=False)
        os.close(fd)
        assert (done.returncode, done.stdout) == (status, out)


HUNG_UP = """
import asyncio, os, signal, sys
from hbox_cli.aio import Interrupted, run
async def work():
    try:
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(1.0)
        print("went on")
    finally:
        print("cleaned up")
try:
    run(work)
except Interrupted:
    print("interrupted")
"""


@pytest.mark.parametrize(("ignored", "says"), [(False, ["cleaned up", "interrupted"]), (True, ["went on", "cleaned up"])])
def test_a_terminal_that_goes_away_stops_a_command_in_order(ignored: bool, says: list[str]) -> None:
    begins = f"import signal\nsignal.signal(signal.SIGHUP, signal.{'SIG_IGN' if ignored else 'SIG_DFL'})\n"  # as `nohup` does
    done = subprocess.run([sys.executable, "-c", begins + HUNG_UP], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == says, done.stderr


def test_the_word_that_a_fork_was_refused_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    assert zygote._fork({"name": "binder", "module": "json"}) is None
    assert json.loads(capsys.readouterr().out) == {"name": "binder", "error": "Resource temporarily unavailable"}
