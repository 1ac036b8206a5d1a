"""A PostgreSQL server of the tests' own: on a Unix socket in its own folder, by password, killable.

The programs come from the `pgserver` wheel, else from PATH (Debian's package has them in /usr/lib/postgresql/*/bin). PostgreSQL refuses to run as
root, so root runs them as `nobody`; a copy of them where `nobody` cannot reach them.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

DEADLINE_S = 60.0
USER, PASSWORD = "hbox", "not-to-be-shown"


class NoPostgres(Exception):
    """PostgreSQL cannot be had on this machine."""


def programs() -> Path:
    """The folder with `initdb` and `postgres`. Raises NoPostgres."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns at import where XDG_RUNTIME_DIR is not set
            from pgserver._commands import POSTGRES_BIN_PATH  # noqa: PLC0415  not on every platform
        return Path(POSTGRES_BIN_PATH)
    except ImportError:
        found = shutil.which("initdb")
        if found is None:
            raise NoPostgres("neither the pgserver wheel nor initdb on PATH") from None
        return Path(found).resolve().parent


class PostgresServer:
    """One server on one folder; `kill` and `start` as often as a test likes."""

    def __init__(self, folder: Path, binaries: Path, identity: dict[str, Any], *, fsync: bool = False) -> None:
        self._folder, self._data, self._binaries, self._as = folder, folder / "data", binaries, identity
        self._kept, self._fsync = folder / "kept", fsync
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres", *, password: str = PASSWORD, user: str = USER) -> str:
        """Of a database, as SQLAlchemy has it."""
        return f"postgresql+psycopg://{user}:{password}@/{database}?host={self._folder}"

    def url_with(self, other: "PostgresServer") -> str:
        """Of the database on whichever of both takes what is written."""
        return f"{self.url()}&host={other._folder}&target_session_attrs=read-write"

    def connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        return psycopg.connect(host=str(self._folder), user=USER, password=PASSWORD, dbname=database, autocommit=True)

    def empty_database(self) -> str:
        """The address of the one database for tests, emptied: creating and dropping whole ones costs a checkpoint each."""
        with self.connect() as connection:
            others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            connection.execute(others)
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
            connection.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")
        return self.url()

    def dump(self) -> str:
        """All that is in the database for tests, as SQL for an empty one."""
        argv = [str(self._binaries / "pg_dump"), "-h", str(self._folder), "-U", USER, "--inserts", "--no-owner", "postgres"]
        env = os.environ | {"PGPASSWORD": PASSWORD}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=True, **self._as)
        # An emptied one has its schema; lines with a backslash are for psql alone.
        return "".join(line for line in done.stdout.splitlines(True) if not line.startswith(("\\", "CREATE SCHEMA public")))

    def follow(self, primary: "PostgresServer", *, synchronous: bool) -> None:
        """Begin anew as a replica of the other, which runs, and return when it streams. `synchronous`: what the other acknowledges from then on is here too."""
        shutil.rmtree(self._data, ignore_errors=True)
        argv = [
            str(self._binaries / "pg_basebackup"),
            "-D",
            str(self._data),
            "-h",
            str(primary._folder),
            "-U",
            USER,
            "-R",
            "--no-sync",
        ]
        done = subprocess.run(
            [*argv, "--checkpoint=fast"],
            env=os.environ | {"PGPASSWORD": PASSWORD},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            **self._as,
        )
        if done.returncode != 0:
            raise NoPostgres(f"pg_basebackup: {done.stderr.strip()[-300:]}")
        self.start()
        until = time.monotonic() + DEADLINE_S
        with primary.connect() as connection:
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{'*' if synchronous else ''}'")
            connection.execute("SELECT pg_reload_conf()")
            while (connection.execute("SELECT state FROM pg_stat_replication").fetchone() or ("",))[0] != "streaming":
                if time.monotonic() > until:
                    raise NoPostgres(f"the replica does not follow; {(self._folder / 'log').read_text()[-300:]}")
                time.sleep(0.05)

    def promote(self) -> None:
        """A replica is nobody's any more, and takes what is written; it waits for no replica of its own."""
        with self.connect() as connection:
            connection.execute("SELECT pg_promote()")
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")

    def initialise(self) -> None:
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        argv = [str(self._binaries / "initdb"), "-D", str(self._data), "-U", USER, "--auth=scram-sha-256", f"--pwfile={secret}"]
        argv += ["--encoding=utf8", "--locale=C", "--no-sync"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=False, **self._as)
        if done.returncode != 0:
            raise NoPostgres(f"initdb: {done.stderr.strip()[-300:]}")

    def start(self) -> None:
        """Start it, and return when it answers. After a kill it recovers first, and waits for its orphans to be gone."""
        argv = [str(self._binaries / "postgres"), "-D", str(self._data), "-k", str(self._folder), "-c", "listen_addresses="]
        argv += ["-c", f"fsync={'on' if self._fsync else 'off'}"]  # no test cuts the power
        until = time.monotonic() + DEADLINE_S
        with (self._folder / "log").open("ab") as log:
            while True:
                if self._process is None or self._process.poll() is not None:
                    self._process = subprocess.Popen(
                        argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **self._as
                    )
                try:
                    self.connect().close()
                    return
                except psycopg.OperationalError as e:
                    if time.monotonic() > until:
                        raise NoPostgres(f"it does not answer: {e}; {(self._folder / 'log').read_text()[-300:]}") from e
                time.sleep(0.05)

    def kill(self) -> None:
        """kill -9 of the server; its sessions' processes notice, and end by themselves."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(DEADLINE_S)

    def copy(self) -> None:
        """Keep a copy of the data as they are on disk now, from a server that was killed for it: what a lagging replica has."""
        self.kill()
        self._copy(self._data, self._kept)
        self.start()

    def fall_back(self) -> None:
        """Go on from the copy, as when that replica takes over: what was committed since is lost."""
        self.kill()
        self._copy(self._kept, self._data)
        self.start()

    def _copy(self, source: Path, target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        subprocess.run(["cp", "-a", source, target], check=True, timeout=DEADLINE_S)
        (target / "postmaster.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)  # at once: nothing is worth a checkpoint
            self._process.wait(DEADLINE_S)


def _nobody(folder: Path) -> dict[str, Any]:
    """Arguments of subprocess for one who is not root, and to whom `folder` is given."""
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _reachable(binaries: Path, folder: Path, identity: dict[str, Any]) -> Path:
    try:
        subprocess.run(
            [binaries / "initdb", "--version"], stdout=subprocess.DEVNULL, check=True, timeout=DEADLINE_S, **identity
        )
    except PermissionError:
        # As the wheel has them: the libraries are found by their place beside the package.
        site, copied = binaries.parents[2], folder / "programs"
        shutil.copytree(binaries.parent, copied / binaries.parent.relative_to(site))
        if (libraries := site / "pgserver.libs").is_dir():
            shutil.copytree(libraries, copied / libraries.name)
        return copied / binaries.relative_to(site)
    return binaries


@contextmanager
def postgres_server(*, fsync: bool = False, empty: bool = False) -> Iterator[PostgresServer]:
    """A running server, in a folder whose path is short enough for a socket; with `empty` one that is to follow another. Raises NoPostgres."""
    folder = Path(tempfile.mkdtemp(prefix="hbox-pg-"))
    try:
        identity = _nobody(folder) if os.geteuid() == 0 else {}
        server = PostgresServer(folder, _reachable(programs(), folder, identity), identity, fsync=fsync)
        try:
            if not empty:
                server.initialise()
                server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
