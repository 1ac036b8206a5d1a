"""`hbox wait`."""

import click

from ..context import Context, platform_options
from ..names import JOB_NAME
from ..output import put
from ..times import DURATION

STATES = ("bound", "running", "done")


@click.command("wait")
@click.argument("job", type=JOB_NAME)
@click.option("--for", "goal", type=click.Choice(STATES), default="done", show_default=True, help="The state to wait for.")
@click.option("--timeout", "timeout_s", type=DURATION, help="Longest wait, such as 90s, 10m or 2h [no limit].")
@click.option("--propagate-exit", is_flag=True, help="Exit status 1 if the job is done and failed.")
@click.option("-n", "--namespace", help="Namespace of a job that is named without one [of the context].")
@platform_options
def command(ctx: Context, job: str, goal: str, timeout_s: float | None, namespace: str | None, *, propagate_exit: bool) -> None:
    """Wait until JOB is bound (its minimum of pods has nodes), runs, or is done. An ended job has been bound and has run.

    \b
    hbox wait train-7 --for running --timeout 10m
    hbox wait train-7 --propagate-exit && hbox submit evaluate.yaml

    Exit status 124 after the timeout, with what the job waits for; 1 if it fails before it is bound or runs; 3 if it is deleted.
    """
    from ..access.cluster import cluster_of  # noqa: PLC0415  these take 0.2 s to import, which --help does not need
    from ..exits import Faulty  # noqa: PLC0415
    from ..workloads.following import has_failed, state_text, target_reader, wait_for  # noqa: PLC0415

    api = cluster_of(ctx)
    found = wait_for(target_reader(ctx, api, job, namespace), goal, timeout_s=timeout_s)
    failed = has_failed(found)
    if ctx.output.people:
        put(f"{found.title} is {goal}{' and failed' if failed else ''}: {state_text(found)}")
    else:
        ctx.output.document("JobState", {"name": f"{found.namespace}/{found.name}", "state": goal, "failed": failed})
    if failed and propagate_exit:
        raise Faulty(f"{found.title} failed", hint=f"hbox show {found.namespace}/{found.name}")
