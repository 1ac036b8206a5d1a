"""What `hbox trial` takes away again, and what it says of what it may not."""

import json
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer

from hbox_cli.commands.trial import _clear, _own
from hbox_common.kube import KubeClient


async def test_pods_go_also_where_the_gang_may_not_be_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deleted = []

    async def delete(request: web.Request) -> web.Response:
        name = request.path.rpartition("/")[2]
        if name in ("gang", "gang-1"):
            return web.json_response({"kind": "Status", "code": 403, "message": f"{name} is not yours"}, status=403)
        deleted.append(name)
        return web.json_response({})

    app = web.Application()
    app.router.add_delete("/{path:.*}", delete)
    async with TestServer(app) as server:
        config = _kubeconfig(tmp_path, server)
        async with KubeClient.connect(str(config), user_agent="test") as client:
            await _clear(client, "ml", "gang", ["gang-0", "gang-1", "gang-2"])
    assert deleted == ["gang-0", "gang-2"]
    said = capsys.readouterr().err
    assert "gang ml/gang is left behind: " in said
    assert "gang is not yours" in said
    assert "kubectl delete -n ml podgroup,pod -l hbox.io/trial=gang" in said


async def test_trial_pod_is_owned_by_a_deployment_of_the_release(tmp_path: Path) -> None:
    patched = []

    async def get(_: web.Request) -> web.Response:
        return web.json_response({"metadata": {"name": "hbox-binder", "uid": "u-1"}})

    async def patch(request: web.Request) -> web.Response:
        patched.append((request.path, await request.json()))
        return web.json_response({})

    app = web.Application()
    app.router.add_get("/apis/apps/v1/namespaces/ml/deployments/hbox-binder", get)
    app.router.add_patch("/{path:.*}", patch)
    async with TestServer(app) as server:
        config = _kubeconfig(tmp_path, server)
        async with KubeClient.connect(str(config), user_agent="test") as client:
            await _own(client, "ml", owner="hbox-binder", pod="hbox-trial")
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "hbox-binder", "uid": "u-1"}
    assert patched == [("/api/v1/namespaces/ml/pods/hbox-trial", {"metadata": {"ownerReferences": [owner]}})]


def _kubeconfig(folder: Path, server: BaseTestServer) -> Path:
    path = folder / "kubeconfig"
    cluster = {"name": "k", "cluster": {"server": str(server.make_url("")).rstrip("/")}}
    context = {"name": "k", "context": {"cluster": "k", "user": "k"}}
    user = {"name": "k", "user": {}}
    path.write_text(json.dumps({"current-context": "k", "clusters": [cluster], "contexts": [context], "users": [user]}))
    return path
