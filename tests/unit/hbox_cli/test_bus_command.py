"""`hbox bus` as operators meet it: keys that are kept, an authorization, Secrets, and readers."""

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
import yaml

from hbox_cli.__main__ import cli
from hbox_cli.commands.bus import _kept
from hbox_common.brokerkeys import public_account_key, public_key, read_seed
from hbox_common.bus.users import authorization, read_only, users
from hbox_common.clock import monotonic_s
from hbox_common.errors import InvalidRequest
from hbox_common.kube import SECRETS, KubeClient
from hbox_sandbox.api.server import ApiServer

from ... import forked, waiting


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


def test_agents_by_node_are_admitted_by_the_callout_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("bus", "users", "--out", tmp_path, "--agents-by-node", "--secrets", "gpu")
    *secrets, configmap = yaml.safe_load_all(capsys.readouterr().out)
    [callout] = [one["stringData"] for one in secrets if one["metadata"]["name"] == "hbox-bus-callout"]
    text = configmap["data"]["authorization.conf"]
    assert f"issuer: {public_account_key(callout['issuer'])}" in text
    assert public_key(read_seed(tmp_path / "node-agent.nk")) not in text
    assert (tmp_path / "callout.issuer").stat().st_mode & 0o077 == 0
    run("bus", "users", "--out", tmp_path, "--agents-by-node")
    assert (tmp_path / "authorization.conf").read_text() == text


def test_secrets_for_kubectl_have_the_seeds_and_the_configmap_has_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("bus", "users", "--out", tmp_path, "--secrets", "gpu")
    *secrets, configmap = yaml.safe_load_all(capsys.readouterr().out)
    seeds = {one["metadata"]["name"]: one["stringData"]["seed"] for one in secrets}
    assert seeds == {f"hbox-bus-{user}": read_seed(tmp_path / f"{user}.nk") for user in users()}
    assert {one["metadata"]["namespace"] for one in (*secrets, configmap)} == {"gpu"}
    assert not any(seed in configmap["data"]["authorization.conf"] for seed in seeds.values())


@pytest.mark.parametrize("reader", ["grafana", "grafana=", "Grafana=ml", "=ml", "gra fana=ml"])
def test_a_reader_is_a_name_and_queues(tmp_path: Path, reader: str) -> None:
    with pytest.raises(click.UsageError, match="NAME=QUEUE"):
        run("bus", "users", "--out", tmp_path, "--reader", reader)


def test_a_reader_is_not_called_like_a_user_of_the_platform(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="has this name"):
        run("bus", "users", "--out", tmp_path, "--reader", "binder=ml")


@dataclass(frozen=True, slots=True)
class Api:
    client: KubeClient
    kubeconfig: Path

    async def make(self, name: str) -> None:
        metadata = {"name": name, "namespace": "default"}
        await self.client.json(
            "POST", SECRETS.path("default"), body={"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
        )

    async def secret(self, name: str) -> dict[str, str]:
        data = (await self.client.json("GET", SECRETS.path("default", name))).get("data") or {}
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    async def every(self) -> dict[str, dict[str, str]]:
        return {name: await self.secret(f"b-{name}") for name in (*users(), "readers", "routes")}

    async def keys(self, out: Path, *words: str) -> str:
        """`hbox bus keys`, and what it wrote."""
        told = ("--namespace", "default", "--prefix", "b", "--kubeconfig", str(self.kubeconfig), "--out", str(out))
        done = await asyncio.to_thread(forked.run, "bus", "keys", *told, *words, timeout_s=120, env=os.environ)
        assert done.returncode == 0, done.stderr
        return await asyncio.to_thread(out.read_text)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    """With the Secrets that the chart makes, empty."""
    async with ApiServer(port=0) as server:
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        async with KubeClient.connect(str(kubeconfig), user_agent="test") as client:
            one = Api(client, kubeconfig)
            for name in (*users(), "readers", "routes"):
                await one.make(f"b-{name}")
            yield one


async def test_a_broker_makes_the_keys_that_are_missing_and_says_what_their_users_may(api: Api, tmp_path: Path) -> None:
    text = await api.keys(tmp_path / "first.conf", "--reader", "grafana=ml", "--reader", "slurm=batch")
    first = await api.every()
    assert first["routes"] == {}, "one broker lets no other in"
    assert set(first["readers"]) == {"grafana", "slurm"}
    seeds = {user: first[user]["seed"] for user in users()} | first["readers"]
    others = {"grafana": read_only("grafana", ["ml"]), "slurm": read_only("slurm", ["batch"])}
    assert text == authorization({user: public_key(seed) for user, seed in seeds.items()}, others)
    assert not any(seed in text for seed in seeds.values())

    assert "# slurm" not in await api.keys(tmp_path / "second.conf", "--reader", "grafana=ml")
    assert await api.every() == first, "kept: a rollback lets the reader in again by the key that it has"


async def test_brokers_of_a_cluster_that_start_at_once_agree_on_keys_and_password(api: Api, tmp_path: Path) -> None:
    servers = ("--servers", "a:6222,b:6222,c:6222")
    texts = await asyncio.gather(*(api.keys(tmp_path / f"{i}.conf", "--reader", "grafana=ml", *servers) for i in range(3)))
    assert len(set(texts)) == 1
    assert (await api.secret("b-routes"))["password"] in texts[0]
    assert public_key((await api.secret("b-binder"))["seed"]) in texts[0]


async def test_of_two_who_make_a_key_at_once_both_take_the_one_that_was_written(api: Api) -> None:
    path, until = SECRETS.path("default", "b-binder"), monotonic_s() + 30
    found = await asyncio.gather(*(_kept(api.client, path, {"seed": make}, until) for make in (lambda: "a", lambda: "b")))
    assert found[0] == found[1] == await api.secret("b-binder")


async def test_a_broker_waits_for_a_secret_that_is_not_there_yet(api: Api, tmp_path: Path) -> None:
    path = SECRETS.path("default", "b-admin")
    await api.client.json("DELETE", path)
    asked = asyncio.create_task(api.keys(tmp_path / "out.conf"))
    await waiting.until(lambda: api.secret("b-binder"), "the first keys", timeout_s=60)
    assert not asked.done()
    await api.make("b-admin")
    text = await asked
    assert public_key((await api.secret("b-admin"))["seed"]) in text
