"""The files and command lines of a control plane of our own; that they work is what tests/real shows."""

import os
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from hbox_cli.commands.up import command
from hbox_cli.platform.assets import PROGRAMS, ControlPlane, find_programs
from hbox_common.errors import InvalidRequest


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "assets"
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).touch(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(folder))
    return folder


def test_a_folder_of_programs_is_taken_only_if_it_is_complete(programs: Path) -> None:
    assert find_programs() == programs
    (programs / "kwok").unlink()
    with pytest.raises(InvalidRequest, match=r"assets has no kwok") as caught:
        find_programs()
    assert "KUBEBUILDER_ASSETS" in caught.value.hint


def test_without_a_named_folder_the_cache_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InvalidRequest, match="hbox/kube-assets has no etcd, kube-apiserver") as caught:
        find_programs()
    assert "make kube-assets" in caught.value.hint


def test_secrets_are_for_their_owner_alone_and_new_at_each_start(programs: Path, tmp_path: Path) -> None:
    kube, kubeconfig = tmp_path / "kube", tmp_path / "kubeconfig"
    first = ControlPlane.prepare(kube, kubeconfig, port=1000)
    second = ControlPlane.prepare(kube, kubeconfig, port=1000)
    assert first.token != second.token
    second.certificate.parent.mkdir()
    second.certificate.write_text("-----BEGIN CERTIFICATE-----")
    second.admit()
    assert {file.stat().st_mode & 0o777 for file in (kube / "tokens.csv", kubeconfig)} == {0o600}
    assert kube.stat().st_mode & 0o777 == 0o700
    assert second.token in (kube / "tokens.csv").read_text()
    content = yaml.safe_load(kubeconfig.read_text())
    assert content["users"][0]["user"] == {"token": second.token}
    assert "insecure-skip-tls-verify" not in content["clusters"][0]["cluster"]


def test_everything_is_on_the_loopback_and_in_the_folder(programs: Path, tmp_path: Path) -> None:
    plane = ControlPlane.prepare(tmp_path / "kube", tmp_path / "kubeconfig", port=1000)
    for name in PROGRAMS:
        program, *flags = plane.argv(name)
        assert program == str(programs / name)
        for flag in flags:
            value = flag.partition("=")[2]
            assert value not in ("0.0.0.0", "::")
            if value.startswith("/"):
                assert Path(value).is_relative_to(tmp_path)


def test_emulated_time_reaches_the_kubelets(programs: Path, tmp_path: Path) -> None:
    ControlPlane.prepare(tmp_path / "kube", tmp_path / "kubeconfig", port=1000, time_scale=60)
    stages = list(yaml.safe_load_all((tmp_path / "kube" / "kwok.yaml").read_text()))
    (ends,) = [stage for stage in stages if stage["metadata"]["name"] == "pod-ends"]
    assert "tonumber / 60 | tostring" in ends["spec"]["delay"]["durationFrom"]["expressionFrom"]


def test_a_kubeconfig_and_a_cluster_of_our_own_exclude_each_other(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, ["--api", "assets", "--kubeconfig", os.devnull, "--state", str(tmp_path)])
    assert done.exit_code == 2
    assert "--kubeconfig and --api exclude each other" in done.output
