"""Who has job-controller's key of the broker says that a pod is gone which runs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hbox_common.clock import new_id
from hbox_common.events import ClaimsAsked, ClaimsPage, PodsObserved, encode
from hbox_common.kube import PODS, KubeClient
from hbox_common.model import Claim, ClaimState, PodFact, PodPhase
from hbox_sandbox.trace import TracePod, pod_manifest

from ..broker import admin_bus, client_of
from ..waiting import until
from .platform_world import up

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


async def test_a_pod_that_is_told_gone_in_error_has_its_claim_and_its_cards_again(tmp_path: Path) -> None:
    with up(tmp_path / "state", "--nodes", "1x8", env={"HBOX_RECONCILE_S": "2"}) as platform:
        running = json.loads((platform.state / "platform.json").read_text())
        async with (
            KubeClient.connect(running["kubeconfig"], user_agent="test", timeout_s=30) as client,
            admin_bus(running) as bus,
        ):

            async def posted() -> Claim | None:
                pages = await bus.ask(ClaimsAsked(asker="test"), ClaimsPage, timeout_s=20)
                found = [claim for page in pages for claim in page.claims if claim.state is ClaimState.POSTED]
                return found[0] if found else None

            body = pod_manifest(TracePod("runs", 1000, 1024, cards=3, card_milli=1000), namespace="default")
            await client.json("POST", PODS.path(namespace="default"), body=body)
            before = await until(posted, "the pod is bound", timeout_s=30)
            gone = PodFact(
                before.pod_uid, before.namespace, before.pod, PodPhase.GONE, before.node, before.job, before.queue, 0, {}
            )
            await tell(running, PodsObserved(pods=(gone,)))

            async def ended() -> bool:
                claim = await posted()
                return claim is None or claim.id != before.id

            await until(ended, "the false news is believed", timeout_s=10)
            after = await until(posted, "the pod is accounted for again", timeout_s=30)
            assert (after.pod_uid, after.node, after.slices) == (before.pod_uid, before.node, before.slices)
        assert not platform.json("audit")["faults"]


async def tell(running: Mapping[str, Any], event: PodsObserved) -> None:
    """In job-controller's name."""
    client = await client_of(running, "job-controller")
    try:
        headers = {
            "ce-specversion": "1.0",
            "ce-type": event.ce_type(),
            "ce-source": "/hbox/job-controller/1",
            "ce-id": new_id(),
            "content-type": "application/msgpack",
        }
        await client.jetstream().publish(event.subject("0"), encode(event), headers=headers)
    finally:
        await client.close()
