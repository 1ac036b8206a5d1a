"""`hbox logs`, and `attach`, `exec`, `port-forward`, which hand over to kubectl with the pod of a job."""

import os
import shutil
from typing import TYPE_CHECKING, Any

import click

from hbox_common.errors import InvalidRequest, NotFound

from ..context import Context, platform_options
from ..names import JOB_NAME
from ..stdio import flush_data
from ..times import DURATION

if TYPE_CHECKING:
    from ..access.cluster import ClusterApi
    from ..workloads.targets import Target

NAMESPACE = click.option("-n", "--namespace", help="Namespace of a job that is named without one [of the context].")
RANK = click.option("--rank", type=click.IntRange(0), help="Pod of this rank, from 0 on [0].")
CONTAINER = click.option("-c", "--container", help="Container of the pod [its only one].")


@click.command("logs")
@click.argument("job", type=JOB_NAME)
@click.option("-f", "--follow", is_flag=True, help="Print new lines until the pods end.")
@RANK
@click.option("--all", "everything", is_flag=True, help="Logs of all pods, each line with the pod's name.")
@click.option("--tail", type=click.IntRange(0), help="Only the last lines of each pod.")
@click.option("--since", "since_s", type=DURATION, help="Only lines of this time, such as 10m.")
@click.option("--previous", is_flag=True, help="Log of the container before its last restart.")
@CONTAINER
@NAMESPACE
@platform_options
def command(
    ctx: Context,
    job: str,
    *,
    rank: int | None,
    tail: int | None,
    since_s: float | None,
    container: str | None,
    namespace: str | None,
    follow: bool,
    everything: bool,
    previous: bool,
) -> None:
    """Print the log of JOB's first pod, of the pod of a rank, or of all pods.

    \b
    hbox logs -f train-7
    hbox logs --all --tail 20 train-7
    hbox logs --rank 3 ml/train-7
    """
    from ..workloads.following import print_logs  # noqa: PLC0415

    if everything and rank is not None:
        raise InvalidRequest("--all and --rank are separate questions", hint="leave one out")
    if ctx.output.machine or not ctx.output.people:
        raise InvalidRequest(f"a log has no form {ctx.output.form.value}", hint="leave -o out")
    api, target = _target(ctx, job, namespace)
    given = {
        "follow": "true" if follow else None,
        "tailLines": tail,
        "sinceSeconds": None if since_s is None else max(1, int(since_s)),
        "container": container,
        "previous": "true" if previous else None,
    }
    params = {name: str(value) for name, value in given.items() if value is not None}
    print_logs(api, _newest_of_each_rank(target) if everything else [_pod(target, rank)], params)


@click.command("attach")
@click.argument("job", type=JOB_NAME)
@RANK
@CONTAINER
@NAMESPACE
@platform_options
def attach(ctx: Context, job: str, rank: int | None, container: str | None, namespace: str | None) -> None:
    """Attach this terminal to the main process of JOB's pod, by kubectl.

    \b
    hbox attach notebook-1
    """
    _hand_over(ctx, job, rank, namespace, lambda pod: ["attach", "-it", pod, *(["-c", container] if container else [])])


@click.command("exec", context_settings={"allow_interspersed_args": False})
@RANK
@CONTAINER
@NAMESPACE
@click.option("-i", "--stdin", is_flag=True, help="Pass standard input.")
@click.option("-t", "--tty", is_flag=True, help="Standard input is a terminal.")
@click.argument("job", type=JOB_NAME)
@click.argument("arguments", nargs=-1, required=True, metavar="-- COMMAND...")
@platform_options
def exec_(
    ctx: Context,
    job: str,
    arguments: tuple[str, ...],
    *,
    rank: int | None,
    container: str | None,
    namespace: str | None,
    stdin: bool,
    tty: bool,
) -> None:
    """Run COMMAND in a container of JOB's pod, by kubectl.

    \b
    hbox exec train-7 -- nvidia-smi
    hbox exec -it --rank 3 train-7 -- bash
    """
    arguments = arguments[1:] if arguments[0] == "--" else arguments
    options = [*(["-i"] if stdin else []), *(["-t"] if tty else []), *(["-c", container] if container else [])]
    _hand_over(ctx, job, rank, namespace, lambda pod: ["exec", *options, pod, "--", *arguments])


@click.command("port-forward")
@click.argument("job", type=JOB_NAME)
@click.argument("ports", nargs=-1, required=True, metavar="[LOCAL:]REMOTE...")
@RANK
@NAMESPACE
@platform_options
def port_forward(ctx: Context, job: str, ports: tuple[str, ...], rank: int | None, namespace: str | None) -> None:
    """Forward local ports to JOB's pod, by kubectl, until Ctrl-C.

    \b
    hbox port-forward notebook-1 8888
    """
    _hand_over(ctx, job, rank, namespace, lambda pod: ["port-forward", pod, *ports])


def _target(ctx: Context, job: str, namespace: str | None) -> "tuple[ClusterApi, Target]":
    from ..access.cluster import cluster_of  # noqa: PLC0415  these take 0.2 s to import, which --help does not need
    from ..workloads.following import target_reader  # noqa: PLC0415

    api = cluster_of(ctx)
    return api, target_reader(ctx, api, job, namespace)()


def _newest_of_each_rank(target: "Target") -> list[Any]:
    """Pods by rank; of a rank that ran again only the newest; pods without a rank all."""
    from ..workloads.following import UNRANKED, rank_of  # noqa: PLC0415

    ranked = {rank_of(pod): pod for pod in target.pods if rank_of(pod) < UNRANKED}
    return [ranked[rank] for rank in sorted(ranked)] + [pod for pod in target.pods if rank_of(pod) >= UNRANKED]


def _pod(target: "Target", rank: int | None) -> Any:
    from ..workloads.following import rank_of  # noqa: PLC0415

    pods = _newest_of_each_rank(target)
    if not pods:
        raise NotFound(f"{target.title} has no pod", hint=f"hbox show {target.namespace}/{target.name}")
    if rank is None:
        return pods[0]
    found = next((pod for pod in pods if rank_of(pod) == rank), pods[rank] if rank < len(pods) else None)
    if found is None:
        raise NotFound(f"{target.title} has no pod of rank {rank}: it has {len(pods)}", hint="ranks begin with 0")
    return found


def _hand_over(ctx: Context, job: str, rank: int | None, namespace: str | None, arguments: Any) -> None:
    """Replaces this process by kubectl."""
    if not ctx.output.people:
        raise InvalidRequest(f"this command has no form {ctx.output.form.value}", hint="leave -o out")
    api, target = _target(ctx, job, namespace)
    pod = str(_pod(target, rank)["metadata"]["name"])
    line = [*api.kubectl(), "-n", target.namespace, *arguments(pod)]
    program = shutil.which("kubectl")
    if program is None:
        raise NotFound("kubectl is not installed here, which this command runs", hint=f"install it, then: {' '.join(line)}")
    flush_data()
    os.execv(program, line)  # noqa: S606  the user's own kubectl, with arguments that no shell reads
