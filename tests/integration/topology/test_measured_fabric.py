"""A UFM's fabric through the collector: what is said of it, and what stays while UFM is ill."""

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.clock import processor_s
from hbox_common.events import FabricChanged, FabricGapsFound, FabricSeen, NodeNumaChanged, NodeStateChanged
from hbox_common.kube import HYPERNODES, apply, wait_established
from hbox_common.kube.definitions import HYPER_NODE
from hbox_common.model import HyperNode, NodeName, NodeNuma, NodeNvml, NvmlCard
from hbox_sandbox.fabric import FabricPlan, UfmServer, ibnetdiscover_text
from hbox_topology.adapters.fabricsfile import fabrics_of
from hbox_topology.adapters.measured import MeasuredFabric
from hbox_topology.app import run
from hbox_topology.core.fabric.domains import hypernode_object
from hbox_topology.settings import TopologySettings

from ...waiting import until
from ..jobs.edge_world import Kube, listening, running

PLAN = FabricPlan(units=3, host_name="n{}")


@pytest.fixture
async def ufm() -> AsyncIterator[UfmServer]:
    async with UfmServer(PLAN.snapshot()) as server:
        yield server


@pytest.fixture
async def settings(kube: Kube, kubeconfig: Path, nats: EmbeddedServer, ufm: UfmServer, tmp_path: Path) -> Any:
    for number in range(12):
        await kube.node(f"n{number}")
    (tmp_path / "token").write_text(ufm.token)
    (tmp_path / "fabrics.yaml").write_text(
        f"fabrics: [{{name: ib, ufm: {{url: '{ufm.url}', credentials: {tmp_path}, pollSeconds: 0.1}}}}]"
    )
    return TopologySettings(kubeconfig=str(kubeconfig), nats_url=nats.url, fabrics_file=tmp_path / "fabrics.yaml")


def last(heard: Any) -> Any:
    return heard[-1]


def all_of(heard: Any) -> Any:
    return heard


def sizes(heard: Any) -> dict[str, int]:
    """Nodes of each unit, as said last."""
    return {one.name: len(one.nodes) for one in heard[-1].hypernodes if one.tier_name == "leafgroup"} if heard else {}


def young(heard: Any, than: float) -> bool:
    return not last(heard).held and last(heard).seen_at > than


WHOLE = {"leaf-p1u01": 4, "leaf-p1u02": 4, "leaf-p1u03": 4}


async def test_domains_gaps_and_age_are_said(bus: Bus, settings: Any, ufm: UfmServer) -> None:
    async with (
        listening(bus, FabricChanged) as fabric,
        listening(bus, FabricGapsFound) as gaps,
        listening(bus, FabricSeen) as seen,
        running(run, settings),
    ):
        await until(lambda: sizes(fabric) == WHOLE)
        await until(lambda: gaps and last(gaps).gaps == ())
        kept = tuple(link for link in ufm.snapshot.hosts if (link.host, link.hca) != ("n3", "mlx5_4"))
        ufm.snapshot = replace(ufm.snapshot, hosts=kept)
        await until(lambda: last(gaps).gaps and last(gaps).gaps[0].message == "n3 has no link on rail 3 (mlx5_4)")
        assert last(gaps).degraded == {"n3": (3,)}
        said = await until(lambda: seen and last(seen).version == last(gaps).version and last(seen))
        assert (said.source, said.held, said.fabric) == ("ufm", "", "ib")


async def test_while_ufm_is_down_the_last_graph_stays_and_ages(bus: Bus, settings: Any, ufm: UfmServer) -> None:
    async with listening(bus, FabricChanged) as fabric, listening(bus, FabricSeen) as seen, running(run, settings):
        await until(lambda: sizes(fabric) == WHOLE)
        for faults in ({"down": True}, {"logged_out": True}, {"empty": True}, {"half_paged": True}, {"cut": True}):
            ufm.fail(**faults)
            await until(lambda: seen and last(seen).held)
            ufm.fail()
            before = last(seen).seen_at
            await until(partial(young, seen, before))
        assert len(fabric) == 1


