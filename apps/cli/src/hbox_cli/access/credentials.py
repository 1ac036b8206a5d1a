"""A user's credentials: tokens, files, client certificates, and exec plugins of a kubeconfig. None of them is ever printed."""

import json
import os
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hbox_common.errors import InvalidRequest, Unavailable

from .files import cache_folder, private_folder, write_private

#: Seconds that an exec plugin may take: it may wait for a login in a browser.
PLUGIN_S = 120.0
MAX_OUTPUT_BYTES = 1 << 20
#: A cached credential is not used in the last seconds before it expires.
MARGIN_S = 10.0
NEXT = "run `kubectl auth whoami`, which uses the same plugin"  #: where a plugin has no hint of its own
VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class PluginFailed(Unavailable):
    """An exec plugin gave no credentials, which other servers need as well."""


@dataclass(frozen=True, slots=True)
class Exec:
    """An exec plugin, as a kubeconfig names it."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    version: str
    interactive: bool
    hint: str
    cluster: Mapping[str, Any] | None  #: for plugins with provideClusterInfo

    @classmethod
    def read(cls, path: Path, found: Mapping[str, Any], cluster: Mapping[str, Any]) -> "Exec":
        """Raises InvalidRequest."""
        version, command = str(found.get("apiVersion") or ""), str(found.get("command") or "")
        if version not in VERSIONS or not command:
            raise InvalidRequest(
                f"kubeconfig {path}: exec plugin {command or 'without a command'} of version {version or 'none'} is not supported",
                hint=f"versions: {', '.join(VERSIONS)}",
            )
        if os.sep in command and not Path(command).is_absolute():
            command = str(path.parent / command)
        return cls(
            command,
            tuple(str(one) for one in found.get("args") or ()),
            {
                str(one["name"]): str(one.get("value", ""))
                for one in found.get("env") or ()
                if isinstance(one, Mapping) and "name" in one
            },
            version,
            str(found.get("interactiveMode") or "IfAvailable") != "Never",
            str(found.get("installHint") or ""),
            {"server": cluster.get("server"), "certificate-authority-data": cluster.get("certificate-authority-data")}
            if found.get("provideClusterInfo")
            else None,
        )

    @property
    def key(self) -> str:
        """Names the cached credential: the same for the same command on the same cluster."""
        from hashlib import sha256  # noqa: PLC0415

        return sha256(
            json.dumps([self.command, self.args, dict(self.env), self.version, self.cluster], default=str).encode()
        ).hexdigest()


@dataclass(frozen=True, slots=True)
class Presented:
    """What a request presents now."""

    token: str | None = field(default=None, repr=False)
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Credentials:
    """As kubectl ranks them: a token file before a token; an exec plugin only if there is neither token nor certificate."""

    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    certificate: str | None = field(default=None, repr=False)  #: PEM
    key: str | None = field(default=None, repr=False)
    plugin: Exec | None = field(default=None, repr=False)

    @property
    def kind(self) -> str:
        """For people, without the secret."""
        if self.token_file is not None:
            return f"token file {self.token_file}"
        if self.token:
            return "token"
        if self.certificate:
            return "client certificate"
        return f"exec plugin {Path(self.plugin.command).name}" if self.plugin is not None else "none"

    def present(self, *, now: float, cache: Path | None = None) -> Presented:
        """Raises InvalidRequest, or Unavailable where the plugin does not answer. `now`: seconds since the epoch."""
        token = self.token
        if self.token_file is not None:
            token = _token_in(self.token_file)
        if not token and not self.certificate and self.plugin is not None:
            return _of_plugin(self.plugin, now=now, cache=cache_folder() / "exec" if cache is None else cache)
        if bool(self.certificate) != bool(self.key):
            raise InvalidRequest("a client certificate needs its key, and a key its certificate")
        return Presented(token, self.certificate, self.key)


def tls_context(ca: str | None, presented: Presented = Presented()) -> ssl.SSLContext:
    """Verifies the server, always. Raises InvalidRequest for a CA or certificate that cannot be used."""
    try:
        context = ssl.create_default_context(cadata=ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if presented.certificate is not None and presented.key is not None:
            _load(context, presented.certificate, presented.key)
    except (OSError, ValueError) as e:  # SSLError is an OSError
        raise InvalidRequest(f"the certificates cannot be used: {e}", hint="they have to be PEM") from e
    return context


def _load(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """The ssl module reads certificates from files only."""
    import tempfile  # noqa: PLC0415  for those who have a certificate

    with tempfile.NamedTemporaryFile("w", prefix="hbox-", suffix=".pem") as file:  # mode 0600
        file.write(f"{certificate.rstrip()}\n{key}")
        file.flush()
        context.load_cert_chain(file.name)


def _token_in(path: Path) -> str:
    try:
        token = path.expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as e:
        raise InvalidRequest(
            f"token file {path}: {getattr(e, 'strerror', None) or 'not text'}", hint="name a file that has the token"
        ) from e
    if not token or any(not "!" <= letter <= "~" for letter in token):
        raise InvalidRequest(f"token file {path} has no token, or more than one", hint="it has to hold the token alone")
    return token


def _of_plugin(plugin: Exec, *, now: float, cache: Path) -> Presented:
    path = cache / f"{plugin.key}.json"
    with suppress(OSError, ValueError, InvalidRequest):
        status = json.loads(path.read_text())
        if _expires(status) - MARGIN_S > now:
            return _presented(status)
    status = _status(plugin, _run(plugin))
    found = _presented(status)
    if _expires(status) - MARGIN_S > now:
        with suppress(OSError):  # a credential that cannot be cached is asked for again
            private_folder(cache)
            write_private(path, json.dumps(status))
    return found


def _presented(status: Mapping[str, Any]) -> Presented:
    token, certificate, key = (status.get(name) for name in ("token", "clientCertificateData", "clientKeyData"))
    if not isinstance(token, str | None) or not isinstance(certificate, str | None) or not isinstance(key, str | None):
        raise InvalidRequest("the exec plugin's credential is not text")
    if not token and not (certificate and key):
        raise InvalidRequest("the exec plugin printed neither a token nor a client certificate with its key")
    return Presented(token or None, certificate or None, key or None)


def _expires(status: Mapping[str, Any]) -> float:
    """Seconds since the epoch; 0 if it states no time: such a credential is not cached."""
    try:
        at = datetime.fromisoformat(str(status["expirationTimestamp"]))
    except (KeyError, ValueError):
        return 0.0
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _status(plugin: Exec, output: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(output)
        version, status = found["apiVersion"], found["status"]
    except (ValueError, KeyError, TypeError):
        version, status = None, None
    if version != plugin.version or not isinstance(status, Mapping):
        raise InvalidRequest(
            f"exec plugin {plugin.command} printed no ExecCredential of {plugin.version}", hint=plugin.hint or NEXT
        )
    return status


def _run(plugin: Exec) -> bytes:
    """Its standard output. Its standard error is ours: it may ask the user to log in."""
    import subprocess  # noqa: PLC0415  for those who have a plugin
    import sys  # noqa: PLC0415
    from threading import Timer  # noqa: PLC0415

    interactive = plugin.interactive and sys.stdin is not None and sys.stdin.isatty()
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.cluster is not None:
        spec["cluster"] = {name: value for name, value in plugin.cluster.items() if value}
    info = json.dumps({"apiVersion": plugin.version, "kind": "ExecCredential", "spec": spec})
    argv: Sequence[str] = (plugin.command, *plugin.args)
    try:
        process = subprocess.Popen(
            argv,
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, **plugin.env, "KUBERNETES_EXEC_INFO": info},
        )
    except OSError as e:
        raise InvalidRequest(f"exec plugin {plugin.command} cannot be run: {e.strerror}", hint=plugin.hint) from e
    late = False

    def stop() -> None:
        nonlocal late
        late = True
        process.kill()

    timer = Timer(PLUGIN_S, stop)
    timer.start()
    try:
        with process:
            output = process.stdout.read(MAX_OUTPUT_BYTES + 1) if process.stdout is not None else b""
            if len(output) > MAX_OUTPUT_BYTES:
                process.kill()
    finally:
        timer.cancel()
        if process.poll() is None:
            process.kill()
    if late:
        raise PluginFailed(f"exec plugin {plugin.command} did not answer within {PLUGIN_S:g} s", hint=plugin.hint or NEXT)
    if len(output) > MAX_OUTPUT_BYTES:
        raise PluginFailed(
            f"exec plugin {plugin.command} printed more than {MAX_OUTPUT_BYTES >> 20} MiB", hint=plugin.hint or NEXT
        )
    if process.returncode != 0:
        raise PluginFailed(
            f"exec plugin {plugin.command} failed with exit status {process.returncode}", hint=plugin.hint or NEXT
        )
    return output
