"""`hbox check --pre`: what it judges, and what it says of an emulated cluster and of real brokers."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import formatdate
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from hbox_cli.check import install as precheck
from hbox_cli.check.install import Install, Level, Line, answers_to, clock, kubernetes, lines, owner
from hbox_cli.platform import crds
from hbox_common.brokerkeys import keep
from hbox_common.bus import Access, EmbeddedServer, find_binary
from hbox_common.bus.inspection import needed_bytes
from hbox_common.bus.users import users
from hbox_common.clock import wall_s
from hbox_common.kube import CONFIGMAPS, CRDS, STORAGECLASSES, KubeClient, apply
from hbox_common.kube.definitions import POD_GROUP
from hbox_common.model import VENDORS
from hbox_common.ports import free_port
from hbox_sandbox.api import ApiServer

from ...chart.rendered import objects
from ...e2e.platform_world import hbox
from ...precheck_faults import old_queues, scheduler, storage_class


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("v1.28.9", Level.FAULT),
        ("v1.29.4", Level.FAULT),
        ("v1.30.0", Level.OK),
        ("v1.34.2-gke.1", Level.OK),
        ("1.35", Level.OK),
        ("v2.0.0", Level.OK),
        ("", Level.WARNING),
        ("latest", Level.WARNING),
    ],
)
def test_versions_of_kubernetes(version: str, level: Level) -> None:
    assert kubernetes({"gitVersion": version}).level is level
    assert kubernetes({}).level is Level.WARNING


@pytest.mark.parametrize(
    ("by_s", "level"), [(0, "ok"), (2.9, "ok"), (-1.9, "ok"), (4, "warning"), (-4, "warning"), (12, "fault"), (-3600, "fault")]
)
def test_clocks(by_s: float, level: str) -> None:
    ours = 1_800_000_000.0 + by_s
    found = clock(theirs=1_800_000_000.0, asked=ours, answered=ours)
    assert found.level == level
    assert ("ahead" if by_s > 0 else "behind") in found.message or level == "ok"


@pytest.mark.parametrize("when_s", [0.0, 7.0, 13.9])
def test_slow_api_server_shows_no_clock_skew(when_s: float) -> None:
    """The server reads its clock at any moment within the 14 seconds."""
    asked = 1_800_000_000.0
    assert clock(theirs=float(int(asked + when_s)), asked=asked, answered=asked + 14).level is Level.OK


async def test_slow_api_server_shows_no_node_ahead(tmp_path: Path) -> None:
    """Five seconds pass between two answers, and kubelets renew their leases in between."""
    began, answered = wall_s(), 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal answered
        answered += 1
        now = began + 5.0 * answered
        renewed = datetime.fromtimestamp(now - 0.1, UTC).isoformat()
        body = {"gitVersion": "v1.35.0", "items": [{"metadata": {"name": "n"}, "spec": {"renewTime": renewed}}]}
        asked = request.path == "/version" or request.path.endswith("/leases")
        return web.json_response(body, status=200 if asked else 404, headers={"Date": formatdate(now, usegmt=True)})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server:
        config = tmp_path / "kubeconfig"
        named = {"name": "k", "cluster": {"server": str(server.make_url("")).rstrip("/")}}
        context, user = {"name": "k", "context": {"cluster": "k", "user": "k"}}, {"name": "k", "user": {}}
        config.write_text(json.dumps({"current-context": "k", "clusters": [named], "contexts": [context], "users": [user]}))
        async with KubeClient.connect(str(config), user_agent="test") as client:
            found = await lines(client, Install())
    assert not [line for line in found if line.name == "node-clocks"]


@pytest.mark.parametrize(
    ("nodes", "warns"),
    [
        ([{"cpu": "2", "nvidia.com/gpu": "8"}], True),
        ([{"cpu": "2", "nvidia.com/gpu": "8"}, {"cpu": "4", "nvidia.com/gpu": "0"}], False),
        ([{"cpu": "2", "nvidia.com/gpu": "8"}] * 4, False),
        ([{"cpu": "2", "nvidia.com/gpu": "8"}] * 3, True),
        ([{"cpu": "3900m", "amd.com/gpu": "1"}], True),
        ([{"cpu": "64", "nvidia.com/gpu": "8"}], False),
        ([{"cpu": "a lot", "nvidia.com/gpu": "8"}], True),
    ],
)
def test_precheck_warns_if_idle_cards_keep_the_cores_of_other_pods(nodes: list[dict[str, str]], *, warns: bool) -> None:
    lending = precheck.Lending()
    for allocatable in nodes:
        lending.add(allocatable)
    line = lending.line()
    assert (line is not None) == warns
    assert line is None or (line.name, line.level) == ("idle-cards", Level.WARNING)


def test_who_an_object_belongs_to() -> None:
    notes = {"meta.helm.sh/release-name": "a", "meta.helm.sh/release-namespace": "b"}
    assert owner({"metadata": {"annotations": notes, "managedFields": [{"manager": "helm"}]}}) == "Helm release b/a"
    fields = [{"manager": "kubectl"}, {"manager": "status-writer", "subresource": "status"}]
    assert owner({"metadata": {"managedFields": fields}}) == "written by kubectl"
    assert owner({"metadata": {}}) == "an unnamed owner"


@pytest.mark.parametrize(
    ("args", "image", "names"),
    [
        (("--scheduler-name=hbox",), "x", {"hbox"}),
        (("--v=3", "--scheduler-name", "hbox"), "x", {"hbox"}),
        (("--scheduler-name",), "x", set()),
        ((), "docker.io/volcanosh/vc-scheduler:v1.12.0", {"volcano"}),
        (("--scheduler-name=mine",), "docker.io/volcanosh/vc-scheduler:v1.12.0", {"mine"}),
        ((), "x", set()),
    ],
)
def test_names_that_a_deployment_answers_to(args: tuple[str, ...], image: str, names: set[str]) -> None:
    assert answers_to(scheduler("a", "b", *args, image=image)) == names


def test_the_rights_asked_for_are_those_that_the_chart_needs() -> None:
    made = {resource for _, resource, _ in precheck.MADE}
    kinds = {one["kind"] for name in ("default", "production", "dev") for one in objects(name)} - {"Pod"}
    plurals = {f"{kind.lower()[:-1]}ies" if kind.endswith("y") else f"{kind.lower()}s" for kind in kinds}
    assert plurals <= made
    assert made - plurals == {"customresourcedefinitions", "priorityclasses"}, "by the chart's job"


# --- an emulated cluster


@pytest.fixture
async def config(tmp_path: Path) -> AsyncIterator[Path]:
    async with ApiServer(seed=1) as server:
        yield server.kubeconfig(tmp_path / "kubeconfig")


@pytest.fixture
async def kube(config: Path) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(str(config), user_agent="test") as client:
        yield client


async def looked(client: KubeClient, install: Install | None = None) -> dict[str, Line]:
    return {line.name: line for line in await lines(client, install or Install())}


async def test_an_empty_cluster_lacks_nodes_and_a_storage_class(kube: KubeClient) -> None:
    found = await looked(kube)
    assert {name for name, line in found.items() if line.level is Level.FAULT} == {"nodes", "storage"}
    assert all(line.fix for line in found.values() if line.level is not Level.OK)
    assert found["rights"].level is Level.OK
    assert found["crds"].message.startswith("the install brings queues.scheduling.volcano.sh")


async def test_default_storage_classes_are_counted(kube: KubeClient) -> None:
    await kube.json("POST", STORAGECLASSES.path(), body=storage_class("slow", default=False))
    assert "there are: slow" in (await looked(kube))["storage"].message
    await kube.json("POST", STORAGECLASSES.path(), body=storage_class("fast", default=True))
    assert (await looked(kube))["storage"] == Line("storage", Level.OK, "the default class is fast")
    await kube.json("POST", STORAGECLASSES.path(), body=storage_class("faster", default=True))
    assert (await looked(kube))["storage"].level is Level.WARNING


async def test_settings_of_device_plugins_that_hbox_is_not_told_are_seen(kube: KubeClient) -> None:
    assert (await looked(kube))["devices"].level is Level.OK
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "hami-scheduler-device", "namespace": "kube-system"},
        "data": {"device-config.yaml": "nvidia: {resourceCountName: vendor.example/gpu}"},
    }
    await kube.json("POST", CONFIGMAPS.path("kube-system"), body=body)
    seen = (await looked(kube))["devices"]
    assert seen.level is Level.WARNING
    assert "kube-system/hami-scheduler-device" in seen.message
    with VENDORS.configured("nvidia: {resourceCountName: vendor.example/gpu}"):
        assert (await looked(kube))["devices"].level is Level.OK
    body["data"] = {"device-config.yaml": "nvidia: {memoryFactor: -1}"}
    await kube.json("PUT", CONFIGMAPS.path("kube-system", "hami-scheduler-device"), body=body)
    wrong = (await looked(kube))["devices"]
    assert (wrong.level, "nvidia.memoryFactor is '-1'" in wrong.message) == (Level.FAULT, True)
    assert "nvidia.com/gpu" in VENDORS, "nothing of it is in force"


async def test_a_definition_of_another_version_is_a_fault_with_its_owner(kube: KubeClient) -> None:
    await kube.json("POST", CRDS.path(), body=old_queues())
    found = (await looked(kube))["crd/queues"]
    assert found.level is Level.FAULT
    assert "serves v1alpha2, and HBox reads v1beta1; Helm release volcano-system/volcano" in found.message


async def test_definitions_of_our_own_are_well_and_those_of_others_are_named(kube: KubeClient) -> None:
    await crds.bring(kube, lambda _: None)
    assert {line.level for name, line in (await looked(kube)).items() if name.startswith("crd/")} == {Level.OK}
    await apply(kube, POD_GROUP, field_manager="somebody")
    found = (await looked(kube))["crd/podgroups"]
    assert (found.level, "written by hbox, somebody" in found.message) == (Level.OK, True)


async def test_a_clock_that_differs_is_seen(kube: KubeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await looked(kube))["clock"].level is Level.OK
    monkeypatch.setattr(precheck, "wall_s", lambda: wall_s() + 60)
    found = (await looked(kube))["clock"]
    assert (found.level, "ahead of" in found.message) == (Level.FAULT, True)


def test_the_command_says_it_in_json_and_by_its_exit_status(tmp_path: Path) -> None:
    async def ask() -> subprocess.CompletedProcess[str]:
        async with ApiServer(seed=1) as server:
            path = server.kubeconfig(tmp_path / "kubeconfig")
            return await asyncio.to_thread(hbox, "-o", "json", "check", "--pre", "--kubeconfig", str(path))

    done = asyncio.run(ask())
    assert done.returncode == 1
    said = json.loads(done.stdout)
    assert (said["kind"], said["good"]) == ("Precheck", False)
    assert {check["level"] for check in said["checks"]} == {"ok", "warning", "fault"}
    assert "not fit for an install: storage, nodes" in done.stderr
    gone = hbox("check", "--pre", "--kubeconfig", str(tmp_path / "kubeconfig"))
    assert gone.returncode == 6, gone.stderr
    assert hbox("check", "--kubeconfig", str(tmp_path / "kubeconfig")).returncode == 2


# --- brokers


async def broker(url: str, seed: Path | None = None) -> list[Line]:
    return list(await precheck._broker(Install(nats_url=url, access=Access(seed=seed))))


async def test_a_closed_broker_takes_its_admin_and_nobody_else(tmp_path: Path) -> None:
    keys = keep(tmp_path / "keys", users())
    async with EmbeddedServer(tmp_path / "nats", keys=keys) as server:
        [good] = await broker(server.url, tmp_path / "keys" / "admin.nk")
        assert (good.level, "with JetStream" in good.message) == (Level.OK, True)
        [bad] = await broker(server.url)
        assert (bad.level, "refuses us" in bad.message) == (Level.FAULT, True)
    [gone] = await broker(server.url)
    assert (gone.level, "does not answer" in gone.message) == (Level.FAULT, True)


@contextmanager
def nats_server(folder: Path, config: str) -> Iterator[str]:
    port = free_port()
    path = folder / "nats.conf"
    path.write_text(f'host: "127.0.0.1"\nport: {port}\n{config}')
    process = subprocess.Popen([find_binary(), "-c", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"nats://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


async def test_brokers_without_room_or_jetstream_are_faults(tmp_path: Path) -> None:
    with nats_server(tmp_path, "") as url:
        [line] = await broker(url)
        assert (line.level, "JetStream" in line.message) == (Level.FAULT, True)
    small = f'jetstream {{store_dir: "{tmp_path}/store", max_file_store: 1GB, max_memory_store: 16MB}}\n'
    with nats_server(tmp_path, small) as url:
        found = {line.name: line for line in await broker(url)}
        assert found["broker-file"].level is found["broker-memory"].level is Level.FAULT
        assert f"no room for {needed_bytes(memory=False) / 2**30:.3g} GiB" in found["broker-file"].message
        assert found["broker-payload"].level is Level.WARNING
        # Nothing is left of the try.
        assert {line.name for line in await broker(url)} == found.keys()
    large = f'max_payload: 8MB\njetstream {{store_dir: "{tmp_path}/large", max_file_store: 16GB, max_memory_store: 1GB}}\n'
    with nats_server(tmp_path, large) as url:
        for _ in range(2):
            assert [line.level for line in await broker(url)] == [Level.OK]