async def test_a_fabric_that_changes_all_the_time_is_read_no_more_than_it_costs(
    bus: Bus, settings: Any, ufm: UfmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hbox_topology.adapters.measured.RESTS", 30.0)
    ufm.fail(moves=1)
    async with listening(bus, FabricChanged) as fabric, running(run, settings):
        await until(lambda: sizes(fabric) == WHOLE)
        before, spent = ufm.asked["/app/events"], processor_s()
        await asyncio.sleep(3.0)
        readings = ufm.asked["/app/events"] - before
        assert readings <= 2 + 3.0 / 30.0 / 0.01, f"{readings} readings, {processor_s() - spent:.2f} s of processor"


HOSTILE: tuple[dict[str, Any], ...] = (
    *({"endless": what} for what in ("rows", "nothing", "blanks", "row", "bomb", "headers")),
    {"redirects_to": "http://127.0.0.1:1/steal"},
    {"status": 429, "retry_after": "31536000"},
    {"announced_pages": 10**9},
    {"announced_pages": "all"},
)


async def test_a_hostile_ufm_changes_nothing_holds_nothing_up_and_learns_nothing(
    bus: Bus, settings: Any, ufm: UfmServer, kube: Kube, caplog: pytest.LogCaptureFixture
) -> None:
    text = settings.fabrics_file.read_text().replace("pollSeconds: 0.1", "pollSeconds: 0.1, mostMiB: 16")
    settings.fabrics_file.write_text(text)
    async with (
        listening(bus, FabricChanged) as fabric,
        listening(bus, FabricSeen) as seen,
        listening(bus, NodeStateChanged) as states,
        running(run, settings),
    ):
        await until(lambda: sizes(fabric) == WHOLE)
        for number, faults in enumerate(HOSTILE):
            ufm.fail(**faults)
            await kube.node(f"spare{number}")
            await until(lambda: seen and last(seen).held)
            await until(lambda name=f"spare{number}": any(one.node.name == name for one in all_of(states)))  # type: ignore[misc]
            ufm.fail()
            await until(partial(young, seen, last(seen).seen_at))
        assert len(fabric) == 1
    assert ufm.token not in caplog.text + repr(seen)


async def test_of_two_managers_that_see_different_fabrics_the_first_is_believed_until_the_other_insists(
    bus: Bus, settings: Any, ufm: UfmServer
) -> None:
    one = ufm.snapshot
    gone = ("n3", "mlx5_4")
    other = replace(one, hosts=tuple(link for link in one.hosts if (link.host, link.hca) != gone))

    async def read_again() -> None:
        asked = ufm.asked["/app/versioning"]
        await until(lambda: ufm.asked["/app/versioning"] >= asked + 4)

    async with listening(bus, FabricGapsFound) as gaps, listening(bus, FabricSeen) as seen, running(run, settings):
        await until(lambda: len(gaps) == 1)
        for turn in range(12):
            ufm.snapshot = other if turn % 2 == 0 else one
            await read_again()
        told = len(gaps)
        assert told < 6
        ufm.snapshot = other
        await until(lambda: seen and last(seen).held == "" and last(gaps).gaps)
        assert len(gaps) <= told + 1


async def test_a_file_from_the_future_is_seen_now(bus: Bus, settings: Any, tmp_path: Path) -> None:
    (tmp_path / "fabric.txt").write_text(ibnetdiscover_text(PLAN.snapshot()))
    os.utime(tmp_path / "fabric.txt", (4e9, 4e9))
    settings.fabrics_file.write_text(f"fabrics: [{{name: ib, ibnetdiscover: {tmp_path}/fabric.txt, ages: true}}]")
    async with listening(bus, FabricSeen) as seen, running(run, settings):
        await until(lambda: seen and last(seen).seen_at > 0)
        assert last(seen).seen_at <= time.time()
        assert last(seen).version <= time.time() * 1000


async def test_names_that_would_rule_a_terminal_are_names_of_no_domain(bus: Bus, settings: Any, ufm: UfmServer) -> None:
    evil = "\x1b[2J\u202e<script>alert(1)</script>\r\n{}"
    named = {guid: replace(one, name=evil + one.name) for guid, one in ufm.snapshot.switches.items()}
    links = tuple(replace(link, hca=evil[:9]) if link.host == "n3" else link for link in ufm.snapshot.hosts)
    ufm.snapshot = replace(ufm.snapshot, switches=named, hosts=links[1:])
    async with listening(bus, FabricChanged) as fabric, listening(bus, FabricGapsFound) as gaps, running(run, settings):
        await until(lambda: fabric and sum(sizes(fabric).values()) == 12)
        assert all(re.fullmatch("[a-z0-9]([a-z0-9-]*[a-z0-9])?", one.name) for one in last(fabric).hypernodes)
        await until(lambda: gaps and last(gaps).gaps)
        assert all(len(gap.message) <= 512 for gap in last(gaps).gaps)


def ask_rarely(settings: Any) -> None:
    """So that a doubt, which two more readings end, is there for a second."""
    settings.fabrics_file.write_text(settings.fabrics_file.read_text().replace("pollSeconds: 0.1", "pollSeconds: 0.5"))


async def test_a_ufm_that_lists_half_is_believed_only_when_it_insists(bus: Bus, settings: Any, ufm: UfmServer) -> None:
    ask_rarely(settings)
    async with listening(bus, FabricChanged) as fabric, listening(bus, FabricSeen) as seen, running(run, settings):
        await until(lambda: sizes(fabric) == WHOLE)
        ufm.fail(hosts=0.5)
        await until(lambda: seen and "lost 6 of 12 machines" in last(seen).held)
        assert sizes(fabric) == WHOLE
        await until(lambda: sizes(fabric) == {"leaf-p1u01": 4, "leaf-p1u03": 2})
        await until(lambda: last(seen).held == "")


async def test_names_outlive_a_restart_and_a_doubt_does_too(bus: Bus, settings: Any, ufm: UfmServer) -> None:
    ask_rarely(settings)
    async with listening(bus, FabricChanged) as fabric, listening(bus, FabricSeen) as seen:
        async with running(run, settings):
            await until(lambda: sizes(fabric) == WHOLE)
        renamed = {guid: replace(one, name=f"sw-{guid[-4:]}") for guid, one in ufm.snapshot.switches.items()}
        ufm.snapshot = replace(ufm.snapshot, switches=renamed)
        ufm.fail(hosts=0.5)
        async with running(run, settings):
            await until(lambda: seen and "lost 6 of 12 machines" in last(seen).held)
            ufm.fail()
            await until(lambda: last(seen).held == "")
            assert sizes(fabric) == WHOLE


async def test_a_fabric_that_the_file_names_no_more_is_empty_and_another_takes_its_place(
    bus: Bus, settings: Any, tmp_path: Path
) -> None:
    async with listening(bus, FabricChanged) as fabric, running(run, settings):
        await until(lambda: sizes(fabric) == WHOLE)
        (tmp_path / "fabric.txt").write_text(ibnetdiscover_text(FabricPlan(units=2, hosts=(6,), host_name="n{}").snapshot()))
        settings.fabrics_file.write_text(f"fabrics: [{{name: other, ibnetdiscover: {tmp_path}/fabric.txt}}]")
        await until(lambda: last(fabric).fabric == "other" and sizes(fabric) == {"leaf-p1u01": 6, "leaf-p1u02": 6})
        assert last([one.hypernodes for one in all_of(fabric) if one.fabric == "ib"]) == ()


async def test_nodes_that_come_later_join_their_unit(bus: Bus, settings: Any, kube: Kube) -> None:
    await kube.delete_node("n7")
    async with listening(bus, FabricChanged) as fabric, running(run, settings):
        await until(lambda: sizes(fabric) == WHOLE | {"leaf-p1u02": 3})
        await kube.node("n7")
        await until(lambda: sizes(fabric) == WHOLE)


async def test_where_no_label_says_the_nvlink_domain_nvml_does(bus: Bus, nats: EmbeddedServer, settings: Any) -> None:
    def nvlink(heard: Any) -> list[tuple[str, ...]]:
        return [one.nodes for one in heard[-1].hypernodes if one.tier_name == "nvlink"] if heard else []

    def said(node: str, *cliques: str) -> NodeNumaChanged:
        cards = tuple(NvmlCard(number, clique=clique) for number, clique in enumerate(cliques))
        return NodeNumaChanged(numa=NodeNuma(NodeName(node), 1.0, nvml=NodeNvml("550", cards)))

    async with (
        Bus.connect(nats.url, name="node-agent", instance="node-agent-0") as agent,
        listening(bus, FabricChanged) as fabric,
        running(run, settings),
    ):
        await until(lambda: sizes(fabric) == WHOLE)
        for node, cliques in (("n0", ("c.1", "c.1")), ("n1", ("c.1",)), ("n2", ("c.1", "c.2")), ("n3", ("c.2", ""))):
            await agent.publish(said(node, *cliques), node)
        await until(lambda: nvlink(fabric) == [("n0", "n1")])
        await agent.publish(said("n0"), "n0")
        await until(lambda: nvlink(fabric) == [("n1",)])


async def test_a_stop_that_comes_together_with_news_of_nodes_is_heard(bus: Bus, tmp_path: Path) -> None:
    """Whichever of both is first on its way through the event loop."""
    (tmp_path / "fabric.txt").write_text(ibnetdiscover_text(PLAN.snapshot()))
    [spec] = fabrics_of(f"fabrics: [{{name: ib, ibnetdiscover: {tmp_path}/fabric.txt}}]").fabrics
    labels: dict[str, dict[str, str]] = {f"n{number}": {} for number in range(12)}
    async with listening(bus, FabricSeen) as seen:
        for turns in range(8):
            heard = len(seen)
            fabric = MeasuredFabric(spec, bus, lambda: labels)
            working = asyncio.create_task(fabric.run())
            await until(lambda heard=heard: len(seen) > heard)  # type: ignore[misc]
            fabric.touch()
            for _ in range(turns):
                await asyncio.sleep(0)
            working.cancel()
            done, _ = await asyncio.wait([working], timeout=10)
            assert done, f"it goes on, after {turns} turns"


async def test_domains_are_written_as_hypernodes_and_only_ours_are_touched(
    bus: Bus, settings: Any, kube: Kube, ufm: UfmServer
) -> None:
    await apply(kube.client, HYPER_NODE, field_manager="test")
    await wait_established(kube.client, HYPER_NODE["metadata"]["name"])
    for name in ("theirs", "leaf-p1u03"):
        body = hypernode_object(HyperNode(name, 7, "rack", nodes=(NodeName("n0"),)))
        await kube.client.json("POST", HYPERNODES.path(), body=body)
    settings.fabrics_file.write_text("exportHyperNodes: true\n" + settings.fabrics_file.read_text())

    async def written() -> dict[str, tuple[int, int]]:
        items = (await kube.client.json("GET", HYPERNODES.path()))["items"]
        return {one["metadata"]["name"]: (one["spec"]["tier"], len(one["spec"]["members"])) for one in items}

    theirs = {"theirs": (7, 1), "leaf-p1u03": (7, 1)}
    whole = {"leaf-p1u01": (1, 4), "leaf-p1u02": (1, 4), "fabric": (2, 3)}

    async def all_written() -> bool:
        return await written() == theirs | whole

    async def second_gone() -> bool:
        return await written() == theirs | {"leaf-p1u01": (1, 4), "fabric": (2, 2)}

    async with listening(bus, FabricChanged) as fabric, running(run, settings):
        await until(all_written)
        ufm.snapshot = replace(
            ufm.snapshot, hosts=tuple(link for link in ufm.snapshot.hosts if link.host not in ("n4", "n5", "n6", "n7"))
        )
        await until(second_gone)
        assert {one.fabric for one in all_of(fabric)} == {"ib"}
