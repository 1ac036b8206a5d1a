"""`hbox why JOB`."""

import difflib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import click

from hbox_common.bus import Bus
from hbox_common.clock import wall_s
from hbox_common.errors import InvalidRequest, NotFound, Unavailable
from hbox_common.events import EvictionReceipt, NodeRests, NodeStateChanged
from hbox_common.model import KindRest, LeavingPod, NodeRest
from hbox_common.views.evictions import about, receipt_item
from hbox_common.views.firstreport import report_text
from hbox_common.views.jobs import items_of
from hbox_common.views.nodes import rest_text

from .. import receipts
from ..aio import run
from ..context import Context, command_options
from ..explaining import explanation, rules_of_node, show_explanation, show_rules, waiting_text
from ..output import duration, notify, put
from ..placements import show
from ..platform.layout import Layout
from ..session import bus_of, job_pages, last_values
from ..waits import waits_text

NODES_SHOWN = 8
#: The scheduler's label for nodes that wait for node-agent's first report.
KUBELET_POLICY = "KubeletPolicyNotKnown"
#: A pod that is being deleted is slow to end once it should have ended so long ago; its kubelet may be a little late.
LATE_S = 30.0
LATE_SHOWN = 3
#: Timeout in seconds of a query for card reasons, and attempts: an answer may be lost, or late under load.
CARDS_S = 5.0
ATTEMPTS = 2


@click.command("why")
@click.argument("job")
@click.option("--placed", is_flag=True, help="Show the scores of its placement and the runner-up nodes.")
@click.option(
    "--evicted", is_flag=True, help="Show for which job its pods were evicted, by which rule, and when they can return."
)
@click.option("--history", is_flag=True, help="Show how long it waited, by code of the reason.")
@click.option("--node", help="Show all rules that this node fails for a pod of JOB.")
@command_options
def command(ctx: Context, job: str, *, placed: bool, evicted: bool, history: bool, node: str | None) -> None:
    """Explain why JOB waits, or show where it runs. JOB is a job's or a pod's name, namespace/name, or a job's uid.

    \b
    hbox why train-7
    hbox why ml/train-7 -o json
    hbox why --placed train-7
    hbox why --evicted train-7
    hbox why --history train-7
    hbox why --node node-0003 train-7

    For a waiting job: what ends the wait (wait, change or escalate), the code of the reason, who acts, what is needed and available, nodes by rule, and the
    smallest changes of which each starts the job in the examined state. HBOX_LANG=zh prints Chinese.

    --placed reads scheduler-core's latest decisions. For older ones, or those of an earlier process, use a record (HBOX_RECORD):
    `hbox simulate replay RECORD --placed JOB`.

    --evicted reads the receipts that the broker keeps for a week, also of deleted pods and jobs, by name.

    --history charges each second of waiting to one code, also over evictions and restarts: `1h12m = 8m QueueShareSpent + 52m CardsInUse + 12m Evicted`.
    `hbox reason show CODE` explains a code.
    """
    if placed + evicted + history + (node is not None) > 1:
        raise InvalidRequest("--placed, --evicted, --history and --node are separate questions", hint="ask one after the other")
    if placed:
        _show_placed(ctx, job)
        return
    if evicted:
        _show_evicted(ctx, job)
        return
    if history:
        _show_history(ctx, job)
        return
    if node is not None:
        _show_node(ctx, job, node)
        return
    found = run(lambda: _read(ctx, job))
    if not ctx.output.people:
        ctx.output.document("JobExplanation", found)
        return
    _head(found)
    if found["explanation"] is None:
        put(f"  {explain(found)}")
    else:
        show_explanation(found["explanation"], found["reason"])
    for pod in found["latePods"][:LATE_SHOWN]:
        put(f"  {late_text(pod)}")
    if (more := len(found["latePods"]) - LATE_SHOWN) > 0:
        put(f"  and {more} more pods that were to have ended")
    for name, text in found["failingNodes"].items():
        put(f"  {name}: {text}")
    unreported = found["unreportedNodes"]
    for name in list(unreported)[:NODES_SHOWN]:
        put(f"  {name}: {unreported[name]}")
    if (more := len(unreported) - NODES_SHOWN) > 0:
        put(f"  and {more} more nodes that wait for node-agent's first report")
    # Cards as they are now: of no interest to a job that time does not help.
    for task in found["cardReasons"] if (found["explanation"] or {}).get("verdict", "wait") == "wait" else ():
        pods = task["pods"]
        put(f"  cards for {pods[0]}{f' and {len(pods) - 1} more' if len(pods) > 1 else ''}: {task['said']}")
        for one in task["best"]:
            where = f" (container {one['container'] + 1})" if one["container"] else ""
            put(f"    {one['node']}: {one['fitting']} of {one['cards']} cards fit{where}: {one['said']}")


