"""`hbox run` and `hbox submit`."""

import secrets
from pathlib import Path
from typing import Any

import click

from hbox_common.errors import Conflict, HBoxError, InvalidRequest

from ..context import Context, platform_options
from ..output import Form, notify, put, yaml_text
from ..workloads.changes import CLIENT, Change, carry_out, dry_run_option

DEFAULT_IMAGE = "python:3.11-slim"


@click.command("run", context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.option("-g", "--gpus", type=click.IntRange(0, 1024), default=0, show_default=True, help="Cards per pod.")
@click.option(
    "-n", "--nodes", "--pods", "pods", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Pods of the gang."
)
@click.option("-q", "--queue", default="", help="Queue [of the namespace, else default].")
@click.option("--image", envvar="HBOX_IMAGE", default=DEFAULT_IMAGE, show_default=True, help="Container image.")
@click.option("--name", help="Name of the job [run-XXXXXX].")
@click.option("--namespace", help="Namespace [of the context].")
@click.option("--resource", default="nvidia.com/gpu", show_default=True, help="Resource name of the cards.")
@click.option("--model", default="", help="Card model, such as NVIDIA-H100-80GB-HBM3.")
@click.option("--cpu", default="", metavar="QUANTITY", help="CPU request per pod, such as 8 or 500m.")
@click.option("--memory", default="", metavar="QUANTITY", help="Memory request per pod, such as 64Gi.")
@click.option("--priority-class", default="", help="PriorityClass of the pods.")
@click.option(
    "--walltime", default="", metavar="DURATION", help="Longest run time, such as 2h30m: lets later jobs be planned behind it."
)
@click.option(
    "--env", "env", multiple=True, metavar="NAME=VALUE", help="Environment variable of the container; may be repeated."
)
@click.option("--hold", "held", is_flag=True, help="Submit it suspended; `hbox release` starts it.")
@click.option(
    "-f", "--follow", "followed", is_flag=True, help="Print the log of its first pod until it ends; exit status 1 if it fails."
)
@dry_run_option
@click.argument("arguments", nargs=-1, required=True, metavar="-- COMMAND...")
@platform_options
def command(
    ctx: Context, arguments: tuple[str, ...], dry_run: str | None, *, followed: bool, env: tuple[str, ...], **given: Any
) -> None:
    """Run COMMAND as a gang: one pod, or -n pods that start together.

    \b
    hbox run -g 1 -- python -c 'print("hello")'
    hbox run -g 8 -n 4 -q research --follow -- torchrun --nproc-per-node 8 train.py
    hbox run -g 8 -n 4 --dry-run -o yaml -- python train.py > job.yaml

    It creates an Indexed Job (batch/v1), and a headless Service for several pods. Their environment has JOB_COMPLETION_INDEX, MASTER_ADDR, MASTER_PORT and
    NNODES. An eviction by the scheduler is no failure: the Job creates the pod again.
    """
    from ..workloads.runs import Run, job_of, service_of  # noqa: PLC0415  the model takes 0.2 s, which --help does not need

    namespace = given.pop("namespace")
    wish = Run(
        name=given.pop("name") or f"run-{secrets.token_hex(3)}",
        command=arguments,
        cards=given.pop("gpus"),
        card_resource=given.pop("resource"),
        env=dict(map(_variable, env)),
        **given,
    )
    job = job_of(wish)
    if dry_run == CLIENT and not ctx.output.people:
        _print_manifests(ctx, job, service_of(wish), namespace)
        return
    from ..access.cluster import JOB, Kind, cluster_of  # noqa: PLC0415

    api = cluster_of(ctx)
    space = namespace or api.namespace
    service = Kind("v1", "Service", "services")
    create = Change("create", JOB, space, wish.name, "", job)
    if dry_run is not None:
        names = service_of(wish)
        more = [Change("create", service, space, wish.name, "", names)] if names is not None else []
        carry_out(api, [create, *more], dry_run)
        return
    try:
        created = create.send(api)
    except Conflict as e:
        raise Conflict(e.message, hint=f"choose another --name, or delete it: hbox cancel {space}/{wish.name}") from e
    if (names := service_of(wish, created)) is not None:
        try:
            Change("create", service, space, wish.name, "", names).send(api)
        except HBoxError:
            carry_out(
                api, [Change("delete", JOB, space, wish.name, f"job {space}/{wish.name} deleted: its Service failed")], None
            )
            raise
    _submitted(
        ctx, space, wish.name, f"{wish.pods} pod{'s' if wish.pods > 1 else ''} with {wish.cards} cards each", held=wish.held
    )
    if followed:
        from ..workloads.following import follow, target_reader  # noqa: PLC0415

        follow(api, target_reader(ctx, api, f"{space}/job/{wish.name}", None))


def _print_manifests(ctx: Context, job: dict[str, Any], service: dict[str, Any] | None, namespace: str | None) -> None:
    found = [job] if service is None else [job, service]
    for one in found:
        if namespace:
            one["metadata"]["namespace"] = namespace
    if ctx.output.form is Form.YAML:
        print("---\n".join(yaml_text(one) for one in found), end="")
    elif ctx.output.form is Form.NAME:
        put(*(f"{one['kind'].lower()}/{one['metadata']['name']}" for one in found))
    else:
        import json  # noqa: PLC0415

        content = found[0] if len(found) == 1 else {"apiVersion": "v1", "kind": "List", "items": found}
        print(json.dumps(content, indent=2, ensure_ascii=False))


def _submitted(ctx: Context, namespace: str, name: str, extent: str, *, held: bool) -> None:
    if ctx.output.form is Form.NAME:
        put(f"job/{name}")
    elif ctx.output.machine:
        ctx.output.document("Submitted", {"name": f"{namespace}/{name}", "kind": "Job", "held": held})
    else:
        put(f"job {namespace}/{name} submitted{' held' if held else ''}: {extent}")
        if held:
            notify(f"start it with: hbox release {namespace}/{name}")


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InvalidRequest(f"--env {text}: write it as NAME=VALUE")
    return name, value


@click.command("submit")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("-f", "--file", "more", multiple=True, type=click.Path(path_type=Path), help="The same as PATH.")
@click.option("-q", "--queue", default="", help="Queue of all workloads of the files, instead of their own.")
@click.option("--namespace", "-n", help="Namespace of objects that name none [of the context].")
@click.option("--hold", "held", is_flag=True, help="Submit the workloads suspended; `hbox release` starts them.")
@click.option("--force", is_flag=True, help="Submit also if `hbox job lint` finds a wrong field.")
@dry_run_option
@platform_options
def submit(
    ctx: Context,
    paths: tuple[Path, ...],
    *,
    more: tuple[Path, ...],
    queue: str,
    namespace: str | None,
    dry_run: str | None,
    held: bool,
    force: bool,
) -> None:
    """Create the objects of PATH, a file of manifests or a folder of such files, after `hbox job lint` has checked them.

    \b
    hbox submit train.yaml
    hbox submit --hold -q research train.yaml
    hbox submit --dry-run=server train.yaml
    """
    from ..access.cluster import cluster_of  # noqa: PLC0415
    from ..workloads.submitting import prepared  # noqa: PLC0415

    if not (files := (*paths, *more)):
        raise click.UsageError("name a file of manifests", click.get_current_context())
    api = cluster_of(ctx)
    changes = prepared(api, files, namespace=namespace, queue=queue, held=held, force=force)
    carry_out(api, changes, dry_run)
