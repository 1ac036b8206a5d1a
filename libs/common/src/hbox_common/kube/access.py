"""Where the API server is and how to be let in: kubeconfig or service account, TLS, tokens, exec plugins, proxies.

All of it is the official client's business; it is imported when a connection is wanted (0.3 s), and not before.
Its requests and models are not used: they cost 10-50 times as much, and some raise on success (sources: kubernetes-client).
"""

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from hbox_common.errors import HBoxError, InvalidRequest, Unavailable
from hbox_common.yamltext import check, read_file

from .token_file import TokenFile, token_file_of

Authorize = Callable[[dict[str, str]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Access:
    base: str  #: scheme, host, port and perhaps a path, without a slash at the end
    tls: ssl.SSLContext | None
    server_name: str | None  #: to be expected in the certificate instead of the host
    proxy: str | None
    authorize: Authorize | None  #: adds what is needed to the headers of each request; None where nothing is
    files: tuple[Path, ...] = ()  #: that this was read from: where one is another, all of it may be


async def find_access(kubeconfig: str | None) -> Access:
    """From the file, or without one from the service account of the pod we run in.

    Raises InvalidRequest, naming the file and what to do, when there is none or it cannot be used.
    """
    from .official import client, config  # noqa: PLC0415  # late on purpose: see above

    settings = client.Configuration()
    try:
        if kubeconfig is None:
            config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
        else:
            # Without persist_config=False the library writes to the user's file.
            await config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=_existing(kubeconfig), client_configuration=settings, persist_config=False
            )
        base = str(settings.host).rstrip("/")
        secure, known = base.startswith("https:"), bool(settings.api_key or settings.refresh_api_key_hook)
        # The API client reads certificates at once, so a broken file is reported here and not at the first request. Without configured authorities it reads
        # all of the machine's (24 ms), which plain HTTP does not need.
        library = client.ApiClient(settings) if secure or known else None
        # The library reads a service account's token again by the wall clock, which may be set back, and fails while the file is away.
        token_file = (
            token_file_of(kubeconfig)
            if kubeconfig is not None
            else TokenFile(Path(config.incluster_config.SERVICE_TOKEN_FILENAME))
        )
    except HBoxError:
        raise
    except Exception as e:  # the loader lets TypeError, KeyError, YAMLError, SSLError and its own through
        reason = str(e).splitlines()[0] if str(e) else type(e).__name__
        if kubeconfig is None:
            raise InvalidRequest(
                f"no kubeconfig was named, and this is no pod with a service account: {reason}",
                hint="name a kubeconfig file, or run inside the cluster",
            ) from e
        raise InvalidRequest(
            f"kubeconfig {kubeconfig}: {reason}", hint=f"`kubectl --kubeconfig {kubeconfig} version` should work"
        ) from e

    if not _is_address(base):
        raise InvalidRequest(f"kubeconfig {kubeconfig}: {base!r} is no address", hint="`server` looks like https://host:6443")
    return Access(
        base=base,
        tls=library.rest_client.ssl_context if library is not None and secure else None,
        server_name=settings.tls_server_name or None,
        proxy=settings.proxy or _proxy_from_environment(base),
        authorize=token_file.authorize if token_file is not None else _authorizer(library) if known else None,
        files=_files(kubeconfig, settings.ssl_ca_cert, settings.cert_file, settings.key_file),
    )


def _files(*names: str | None) -> tuple[Path, ...]:
    return tuple(Path(name).expanduser() for name in names if name)


def _existing(kubeconfig: str) -> str:
    """The library treats a missing file as an empty one and reports a misleading error."""
    path = Path(kubeconfig).expanduser()
    try:
        empty = path.stat().st_size == 0
    except OSError as e:
        raise InvalidRequest(f"kubeconfig {path}: {e.strerror}", hint="name a kubeconfig that exists and may be read") from e
    if empty:
        raise InvalidRequest(f"kubeconfig {path} is empty", hint="name a kubeconfig that has a cluster in it")
    text = read_file(path)
    try:
        check(text)  # before the library's reader, which calls itself for each level and each alias
    except InvalidRequest as e:
        raise InvalidRequest(f"kubeconfig {path}: {e.message}", hint=e.hint) from e
    return str(path)


def _is_address(base: str) -> bool:
    try:
        url = urlsplit(base)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:  # a port that is no number
        return False


def _proxy_from_environment(base: str) -> str | None:
    """Looked up once: per request it would cost as much as the request's own bookkeeping."""
    url = urlsplit(base)
    if not url.hostname or proxy_bypass(url.hostname):
        return None
    return getproxies().get(url.scheme)


def _authorizer(library: Any) -> Authorize:
    async def authorize(headers: dict[str, str]) -> None:
        try:
            await library.update_params_for_auth(headers, [], ["BearerToken"], "", "", None)
        except Exception as e:  # exec plugins and token files fail in their own ways
            raise Unavailable(f"no credentials for the Kubernetes API: {e}", hint="run the kubeconfig's login again") from e

    return authorize
