"""`hbox bus`: a broker that is closed: the keys of its users, who of them may say and hear what, and its streams."""

import asyncio
import base64
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from hbox_common.clock import monotonic_s
from hbox_common.errors import Conflict, HBoxError, InvalidRequest, NotFound, Unavailable

from ..aio import run
from ..context import Context, command_options
from ..output import notify, put

if TYPE_CHECKING:
    from hbox_common.kube import KubeClient

AUTHORIZATION = "authorization.conf"

#: After the prefix: the Secret with the password by which servers of a cluster let each other in, and that with the seeds of readers, by their names.
ROUTES, READERS = "routes", "readers"
#: In the Secret of the callout's user: the seed of the account's key with which it signs.
ISSUER = "issuer"
#: The same in the folder of keys.
ISSUER_FILE = "callout.issuer"
#: Between two tries to read or write a Secret.
AGAIN_S = 0.5

_READER = click.option(
    "--reader",
    "readers",
    multiple=True,
    metavar="NAME=QUEUE,...",
    help="Add a user that may subscribe to events of these queues, keep a durable consumer of each, and send requests about them. NAME=*: events of all queues "
    "and of nodes, without requests.",
)

_AGENTS_BY_NODE = click.option(
    "--agents-by-node",
    is_flag=True,
    help="Admit agents by the tokens of their pods, each for messages about its own node, and none by a key; `hbox bus callout` reviews the tokens.",
)

_KUBECONFIG = click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Kubeconfig of the cluster [the pod's service account].",
)


_Command = TypeVar("_Command", bound=Callable[..., Any])


def certificate_options(command: _Command) -> _Command:
    """The options `--ca`, `--certificate` and `--key` of clients of the broker."""
    file = click.Path(path_type=Path, dir_okay=False)
    for name, variable, text in (
        ("--key", "HBOX_NATS_KEY", "Key of the client certificate."),
        ("--certificate", "HBOX_NATS_CERTIFICATE", "Client certificate."),
        ("--ca", "HBOX_NATS_CA", "Authority of the broker's certificate."),
    ):
        command = click.option(name, envvar=variable, type=file, help=text)(command)
    return command


@click.group("bus")
def command() -> None:
    """Manage the broker's users: keys, publish and subscribe permissions."""


@command.command("users")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder of the keys; existing keys are kept.",
)
@_READER
@_AGENTS_BY_NODE
@click.option(
    "--secrets", "namespace", metavar="NAMESPACE", help="Print Secrets and a ConfigMap for nats-server, for kubectl apply."
)
@command_options
def users_(ctx: Context, out: Path, readers: tuple[str, ...], agents_by_node: bool, namespace: str | None) -> None:
    """Create a key for each service and for hbox itself, and nats-server's authorization file with their permissions.

    \b
    hbox bus users --out bus-users                                 bus-users/binder.nk, ..., bus-users/authorization.conf
    hbox bus users --out bus-users --reader grafana=ml,vision      also a reader of two queues
    hbox bus users --out bus-users --agents-by-node                also bus-users/callout.issuer, with which hbox bus callout signs
    hbox bus users --out bus-users --secrets hbox-system | kubectl apply -f -

    Include bus-users/authorization.conf in the broker's nats.conf. HBOX_NATS_SEED names a service's key; `hbox up --nats-users` uses all of them.
    Only the owner can read the key files; the authorization file contains public keys.
    """
    from hbox_common.brokerkeys import keep, keep_account, read_account_seed, read_seed  # noqa: PLC0415  a third of a second
    from hbox_common.bus.users import CALLOUT, authorization, read_only, users  # noqa: PLC0415

    others = {name: read_only(name, queues) for name, queues in _readers(readers).items()}
    try:
        keys = keep(out, (*users(), *others))
        issuer = keep_account(out / ISSUER_FILE) if agents_by_node else ""
        text = authorization(keys, others, issuer=issuer)
        (out / AUTHORIZATION).write_text(text)
    except OSError as e:
        raise InvalidRequest(
            f"the keys cannot be written into {out}: {e.strerror}", hint="choose another folder with --out"
        ) from e
    if namespace is not None:
        secrets_ = {user: {"seed": read_seed(out / f"{user}.nk")} for user in keys}
        if issuer:
            secrets_[CALLOUT][ISSUER] = read_account_seed(out / ISSUER_FILE)
        put(*_yaml(namespace, secrets_, text).splitlines())
    elif not ctx.output.people:
        ctx.output.document("BusUsers", {"users": keys, "authorization": str(out / AUTHORIZATION)})
    else:
        for user, key in keys.items():
            put(f"{user:<20} {key}")
        put(f"written into {out}: a key each, and {AUTHORIZATION} for nats-server")


