import asyncio
import base64
import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from hbox_cli.platform import identities as module
from hbox_cli.platform.identities import Tokens, cluster_of, identities
from hbox_cli.services import ALONE, SERVICES
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.kube import KubeClient

from ...rights import RIGHTS, Right

CHART = Path(__file__).parents[3] / "helm" / "hbox" / "files" / "rbac"


def kubeconfig(folder: Path, **cluster: Any) -> Path:
    content = {
        "current-context": "c",
        "clusters": [{"name": "other", "cluster": {"server": "https://other"}}, {"name": "k", "cluster": cluster}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content))
    return path


def test_every_service_has_an_identity_and_the_chart_has_the_same_files() -> None:
    assert {identity.service for identity in identities()} == {*SERVICES, *ALONE}
    ours = resources.files("hbox_cli.platform").joinpath("rbac")
    assert {file.name: file.read_text() for file in CHART.iterdir()} == {file.name: file.read_text() for file in ours.iterdir()}


def test_the_files_give_the_rights_that_are_listed() -> None:
    found = {
        identity.service: {
            Right(
                r.get("namespace", ""),
                r["group"],
                "/".join(filter(None, (r["resource"], r["subresource"]))),
                r["name"],
                r["verb"],
            )
            for r in identity.rights
        }
        for identity in identities()
    }
    assert found == RIGHTS


def test_no_rule_has_a_star_and_every_binding_is_of_its_own_account() -> None:
    for identity in identities():
        for right in identity.rights:
            assert "*" not in "".join(right.values())
        for manifest in identity.manifests:
            if manifest["kind"] in ("ClusterRoleBinding", "RoleBinding"):
                assert manifest["roleRef"]["name"] == f"hbox:{identity.service}"
                assert manifest["subjects"] == [
                    {"kind": "ServiceAccount", "name": identity.service, "namespace": "hbox-system"}
                ]


def test_a_service_without_rights_gets_no_token() -> None:
    accounts = {i.service: i.manifests[0] for i in identities()}
    assert {name for name, account in accounts.items() if not account["automountServiceAccountToken"]} == {
        i.service for i in identities() if not i.rights or i.service in ALONE
    }  # the pods of ALONE mount one by a value of the chart


def test_the_authority_travels_as_data_and_what_is_not_verified_stays_so(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(b"authority")
    given = kubeconfig(tmp_path, **{"server": "https://k", "certificate-authority": "ca.crt", "tls-server-name": "n"})
    data = base64.b64encode(b"authority").decode()
    assert cluster_of(given) == {"server": "https://k", "certificate-authority-data": data, "tls-server-name": "n"}
    given = kubeconfig(tmp_path, **{"server": "https://k", "insecure-skip-tls-verify": True})
    assert cluster_of(given) == {"server": "https://k", "insecure-skip-tls-verify": True}


@pytest.mark.parametrize("content", ["", "[]", "{", "current-context: c", "{current-context: c, contexts: [], clusters: []}"])
def test_a_kubeconfig_without_a_current_cluster_is_one_clear_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content)
    with pytest.raises(InvalidRequest, match="no cluster of a current context"):
        cluster_of(path)


def test_an_authority_that_cannot_be_read_is_one_clear_line(tmp_path: Path) -> None:
    given = kubeconfig(tmp_path, **{"server": "https://k", "certificate-authority": "gone.crt"})
    with pytest.raises(InvalidRequest, match=r"gone\.crt"):
        cluster_of(given)


def test_services_that_hbox_up_does_not_start_get_no_kubeconfig(tmp_path: Path) -> None:
    paths = Tokens(tmp_path / "kube", kubeconfig(tmp_path, server="https://k")).write_kubeconfigs()
    assert "admission" in {i.service for i in identities() if i.rights}
    assert set(paths) == SERVICES.keys() - {"node-agent"}, "node-agent has no rights"


def test_the_token_file_of_a_kubeconfig_is_beside_it_and_both_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "kube"
    paths = Tokens(folder, kubeconfig(tmp_path, server="https://k")).write_kubeconfigs()
    content = json.loads(Path(paths["binder"]).read_text())
    assert content["users"] == [{"name": "binder", "user": {"tokenFile": "binder.token"}}]
    assert Path(paths["binder"]).stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


async def test_a_renewal_that_fails_is_told_once_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(28, "No space left on device")
    outcomes: list[Exception | float] = [Unavailable("away"), full, 0.0, Unavailable("away")]
    done = asyncio.Event()
    monkeypatch.setattr(module, "_RETRY_S", 0.0)
    tokens = Tokens(tmp_path, kubeconfig(tmp_path, server="http://127.0.0.1:1"))

    async def issue(_self: Tokens, _client: object) -> float:
        if not outcomes:
            done.set()
            return 3600.0
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(Tokens, "issue", issue)
    said: list[str] = []
    renewal = asyncio.ensure_future(tokens.renew(0.0, said.append))
    try:
        async with asyncio.timeout(10):
            await done.wait()
            await asyncio.sleep(0)
    finally:
        renewal.cancel()
    assert [line.split(",")[0] for line in said[:3]] == [
        "the services' tokens could not be renewed",
        "the services' tokens are renewed",
        "the services' tokens could not be renewed",
    ]


@pytest.mark.parametrize(
    ("answer", "due_s"),
    [
        ({"status": {"token": "t"}, "spec": {"expirationSeconds": 1000}}, 800.0),
        ({"status": {"token": "t"}, "spec": {"expirationSeconds": 0}}, 48.0),
        ({"status": {"token": "t"}, "spec": {"expirationSeconds": -5}}, 48.0),
        ({"status": {}, "spec": {"expirationSeconds": 1000}}, None),
        ({"status": {"token": "t"}, "spec": {"expirationSeconds": "soon"}}, None),
        ({"spec": []}, None),
    ],
)
async def test_an_api_server_that_answers_half_is_asked_again_and_never_without_a_pause(
    tmp_path: Path, answer: dict[str, Any], due_s: float | None
) -> None:
    async def give(_: web.Request) -> web.Response:
        return web.json_response(answer, status=201)

    app = web.Application()
    app.router.add_post("/{path:.*}", give)
    async with TestServer(app) as server:
        given = tmp_path / "given"
        given.write_text(kubeconfig(tmp_path, server=str(server.make_url("")).rstrip("/")).read_text())
        async with KubeClient.connect(str(given), user_agent="test") as client:
            if due_s is None:
                with pytest.raises(Unavailable, match="gives no token for"):
                    await Tokens(tmp_path, given).issue(client)
            else:
                assert await Tokens(tmp_path, given).issue(client) == due_s
