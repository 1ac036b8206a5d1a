"""Cards are given out once while nobody sees the pods; on a real API server: tests/real/test_blind_from_outside.py."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from hbox_common.kube import KubeClient

from ..chaos.blindness import CARDS_IN_ALL, go_blind
from ..chaos.load import CARDS
from .platform_world import Up, up

pytestmark = pytest.mark.e2e

#: Longer than a view may be old, and than it takes the ledger to compare its books with some lists.
HOLD_S = 35.0

OF_PODS = {"client": "hbox-job-controller", "resource": "pods"}
BLINDNESS: dict[str, list[dict[str, Any]]] = {
    "watches are silent": [{**OF_PODS, "verb": "watch", "watch_silent": True}],
    "lists and watches are refused": [{**OF_PODS, "verb": verb, "status": 503} for verb in ("list", "watch")],
    "the API server is stale": [{**OF_PODS, "verb": verb, "stale": True} for verb in ("list", "watch")],
}


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Up]:
    with up(tmp_path / "state", env={"HBOX_RECONCILE_S": "3"}) as running:
        yield running


@pytest.mark.parametrize("how", BLINDNESS)
async def test_on_a_full_cluster_no_card_is_given_out_twice_while_pods_are_not_seen(platform: Up, how: str) -> None:
    running = json.loads((platform.state / "platform.json").read_text())
    async with KubeClient.connect(running["kubeconfig"], user_agent="observer", timeout_s=30) as client:

        async def control(method: str, path: str, body: object) -> None:
            def send() -> None:
                data = json.dumps(body).encode()
                with urlopen(Request(f"{client.base}/_sandbox/{path}", data=data, method=method), timeout=10):
                    pass

            await asyncio.to_thread(send)

        async def begin() -> None:
            await control("PUT", "faults", {"rules": BLINDNESS[how]})
            if how != "watches are silent":
                await control("POST", "sever?client=hbox-job-controller", {})

        async def end() -> None:
            await control("PUT", "faults", {})

        seen = await go_blind(client, begin, end, hold_s=HOLD_S)
    print(how, seen)
    assert seen.most <= CARDS
    assert seen.bound == CARDS_IN_ALL
    assert seen.after_s is not None
