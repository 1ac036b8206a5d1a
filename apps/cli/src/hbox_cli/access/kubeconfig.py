"""A kubeconfig's context: the API server's address, how to verify it, and the user's credentials.

The official client is not used here: its import takes 0.3 s, longer than a short command of `hbox` may run.
"""

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hbox_common.errors import InvalidRequest, NotFound

from .credentials import Credentials, Exec

#: A part of a kubeconfig, with the file that has it: relative paths in it are relative to that file.
Section = tuple[Path, Mapping[str, Any]]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class KubeAccess:
    """One API server as one user. `origin`: where it was read, for people."""

    server: str
    origin: str
    name: str  #: of the context; `in-cluster` for a pod's service account
    ca: str | None = None  #: PEM; None = the machine's own authorities
    server_name: str | None = None
    proxy: str | None = None
    namespace: str = "default"
    files: str = ""  #: kubeconfigs that it was read from, separated as in KUBECONFIG
    credentials: Credentials = field(default_factory=Credentials, repr=False)


def paths_of(environ: Mapping[str, str]) -> list[Path]:
    """The files that kubectl would read, those that exist."""
    named = [part for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    paths = [Path(part).expanduser() for part in named] if named else [Path.home() / ".kube" / "config"]
    return [path for path in paths if path.is_file()]


def read_context(paths: Sequence[Path], name: str | None = None) -> KubeAccess | None:
    """The context of this name, by default the current one; None where no file names a current context. As with kubectl, the first file that names a thing
    wins. Raises InvalidRequest for a file or context that cannot be used, NotFound for an unknown name."""
    contexts: dict[str, Section] = {}
    clusters: dict[str, Section] = {}
    users: dict[str, Section] = {}
    current = name or ""
    for path in paths:
        content = _content(path)
        current = current or str(content.get("current-context") or "")
        for known, plural, singular in (
            (contexts, "contexts", "context"),
            (clusters, "clusters", "cluster"),
            (users, "users", "user"),
        ):
            for entry in content.get(plural) or ():
                if isinstance(entry, Mapping) and isinstance(value := entry.get(singular), Mapping):
                    known.setdefault(str(entry.get("name")), (path, value))
    if not current:
        return None
    if current not in contexts:
        listed = ", ".join(sorted(contexts)) or "none"
        raise NotFound(f"no kubeconfig has a context {current}; contexts: {listed}", hint="kubectl config get-contexts")
    path, context = contexts[current]
    cluster = clusters.get(str(context.get("cluster")))
    if cluster is None:
        raise InvalidRequest(f"kubeconfig {path}: context {current} names a cluster that is not there")
    access = _access(current, (path, context), cluster, users.get(str(context.get("user")), (path, {})))
    return replace(access, files=os.pathsep.join(map(str, paths)))


def names_in(paths: Sequence[Path]) -> list[str]:
    """Names of all contexts. Raises InvalidRequest."""
    entries = [entry for path in paths for entry in _content(path).get("contexts") or ()]
    return list(dict.fromkeys(str(entry["name"]) for entry in entries if isinstance(entry, Mapping) and "name" in entry))


def in_pod(environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> KubeAccess | None:
    """The service account of the pod that this process runs in; None outside pods. Raises InvalidRequest where its files cannot be read."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    token = folder / "token"
    if not host or not token.exists():
        return None
    try:
        ca = (folder / "ca.crt").read_text()
        namespace = (folder / "namespace").read_text().strip() if (folder / "namespace").exists() else "default"
    except (OSError, UnicodeDecodeError) as e:
        raise InvalidRequest(f"the service account's files in {folder} cannot be read: {e}") from e
    return KubeAccess(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        origin=f"service account in {folder}",
        name="in-cluster",
        ca=ca,
        namespace=namespace or "default",
        credentials=Credentials(token_file=token),
    )


def _access(name: str, context_in: Section, cluster_in: Section, user_in: Section) -> KubeAccess:
    (path, context), (cluster_path, cluster), (user_path, user) = context_in, cluster_in, user_in
    if _true(cluster.get("insecure-skip-tls-verify")):
        raise InvalidRequest(
            f"kubeconfig {cluster_path}: insecure-skip-tls-verify is set; hbox verifies every server",
            hint="set certificate-authority of the cluster",
        )
    proxy = str(cluster.get("proxy-url") or "") or None
    if proxy is not None and not proxy.startswith("http://"):
        raise InvalidRequest(f"kubeconfig {cluster_path}: proxy-url {proxy}: hbox supports http:// proxies only")
    return KubeAccess(
        server=str(cluster.get("server") or "").rstrip("/"),
        origin=f"kubeconfig {path}",
        name=name,
        ca=_data(cluster_path, cluster, "certificate-authority"),
        server_name=str(cluster.get("tls-server-name") or "") or None,
        proxy=proxy,
        namespace=str(context.get("namespace") or "default"),
        credentials=_credentials(user_path, user, cluster),
    )


def _credentials(path: Path, user: Mapping[str, Any], cluster: Mapping[str, Any]) -> Credentials:
    for unsupported in ("auth-provider", "username", "as", "as-uid", "as-groups"):
        if user.get(unsupported):
            raise InvalidRequest(
                f"kubeconfig {path}: hbox does not support {unsupported} of a user",
                hint="use a token, a client certificate or an exec plugin, or name another context with --context",
            )
    token_file = path.parent / Path(str(user["tokenFile"])).expanduser() if user.get("tokenFile") else None
    plugin = user.get("exec")
    return Credentials(
        token=str(user.get("token") or "") or None,
        token_file=token_file,
        certificate=_data(path, user, "client-certificate"),
        key=_data(path, user, "client-key"),
        plugin=Exec.read(path, plugin, cluster) if isinstance(plugin, Mapping) else None,
    )


def _data(path: Path, section: Mapping[str, Any], key: str) -> str | None:
    """A PEM text, inline (base64) or in a file. Inline data win, as with kubectl."""
    try:
        if inline := section.get(f"{key}-data"):
            return base64.b64decode(str(inline), validate=True).decode()
        if named := section.get(key):
            return (path.parent / Path(str(named)).expanduser()).read_text()
    except (OSError, binascii.Error, UnicodeDecodeError) as e:
        raise InvalidRequest(f"kubeconfig {path}: {key} cannot be read: {e}") from e
    return None


def _content(path: Path) -> Mapping[str, Any]:
    from hbox_common.yamltext import settings_of  # noqa: PLC0415  30 ms

    content = settings_of(path)
    if content is None:
        return {}
    if not isinstance(content, Mapping) or not all(
        isinstance(content.get(key) or [], list) for key in ("contexts", "clusters", "users")
    ):
        raise InvalidRequest(f"kubeconfig {path}: not a kubeconfig", hint=f"`kubectl --kubeconfig {path} version` should work")
    return content


def _true(value: object) -> bool:
    return str(value).lower() == "true"
