"""`hbox health nccl`: tests of pairs of idle nodes as jobs of low priority."""

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from hbox_common.bus import Bus
from hbox_common.clock import wall_s
from hbox_common.errors import InvalidRequest, NotFound

from ..access import running_of
from ..aio import run
from ..context import Context, platform_options
from ..health import pairtests
from ..output import Column, notify, put
from ..session import bus_of, claims_of, last_values

TESTS = (
    Column("ROUND", lambda t: t["round"]),
    Column("NODE_A", lambda t: t["one"]),
    Column("NODE_B", lambda t: t["other"]),
)
RESULTS = (
    *TESTS,
    Column("BUSBW_GBS", lambda t: f"{t['busbw']:.1f}" if t["busbw"] else ""),
    Column("STATUS", lambda t: "ok" if t["ok"] else "failed"),
)


@click.group("nccl")
def command() -> None:
    """Find slow nodes by nccl-tests between pairs of idle nodes.

    \b
    hbox health nccl plan
    hbox health nccl submit run-1 --image nccl-tests:2.24 --command 'all_reduce.sh | tee /dev/termination-log'
    hbox health nccl read run-1
    """


async def _nodes(bus: Bus) -> tuple[dict[str, str], dict[str, int]]:
    """Leaf, and number of cards, of each ready node of which all may be used and no card is held."""
    from hbox_common.events import FabricChanged, HealthVerdict, NodeStateChanged  # noqa: PLC0415
    from hbox_common.views.nodes import node_items  # noqa: PLC0415

    values = await last_values(bus, [NodeStateChanged, HealthVerdict, FabricChanged])
    fabrics = {event.fabric: event.hypernodes for event in values if isinstance(event, FabricChanged)}
    leaves = {
        str(node): one.name for _, domains in sorted(fabrics.items(), reverse=True) for one in domains for node in one.nodes
    }
    items = node_items(
        [event.node for event in values if isinstance(event, NodeStateChanged)],
        {event.verdict.node: event.verdict for event in values if isinstance(event, HealthVerdict)},
        [claim for page in await claims_of(bus) for claim in page.claims],
        now=wall_s(),
    )
    idle = [
        one for one in items if one["state"] == "READY" and one["healthy"] and one["cards"]["total"] == one["cards"]["free"] > 0
    ]
    return {one["name"]: leaves.get(one["name"], "") for one in idle}, {one["name"]: int(one["cards"]["total"]) for one in idle}


def _read_nodes(ctx: Context) -> tuple[dict[str, str], dict[str, int]]:
    async def ask() -> tuple[dict[str, str], dict[str, int]]:
        async with bus_of(running_of(ctx)) as bus:
            return await _nodes(bus)

    return run(ask)


def _same_model(leaf_of: Mapping[str, str], cards: Mapping[str, int]) -> tuple[dict[str, str], int]:
    """The nodes with as many cards as most have. Raises NotFound for less than two."""
    numbers = list(cards.values())
    most = max(numbers, key=lambda count: (numbers.count(count), count), default=0)
    similar = {name: leaf for name, leaf in leaf_of.items() if cards[name] == most}
    if len(similar) < 2:
        raise NotFound("fewer than two nodes with cards are idle, ready and well", hint="`hbox nodes` lists them")
    return similar, most


@command.command("plan")
@click.option("--rounds", default=3, type=click.IntRange(1, 64), help="Rounds of pairs.  [3]")
@platform_options
def plan(ctx: Context, rounds: int) -> None:
    """Show the pairs of idle nodes that would be tested. Nothing is created."""
    leaf_of, _ = _same_model(*_read_nodes(ctx))
    ctx.output.rows("PairTest", [_item(test) for test in pairtests.plan(leaf_of, rounds)], TESTS)


