"""The HTTP API on a real control plane: tokens, rights and their revocation, as its API server reviews them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from ..e2e.platform_world import Up, until, up
from .kubectl import kubectl

pytestmark = pytest.mark.e2e

MINE, OTHERS = "mine", "others"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    state = tmp_path_factory.mktemp("console") / "state"
    with up(state, "--api", "assets", env={"HBOX_REVIEW_CACHE_S": "3"}) as running:
        for space in (MINE, OTHERS):
            kubectl(running, "create", "namespace", space)
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"{space}-pod", "namespace": space},
                "spec": {"schedulerName": "hbox", "containers": [{"name": "c", "image": "busybox"}]},
            }
            kubectl(running, "apply", "-f", "-", stdin=json.dumps(pod))
        kubectl(running, "create", "serviceaccount", "anna", "-n", MINE)
        kubectl(running, "create", "role", "jobs", "-n", MINE, "--verb=get", "--resource=pods")
        kubectl(running, "create", "rolebinding", "jobs", "-n", MINE, "--role=jobs", f"--serviceaccount={MINE}:anna")
        yield running


def ask(platform: Up, path: str, token: str) -> tuple[int, Any]:
    url = json.loads(kubectl(platform, "get", "configmap", "hbox-access", "-n", "kube-public", "-o", "json"))["data"]["url"]
    request = Request(f"{url}/api/v1{path}", headers={"Authorization": f"Bearer {token}"})
    try:
        with urlopen(request, timeout=20) as answer:
            return answer.status, json.loads(answer.read())
    except HTTPError as e:
        return e.code, json.loads(e.read())


def test_a_service_account_sees_its_namespace_until_its_right_is_revoked(platform: Up) -> None:
    token = kubectl(platform, "create", "token", "anna", "-n", MINE).strip()
    status, found = ask(platform, "/whoami", token)
    assert (status, found["user"]) == (200, f"system:serviceaccount:{MINE}:anna")
    assert "system:serviceaccounts" in found["groups"]

    def names() -> list[str]:
        return [item["name"] for item in ask(platform, "/jobs", token)[1].get("items", ())]

    assert until(names, timeout_s=30, what="its job") == [f"{MINE}/{MINE}-pod"]
    assert ask(platform, f"/jobs/{OTHERS}/{OTHERS}-pod", token)[0] == 403
    assert ask(platform, "/nodes", token)[0] == 403
    kubectl(platform, "delete", "rolebinding", "jobs", "-n", MINE)
    until(lambda: ask(platform, f"/jobs/{MINE}/{MINE}-pod", token)[0] == 403, timeout_s=20, what="the right has ended")
    assert names() == []


def test_a_wrong_token_is_refused(platform: Up) -> None:
    assert ask(platform, "/jobs", "wrong")[0] == 401
