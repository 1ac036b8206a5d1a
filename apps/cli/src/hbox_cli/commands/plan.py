"""`hbox plan FILE`."""

from pathlib import Path
from typing import Any

import click

from hbox_common.clock import wall_s
from hbox_common.errors import InvalidRequest

from ..context import Context, platform_options
from ..exits import Exit
from ..output import put

STATUS = {"now": Exit.OK, "waits": Exit.WAITS, "never": Exit.NEVER}
SHOWN = 8


@click.command("plan")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("-f", "--file", "more", multiple=True, type=click.Path(path_type=Path), help="The same as PATH.")
@click.option("-n", "--namespace", help="Namespace of objects that name none [of the context].")
@click.option(
    "--policy",
    type=click.Path(path_type=Path, dir_okay=False),
    help="volcano-scheduler.conf of the scheduler [that of `hbox up`; else HBox's own].",
)
@platform_options
def command(ctx: Context, paths: tuple[Path, ...], more: tuple[Path, ...], namespace: str | None, policy: Path | None) -> int:
    """Show what would happen to the jobs of PATH if they were submitted now, without a change: the scheduler's own code decides on a copy of the cluster.

    \b
    hbox plan train.yaml
    hbox run -g 8 -n 4 --dry-run -o yaml -- python train.py > job.yaml; hbox plan job.yaml
    hbox plan train.yaml && hbox submit train.yaml

    Exit status 0: it starts now, perhaps after evictions, which are listed; 7: it waits; 8: it can never run here, whatever ends. It prints why, and what would
    help. The answer is no reservation. It reads all nodes and pods with your rights.
    """
    from ..access import choice_of  # noqa: PLC0415  the simulator takes half a second to import, which --help does not need
    from ..access.cluster import cluster_of  # noqa: PLC0415
    from ..simulate.documents import documents_of, files_of  # noqa: PLC0415
    from ..simulate.policytext import policy_text  # noqa: PLC0415
    from ..simulate.running import Wish  # noqa: PLC0415
    from ..workloads.planning import candidate_of, live_objects, planned  # noqa: PLC0415

    if not (files := (*paths, *more)):
        raise click.UsageError("name a file of manifests", click.get_current_context())
    api = cluster_of(ctx)
    documents = []
    for path in files_of(files):
        try:
            documents += documents_of(path)
        except InvalidRequest as e:
            raise InvalidRequest(f"{path}: {e.message}", hint=e.hint) from e
    candidate = candidate_of(documents, namespace or api.namespace)
    wish = Wish(
        policy=policy_text(choice_of(ctx).state, policy),
        policy_file=str(policy or "the platform's policy"),
        now=wall_s(),
        as_services=True,
    )
    found = planned(live_objects(api), candidate, wish)
    item: dict[str, Any] = {
        "verdict": found.verdict,
        "pods": len(candidate.pods),
        "needed": found.needed,
        "places": dict(found.places) if found.verdict == "now" else {},
        "evictions": list(found.evictions),
        "reason": found.message,
        "helps": list(found.helps),
    }
    if not ctx.output.people:
        ctx.output.document("Plan", {"name": "plan", **item})
        return int(STATUS[found.verdict])
    _print(item)
    return int(STATUS[found.verdict])


def _print(item: dict[str, Any]) -> None:
    text = {"now": "starts now", "waits": "waits", "never": "can never run here"}[item["verdict"]]
    put(f"{text}: {item['pods']} pods, {item['needed']} of them start together")
    by_node: dict[str, list[str]] = {}
    for pod, node in item["places"].items():
        by_node.setdefault(node, []).append(pod.partition("/")[2])
    for node, pods in list(by_node.items())[:SHOWN]:
        put(f"  {node}: {', '.join(pods)}")
    if len(by_node) > SHOWN:
        put(f"  and {len(by_node) - SHOWN} more nodes")
    for one in item["evictions"][:SHOWN]:
        put(f"  evicts {one['pod']} on {one['node']}: {one['reason']}")
    if len(item["evictions"]) > SHOWN:
        put(f"  and {len(item['evictions']) - SHOWN} more evictions")
    if item["reason"]:
        put(f"  why   {item['reason']}")
    for text in item["helps"]:
        put(f"  helps {text}")
