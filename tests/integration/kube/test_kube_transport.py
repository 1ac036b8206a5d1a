import json
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from hbox_common.errors import Conflict, InvalidRequest, NotFound, Unavailable
from hbox_common.kube import PODS, KubeClient
from hbox_common.kube.status import Busy

POD = PODS.path("ml", "p")


async def test_a_request_carries_our_name_the_token_and_json(api: Any, kubeconfig: Any) -> None:
    api.reply("POST", POD, 201, {"kind": "Status"})
    async with KubeClient.connect(kubeconfig(api.url, token="s3cret"), user_agent="hbox-binder/0.1") as client:
        answer = await client.request("POST", POD, params={"dryRun": "All"}, body={"a": 1})
    assert (answer.status, answer.body) == (201, b'{"kind": "Status"}')
    (asked,) = api.asked
    assert asked.body == {"a": 1}
    assert asked.query == {"dryRun": "All"}
    assert asked.headers["User-Agent"] == "hbox-binder/0.1"
    assert asked.headers["Authorization"] == "Bearer s3cret"
    assert asked.headers["Content-Type"] == "application/json"


async def test_an_exec_plugin_is_asked_for_the_token(api: Any, kubeconfig: Any, tmp_path: Path) -> None:
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "from-plugin"}}
    (tmp_path / "credential.json").write_text(json.dumps(credential))
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "cat",
        "args": [str(tmp_path / "credential.json")],
        "interactiveMode": "Never",
    }
    api.reply("GET", POD, 200)
    async with KubeClient.connect(kubeconfig(api.url, exec=plugin), user_agent="t") as client:
        await client.request("GET", POD)
    assert api.asked[0].headers["Authorization"] == "Bearer from-plugin"


async def test_json_maps_each_refusal_to_its_error(api: Any, client: KubeClient) -> None:
    for code, reason in ((404, "NotFound"), (409, "Conflict"), (422, "Invalid"), (403, "Forbidden")):
        api.refuse("GET", POD, code, reason, f"said {code}")
    api.refuse("GET", POD, 429, "TooManyRequests", Retry_After="7")
    with pytest.raises(NotFound, match="said 404"):
        await client.json("GET", POD)
    with pytest.raises(Conflict, match="said 409"):
        await client.json("GET", POD)
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="said 4"):
            await client.json("GET", POD)
    with pytest.raises(Busy) as busy:
        await client.json("GET", POD)
    assert busy.value.retry_after_s == 7.0


