"""`hbox health nccl`: tests of pairs of idle nodes as jobs of low priority."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from hbox_common.bus import Bus
from hbox_common.clock import wall_s
from hbox_common.errors import InvalidRequest, NotFound
from hbox_common.events import Event
from hbox_common.model import Claim, NodeState

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


@dataclass(frozen=True, slots=True)
class _Nodes:
    leaf_of: dict[str, str]
    hardware: dict[str, pairtests.Hardware]  #: of nodes whose cards are all of one model
    idle: tuple[str, ...]  #: of `hardware`: ready, all of the node may be used, and no card is held

    def plan(self, rounds: int) -> list[pairtests.PairTest]:
        """Raises NotFound if no two idle nodes have the same hardware."""
        tests = pairtests.plan({name: self.leaf_of.get(name, "") for name in self.idle}, rounds, self.hardware)
        if not tests:
            raise NotFound(
                "no two nodes with the same number of cards of one model are idle, ready and well",
                hint="`hbox nodes` lists them",
            )
        return tests


def nodes_of(values: Sequence[Event], claims: Sequence[Claim], *, now: float) -> _Nodes:
    """Of the last values of NodeStateChanged, HealthVerdict and FabricChanged."""
    from hbox_common.events import FabricChanged, HealthVerdict, NodeStateChanged  # noqa: PLC0415
    from hbox_common.views.nodes import node_items  # noqa: PLC0415

    states = [event.node for event in values if isinstance(event, NodeStateChanged)]
    verdicts = {str(event.verdict.node): event.verdict for event in values if isinstance(event, HealthVerdict)}
    fabrics = {event.fabric: event.hypernodes for event in values if isinstance(event, FabricChanged)}
    leaves = {
        str(node): one.name for _, domains in sorted(fabrics.items(), reverse=True) for one in domains for node in one.nodes
    }
    hardware = {str(state.name): found for state in states if (found := _hardware_of(state)) is not None}
    idle = tuple(
        one["name"]
        for one in node_items(states, verdicts, claims, now=now)
        if one["state"] == "READY"
        and one["healthy"]
        and one["cards"]["total"] == one["cards"]["free"] > 0
        and one["name"] in hardware
    )
    return _Nodes(leaves, hardware, idle)


def _hardware_of(node: NodeState) -> pairtests.Hardware | None:
    """None: cards of several models or of an unknown vendor, or MIG instances, between which NCCL does not run."""
    from hbox_common.model.cardmodels import card_resource  # noqa: PLC0415
    from hbox_common.model.devices.cardids import is_mig  # noqa: PLC0415

    kinds = {(card.model, card_resource(node, card)) for card in node.cards}
    [(model, resource)] = kinds if len(kinds) == 1 else [("", "")]
    if not resource or any(is_mig(card.id) for card in node.cards):
        return None
    return pairtests.Hardware(model, resource, len(node.cards))


async def _ask_nodes(bus: Bus) -> _Nodes:
    from hbox_common.events import FabricChanged, HealthVerdict, NodeStateChanged  # noqa: PLC0415

    values = await last_values(bus, [NodeStateChanged, HealthVerdict, FabricChanged])
    return nodes_of(values, [claim for page in await claims_of(bus) for claim in page.claims], now=wall_s())


def _read_nodes(ctx: Context) -> _Nodes:
    async def ask() -> _Nodes:
        async with bus_of(running_of(ctx)) as bus:
            return await _ask_nodes(bus)

    return run(ask)


def named_pairs(pairs: Sequence[str], number: int, hardware: Mapping[str, pairtests.Hardware]) -> list[pairtests.PairTest]:
    """Raises InvalidRequest for anything but two nodes with the same hardware."""
    tests = []
    for pair in pairs:
        named = pair.split(",")
        if len(named) != 2 or named[0] == named[1]:
            raise InvalidRequest("--pair: two nodes are expected, such as n1,n2")
        kinds = [hardware.get(name) for name in named]
        if None in kinds or kinds[0] != kinds[1]:
            texts = [f"{name} has {kind or 'no cards of one model'}" for name, kind in zip(named, kinds, strict=True)]
            raise InvalidRequest(f"--pair: two nodes with the same hardware are expected; {', '.join(texts)}")
        tests.append(pairtests.PairTest(number, *named))
    return tests


@command.command("plan")
@click.option("--rounds", default=3, type=click.IntRange(1, 64), help="Rounds of pairs.  [3]")
@platform_options
def plan(ctx: Context, rounds: int) -> None:
    """Show the pairs of idle nodes that would be tested. Nothing is created."""
    ctx.output.rows("PairTest", [_item(test) for test in _read_nodes(ctx).plan(rounds)], TESTS)


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

    nodes = _read_nodes(ctx)
    tests = named_pairs(pairs, number, nodes.hardware) if pairs else [one for one in nodes.plan(number) if one.round == number]
    wanted = pairtests.Run(name, namespace, image, ("sh", "-c", arguments), priority_class, rail)

    async def create() -> None:
        async with KubeClient.connect(running_of(ctx).kubeconfig or None, user_agent="hbox health nccl") as client:
            for manifest in pairtests.manifests(wanted, tests, nodes.hardware):
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
    from hbox_common.kube import PODS, KubeClient  # noqa: PLC0415

    async def ask() -> tuple[list[Any], _Nodes]:
        async with (
            KubeClient.connect(running_of(ctx).kubeconfig or None, user_agent="hbox health nccl") as client,
            bus_of(running_of(ctx)) as bus,
        ):
            pods = await client.json(
                "GET", PODS.path(namespace), params={"labelSelector": f"{pairtests.RUN} in ({','.join(names)})"}
            )
            return pods["items"], await _ask_nodes(bus)

    pods, nodes = run(ask)
    if not pods:
        raise NotFound(f"no run {', '.join(names)} in namespace {namespace}")
    pairs, waiting = pairtests.results(pods)
    rail = next((e["value"] for e in pods[0]["spec"]["containers"][0].get("env", ()) if e["name"] == "NCCL_IB_HCA"), "").lstrip(
        "="
    )
    found = {
        kind: pairtests.conclude(part, nodes.leaf_of) for kind, part in pairtests.by_hardware(pairs, nodes.hardware).items()
    }
    if ctx.output.machine:
        ctx.output.document(
            "PairTests",
            {
                "name": ",".join(names),
                "waiting": waiting,
                "rail": rail,
                "medians": {kind: one.pairs.median for kind, one in found.items()},
                "pairs": [_item(pair) for pair in pairs],
                "slow": [node for one in found.values() for node in one.slow],
                "slowLeaves": sorted({leaf for one in found.values() for leaf in one.leaves}),
                "uplinks": any(one.uplinks for one in found.values()),
                "borderline": [node for one in found.values() for node in one.pairs.borderline],
                "unmeasured": [node for one in found.values() for node in one.pairs.unmeasured],
                "retests": [_item(test) for one in found.values() for test in one.retests],
            },
        )
        return
    ctx.output.rows("PairTest", [_item(pair) for pair in pairs], RESULTS)
    part = f" on rail {rail}" if rail else ""
    put(f"{waiting} pairs have not ended")
    for kind, one in found.items():
        _put_conclusion(f"{kind or 'nodes with unknown cards'}{part}", one)


def _put_conclusion(of: str, found: pairtests.Conclusion) -> None:
    put(f"{of}: slow: {', '.join(found.slow) or 'no node'}; the median of the nodes' best pairs is {found.pairs.median:g} GB/s")
    if found.leaves:
        put(f"most nodes of leaf {', '.join(found.leaves)} are slow, and none of other leaves: the switch is suspected")
    if found.uplinks:
        put("pairs below different leaves are slow, and no node is: the links above the leaves are suspected")
    for test in found.retests:
        put(f"test next: --round {test.round} --pair {test.one},{test.other}")


def _item(test: Any) -> dict[str, Any]:
    return {"name": f"{test.round}/{test.one}/{test.other}", **asdict(test)}
