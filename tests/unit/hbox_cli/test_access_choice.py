"""Which platform a command reads, by flags, environment and files."""

import fcntl
import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from hbox_cli.__main__ import cli
from hbox_cli.access import contexts, credentials, kubeconfig
from hbox_cli.access.choice import Choice, choose
from hbox_cli.access.contexts import Contexts, Stored
from hbox_cli.access.credentials import Credentials, Exec, Presented
from hbox_cli.access.http import Endpoint, Server, error_of
from hbox_cli.context import By, Flags
from hbox_common.errors import Conflict, InvalidRequest, NotFound, Unavailable


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, which is the current folder too."""
    for name in ("KUBECONFIG", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_kubeconfig(path: Path, *names: str, current: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "current-context": current,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name in names],
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443"}} for name in names],
        "users": [{"name": name, "user": {"token": f"secret-{name}"}} for name in names],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def chosen(flags: Flags = Flags(), *, by: By = By.DEFAULT, state: Path = Path(".hbox")) -> Choice:  # noqa: B008  frozen
    return choose(flags, state, state_by=by, environ=os.environ)


def test_context_that_commands_read_is_listed_as_the_current_one(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def current() -> list[str]:
        cli.main(["-o", "json", "ctx", "ls"], prog_name="hbox", standalone_mode=False)
        return [one["name"] for one in json.loads(capsys.readouterr().out)["items"] if one["current"]]

    assert current() == []
    write_kubeconfig(home / ".kube/config", "dev", "prod", current="dev")
    assert current() == ["dev"]
    contexts.write(contexts.path_of(), Contexts("lab", (Stored("lab", server="https://lab:8443"),)))
    assert current() == ["lab"]


def test_each_source_yields_to_those_above_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFound, match=r"no platform runs in \.hbox"):
        chosen()
    write_kubeconfig(home / ".kube/config", "dev", "prod", current="dev")
    assert chosen().name == "dev"
    (home / ".hbox").mkdir()
    with (home / ".hbox/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert chosen().state == Path(".hbox")  # `hbox up` runs here
        contexts.write(contexts.path_of(), Contexts("lab", (Stored("lab", server="https://lab:8443"),)))
        assert chosen().server == "https://lab:8443"
        assert chosen(by=By.ENVIRONMENT, state=home / "s").state == home / "s"
        named = Flags(context="prod")
        assert chosen(named, by=By.ENVIRONMENT).name == "prod"
        assert chosen(named, by=By.FLAG).state == Path(".hbox")
        broker = replace(named, nats_url="nats://b:4222")
        assert chosen(broker, by=By.FLAG).nats_url == "nats://b:4222"
        assert chosen(replace(broker, server="https://s"), by=By.FLAG).server == "https://s"


def test_lock_of_a_platform_that_ended_selects_nothing(home: Path) -> None:
    (home / ".hbox").mkdir()
    (home / ".hbox/lock").touch()
    write_kubeconfig(home / ".kube/config", "dev", current="dev")
    assert chosen().name == "dev"


def test_origins_name_files_and_no_secrets(home: Path) -> None:
    path = write_kubeconfig(home / ".kube/config", "dev", current="dev")
    choice = chosen()
    assert {one.origin for one in choice.settings} == {f"kubeconfig {path}, context dev"}
    assert "secret" not in f"{choice} {choice.settings}"


def test_pod_uses_its_service_account(home: Path) -> None:
    folder = home / "account"
    folder.mkdir()
    for name, text in (("token", "t"), ("ca.crt", "PEM"), ("namespace", "ml\n")):
        (folder / name).write_text(text)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    access = kubeconfig.in_pod(environ, folder)
    assert access is not None
    assert (access.server, access.namespace, access.ca) == ("https://[fd00::1]:443", "ml", "PEM")
    assert access.credentials.present(now=0.0).token == "t"
    assert kubeconfig.in_pod({}, folder) is None


def test_first_file_of_kubeconfig_wins(home: Path) -> None:
    one = write_kubeconfig(home / "one", "a", current="")
    two = write_kubeconfig(home / "two", "b", "a", current="b")
    paths = kubeconfig.paths_of({"KUBECONFIG": f"{one}:{home}/absent:{two}"})
    found = kubeconfig.read_context(paths)
    assert found is not None
    assert (found.name, found.server) == ("b", "https://b:6443")
    named = kubeconfig.read_context(paths, "a")
    assert named is not None
    assert named.origin == f"kubeconfig {one}"
    with pytest.raises(NotFound, match="no kubeconfig has a context c; contexts: a, b"):
        kubeconfig.read_context(paths, "c")


@pytest.mark.parametrize(
    ("user", "message"), [({"auth-provider": {"name": "x"}}, "auth-provider"), ({"as": "admin"}, "does not support as")]
)
def test_credentials_that_hbox_cannot_present_are_refused(home: Path, user: dict[str, object], message: str) -> None:
    path = write_kubeconfig(home / "k", "a", current="a")
    content = yaml.safe_load(path.read_text())
    content["users"][0]["user"] = user
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(InvalidRequest, match=message):
        kubeconfig.read_context([path])


def test_contexts_are_private_and_replaced_as_a_whole(home: Path) -> None:
    path = contexts.path_of()
    assert path == home / ".config/hbox/contexts.yaml"
    stored = (
        Contexts().storing(Stored("b", server="https://b", ca="PEM")).storing(Stored("a", nats_url="nats://a", nats_seed="/s"))
    )
    contexts.write(path, stored)
    assert contexts.read(path) == stored
    assert stored.current == "a"
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    with pytest.raises(NotFound, match="there is no context c"):
        stored.using("c")


def test_file_of_contexts_with_unknown_fields_is_refused(home: Path) -> None:
    path = contexts.path_of()
    path.parent.mkdir(parents=True)
    path.write_text("contexts: [{name: a, sever: https://a}]\n")
    with pytest.raises(InvalidRequest, match="context a: sever is unknown"):
        contexts.read(path)


@pytest.mark.parametrize("text", ["", "two tokens", "token\nother"])
def test_token_file_has_one_token(home: Path, text: str) -> None:
    (home / "token").write_text(text)
    with pytest.raises(InvalidRequest, match="token file"):
        Credentials(token_file=home / "token").present(now=0.0)


def plugin(command: Path, **more: object) -> Credentials:
    found = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(command), "installHint": "install it", **more}
    return Credentials(plugin=Exec.read(Path("k"), found, {"server": "https://s"}))


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return path


def test_exec_plugin_that_hangs_is_stopped(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "PLUGIN_S", 0.2)
    with pytest.raises(Unavailable, match="did not answer within"):
        plugin(script(home / "p", "exec sleep 60")).present(now=0.0)


def test_exec_plugin_that_fails_is_reported_with_its_hint(home: Path) -> None:
    with pytest.raises(Unavailable, match="exit status 3") as failed:
        plugin(script(home / "p", "exit 3")).present(now=0.0)
    assert failed.value.hint == "install it"
    with pytest.raises(InvalidRequest, match="no ExecCredential"):
        plugin(script(home / "p", "echo token")).present(now=0.0)
    with pytest.raises(InvalidRequest, match="cannot be run"):
        plugin(home / "absent").present(now=0.0)


def test_expired_credential_of_an_exec_plugin_is_asked_for_again(home: Path) -> None:
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "status": {"token": "t", "expirationTimestamp": "2026-11-28T12:00:00Z"},
    }
    user = plugin(script(home / "p", f"echo run >> {home}/runs\necho '{json.dumps(credential)}'"))
    expires = 1795867200.0
    for now, runs in ((expires - 100, 1), (expires - 60, 1), (expires + 1, 2)):
        assert user.present(now=now) == Presented("t")
        assert (home / "runs").read_text() == "run\n" * runs


def test_exec_plugin_learns_the_cluster_if_it_asks_for_it(home: Path) -> None:
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "status": {"token": "t"}}
    path = script(home / "p", f"echo \"$KUBERNETES_EXEC_INFO\" > {home}/info\necho '{json.dumps(credential)}'")
    assert plugin(path, provideClusterInfo=True).present(now=0.0) == Presented("t")
    assert json.loads((home / "info").read_text())["spec"] == {"interactive": False, "cluster": {"server": "https://s"}}


@pytest.mark.parametrize("base", ["hbox.example", "ftp://h", "https://user:pw@h", "https://h:0", "https://h:x"])
def test_address_that_is_none_is_refused(base: str) -> None:
    with pytest.raises(InvalidRequest, match="no address"):
        Server(Endpoint(base), Credentials(), what="x")


@pytest.mark.parametrize(
    ("status", "content", "kind"),
    [
        (401, {}, InvalidRequest),
        (403, {"detail": "no"}, InvalidRequest),
        (404, {"detail": "no job a"}, NotFound),
        (409, {}, Conflict),
        (422, None, InvalidRequest),
        (429, {}, Unavailable),
        (503, "text", Unavailable),
    ],
)
def test_statuses_are_errors_of_their_kind(status: int, content: object, kind: type[Exception]) -> None:
    error = error_of(status, content, {"retry-after": "3"}, what="x")
    assert type(error).__mro__.index(kind) <= 1
    assert not isinstance(error, Unavailable) or error.retry_after_s == 3.0
