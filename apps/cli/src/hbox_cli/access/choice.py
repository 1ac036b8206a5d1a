"""Where a command gets its data from: flags, then the context named, the stored one, a platform in ./.hbox, kubectl's current context, the pod's account.

A platform that runs in the default state folder precedes kubectl's context, as before hbox read kubeconfigs; finding it sends no request.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hbox_common.errors import InvalidRequest, NotFound

from ..context import By, Flags
from . import contexts, kubeconfig
from .credentials import Credentials
from .kubeconfig import KubeAccess

if TYPE_CHECKING:
    from ..platform.layout import Layout

#: The ConfigMap that announces HBox's server in a cluster.
ANNOUNCED_IN, ANNOUNCEMENT = "kube-public", "hbox-access"


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of the access, for `hbox ctx show --origin`."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class Choice:
    """Exactly one of `state`, `nats_url`, `server` and `kube` is the source: with `kube` alone, the cluster announces the server. `kube` is also where commands
    fall back to Kubernetes objects."""

    name: str
    state: Path | None = None
    nats_url: str = ""
    nats_seed: Path | None = None
    nats_ca: Path | None = None
    server: str = ""
    ca: str | None = None
    credentials: Credentials = field(default_factory=Credentials, repr=False)
    kube: KubeAccess | None = None
    account: KubeAccess | None = None  #: whose credentials these are
    kubeconfig: str = ""
    settings: tuple[Setting, ...] = ()


def choose(flags: Flags, state: Path, *, state_by: By, environ: Mapping[str, str] = os.environ) -> Choice:
    """Raises NotFound where nothing is configured, InvalidRequest for what cannot be used."""
    if flags.server is not None:
        return _by_server(flags, environ)
    if flags.nats_url is not None:
        return _by_bus(flags, environ)
    if state_by is By.FLAG:
        return _by_state(state, "--state")
    if flags.context is not None:
        stored = contexts.read(contexts.path_of())
        return _by_name(flags.context, stored, environ, origin="--context or HBOX_CONTEXT", flags=flags)
    if state_by is By.ENVIRONMENT:
        return _by_state(state, "HBOX_STATE")
    stored = contexts.read(contexts.path_of())
    if stored.current:
        return _by_name(stored.current, stored, environ, origin=str(contexts.path_of()), flags=flags)
    if (state / "lock").exists() and _layout(state).busy:
        return _by_state(state, "a platform runs in the default folder")
    if (found := _kube(environ, None)) is not None:
        return _by_kube(found, flags)
    raise NotFound(
        f"no platform runs in {state}, and neither hbox nor kubectl has a current context",
        hint="start one with `hbox up`; or name a platform: --context, --server, or --state FOLDER",
    )


def _layout(state: Path) -> "Layout":
    from ..platform.layout import Layout  # noqa: PLC0415  the model behind it takes 0.2 s, which other choices do not need

    return Layout(state)


def _by_state(state: Path, origin: str) -> Choice:
    return Choice(name=str(state), state=state, settings=(Setting("state", str(state), origin),))


def _by_bus(flags: Flags, environ: Mapping[str, str]) -> Choice:
    given = (("nats-url", flags.nats_url), ("nats-seed", flags.nats_seed), ("nats-ca", flags.nats_ca))
    return Choice(
        name=str(flags.nats_url),
        nats_url=str(flags.nats_url),
        nats_seed=flags.nats_seed,
        nats_ca=flags.nats_ca,
        kubeconfig=os.pathsep.join(map(str, kubeconfig.paths_of(environ))),
        settings=tuple(Setting(name, str(value), f"--{name}") for name, value in given if value is not None),
    )


def _by_server(flags: Flags, environ: Mapping[str, str]) -> Choice:
    """The credentials are those of --token-file, else of kubectl's context, else of the pod."""
    settings = [Setting("server", str(flags.server), "--server")]
    if flags.ca is not None:
        settings.append(Setting("ca", str(flags.ca), "--ca"))
    credentials, account = Credentials(), None
    if flags.token_file is not None:
        credentials = Credentials(token_file=flags.token_file)
        settings.append(Setting("credentials", credentials.kind, "--token-file"))
    elif (account := _kube(environ, flags.context)) is not None:
        credentials = account.credentials
        settings.append(Setting("credentials", credentials.kind, f"{account.origin}, context {account.name}"))
    ca = _pem(flags.ca) if flags.ca is not None else None
    return Choice(
        name=str(flags.server),
        server=_base(str(flags.server)),
        ca=ca,
        credentials=credentials,
        account=account,
        settings=tuple(settings),
    )