@command.command("keys")
@click.option("--namespace", required=True, help="Namespace of the Secrets; the chart creates them empty.")
@click.option(
    "--prefix",
    default="hbox-bus",
    show_default=True,
    help="Name prefix: Secrets PREFIX-USER hold the services' seeds, PREFIX-readers those of all readers.",
)
@_READER
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="Output file that nats.conf includes."
)
@click.option(
    "--servers",
    metavar="HOST:PORT,...",
    help="For a broker cluster: addresses of its servers; Secret PREFIX-routes holds their credentials.",
)
@click.option(
    "--tls",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="With --servers: folder with the servers' certificates (tls.crt, tls.key, ca.crt) [no TLS].",
)
@_AGENTS_BY_NODE
@_KUBECONFIG
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(1),
    default=120.0,
    show_default=True,
    help="Seconds to wait for the Secrets.",
)
@command_options
def keys_(
    _: Context,
    *,
    namespace: str,
    prefix: str,
    readers: tuple[str, ...],
    out: Path,
    servers: str | None,
    tls: Path | None,
    agents_by_node: bool,
    kubeconfig: Path | None,
    timeout_s: float,
) -> None:
    """Create missing keys of the broker's users in their Secrets, and write nats-server's authorization block for all users: what a pod of
    the Helm chart's broker does before it starts. Permissions are those of this version of HBox. With --servers, write the route block of the
    broker cluster, too."""
    from hbox_common.brokerkeys import new_account_seed, new_seed, public_account_key, public_key  # noqa: PLC0415
    from hbox_common.bus import Routes  # noqa: PLC0415
    from hbox_common.bus.users import CALLOUT, authorization, read_only, users  # noqa: PLC0415
    from hbox_common.kube import SECRETS, KubeClient  # noqa: PLC0415

    others = {name: read_only(name, queues) for name, queues in _readers(readers).items()}
    wanted = {user: {"seed": new_seed} for user in users()} | {READERS: dict.fromkeys(others, new_seed)}
    wanted[CALLOUT][ISSUER] = new_account_seed
    if servers is not None:
        wanted[ROUTES] = {"password": partial(secrets.token_urlsafe, 32)}

    async def keep() -> dict[str, dict[str, str]]:
        until = monotonic_s() + timeout_s
        async with KubeClient.connect(str(kubeconfig) if kubeconfig else None, user_agent="hbox bus keys") as client:
            paths = {name: SECRETS.path(namespace, f"{prefix}-{name}") for name in wanted}
            return {name: await _kept(client, path, wanted[name], until) for name, path in paths.items()}

    found = run(keep)
    seeds = {user: found[user]["seed"] for user in users()} | found[READERS]
    issuer = public_account_key(found[CALLOUT][ISSUER]) if agents_by_node else ""
    text = authorization({user: public_key(seed) for user, seed in seeds.items()}, others, issuer=issuer)
    if servers is not None:
        several = servers.split(",")
        text += Routes(f"0.0.0.0:{several[0].rpartition(':')[2]}", several, found[ROUTES]["password"], tls).block()
    try:
        out.write_text(text)
    except OSError as e:
        raise InvalidRequest(f"{e.filename}: {e.strerror}", hint="choose another file with --out") from e
    notify(f"{len(seeds)} users have keys; {out} has their publish and subscribe permissions")


