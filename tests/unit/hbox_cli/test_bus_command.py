"""`hbox bus` as operators meet it: keys that are kept, an authorization, Secrets, and readers."""

import base64
import json
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from hbox_cli.__main__ import cli
from hbox_cli.commands.bus import _fill, _keep
from hbox_common.bus.keys import public_key, read_seed
from hbox_common.bus.users import users
from hbox_common.errors import InvalidRequest
from hbox_common.kube import CONFIGMAPS, SECRETS, KubeClient
from hbox_sandbox.api.server import ApiServer


def run(*words: str | Path) -> None:
    cli.main([*map(str, words)], prog_name="hbox", standalone_mode=False)


def test_keys_are_kept_and_those_that_are_new_are_added(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("bus", "users", "--out", tmp_path, "-o", "json")
    first = json.loads(capsys.readouterr().out)["users"]
    assert set(first) == set(users())
    run("bus", "users", "--out", tmp_path, "--reader", "grafana=ml,vision", "-o", "json")
    again = json.loads(capsys.readouterr().out)["users"]
    assert {name: again[name] for name in first} == first
    assert set(again) - set(first) == {"grafana"}
    text = (tmp_path / "authorization.conf").read_text()
    assert all(key in text for key in again.values())
    assert "hbox.v1.quota.budget.vision" in text
    assert not any(read_seed(path) in text for path in tmp_path.glob("*.nk"))


def test_secrets_for_kubectl_have_the_seeds_and_the_configmap_has_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("bus", "users", "--out", tmp_path, "--secrets", "gpu")
    *secrets, configmap = yaml.safe_load_all(capsys.readouterr().out)
    seeds = {one["metadata"]["name"]: one["stringData"]["seed"] for one in secrets}
    assert seeds == {f"hbox-bus-{user}": read_seed(tmp_path / f"{user}.nk") for user in users()}
    assert {one["metadata"]["namespace"] for one in (*secrets, configmap)} == {"gpu"}
    assert not any(seed in configmap["data"]["authorization.conf"] for seed in seeds.values())


def test_the_authorization_of_public_keys_is_that_of_their_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("bus", "users", "--out", tmp_path / "seeds", "--reader", "grafana=ml", "-o", "json")
    keys = json.loads(capsys.readouterr().out)["users"]
    (tmp_path / "keys").mkdir()
    for user, key in keys.items():
        (tmp_path / "keys" / user).write_text(key + "\n")
    run("bus", "authorization", "--keys", tmp_path / "keys", "--out", tmp_path / "found.conf", "--reader", "grafana=ml")
    assert (tmp_path / "found.conf").read_text() == (tmp_path / "seeds" / "authorization.conf").read_text()
    (tmp_path / "keys" / "binder").unlink()
    with pytest.raises(InvalidRequest, match="binder"):
        run("bus", "authorization", "--keys", tmp_path / "keys", "--out", tmp_path / "found.conf")


@pytest.mark.parametrize("reader", ["grafana", "grafana=", "Grafana=ml", "=ml", "gra fana=ml"])
def test_a_reader_is_a_name_and_queues(tmp_path: Path, reader: str) -> None:
    with pytest.raises(click.UsageError, match="NAME=QUEUE"):
        run("bus", "users", "--out", tmp_path, "--reader", reader)


def test_a_reader_is_not_called_like_a_user_of_the_platform(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="has this name"):
        run("bus", "users", "--out", tmp_path, "--reader", "binder=ml")


async def test_the_charts_job_fills_what_is_empty_and_leaves_what_is_there(tmp_path: Path) -> None:
    async with ApiServer(port=0) as api:
        path = api.kubeconfig(tmp_path / "kubeconfig")
        async with KubeClient.connect(str(path), user_agent="test") as client:
            for resource, kind, name in (
                (SECRETS, "Secret", "b-binder"),
                (SECRETS, "Secret", "b-admin"),
                (CONFIGMAPS, "ConfigMap", "b-keys"),
            ):
                body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}}
                await client.json("POST", resource.path("default"), body=body)

            async def filled() -> tuple[dict[str, str], Any]:
                seeds = {}
                for name in ("binder", "admin"):
                    secret = await client.json("GET", SECRETS.path("default", f"b-{name}"))
                    seeds[name] = base64.b64decode(secret["data"]["seed"]).decode()
                return seeds, (await client.json("GET", CONFIGMAPS.path("default", "b-keys")))["data"]

            assert await _fill(client, "default", "b", ["binder", "admin"]) == 2
            seeds, keys = first = await filled()
            assert keys == {name: public_key(seed) for name, seed in seeds.items()}
            assert await _fill(client, "default", "b", ["binder", "admin"]) == 0
            assert await filled() == first
            routes = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b-routes", "namespace": "default"}}
            await client.json("POST", SECRETS.path("default"), body=routes)
            made = iter(("first", "second"))
            assert await _keep(client, "default", "b-routes", "password", lambda: next(made)) == ("first", True)
            assert await _keep(client, "default", "b-routes", "password", lambda: next(made)) == ("first", False)