async def _read(ctx: Context, job: str) -> dict[str, Any]:
    """The job, and what cards say to it where it waits for some."""
    async with bus_of(Layout(ctx.state).running()) as bus:
        pages = await job_pages(bus)
        items = items_of(pages, now=wall_s())
        rests = [one.event.rest for one in await bus.last(NodeRests, [(None,)]) if isinstance(one.event, NodeRests)]
        try:
            found = find(items, job)
        except NotFound:
            if (
                refused := next((one for one in _refusals(rests) if job in (one.pod, one.pod.partition("/")[2])), None)
            ) is None:
                raise
            raise NotFound(
                f"pod {refused.pod} has ended: the kubelet of its node refused it: {refused.message}",
                hint="`hbox nodes` shows what the node refuses; HBox places the pod's replacement on another node while this one rests",
            ) from None
        waits = found["waiting"] and found["cards"]
        return {
            **found,
            "explanation": await explanation(bus, found) if found["waiting"] else None,
            "cardReasons": await _cards(bus, found) if waits else [],
            "latePods": late_pods((pod for page in pages for pod in page.leaving), now=wall_s()) if waits else [],
            "failingNodes": {one.node: text for one in rests if found["waiting"] and (text := rest_text(one, wall_s()))},
            "unreportedNodes": await _unreported(bus) if KUBELET_POLICY in found["reason"] else {},
        }


async def _unreported(bus: Bus) -> dict[str, str]:
    nodes = [one.node for one in await last_values(bus, [NodeStateChanged]) if isinstance(one, NodeStateChanged)]
    return {node.name: report_text(node, wall_s()) for node in sorted(nodes, key=lambda node: node.name) if node.report_due}


def _refusals(rests: Iterable[NodeRest]) -> Iterator[KindRest]:
    return (one for rest in rests for one in rest.refused)


async def _cards(bus: Bus, found: dict[str, Any]) -> list[dict[str, Any]]:
    from hbox_scheduler.api import endpoint_of  # noqa: PLC0415  for those who wait for cards
    from hbox_scheduler.cardanswer import CardsAnswer, CardsRequest  # noqa: PLC0415

    asked = endpoint_of("cards", found.get("shard", ""))
    for _ in range(ATTEMPTS):
        try:
            answer = await bus.call("scheduler-core", asked, CardsRequest(job=found["id"]), CardsAnswer, timeout_s=CARDS_S)
        except Unavailable as e:
            if not e.outcome_unknown:  # an older scheduler has no such endpoint; the status of an absent one is shown elsewhere
                return []
            lost = e
        else:
            return [task.model_dump(mode="json") for task in answer.tasks]
    notify(f"no reasons from the cards: {lost}")
    return []


def late_pods(pods: Iterable[LeavingPod], *, now: float) -> list[dict[str, Any]]:
    """Those that should have ended a while ago, the latest first. `now`: seconds since the epoch."""
    late = [pod for pod in pods if pod.ends_at < now - LATE_S]
    return [
        {
            "pod": f"{pod.namespace}/{pod.name}",
            "node": pod.node,
            "cards": pod.cards,
            "lateSeconds": round(now - pod.ends_at, 1),
            "finalizers": list(pod.finalizers),
        }
        for pod in sorted(late, key=lambda pod: (pod.ends_at, pod.namespace, pod.name))
    ]


def late_text(pod: dict[str, Any]) -> str:
    """A line about a pod that holds cards beyond its end: its cards are not free until its kubelet reports that it ended."""
    finalizers = f", and {', '.join(pod['finalizers'])} will have to let go of it" if pod["finalizers"] else ""
    return (
        f"{pod['pod']} still has {pod['cards']} card{'s' if pod['cards'] > 1 else ''} of {pod['node']}: it is being deleted and should have ended "
        f"{duration(pod['lateSeconds'])} ago, but its kubelet has not reported that it ended{finalizers}"
    )


def _head(found: dict[str, Any]) -> None:
    pods = found["pods"]
    shard = f"  shard {found['shard']}" if "shard" in found else ""
    put(
        f"{found['name']}  {found['state']}  queue {found['queue']}{shard}  priority {found['priority']}  "
        f"{pods['bound']}/{pods['members']} pods bound, {pods['min']} needed  {found['cards']} cards  {duration(found['ageSeconds'])} old"
    )