def _by_name(name: str, stored: contexts.Contexts, environ: Mapping[str, str], *, origin: str, flags: Flags) -> Choice:
    """A stored context; else a context of kubectl of that name."""
    found = stored.named(name)
    if found is None:
        paths = kubeconfig.paths_of(environ)
        if name not in (known := kubeconfig.names_in(paths)):
            raise contexts.unknown(name, [*(one.name for one in stored.contexts), *known])
        kube = kubeconfig.read_context(paths, name)
        if kube is None:
            raise contexts.unknown(name, known)
        return _by_kube(kube, flags)
    file = str(contexts.path_of())
    named = Setting("context", name, origin)
    if found.state:
        return Choice(name=name, state=Path(found.state), settings=(named, Setting("state", found.state, file)))
    if found.nats_url:
        seed, ca = (Path(one) if one else None for one in (found.nats_seed, found.nats_ca))
        values = (("nats-url", found.nats_url), ("nats-seed", found.nats_seed), ("nats-ca", found.nats_ca))
        settings = [Setting(what, value, file) for what, value in values if value]
        paths_text = os.pathsep.join(map(str, kubeconfig.paths_of(environ)))
        return Choice(
            name=name, nats_url=found.nats_url, nats_seed=seed, nats_ca=ca, kubeconfig=paths_text, settings=(named, *settings)
        )
    kube = None
    if found.kube_context:
        paths = kubeconfig.paths_of({"KUBECONFIG": found.kubeconfig} if found.kubeconfig else environ)
        kube = (
            kubeconfig.in_pod(environ)
            if found.kube_context == "in-cluster"
            else kubeconfig.read_context(paths, found.kube_context)
        )
    if not found.server:
        if kube is None:
            raise InvalidRequest(f"{file}: context {name} names no server", hint=f"hbox ctx login {name}")
        return _by_kube(kube, flags, named)
    credentials, source = Credentials(token_file=Path(found.token_file) if found.token_file else None), file
    if credentials == Credentials() and kube is not None:
        credentials, source = kube.credentials, f"{kube.origin}, context {kube.name}"
    settings = [Setting("server", found.server, file), *([Setting("ca", "PEM", file)] if found.ca else [])]
    settings.append(Setting("credentials", credentials.kind, source))
    return Choice(
        name=name,
        server=_base(found.server),
        ca=found.ca or None,
        credentials=credentials,
        kube=kube,
        account=kube,
        settings=(named, *settings),
    )


def _by_kube(kube: KubeAccess, flags: Flags, *above: Setting) -> Choice:
    credentials = kube.credentials if flags.token_file is None else Credentials(token_file=flags.token_file)
    settings = (
        *above,
        Setting("cluster", kube.server, f"{kube.origin}, context {kube.name}"),
        Setting(
            "credentials",
            credentials.kind,
            f"{kube.origin}, context {kube.name}" if flags.token_file is None else "--token-file",
        ),
    )
    return Choice(name=kube.name, credentials=credentials, kube=kube, account=kube, kubeconfig=kube.files, settings=settings)


def _kube(environ: Mapping[str, str], name: str | None) -> KubeAccess | None:
    """Of kubectl's current context; else of the pod."""
    return kubeconfig.read_context(kubeconfig.paths_of(environ), name) or kubeconfig.in_pod(environ)


def _pem(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as e:
        raise InvalidRequest(f"--ca {path}: cannot be read", hint="name a PEM file of certificates") from e


def _base(url: str) -> str:
    return url.rstrip("/").removesuffix("/api/v1")
