"""Where commands get their data: HBox's HTTP API, the broker of a platform, or the objects of the Kubernetes API. See docs/guides/access.md.

Light on purpose: the broker's client and the message models take half a second to import, and a command that asks the HTTP API needs neither.
"""

from typing import TYPE_CHECKING

from hbox_common.errors import InvalidRequest

from .choice import Choice, choose

if TYPE_CHECKING:
    from ..context import Context
    from ..platform.layout import Running
    from .source import Item, Source, Wanted

__all__ = ["Choice", "choice_of", "jobs_of", "running_of", "source_of"]


def choice_of(ctx: "Context") -> Choice:
    """What the command line, the environment and the files select. Raises NotFound where nothing is configured, InvalidRequest."""
    return choose(ctx.access, ctx.state, state_by=ctx.state_by)


def source_of(ctx: "Context") -> "Source":
    """Raises as `choice_of`; nothing is sent yet."""
    choice = choice_of(ctx)
    if choice.state is None and not choice.nats_url:
        from .serversource import ServerSource  # noqa: PLC0415  each source imports what it alone needs

        return ServerSource(choice)
    from .brokersource import BrokerSource  # noqa: PLC0415

    return BrokerSource(_running(choice))


def jobs_of(ctx: "Context", wanted: "Wanted") -> "list[Item]":
    """Jobs, oldest first, through the lightest client that gets an answer: of a platform of `hbox up` from its HTTP API, then from job-controller by one
    request, then from the source. Raises as `source_of`."""
    choice = choice_of(ctx)
    if choice.state is not None:
        from .localjobs import local_jobs  # noqa: PLC0415

        if (found := local_jobs(_running(choice), wanted)) is not None:
            return found
    if choice.state is not None or choice.nats_url:
        from .brokerjobs import broker_jobs  # noqa: PLC0415

        if (found := broker_jobs(_running(choice), wanted)) is not None:
            return found
    return source_of(ctx).jobs(wanted)


def running_of(ctx: "Context") -> "Running":
    """The platform's broker and cluster, for commands that the HTTP API does not serve. Raises InvalidRequest where only a server is configured."""
    choice = choice_of(ctx)
    if choice.state is None and not choice.nats_url:
        raise InvalidRequest(
            f"this command reads HBox's broker, and {choice.name} has no address of one",
            hint="operators: --nats-url URL --nats-seed FILE, or --state FOLDER of `hbox up`",
        )
    return _running(choice)


def _running(choice: Choice) -> "Running":
    from ..platform.layout import Layout, Running  # noqa: PLC0415

    if choice.state is not None:
        return Layout(choice.state).running()
    return Running(
        pid=0,
        nats_url=choice.nats_url,
        kubeconfig=choice.kubeconfig.split(":")[0],
        database_url="",
        emulated=False,
        policy="",
        seed_file=str(choice.nats_seed or ""),
        nats_ca=str(choice.nats_ca or ""),
    )
