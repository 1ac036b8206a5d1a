"""What is wrong is told in three lines that say what, where and what to do; never with a traceback; with the documented status."""

import subprocess
from pathlib import Path

import pytest

from ..postgres_server import PostgresServer
from .platform_world import hbox, processes_of

pytestmark = pytest.mark.e2e

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


def failed(state: Path, done: subprocess.CompletedProcess[str], status: int, *said: str) -> None:
    assert done.returncode == status, done.stderr
    lines = done.stderr.strip().splitlines()
    assert [line[:7] for line in lines[-2:]] == ["  why  ", "  next "], done.stderr
    for text in said:
        assert text in "\n".join(lines[-3:])
    assert "Traceback" not in done.stderr
    assert processes_of(state) == []


def test_an_unreachable_api_server(tmp_path: Path) -> None:
    (tmp_path / "kc").write_text(KUBECONFIG)
    done = hbox("up", "--state", str(tmp_path / "s"), "--kubeconfig", str(tmp_path / "kc"))
    failed(tmp_path / "s", done, 6, "127.0.0.1:9")


def test_a_kubeconfig_that_is_not_there(tmp_path: Path) -> None:
    done = hbox("up", "--state", str(tmp_path / "s"), "--kubeconfig", str(tmp_path / "absent"))
    failed(tmp_path / "s", done, 5, str(tmp_path / "absent"))


def test_a_kubeconfig_that_is_no_yaml(tmp_path: Path) -> None:
    (tmp_path / "kc").write_text("clusters: [{")
    done = hbox("up", "--state", str(tmp_path / "s"), "--kubeconfig", str(tmp_path / "kc"))
    failed(tmp_path / "s", done, 5, str(tmp_path / "kc"))


def test_an_unreachable_broker(tmp_path: Path) -> None:
    done = hbox("up", "--state", str(tmp_path / "s"), "--nats-url", "nats://127.0.0.1:9")
    failed(tmp_path / "s", done, 6, "nats://127.0.0.1:9")


def test_a_database_that_cannot_be_opened(tmp_path: Path) -> None:
    done = hbox("up", "--state", str(tmp_path / "s"), "--database", "sqlite:////proc/none/ledger.db")
    failed(tmp_path / "s", done, done.returncode, "quota-ledger", "/proc/none")
    assert done.returncode in (5, 6)


def test_a_postgresql_server_that_is_not_there(tmp_path: Path) -> None:
    done = hbox("up", "--state", str(tmp_path / "s"), "--database", "postgresql+psycopg://me:secret@127.0.0.1:9/ledger")
    failed(tmp_path / "s", done, 6, "127.0.0.1", "is the server running?")
    assert "secret" not in done.stderr


def test_a_postgresql_server_that_refuses_the_password(tmp_path: Path, postgres: PostgresServer) -> None:
    done = hbox("up", "--state", str(tmp_path / "s"), "--database", postgres.url(password="guessed"))
    failed(tmp_path / "s", done, 5, "password authentication failed", "correct user and password")
    assert "guessed" not in done.stderr


def test_a_database_of_a_newer_version(tmp_path: Path, postgres: PostgresServer) -> None:
    url = postgres.empty_database()
    with postgres.connect() as connection:
        connection.execute("CREATE TABLE alembic_version (version_num varchar(32) PRIMARY KEY)")
        connection.execute("INSERT INTO alembic_version VALUES ('9999')")
    done = hbox("up", "--state", str(tmp_path / "s"), "--database", url)
    failed(tmp_path / "s", done, 5, "9999 is not known", "newer one")


def test_a_wrong_setting_in_the_environment(tmp_path: Path) -> None:
    done = hbox("up", "--state", str(tmp_path / "s"), env={"HBOX_LOG_LEVEL": "loud"})
    failed(tmp_path / "s", done, 5, "HBOX_LOG_LEVEL", "loud", "debug, info, warning")


def test_a_settings_file_that_is_no_yaml(tmp_path: Path) -> None:
    (tmp_path / "hbox.yaml").write_text("binder:\n  binds: [1\n")
    done = hbox("up", "--state", str(tmp_path / "s"), env={"HBOX_CONFIG": str(tmp_path / "hbox.yaml")})
    failed(tmp_path / "s", done, 5, "hbox.yaml", "line")
