"""`hbox why JOB`."""

import os
from datetime import UTC, datetime
from typing import Any

import click

from hbox_common.clock import wall_s
from hbox_common.errors import InvalidRequest, NotFound
from hbox_common.reasons import language_of, trace_line, waited

from .. import receipts
from ..access import source_of
from ..context import Context, platform_options
from ..explaining import rule_item, show_explanation, show_rules, waiting_text
from ..output import duration, put
from ..placements import show
from ..versus import compared

NODES_SHOWN = 8
LATE_SHOWN = 3
SICK_SHOWN = 4


@click.command("why")
@click.argument("job")
@click.option("--placed", is_flag=True, help="Show the scores of its placement and the runner-up nodes.")
@click.option(
    "--evicted", is_flag=True, help="Show for which job its pods were evicted, by which rule, and when they can return."
)
@click.option("--history", is_flag=True, help="Show how long it waited, by code of the reason.")
@click.option("--node", help="Show all rules that this node fails for a pod of JOB.")
@click.option("--vs", "other", metavar="JOB", help="Show why this other job has places while JOB waits.")
@platform_options
def command(ctx: Context, job: str, *, placed: bool, evicted: bool, history: bool, node: str | None, other: str | None) -> None:
    """Explain why JOB waits, or show where it runs. JOB is a job's or a pod's name, namespace/name, or a job's uid.

    \b
    hbox why train-7
    hbox why ml/train-7 -o json
    hbox why --placed train-7
    hbox why --evicted train-7
    hbox why --history train-7
    hbox why --node node-0003 train-7
    hbox why --vs eval-3 train-7

    For a waiting job: what ends the wait (wait, change or escalate), the code of the reason, who acts, what is needed and available, nodes by rule, and the
    smallest changes of which each starts the job in the examined state. HBOX_LANG=zh prints Chinese.

    --placed reads scheduler-core's latest decisions. For older ones, or those of an earlier process, use a record (HBOX_RECORD):
    `hbox simulate replay RECORD --placed JOB`.

    --evicted reads the receipts that the broker keeps for a week, also of deleted pods and jobs, by name.

    --history charges each second of waiting to one code, also over evictions and restarts: `1h12m = 8m QueueShareSpent + 52m CardsInUse + 12m Evicted`.
    `hbox reason show CODE` explains a code.

    --vs compares queues, priorities, creation times and places of both jobs, and shows what JOB waits for. It takes the right to see both.
    """
    if placed + evicted + history + (node is not None) + (other is not None) > 1:
        raise InvalidRequest(
            "--placed, --evicted, --history, --node and --vs are separate questions", hint="ask one after the other"
        )
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
    if other is not None:
        _show_versus(ctx, job, other)
        return
    found = source_of(ctx).why(job)
    if not ctx.output.people:
        ctx.output.document("JobExplanation", found)
        return
    _head(found)
    _show_wait(found)
    for pod in found["latePods"][:LATE_SHOWN]:
        put(f"  {late_text(pod)}")
    if (more := len(found["latePods"]) - LATE_SHOWN) > 0:
        put(f"  and {more} more pods that were to have ended")
    for pod in found.get("sickPods", ())[:SICK_SHOWN]:  # an older server has none
        put(f"  {sick_text(pod)}")
        put(f"    next: {pod['next']}")
    if (more := len(found.get("sickPods", ())) - SICK_SHOWN) > 0:
        put(f"  and {more} more pods on sick hardware")
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
    if trace := found.get("traceId"):  # an older server has none
        put(f"  {trace_line(trace, language_of(os.environ))}")


def _show_wait(found: dict[str, Any]) -> None:
    if found["explanation"] is None:
        put(f"  {explain(found)}")
    else:
        show_explanation(found)


def late_text(pod: dict[str, Any]) -> str:
    """A line about a pod that holds cards beyond its end: its cards are not free until its kubelet reports that it ended."""
    finalizers = f", and {', '.join(pod['finalizers'])} will have to let go of it" if pod["finalizers"] else ""
    return (
        f"{pod['pod']} still has {pod['cards']} card{'s' if pod['cards'] > 1 else ''} of {pod['node']}: it is being deleted and should have ended "
        f"{duration(pod['lateSeconds'])} ago, but its kubelet has not reported that it ended{finalizers}"
    )


def sick_text(pod: dict[str, Any]) -> str:
    """A line about a pod on hardware that is out of use."""
    where = f"{', '.join(pod['cards'])} of {pod['node']}" if pod["cards"] else pod["node"]
    fault = f"{pod['code']}: " if pod["code"] else ""
    policy = f"policy {pod['policy']} ({pod['policyOf']})" if pod["policy"] else "no policy applies"
    return f"{pod['pod']} {pod['state']} on sick hardware: {where}: {fault}{pod['reason']} {policy}, incident {pod['incident'] or 'none'}"


def _head(found: dict[str, Any]) -> None:
    pods = found["pods"]
    shard = f"  shard {found['shard']}" if "shard" in found else ""
    put(
        f"{found['name']}  {found['state']}  queue {found['queue']}{shard}  priority {found['priority']}  "
        f"{pods['bound']}/{pods['members']} pods bound, {pods['min']} needed  {found['cards']} cards  {duration(found['ageSeconds'])} old"
    )


def _show_placed(ctx: Context, job: str) -> None:
    found = source_of(ctx).placement(job)
    decisions = found["decisions"]
    if not decisions and not found["placed"]:
        raise NotFound(f"{found['name']} has no places", hint=f"`hbox why {found['name']}` shows why it waits")
    if not decisions:
        began = datetime.fromtimestamp(found["since"], UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
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
    found = source_of(ctx).job(job)
    seconds = found.get("waitSeconds", {})
    if not ctx.output.people:
        items = [{"name": found["name"], "id": found["id"], "code": code, "seconds": spent} for code, spent in seconds.items()]
        ctx.output.document("WaitHistory", {"items": items})
        return
    _head(found)
    put(f"  waited {waited(seconds)}" if seconds else "  it has not waited")


def _show_node(ctx: Context, job: str, node: str) -> None:
    found = source_of(ctx).node_rules(job, node)
    rules = [rule_item(label) for label in found["failed"]]
    if not ctx.output.people:
        ctx.output.document("NodeExplanation", {"name": found["name"], "id": found["id"], "node": node, "failed": rules})
        return
    _head(found)
    show_rules(node, rules)


def _show_versus(ctx: Context, job: str, other: str) -> None:
    source = source_of(ctx)
    mine, theirs = source.why(job), source.placement(other)
    if mine["id"] == theirs["id"]:
        raise InvalidRequest(f"{job} and {other} are the same job")
    found = compared(mine, theirs, now=wall_s())
    language = language_of(os.environ)
    if not ctx.output.people:
        document = {
            "name": mine["name"],
            "other": theirs["name"],
            "relation": found.relation.value,
            "text": found.text(language),
        }
        ctx.output.document("JobComparison", document | {"placedAt": found.placed_at, "explanation": mine["explanation"]})
        return
    _head(mine)
    _head(theirs)
    put(f"  {found.text(language)}")
    if mine["waiting"]:
        _show_wait(mine)


def _show_evicted(ctx: Context, job: str) -> None:
    found = source_of(ctx).evicted(job)
    if not ctx.output.people:
        ctx.output.document("EvictionExplanation", found)
        return
    for one in found["receipts"]:
        receipts.show(one)
    for item in found["now"]:
        put(f"now:        {item['name']}: {explain(item)}")


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
