"""Settings: environment over file over default, and one clear line for each mistake."""

from pathlib import Path

import pytest
from pydantic import Field

from hbox_common.errors import InvalidRequest
from hbox_common.runtime import Settings, current_secret, load


class BinderSettings(Settings):
    binds_per_s: float = Field(2000.0, gt=0, description="bindings a second, more than 0")


def test_the_environment_outranks_the_file_and_the_file_the_default(tmp_path: Path) -> None:
    path = tmp_path / "hbox.yaml"
    path.write_text("log_level: debug\nnats_url: nats://file:1\nbinder:\n  binds_per_s: 5\n")
    got = load(BinderSettings, "binder", {"HBOX_CONFIG": str(path)})
    assert (got.log_level, got.nats_url, got.binds_per_s) == ("debug", "nats://file:1", 5.0)


def test_a_variable_outranks_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hbox.yaml"
    path.write_text("nats_url: nats://file:1\n")
    monkeypatch.setenv("HBOX_CONFIG", str(path))
    monkeypatch.setenv("HBOX_NATS_URL", "nats://env:2")
    assert load(BinderSettings, "binder").nats_url == "nats://env:2"


def test_a_secret_outranks_the_file_and_the_environment_the_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, secrets = tmp_path / "hbox.yaml", tmp_path / "secrets"
    config.write_text("nats_url: nats://file:1\nlog_level: debug\n")
    secrets.mkdir()
    (secrets / "nats_url").write_text("nats://user:secret@broker:4222\n")
    (secrets / "database_url").write_text("of another service")
    (secrets / "..data").mkdir()  # as kubelets mount it
    monkeypatch.setenv("HBOX_CONFIG", str(config))
    monkeypatch.setenv("HBOX_SECRETS", str(secrets))
    got = load(BinderSettings, "binder")
    assert (got.nats_url, got.log_level) == ("nats://user:secret@broker:4222", "debug")
    monkeypatch.setenv("HBOX_NATS_URL", "nats://env:2")
    assert load(BinderSettings, "binder").nats_url == "nats://env:2"


def test_a_secret_is_what_its_file_says_by_now_unless_the_environment_does(tmp_path: Path) -> None:
    file, env = tmp_path / "nats_url", {"HBOX_SECRETS": str(tmp_path)}
    file.write_text("nats://old@broker:4222\n")
    settings = load(BinderSettings, "binder", env)
    file.write_text("nats://new@broker:4222\n")
    assert current_secret(settings, "nats_url", env) == "nats://new@broker:4222"
    assert current_secret(settings, "nats_url", {**env, "HBOX_NATS_URL": "nats://env:2"}) == "nats://old@broker:4222"
    for nothing in (b"", b"\xff"):
        file.write_bytes(nothing)
        assert current_secret(settings, "nats_url", env) == "nats://old@broker:4222"
    file.unlink()
    assert current_secret(settings, "nats_url", env) == current_secret(settings, "nats_url", {}) == "nats://old@broker:4222"


def test_a_wrong_secret_is_named_and_not_told(tmp_path: Path) -> None:
    (tmp_path / "nats_url").write_text("hunter2")
    with pytest.raises(InvalidRequest) as e:
        load(BinderSettings, "binder", {"HBOX_SECRETS": str(tmp_path)})
    assert f"{tmp_path}/nats_url: must begin with nats:// or tls://" in e.value.message
    assert "hunter2" not in f"{e.value.message} {e.value.hint} {e.value.__cause__}"


def test_a_folder_of_secrets_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"HBOX_SECRETS: .*/none is no folder"):
        load(BinderSettings, "binder", {"HBOX_SECRETS": str(tmp_path / "none")})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("binder:\n  binds_per_s: -1\n", "binds_per_s"),
        ("bindr:\n  binds_per_s: 1\n", "bindr: no such setting"),
        ("binder:\n  binds_per_second: 1\n", "did you mean binds_per_s?"),
        ("nats_url: http://x\n", "must begin with nats:// or tls://"),
        ("nats_url: [\n", "line 2, column 1: did not find"),
        ("- a\n", "the top level has to be a map"),
        ("binder: 3\n", "binder: has to be a map"),
        ("log_level: loud\n", "debug, info, warning or error"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "hbox.yaml"
    path.write_text(text)
    with pytest.raises(InvalidRequest) as error:
        load(BinderSettings, "binder", {"HBOX_CONFIG": str(path)})
    assert says in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HBOX_BINDS_PER_S", "many")
    with pytest.raises(InvalidRequest, match=r"HBOX_BINDS_PER_S = 'many'.*bindings a second"):
        load(BinderSettings, "binder")


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidRequest, match=r"/nowhere/hbox\.yaml: cannot be read"):
        load(BinderSettings, "binder", {"HBOX_CONFIG": "/nowhere/hbox.yaml"})


def test_the_section_of_another_service_is_not_our_business(tmp_path: Path) -> None:
    path = tmp_path / "hbox.yaml"
    path.write_text("scheduler-core:\n  policy: fgd\n")
    assert load(BinderSettings, "binder", {"HBOX_CONFIG": str(path)}).binds_per_s == 2000.0
