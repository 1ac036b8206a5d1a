"""`hbox ctx`: the platforms that commands read, and how they are reached."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from hbox_common.errors import InvalidRequest, NotFound, Unavailable

from ..access import choice_of, contexts
from ..access.choice import Choice
from ..access.contexts import Stored
from ..access.kubeconfig import names_in, paths_of
from ..context import Context, platform_options
from ..output import Column, notify

COLUMNS = (
    Column("CURRENT", lambda c: "*" if c["current"] else ""),
    Column("NAME", lambda c: c["name"]),
    Column("WHERE", lambda c: c["where"]),
    Column("FILE", lambda c: c["file"], wide=True),
)

SETTINGS = (
    Column("SETTING", lambda s: s["name"]),
    Column("VALUE", lambda s: s["value"]),
)
ORIGIN = Column("ORIGIN", lambda s: s["origin"])


@click.group("ctx")
def command() -> None:
    """Show and choose the platform that commands read."""


@command.command("ls")
@platform_options
def ls(ctx: Context) -> None:
    """List the contexts of hbox, and those of kubectl, which --context names too. Commands read the current one."""
    try:
        current = choice_of(ctx).name
    except (NotFound, InvalidRequest):
        current = ""
    stored, paths = contexts.read(contexts.path_of()), paths_of(os.environ)
    file = str(contexts.path_of())
    items: list[dict[str, Any]] = [
        {"name": one.name, "current": one.name == current, "where": _where(one), "file": file} for one in stored.contexts
    ]
    known = {one.name for one in stored.contexts}
    items += [
        {"name": name, "current": name == current, "where": "kubectl", "file": os.pathsep.join(map(str, paths))}
        for name in names_in(paths)
        if name not in known
    ]
    ctx.output.rows("Context", items, COLUMNS)


@command.command("use")
@click.argument("name", required=False)
@click.option("--none", is_flag=True, help="Follow kubectl's current context again.")
@platform_options
def use(ctx: Context, name: str | None, none: bool) -> None:  # noqa: ARG001  the same options as everywhere
    """Make the context NAME the current one.

    \b
    hbox ctx use production
    hbox ctx use --none
    """
    if (name is None) is not none:
        raise click.UsageError("name a context, or --none")
    path = contexts.path_of()
    stored = contexts.read(path)
    contexts.write(path, replace(stored, current="") if name is None else stored.using(name))
    notify("commands follow kubectl's current context" if name is None else f"commands use context {name}")


@command.command("show")
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@platform_options
def show(ctx: Context, origin: bool) -> None:
    """Show the platform that commands with these options read, without secrets.

    \b
    hbox ctx show --origin
    hbox ctx show --context production
    """
    choice = choice_of(ctx)
    items = [{"name": one.name, "value": one.value, "origin": one.origin} for one in choice.settings]
    ctx.output.rows("Setting", items, (*SETTINGS, ORIGIN) if origin else SETTINGS)


@command.command("login")
@click.argument("name", required=False)
@platform_options
def login(ctx: Context, name: str | None) -> None:
    """Test the access that the options or kubectl's current context name, and store it as the current context NAME [kubectl's name].

    Tokens and certificates stay where they are: the context names their kubeconfig or token file.

    \b
    hbox ctx login
    hbox ctx login production --context prod-admin
    hbox ctx login lab --server https://hbox.lab:8443 --ca ca.crt --token-file token
    hbox ctx login ops --nats-url tls://nats:4222 --nats-seed operator.nk --nats-ca ca.crt
    """
    choice = choice_of(ctx)
    context = replace(_stored(ctx, choice), name=name or choice.name)
    if choice.state is None and not choice.nats_url:
        from ..access.serversource import server_of  # noqa: PLC0415

        server = server_of(choice)
        identity = server.get("/api/v1/whoami")
        context = replace(context, server=server.base, ca=server.ca or "")
        notify(f"{server.base} knows you as {_user(identity)}")
    else:
        _test_broker(ctx)
    path = contexts.path_of()
    contexts.write(path, contexts.read(path).storing(context))
    notify(f"commands use context {context.name}, which is stored in {path}")


def _test_broker(ctx: Context) -> None:
    from ..access import running_of  # noqa: PLC0415  half a second that other logins do not need
    from ..aio import run  # noqa: PLC0415
    from ..session import bus_of, ledger_of  # noqa: PLC0415

    async def ask() -> None:
        async with bus_of(running_of(ctx)) as bus:
            await ledger_of(bus)

    run(ask)


def _stored(ctx: Context, choice: Choice) -> Stored:
    """The choice as a context, with paths that hold in every folder."""
    flags = ctx.access
    if choice.state is not None:
        return Stored(choice.name, state=str(choice.state.absolute()))
    if choice.nats_url:
        return Stored(
            choice.name, nats_url=choice.nats_url, nats_seed=_absolute(choice.nats_seed), nats_ca=_absolute(choice.nats_ca)
        )
    token_file = choice.credentials.token_file if flags.token_file is not None else None
    account = choice.account
    return Stored(
        choice.name,
        token_file=_absolute(token_file),
        kube_context=account.name if account is not None and token_file is None else "",
        kubeconfig=account.files if account is not None and token_file is None else "",
    )


def _absolute(path: Path | None) -> str:
    return str(path.expanduser().absolute()) if path is not None else ""


def _user(identity: object) -> str:
    name = identity.get("user") or identity.get("name") if isinstance(identity, dict) else None
    if not isinstance(name, str):
        raise Unavailable("the server did not name the user")
    return name


def _where(one: Stored) -> str:
    return one.server or one.nats_url or one.state or f"kubectl context {one.kube_context}"
