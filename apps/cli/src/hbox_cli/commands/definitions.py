"""`hbox definitions`: Volcano's Queue, PodGroup and HyperNode, and the queues `root` and `default`, outside `hbox up`."""

from pathlib import Path

import click

from ..aio import run
from ..context import Context, command_options
from ..output import notify


@click.group("definitions")
def command() -> None:
    """Print or apply the CRDs of Queue, PodGroup and HyperNode and the required queues, as the Helm chart's job does."""


@command.command("show")
@command_options
def show(_: Context) -> None:
    """Print the definitions as YAML, to review or to apply by other means.

    \b
    hbox definitions show | kubectl apply --server-side -f -
    """
    import yaml  # noqa: PLC0415  a third of a cold start

    from hbox_common.kube.definitions import DEFINITIONS  # noqa: PLC0415

    print(yaml.safe_dump_all(DEFINITIONS, sort_keys=False), end="")


@command.command("apply")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Kubeconfig of the cluster [the pod's service account]; the user needs write access to CRDs and "
    "Queues, and to PriorityClasses for --levels.",
)
@click.option(
    "--levels/--no-levels",
    help="Create missing PriorityClasses: high, medium and low (HBox's levels) and offline (for idle resources) [not created].",
)
@click.option(
    "--list-classes",
    is_flag=True,
    help="If the queue `default` is missing, create it for jobs of no PriorityClass, the cluster's default class, medium, low and offline only.",
)
@command_options
def apply(_: Context, *, kubeconfig: Path | None, levels: bool, list_classes: bool) -> None:
    """Apply the definitions by server-side apply, and create the queues `root` and `default` if they are missing.

    The command leaves a definition with another owner unchanged and lists the fields of HBox that it lacks. The same holds for PriorityClasses: if one of
    the three levels has another owner, the command creates none of them. With --list-classes, a job in a new queue
    `default` cannot evict others by naming a higher class; `hbox queue set default --priority-classes` changes the list.
    """
    from hbox_common.kube import KubeClient  # noqa: PLC0415

    from ..platform import crds  # noqa: PLC0415

    async def bring() -> None:
        async with KubeClient.connect(str(kubeconfig) if kubeconfig else None, user_agent="hbox definitions") as client:
            if levels:
                await crds.bring_levels(client, notify)
            await crds.bring(client, notify, listed=list_classes)

    run(bring)
