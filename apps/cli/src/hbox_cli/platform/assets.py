"""A Kubernetes control plane of our own from real programs: etcd, kube-apiserver, kube-controller-manager, and kwok in place of kubelets.

Loopback only. Credentials are made anew at each start, so that none expires: kube-apiserver signs itself a certificate when its folder has
none, a file of tokens lets us in as the administrator, and kubeconfigs carry both. Its private key signs service accounts' tokens too: a key
pair of their own would take a program or a library that nothing else here needs. Nodes, pods and books stay in the folder between runs.
"""

import asyncio
import base64
import json
import os
import secrets
import ssl
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from hbox_common.errors import InvalidRequest
from hbox_common.ports import free_ports

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLERS = "kube-controller-manager"
KUBELETS = "kwok"

#: In the order in which they start, and the other way round in which they stop.
PROGRAMS = (ETCD, API_SERVER, CONTROLLERS, KUBELETS)

_TIMEOUT_S = 2.0
_ISSUER = "https://kubernetes.default.svc"

#: Who asked for what, and what came of it, at its end; health checks and the server's own requests say nothing about us.
_AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*", "/version", "/openapi*"]
- level: None
  users: ["system:apiserver"]
- level: Metadata
"""


def find_programs() -> Path:
    """The folder that has them all: KUBEBUILDER_ASSETS, else where `make kube-assets` puts them.

    Raises InvalidRequest, naming what is missing.
    """
    named = os.environ.get("KUBEBUILDER_ASSETS")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(named) if named else cache / "hbox" / "kube-assets"
    missing = [name for name in PROGRAMS if not os.access(folder / name, os.X_OK)]
    if missing:
        raise InvalidRequest(
            f"{folder} has no {', '.join(missing)}",
            hint="set KUBEBUILDER_ASSETS to a folder that has all" if named else "build them once with `make kube-assets`",
        )
    return folder


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """What is to run, and where; made by `prepare`."""

    folder: Path  #: data, credentials, audit log
    programs: Path
    kubeconfig: Path  #: of the administrator; written by `admit`
    token: str
    ports: tuple[int, int, int]  #: of the API server, etcd, and etcd's peers (there are none)

    @classmethod
    def prepare(cls, folder: Path, kubeconfig: Path, *, port: int, time_scale: float = 1.0) -> "ControlPlane":
        """Files for a start in `folder`; `port`: of the API server; `time_scale` as for the emulator's kubelets. Raises InvalidRequest where programs are
        missing."""
        etcd, peers = free_ports(2)
        plane = cls(folder, find_programs(), kubeconfig, secrets.token_hex(16), (port, etcd, peers))
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        kubeconfig.unlink(missing_ok=True)
        for file in (plane.certificate, plane.certificate.with_suffix(".key")):
            file.unlink(missing_ok=True)
        _write_secret(folder / "tokens.csv", f'{plane.token},admin,admin,"system:masters"\n')
        (folder / "audit-policy.yaml").write_text(_AUDIT_POLICY)
        stages = resources.files(__package__).joinpath("kwok-stages.yaml").read_text()
        (folder / "kwok.yaml").write_text(stages.replace("TIME_SCALE", f"{time_scale:g}"))
        return plane

    @staticmethod
    def exists(folder: Path) -> bool:
        """Whether there is a cluster in `folder` from a former run."""
        return (folder / "etcd").exists()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.ports[0]}"

    @property
    def certificate(self) -> Path:
        """The API server's, with the authority behind it that it made for itself."""
        return self.folder / "certs" / "apiserver.crt"

    @property
    def audit_log(self) -> Path:
        """One JSON object a line (audit.k8s.io/v1 Event, level Metadata)."""
        return self.folder / "audit.log"

    def argv(self, name: str) -> list[str]:
        """The command line of one of PROGRAMS."""
        api, etcd, peers = self.ports
        flags: dict[str, str | int]
        match name:
            case "etcd":
                flags = {
                    "data-dir": str(self.folder / "etcd"),
                    "listen-client-urls": f"http://127.0.0.1:{etcd}",
                    "advertise-client-urls": f"http://127.0.0.1:{etcd}",
                    "listen-peer-urls": f"http://127.0.0.1:{peers}",
                    "initial-advertise-peer-urls": f"http://127.0.0.1:{peers}",
                    "initial-cluster": f"default=http://127.0.0.1:{peers}",
                    "log-level": "warn",
                }
            case "kube-apiserver":
                key = self.certificate.with_suffix(".key")
                flags = {
                    "etcd-servers": f"http://127.0.0.1:{etcd}",
                    "bind-address": "127.0.0.1",
                    "advertise-address": "127.0.0.1",
                    "endpoint-reconciler-type": "none",  # no pod could reach a loopback address
                    "secure-port": api,
                    "cert-dir": str(self.certificate.parent),
                    "token-auth-file": str(self.folder / "tokens.csv"),
                    "authorization-mode": "RBAC",
                    "service-account-issuer": _ISSUER,
                    "service-account-key-file": str(key),
                    "service-account-signing-key-file": str(key),
                    "service-cluster-ip-range": "10.0.0.0/24",
                    "allow-privileged": "true",  # as kubeadm sets it: node-remedy is privileged
                    # Pods would be refused until a namespace's account was made, a moment after the namespace; no container here uses it.
                    "disable-admission-plugins": "ServiceAccount",
                    "max-requests-inflight": 3000,
                    "max-mutating-requests-inflight": 1000,
                    "audit-policy-file": str(self.folder / "audit-policy.yaml"),
                    "audit-log-path": str(self.audit_log),
                    "audit-log-maxsize": 1024,
                    "audit-log-maxbackup": 2,
                }
            case "kube-controller-manager":
                flags = {
                    "kubeconfig": str(self.kubeconfig),
                    "leader-elect": "false",
                    "secure-port": 0,
                    "kube-api-qps": 500,
                    "kube-api-burst": 1000,
                    "node-monitor-grace-period": "180s",  # kwok's heartbeats come every 60 to 90 s
                    "root-ca-file": str(self.certificate),
                    "service-account-private-key-file": str(self.certificate.with_suffix(".key")),
                }
            case _:
                assert name == KUBELETS
                flags = {
                    "kubeconfig": str(self.kubeconfig),
                    "manage-all-nodes": "true",
                    "config": str(self.folder / "kwok.yaml"),
                    "server-address": "127.0.0.1:0",
                    "node-lease-duration-seconds": 0,  # see kwok-stages.yaml
                }
        return [str(self.programs / name), *(f"--{flag}={value}" for flag, value in flags.items())]

    async def ready(self) -> bool:
        """Whether the API server answers, with its certificate verified, that it is ready."""
        try:
            trust = ssl.create_default_context(cafile=str(self.certificate))
            async with asyncio.timeout(_TIMEOUT_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[0], ssl=trust)
                try:
                    writer.write(b"GET /readyz HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
                    return b" 200 " in await reader.readline()
                finally:
                    writer.transport.abort()  # a TLS farewell would wait for the server's
        except (OSError, TimeoutError):  # an SSLError is an OSError; the file may be half written
            return False

    def admit(self) -> None:
        """Writes the administrator's kubeconfig, once the API server has its certificate."""
        authority = base64.b64encode(self.certificate.read_bytes()).decode()
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "hbox", "cluster": {"server": self.url, "certificate-authority-data": authority}}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "hbox", "context": {"cluster": "hbox", "user": "admin"}}],
            "current-context": "hbox",
        }
        _write_secret(self.kubeconfig, json.dumps(content, indent=2) + "\n")


def _write_secret(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