async def _kept(client: "KubeClient", path: str, wanted: Mapping[str, Callable[[], str]], until: float) -> dict[str, str]:
    """The Secret's values of these keys; missing values are generated and written. Until `until` the function retries if the Secret does not exist yet, the
    API server does not answer, or another broker writes at the same moment. Raises InvalidRequest, NotFound, Unavailable, Conflict."""
    from hbox_common.kube import MERGE_PATCH  # noqa: PLC0415

    while True:
        try:
            secret = await client.json("GET", path)
            data = secret.get("data") or {}
            there = {key: base64.b64decode(data[key]).decode("utf-8", "replace") for key in wanted if data.get(key)}
            made = {key: make() for key, make in wanted.items() if key not in there}
            if made:
                # Fenced by the version that was read: if two brokers write at once, one of them reads again and takes the other's values.
                body = {
                    "metadata": {"resourceVersion": secret["metadata"]["resourceVersion"]},
                    "data": {key: base64.b64encode(value.encode()).decode() for key, value in made.items()},
                }
                await client.json("PATCH", path, body=body, content_type=MERGE_PATCH)
            return there | made
        except (NotFound, Unavailable, Conflict):
            if monotonic_s() > until:
                raise
            await asyncio.sleep(AGAIN_S)


@command.command("callout")
@click.option("--nats-url", envvar="HBOX_NATS_URL", required=True, metavar="URL", help="Address of the broker.")
@click.option(
    "--keys",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder with two files: seed, of the broker's user callout, and issuer, of the account's key.",
)
@click.option("--account", required=True, metavar="NAMESPACE:NAME", help="Service account of the agents.")
@click.option("--remedy-account", metavar="NAMESPACE:NAME", help="Service account of node-remedy [it is not admitted].")
@certificate_options
@click.option(
    "--health-host", envvar="HBOX_HEALTH_HOST", default="127.0.0.1", show_default=True, help="Address of /healthz and /readyz."
)
@click.option(
    "--health-port", envvar="HBOX_HEALTH_PORT", type=click.IntRange(0, 65535), help="Port of /healthz and /readyz [none]."
)
@_KUBECONFIG
@command_options
def callout_(
    _: Context,
    *,
    nats_url: str,
    keys: Path,
    account: str,
    remedy_account: str | None,
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
    health_host: str,
    health_port: int | None,
    kubeconfig: Path | None,
) -> None:
    """Admit agents to the broker, until interrupted: the API server reviews the token of each and names its node, and the agent may publish about
    that node only; so are node-remedy's. The Helm chart runs it as a Deployment."""
    from hbox_common.brokerkeys import read_account_seed  # noqa: PLC0415
    from hbox_common.bus import Access  # noqa: PLC0415
    from hbox_common.bus.callout import AUDIENCE, Callout, Reviewed, reviewed  # noqa: PLC0415
    from hbox_common.bus.connection import Connection  # noqa: PLC0415
    from hbox_common.bus.users import AGENT, CALLOUT, REMEDY  # noqa: PLC0415
    from hbox_common.kube import TOKEN_REVIEWS, KubeClient  # noqa: PLC0415
    from hbox_common.runtime import Health, HealthServer  # noqa: PLC0415

    access = Access(seed=keys / "seed", ca=ca, certificate=certificate, key=key)
    issuer = read_account_seed(keys / ISSUER)
    accounts = {account: AGENT} | ({remedy_account: REMEDY} if remedy_account else {})

    async def serve() -> None:
        health = Health("callout")
        on_bus, on_kube = health.condition("bus"), health.condition("kube")
        on_kube.ok()  # until a review fails
        async with AsyncExitStack() as stack:
            if health_port is not None:
                await stack.enter_async_context(HealthServer(health, host=health_host, port=health_port))
            client = await stack.enter_async_context(
                KubeClient.connect(str(kubeconfig) if kubeconfig else None, user_agent="hbox bus callout")
            )
            connection = await stack.enter_async_context(Connection.open(nats_url, name=CALLOUT, instance="1", access=access))

            async def watch() -> NoReturn:
                while True:
                    if connection.connected.is_set():
                        on_bus.ok()
                    else:
                        on_bus.bad("NATS cannot be reached")
                    await asyncio.sleep(1)

            async def review(token: str) -> Reviewed:
                body = {
                    "apiVersion": "authentication.k8s.io/v1",
                    "kind": "TokenReview",
                    "spec": {"token": token, "audiences": [AUDIENCE]},
                }
                try:
                    answer = await client.json("POST", TOKEN_REVIEWS.path(), body=body)
                except (HBoxError, asyncio.CancelledError) as e:
                    on_kube.bad(str(e) or "the API server does not review tokens in time")
                    raise
                on_kube.ok()
                return reviewed(answer.get("status") or {}, accounts=accounts)

            notify("agents are admitted by the tokens of their pods")
            await asyncio.gather(watch(), Callout(issuer, review).run(connection))

    run(serve)


