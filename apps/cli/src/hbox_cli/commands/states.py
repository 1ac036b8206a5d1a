"""`hbox cancel`, `hold`, `release`, `suspend`, `resume`, `requeue`: what users do with jobs that they have submitted."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from hbox_common.errors import Conflict, InvalidRequest

from ..context import Context, platform_options
from ..names import JOB_NAME
from ..output import notify

if TYPE_CHECKING:
    from ..access.cluster import ClusterApi
    from ..workloads.changes import Change
    from ..workloads.targets import Target
from ..workloads.changes import confirm, dry_run_option

#: Seconds that a requeue waits until the pods are gone.
GONE_S = 120.0

NAMESPACE = click.option("-n", "--namespace", help="Namespace of jobs that are named without one [of the context].")
YES = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def _jobs(command: Callable[..., Any]) -> Callable[..., Any]:
    """Argument JOB... and the options that all these commands have."""
    argument = click.argument("jobs", nargs=-1, required=True, metavar="JOB...", type=JOB_NAME)
    return argument(NAMESPACE(dry_run_option(platform_options(command))))


def _targets(ctx: Context, jobs: Sequence[str], namespace: str | None) -> "tuple[ClusterApi, list[Target]]":
    from ..access.cluster import cluster_of  # noqa: PLC0415  these take 0.2 s to import, which --help does not need
    from ..workloads.following import target_reader  # noqa: PLC0415

    api = cluster_of(ctx)
    return api, [target_reader(ctx, api, job, namespace)() for job in jobs]


def _unfinished(targets: "Sequence[Target]") -> None:
    """Raises Conflict for a job that has ended."""
    from ..workloads.following import has_ended  # noqa: PLC0415

    for target in targets:
        if has_ended(target):
            raise Conflict(f"{target.title} has ended", hint="submit it again; `hbox history` shows what it did")


def _extent(targets: "Sequence[Target]") -> str:
    pods = sum(len(target.live) for target in targets)
    running = sum(len(target.bound) for target in targets)
    names = ", ".join(target.title for target in targets[:3]) + (f" and {len(targets) - 3} more" if len(targets) > 3 else "")
    return f"{names}: {pods} pods, {running} of them on nodes"


@click.command("cancel")
@YES
@_jobs
def cancel(ctx: Context, jobs: tuple[str, ...], namespace: str | None, dry_run: str | None, *, yes: bool) -> None:
    """Delete jobs with their pods: JOB is NAME, NAMESPACE/NAME, NAMESPACE/KIND/NAME, or a pod's name.

    \b
    hbox cancel train-7
    hbox cancel --yes ml/train-7 ml/train-8
    hbox cancel --dry-run train-7
    """
    from ..workloads.changes import Change, carry_out  # noqa: PLC0415

    api, targets = _targets(ctx, jobs, namespace)
    if dry_run is None:
        confirm(f"Delete {_extent(targets)}?", yes=yes, again=f"hbox cancel {' '.join(jobs)}")
    changes = []
    for target in targets:
        for kind, one in target.single_objects:
            name = str(one["metadata"]["name"])
            done = f"{kind.kind.lower()} {target.namespace}/{name} deleted"
            body = {"preconditions": {"uid": one["metadata"]["uid"]}}
            changes.append(Change("delete", kind, target.namespace, name, done, body))
    carry_out(api, changes, dry_run)


@click.command("hold")
@_jobs
def hold(ctx: Context, jobs: tuple[str, ...], namespace: str | None, dry_run: str | None) -> None:
    """Keep pending jobs from starting, until `hbox release`. A job with pods on nodes is refused: `hbox suspend` stops it.

    \b
    hbox hold train-7

    It sets the field that suspends the kind, such as spec.suspend of a Job: the controller deletes the pending pods.
    """
    from ..workloads.changes import carry_out  # noqa: PLC0415

    api, targets = _targets(ctx, jobs, namespace)
    _unfinished(targets)
    for target in targets:
        if target.bound:
            raise Conflict(
                f"{target.title} has {len(target.bound)} pods on nodes: only a pending job can be held",
                hint=f"`hbox suspend {target.namespace}/{target.name}` ends its pods, to run again after `hbox resume`",
            )
    carry_out(api, [_suspension(target, suspended=True, done="held") for target in targets], dry_run)


@click.command("release")
@_jobs
def release(ctx: Context, jobs: tuple[str, ...], namespace: str | None, dry_run: str | None) -> None:
    """Let held jobs start: those of `hbox hold`, and of `hbox run --hold` and `hbox submit --hold`.

    \b
    hbox release train-7
    """
    _resume(ctx, jobs, namespace, dry_run, done="released")


@click.command("suspend")
@YES
@_jobs
def suspend(ctx: Context, jobs: tuple[str, ...], namespace: str | None, dry_run: str | None, *, yes: bool) -> None:
    """End the pods of jobs and give back their cards; the jobs stay, and run from their start after `hbox resume`.

    \b
    hbox suspend --yes train-7

    It sets the field that suspends the kind: spec.suspend of Job, JobSet, TrainJob, RayJob, RayCluster and Workflow, spec.runPolicy.suspend of PyTorchJob,
    TFJob, XGBoostJob, PaddleJob, JAXJob and MPIJob. Programs that write no checkpoint lose their work.
    """
    from ..workloads.changes import carry_out  # noqa: PLC0415

    api, targets = _targets(ctx, jobs, namespace)
    _unfinished(targets)
    changes = [_suspension(target, suspended=True, done="suspended") for target in targets]
    if dry_run is None and any(target.bound for target in targets):
        confirm(f"End the pods of {_extent(targets)}?", yes=yes, again=f"hbox suspend {' '.join(jobs)}")
    carry_out(api, changes, dry_run)


@click.command("resume")
@_jobs
def resume(ctx: Context, jobs: tuple[str, ...], namespace: str | None, dry_run: str | None) -> None:
    """Let suspended jobs run again: they enter their queue as new jobs.

    \b
    hbox resume train-7
    """
    _resume(ctx, jobs, namespace, dry_run, done="resumed")


@click.command("requeue")
@YES
@_jobs
def requeue(ctx: Context, jobs: tuple[str, ...], namespace: str | None, dry_run: str | None, *, yes: bool) -> None:
    """End the pods of jobs and queue the jobs again: a suspension, and a resumption when the pods are gone.

    \b
    hbox requeue --yes train-7
    """
    from ..workloads.changes import carry_out  # noqa: PLC0415

    api, targets = _targets(ctx, jobs, namespace)
    _unfinished(targets)
    ends = [_suspension(target, suspended=True, done="suspended") for target in targets]
    again = [_suspension(target, suspended=False, done="queued again") for target in targets]
    if dry_run is not None:
        carry_out(api, [*ends, *again], dry_run)
        return
    if any(target.bound for target in targets):
        confirm(f"End the pods of {_extent(targets)} and queue them again?", yes=yes, again=f"hbox requeue {' '.join(jobs)}")
    carry_out(api, ends, None)
    try:
        _wait_gone(ctx, api, targets)
    finally:
        carry_out(api, again, None)


def _wait_gone(ctx: Context, api: "ClusterApi", targets: "Sequence[Target]") -> None:
    """Until no pod of the jobs is left. Raises TimeoutError."""
    import time  # noqa: PLC0415

    from ..workloads.following import POLL_S, target_reader  # noqa: PLC0415
    from ..workloads.targets import ENDED, phase_of  # noqa: PLC0415

    deadline = time.monotonic() + GONE_S
    for target in targets:
        read = target_reader(ctx, api, f"{target.namespace}/{target.name}", None)
        while left := [pod for pod in read().pods if phase_of(pod) not in ENDED]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(left)} pods of {target.title} have not ended after {GONE_S:g} s")
            time.sleep(POLL_S)


def _suspension(target: "Target", *, suspended: bool, done: str) -> "Change":
    from ..workloads.changes import Change  # noqa: PLC0415
    from ..workloads.suspending import suspension  # noqa: PLC0415

    body = suspension(target, suspended=suspended)
    return Change("patch", target.kind, target.namespace, target.name, f"{target.title} {done}", body)


def _resume(ctx: Context, jobs: tuple[str, ...], namespace: str | None, dry_run: str | None, *, done: str) -> None:
    from ..workloads.changes import carry_out  # noqa: PLC0415
    from ..workloads.suspending import HOLD_GATE, is_suspended  # noqa: PLC0415

    api, targets = _targets(ctx, jobs, namespace)
    _unfinished(targets)
    changes = []
    for target in targets:
        gated = [
            pod for pod in target.live if any(gate["name"] == HOLD_GATE for gate in pod["spec"].get("schedulingGates") or ())
        ]
        if gated:
            changes += [_ungated(pod, done) for pod in gated]
        elif is_suspended(target):
            changes.append(_suspension(target, suspended=False, done=done))
        elif target.live:
            notify(f"{target.title} is not suspended")
        else:
            raise InvalidRequest(
                f"{target.title} is not suspended, and has no pod", hint=f"hbox show {target.namespace}/{target.name}"
            )
    carry_out(api, changes, dry_run)


def _ungated(pod: Any, done: str) -> "Change":
    from ..access.cluster import POD  # noqa: PLC0415
    from ..workloads.changes import Change  # noqa: PLC0415
    from ..workloads.suspending import HOLD_GATE  # noqa: PLC0415

    metadata = pod["metadata"]
    left = [gate for gate in pod["spec"]["schedulingGates"] if gate["name"] != HOLD_GATE]
    title = f"pod {metadata['namespace']}/{metadata['name']} {done}"
    return Change("patch", POD, metadata["namespace"], metadata["name"], title, {"spec": {"schedulingGates": left or None}})