@command.command("submit")
@click.argument("name")
@click.option("--image", required=True, help="Image with nccl-tests.")
@click.option(
    "--command",
    "arguments",
    required=True,
    help="Command of both pods; that of NODE_RANK 0 writes its output to /dev/termination-log.",
)
@click.option("--namespace", default="default", help="Namespace of the jobs.  [default]")
@click.option("--priority-class", default="offline", help="PriorityClass of the jobs, which others may preempt.  [offline]")
@click.option("--round", "number", default=1, type=click.IntRange(1, 64), help="Round of the plan.  [1]")
@click.option("--rail", default="", help="Use this adapter of each node alone, such as mlx5_3.  [all]")
@click.option(
    "--pair", "pairs", multiple=True, metavar="NODE,NODE", help="Test this pair instead of the plan's; may be repeated."
)
@platform_options
def submit(
    ctx: Context,
    name: str,
    *,
    image: str,
    arguments: str,
    namespace: str,
    priority_class: str,
    number: int,
    rail: str,
    pairs: tuple[str, ...],
) -> None:
    """Create a gang of two pods on each pair of one round; NAME names the run.

    The pods get NODE_RANK, NNODES, MASTER_ADDR and MASTER_PORT. They wait if their nodes are used meanwhile.
    """
    from hbox_common.kube import KubeClient  # noqa: PLC0415
    from hbox_common.kube.manifests import apply  # noqa: PLC0415

    leaf_of, cards = _same_model(*_read_nodes(ctx))
    tests = [one for one in pairtests.plan(leaf_of, number) if one.round == number]
    if pairs:
        named = [pair.split(",") for pair in pairs]
        if any(len(pair) != 2 or pair[0] == pair[1] for pair in named):
            raise InvalidRequest("--pair: two nodes are expected, such as n1,n2")
        tests = [pairtests.PairTest(number, one, other) for one, other in named]
    wanted = pairtests.Run(name, namespace, image, ("sh", "-c", arguments), priority_class, cards, rail)

    async def create() -> None:
        async with KubeClient.connect(running_of(ctx).kubeconfig or None, user_agent="hbox health nccl") as client:
            for manifest in pairtests.manifests(wanted, tests):
                await apply(client, manifest, field_manager="hbox-nccl")

    run(create)
    notify(
        f"{len(tests)} pairs of run {name}: {shlex.join(('hbox', 'health', 'nccl', 'read', name, '--namespace', namespace))}"
    )


@command.command("read")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--namespace", default="default", help="Namespace of the jobs.  [default]")
@platform_options
def read(ctx: Context, names: tuple[str, ...], namespace: str) -> None:
    """Show the results of all runs NAME together, which nodes, leaf switches or rails are slow, and which pairs to test next."""
    from hbox_common.events import FabricChanged  # noqa: PLC0415
    from hbox_common.kube import PODS, KubeClient  # noqa: PLC0415

    async def ask() -> tuple[list[Any], dict[str, str]]:
        async with (
            KubeClient.connect(running_of(ctx).kubeconfig or None, user_agent="hbox health nccl") as client,
            bus_of(running_of(ctx)) as bus,
        ):
            pods = await client.json(
                "GET", PODS.path(namespace), params={"labelSelector": f"{pairtests.RUN} in ({','.join(names)})"}
            )
            fabrics = [event for event in await last_values(bus, [FabricChanged]) if isinstance(event, FabricChanged)]
        return pods["items"], {str(node): one.name for event in fabrics for one in event.hypernodes for node in one.nodes}

    pods, leaf_of = run(ask)
    if not pods:
        raise NotFound(f"no run {', '.join(names)} in namespace {namespace}")
    pairs, waiting = pairtests.results(pods)
    rail = next((e["value"] for e in pods[0]["spec"]["containers"][0].get("env", ()) if e["name"] == "NCCL_IB_HCA"), "").lstrip(
        "="
    )
    found = pairtests.conclude(pairs, leaf_of)
    if ctx.output.machine:
        ctx.output.document(
            "PairTests",
            {
                "name": ",".join(names),
                "waiting": waiting,
                "rail": rail,
                "median": found.pairs.median,
                "pairs": [_item(pair) for pair in pairs],
                "slow": list(found.slow),
                "slowLeaves": list(found.leaves),
                "uplinks": found.uplinks,
                "borderline": list(found.pairs.borderline),
                "unmeasured": list(found.pairs.unmeasured),
                "retests": [_item(test) for test in found.retests],
            },
        )
        return
    ctx.output.rows("PairTest", [_item(pair) for pair in pairs], RESULTS)
    part = f" on rail {rail}" if rail else ""
    put(f"{waiting} pairs have not ended; the median of the nodes' best pairs is {found.pairs.median:g} GB/s{part}")
    put(f"slow{part}: {', '.join(found.slow) or 'no node'}")
    if found.leaves:
        put(f"most nodes of leaf {', '.join(found.leaves)} are slow, and none of other leaves: the switch is suspected")
    if found.uplinks:
        put("pairs below different leaves are slow, and no node is: the links above the leaves are suspected")
    for test in found.retests:
        put(f"test next: --round {test.round} --pair {test.one},{test.other}")


def _item(test: Any) -> dict[str, Any]:
    return {"name": f"{test.round}/{test.one}/{test.other}", **asdict(test)}