def _show_placed(ctx: Context, job: str) -> None:
    from hbox_scheduler.api import DecisionsAnswer, DecisionsRequest, endpoint_of  # noqa: PLC0415  half a second that others do not need

    async def ask() -> tuple[dict[str, Any], DecisionsAnswer]:
        async with bus_of(Layout(ctx.state).running()) as bus:
            found = find(items_of(await job_pages(bus), now=wall_s()), job)
            asked = endpoint_of("decisions", found.get("shard", ""))
            return found, await bus.call("scheduler-core", asked, DecisionsRequest(job=found["id"]), DecisionsAnswer)

    found, answer = run(ask)
    decisions = answer.model_dump(mode="json")["decisions"]
    if not decisions and not found["placed"]:
        raise NotFound(f"{found['name']} has no places", hint=f"`hbox why {found['name']}` shows why it waits")
    if not decisions:
        began = datetime.fromtimestamp(answer.since, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        raise NotFound(
            f"the decision on {found['name']} is not kept: it was made before this scheduler-core began ({began}), or is older than the last 10,000",
            hint=f"where HBOX_RECORD was set, `hbox simulate replay RECORD --placed {found['name']}` computes it from the record",
        )
    if not ctx.output.people:
        ctx.output.document("PlacementExplanation", {"name": found["name"], "id": found["id"], "decisions": decisions})
        return
    _head(found)
    show(decisions)


def _show_history(ctx: Context, job: str) -> None:
    async def ask() -> dict[str, Any]:
        async with bus_of(Layout(ctx.state).running()) as bus:
            return find(items_of(await job_pages(bus), now=wall_s()), job)

    found = run(ask)
    if not ctx.output.people:
        seconds = found["waitSeconds"]
        items = [{"name": found["name"], "id": found["id"], "code": code, "seconds": spent} for code, spent in seconds.items()]
        ctx.output.document("WaitHistory", {"items": items})
        return
    _head(found)
    put(f"  waited {waits_text(found['waitSeconds'])}")


def _show_node(ctx: Context, job: str, node: str) -> None:
    async def ask() -> tuple[dict[str, Any], list[dict[str, Any]]]:
        async with bus_of(Layout(ctx.state).running()) as bus:
            found = find(items_of(await job_pages(bus), now=wall_s()), job)
            return found, await rules_of_node(bus, found, node)

    found, rules = run(ask)
    if not ctx.output.people:
        ctx.output.document("NodeExplanation", {"name": found["name"], "id": found["id"], "node": node, "failed": rules})
        return
    _head(found)
    show_rules(node, rules)


def _show_evicted(ctx: Context, job: str) -> None:
    async def ask() -> tuple[list[dict[str, Any]], list[EvictionReceipt]]:
        async with bus_of(Layout(ctx.state).running()) as bus:
            return items_of(await job_pages(bus), now=wall_s()), await receipts.receipts_of(bus)

    items, kept = run(ask)
    named = [item for item in items if job in (item["id"], item["name"]) or item["name"].partition("/")[2] == job]
    found = about(kept, job, jobs=[item["id"] for item in named])
    now = [item for item in items if item["id"] in {one.job for one in found} or item in named]
    if not ctx.output.people:
        document = {"name": job, "receipts": [receipt_item(one) for one in found], "now": now}
        ctx.output.document("EvictionExplanation", document)
        return
    for one in found:
        receipts.show(one)
    for item in now:
        put(f"now:        {item['name']}: {explain(item)}")


def find(items: list[dict[str, Any]], job: str) -> dict[str, Any]:
    """The job meant, by its own name or one of its pods'. Raises NotFound, with the nearest names, also when several have the name."""
    matches = [item for item in items if job in (item["id"], item["name"]) or item["name"].partition("/")[2] == job]
    matches = matches or [item for item in items if _has_pod(item, job)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise NotFound(
            f"{len(matches)} jobs are called {job}", hint="name one of " + ", ".join(item["name"] for item in matches[:5])
        )
    near = difflib.get_close_matches(job, [n for item in items for n in (item["name"], item["name"].partition("/")[2])], 3)
    raise NotFound(
        f"there is no job {job} with a live pod",
        hint=f"did you mean {' or '.join(near)}?" if near else "`hbox jobs` lists them",
    )


def _has_pod(item: dict[str, Any], pod: str) -> bool:
    namespace = item["name"].partition("/")[0]
    return any(pod in (name, f"{namespace}/{name}") for name in (*item["placed"], *item["waiting"]))


def explain(item: dict[str, Any]) -> str:
    match item["state"]:
        case "INVALID":
            return f"change: it cannot be scheduled as written: {item['reason']}"
        case "WAITING":
            return waiting_text(item)
        case "PENDING":
            return "pending: the scheduler has not spoken on it yet"
        case "GROWING":
            return f"started; more of its pods wait: {item['reason'] or 'the scheduler has not spoken on them yet'}"
        case _:
            nodes = sorted(set(item["placed"].values()))
            where = ", ".join(nodes[:NODES_SHOWN]) + (
                f" and {len(nodes) - NODES_SHOWN} more" if len(nodes) > NODES_SHOWN else ""
            )
            return f"placed: all of its pods have nodes: {where}"
