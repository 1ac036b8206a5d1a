"""`hbox bus`: users of a broker that is closed: their keys, and who of them may say and hear what."""

from pathlib import Path
from typing import Any

import click

from hbox_common.errors import InvalidRequest

from ..context import Context, command_options
from ..output import put

AUTHORIZATION = "authorization.conf"


@click.group("bus")
def command() -> None:
    """The broker's users: their keys, and who may say and hear what."""


@command.command("users")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="The folder of the keys; kept where they are there.",
)
@click.option(
    "--reader",
    "readers",
    multiple=True,
    metavar="NAME=QUEUE,...",
    help="One more user, who hears what happens to these queues and no more.",
)
@click.option(
    "--secrets", "namespace", metavar="NAMESPACE", help="Print Secrets, and a ConfigMap for nats-server, for kubectl apply."
)
@command_options
def users_(ctx: Context, out: Path, readers: tuple[str, ...], namespace: str | None) -> None:
    """A key for each service and for the commands of hbox, and nats-server's authorization by which each says and hears what is its own.

    \b
    hbox bus users --out bus-users                                 bus-users/binder.nk, ..., bus-users/authorization.conf
    hbox bus users --out bus-users --reader grafana=ml,vision      and one who hears of two queues
    hbox bus users --out bus-users --secrets hbox-system | kubectl apply -f -

    In the broker's nats.conf: include bus-users/authorization.conf. A service finds its key by HBOX_NATS_SEED, `hbox up` all of them by --nats-users.
    Files of keys are their owner's alone; the authorization has their public halves.
    """
    from hbox_common.bus.keys import keep, read_seed  # noqa: PLC0415  a third of a second that --help does not need
    from hbox_common.bus.users import authorization, read_only, users  # noqa: PLC0415

    others = {name: read_only(name, queues) for name, queues in map(_reader, readers)}
    if taken := sorted(users().keys() & others.keys()):
        raise InvalidRequest(f"--reader {taken[0]}: a user of the platform has this name", hint="choose another")
    try:
        keys = keep(out, (*users(), *others))
        text = authorization(keys, others)
        (out / AUTHORIZATION).write_text(text)
    except OSError as e:
        raise InvalidRequest(
            f"the keys cannot be written into {out}: {e.strerror}", hint="choose another folder with --out"
        ) from e
    if namespace is not None:
        put(*_yaml(namespace, {user: read_seed(out / f"{user}.nk") for user in keys}, text).splitlines())
    elif ctx.output.machine:
        ctx.output.document("BusUsers", {"users": keys, "authorization": str(out / AUTHORIZATION)})
    else:
        for user, key in keys.items():
            put(f"{user:<20} {key}")
        put(f"written into {out}: a key each, and {AUTHORIZATION} for nats-server")


def _reader(text: str) -> tuple[str, list[str]]:
    """Raises UsageError."""
    name, equals, queues = text.partition("=")
    names = [queue for queue in queues.split(",") if queue]
    if not equals or not names or not name.replace("-", "").isalnum() or name != name.lower():
        raise click.UsageError(f"--reader {text!r}: write NAME=QUEUE,QUEUE with a name of lower-case letters, digits and '-'")
    return name, names


def _yaml(namespace: str, seeds: dict[str, str], authorization: str) -> str:
    import yaml  # noqa: PLC0415

    def thing(kind: str, name: str, **content: Any) -> dict[str, Any]:
        labels = {"app.kubernetes.io/part-of": "hbox"}
        return {
            "apiVersion": "v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            **content,
        }

    secrets = [thing("Secret", f"hbox-bus-{user}", type="Opaque", stringData={"seed": seed}) for user, seed in seeds.items()]
    configmap = thing("ConfigMap", "hbox-bus-authorization", data={AUTHORIZATION: authorization})
    return yaml.safe_dump_all([*secrets, configmap], sort_keys=False)