@command.command("streams")
@click.option(
    "--nats-url", envvar="HBOX_NATS_URL", required=True, metavar="URL", help="Address of the broker; the command waits for it."
)
@click.option(
    "--seed",
    envvar="HBOX_NATS_SEED",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Seed file of user admin [the broker has no users].",
)
@certificate_options
@click.option(
    "--replicas", type=click.IntRange(1, 5), help="Replicas of each stream [1 for new streams, unchanged for others]."
)
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(1), default=300.0, show_default=True, help="Seconds to wait for the broker."
)
@command_options
def streams_(
    _: Context,
    *,
    nats_url: str,
    seed: Path | None,
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
    replicas: int | None,
    timeout_s: float,
) -> None:
    """Create missing streams and correct the configuration of existing ones. The Helm chart does so after each upgrade."""
    from hbox_common.bus import Access, Bus  # noqa: PLC0415
    from hbox_common.bus.users import ADMIN  # noqa: PLC0415

    access = Access(seed=seed, ca=ca, certificate=certificate, key=key)

    async def ensure() -> None:
        async with (
            asyncio.timeout(timeout_s),
            Bus.connect(nats_url, name=ADMIN, instance="streams", access=access, ensure=False) as bus,
        ):
            await bus.ensure_streams(replicas=replicas)

    try:
        run(ensure)
    except TimeoutError as e:
        raise Unavailable(
            f"the broker has no streams of ours after {timeout_s:g} s", hint="is nats-server running, with JetStream?"
        ) from e
    notify("the streams are as they should be")


def _readers(texts: Sequence[str]) -> dict[str, list[str]]:
    """Queues by user. Raises UsageError, InvalidRequest."""
    from hbox_common.bus.users import users  # noqa: PLC0415

    found = dict(map(_reader, texts))
    if taken := sorted(users().keys() & found.keys()):
        raise InvalidRequest(f"--reader {taken[0]}: a user of the platform has this name", hint="choose another")
    return found


def _reader(text: str) -> tuple[str, list[str]]:
    """Raises UsageError."""
    name, equals, queues = text.partition("=")
    names = [queue for queue in queues.split(",") if queue]
    if not equals or not names or not name.replace("-", "").isalnum() or name != name.lower():
        raise click.UsageError(f"--reader {text!r}: write NAME=QUEUE,QUEUE with a name of lower-case letters, digits and '-'")
    return name, names


def _yaml(namespace: str, seeds: Mapping[str, Mapping[str, str]], authorization: str) -> str:
    import yaml  # noqa: PLC0415

    def thing(kind: str, name: str, **content: Any) -> dict[str, Any]:
        labels = {"app.kubernetes.io/part-of": "hbox"}
        return {
            "apiVersion": "v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            **content,
        }

    secrets = [thing("Secret", f"hbox-bus-{user}", type="Opaque", stringData=dict(own)) for user, own in seeds.items()]
    configmap = thing("ConfigMap", "hbox-bus-authorization", data={AUTHORIZATION: authorization})
    return yaml.safe_dump_all([*secrets, configmap], sort_keys=False)