async def test_a_server_that_is_not_there_is_unavailable_and_nothing_was_done(kubeconfig: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        async with KubeClient.connect(kubeconfig(url), user_agent="t") as client:
            with pytest.raises(Unavailable, match="cannot be reached") as gone:
                await client.request("POST", POD, body={})
    assert not gone.value.outcome_unknown
    assert url in str(gone.value)


async def test_plain_http_needs_no_certificates_of_the_machine(
    api: Any, kubeconfig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading them costs as much as all else of a connection."""

    def read(*_: Any) -> None:
        raise AssertionError("they are read")

    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", read)
    api.reply("GET", POD, 200, {})
    async with KubeClient.connect(kubeconfig(api.url), user_agent="t") as client:
        assert await client.json("GET", POD) == {}
    with pytest.raises(InvalidRequest, match="they are read"):
        async with KubeClient.connect(kubeconfig("https://127.0.0.1:1"), user_agent="t"):
            pass


async def test_a_write_without_an_answer_is_of_unknown_outcome_and_a_read_is_not(api: Any, client: KubeClient) -> None:
    api.hang("POST", POD)
    api.hang("GET", POD)
    with pytest.raises(Unavailable, match=r"within 0\.1 s") as late:
        await client.request("POST", POD, body={}, timeout_s=0.1)
    assert late.value.outcome_unknown
    with pytest.raises(Unavailable) as late:
        await client.request("GET", POD, timeout_s=0.1)
    assert not late.value.outcome_unknown


async def test_a_reset_connection_is_of_unknown_outcome(api: Any, client: KubeClient) -> None:
    api.reset("POST", POD)
    with pytest.raises(Unavailable) as reset:
        await client.request("POST", POD, body={})
    assert reset.value.outcome_unknown


async def test_an_answer_that_is_not_json_is_no_traceback(api: Any, client: KubeClient) -> None:
    api.reply("GET", POD, 200, b"<html>")
    with pytest.raises(Unavailable, match="no object"):
        await client.json("GET", POD)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        ("", "is empty"),
        ("{:", "kubeconfig"),
        ("[1, 2]", "kubeconfig"),
        ("kind: Config\n", "kubeconfig"),
        ('{"current-context": "x", "contexts": [], "clusters": [], "users": []}', "kubeconfig"),
    ],
)
async def test_a_missing_or_broken_kubeconfig_is_one_clear_line(tmp_path: Path, content: str | None, said: str) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidRequest, match=said) as wrong:
        async with KubeClient.connect(str(path), user_agent="t"):
            pass
    assert str(path) in str(wrong.value)
    assert "\n" not in str(wrong.value)
    assert wrong.value.hint


@pytest.mark.parametrize("url", ["localhost:6443", "https://", "https://host:port", "ftp://host"])
async def test_an_address_that_is_none_is_one_clear_line(kubeconfig: Any, url: str) -> None:
    with pytest.raises(InvalidRequest, match="no address"):
        async with KubeClient.connect(kubeconfig(url), user_agent="t"):
            pass


def content(path: str) -> bytes:
    return Path(path).read_bytes()


async def test_the_kubeconfig_file_is_never_written_to(api: Any, kubeconfig: Any) -> None:
    path = kubeconfig(api.url, token="t")
    before = content(path)
    async with KubeClient.connect(path, user_agent="t"):
        pass
    assert content(path) == before


async def test_without_a_kubeconfig_outside_of_a_cluster_it_says_so(monkeypatch: Any) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(InvalidRequest, match="no kubeconfig was named"):
        async with KubeClient.connect(None, user_agent="t"):
            pass


async def test_a_stream_gives_whole_lines_of_what_the_socket_held(api: Any, client: KubeClient) -> None:
    api.stream("/w", b'{"a"', b":1}\n{", b'"b":2}\n{"c":3}\n{"unfinished', then="end")
    got = []
    async with client.stream("/w", params={"watch": "1"}, lasts_s=5.0) as lots:
        async for lines in lots:
            got += lines
    assert got == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


async def test_a_silent_stream_is_given_up(api: Any, client: KubeClient) -> None:
    api.stream("/w", b'{"a":1}\n')
    async with client.stream("/w", params={"watch": "1"}, lasts_s=0.1) as lots:
        assert await anext(lots) == [b'{"a":1}']
        with pytest.raises(Unavailable, match=r"within 0\.1 s"):
            await anext(lots)


async def test_a_refused_stream_raises_as_a_request_does(api: Any, client: KubeClient) -> None:
    api.refuse("WATCH", "/w", 403, "Forbidden", "pods is forbidden")
    with pytest.raises(InvalidRequest, match="pods is forbidden"):
        async with client.stream("/w", params={"watch": "1"}, lasts_s=1.0):
            pass


async def test_a_renewed_token_is_used_by_the_next_request(api: Any, kubeconfig: Any, tmp_path: Path) -> None:
    api.reply("GET", "/version", body={})
    file = tmp_path / "service.token"
    file.write_text("first\n")
    async with KubeClient.connect(kubeconfig(api.url, tokenFile="service.token"), user_agent="t") as client:
        await client.request("GET", "/version")
        draft = tmp_path / "draft"
        draft.write_text("second")
        draft.replace(file)
        await client.request("GET", "/version")
        file.unlink()
        await client.request("GET", "/version")
    assert [r.headers["Authorization"] for r in api.asked] == ["Bearer first", "Bearer second", "Bearer second"]


@pytest.mark.parametrize("content", [None, "", " \n"])
async def test_a_token_file_that_is_missing_or_empty_is_one_clear_line(
    kubeconfig: Any, tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "service.token").write_text(content)
    with pytest.raises(InvalidRequest, match=r"service\.token"):
        async with KubeClient.connect(kubeconfig("http://127.0.0.1:1", tokenFile="service.token"), user_agent="t"):
            pass
