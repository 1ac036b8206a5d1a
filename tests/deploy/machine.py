"""A node of our own: `python -m tests.deploy.machine -- pytest -m deploy tests/deploy` runs a command beside a real cluster of one node and a Docker daemon.

Everything lives in namespaces of its own (network, mounts, processes, host name): control plane, containerd, kubelet, kube-proxy, DNS, dockerd, and the
command itself. So nothing of it is in the machine's firewall rules, sysctls or mounts, and all of it ends with the first process there. What it leaves
outside are its cgroups and its folder, which are removed. The way out (image builds ask a package registry) is slirp4netns; nobody comes in.

Linux with cgroup v1, Debian, and root. Programs: Debian's packages (PACKAGES), `make kube-assets`, and `tests/deploy/assets/build`. HBOX_DEPLOY_KEEP=1 keeps
the folder with the logs.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import yaml

from hbox_cli.platform.assets import API_SERVER, CONTROLLERS, ETCD, find_programs
from hbox_common.errors import HBoxError
from hbox_common.kube import PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES, KubeClient
from hbox_common.kube import apply as kube_apply

from ..real.control_plane import control_plane

#: Programs by the Debian package that has them.
PACKAGES = {
    "containerd": "containerd", "runc": "runc", "dockerd": "docker.io", "nft": "nftables", "iptables": "iptables", "ip": "iproute2",
    "slirp4netns": "slirp4netns", "mmdebstrap": "mmdebstrap", "/usr/lib/cni/bridge": "containernetworking-plugins",
}  # fmt: skip
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hbox"
ASSETS = "deploy-assets"  #: beside `kube-assets`
ROOT = Path(__file__).parents[2]

NODE = "node1"
ADDRESS, DNS, PODS = "10.77.0.1", "10.77.0.10", "10.78.0.0/24"
SERVICES = "10.0.0.0/24"  #: as the control plane has them
DOMAIN = "cluster.local"
BASE = "python:3.11-slim"  #: what the Dockerfile asks for
PAUSE = "hbox.test/pause:1"
READY_S = 120.0

#: What kubelet wants of the kernel: here it finds it so, and the machine's own settings stay.
SYSCTLS = {"vm/overcommit_memory": 1, "vm/panic_on_oom": 0, "kernel/panic": 10, "kernel/panic_on_oops": 1,
           "kernel/keys/root_maxkeys": 1_000_000, "kernel/keys/root_maxbytes": 25_000_000}  # fmt: skip

#: A disk that is nearly full is the machine's own affair: no image is removed for it, and no pod.
KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "address": ADDRESS,
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},  # nobody else is in these namespaces
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
    "cgroupDriver": "cgroupfs",
    "failCgroupV1": False,
    "failSwapOn": False,
    "oomScoreAdj": 0,
    "clusterDNS": [DNS],
    "clusterDomain": DOMAIN,
    "imageGCHighThresholdPercent": 100,
    "imageGCLowThresholdPercent": 99,
    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
}
PROXY = {
    "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
    "kind": "KubeProxyConfiguration",
    "mode": "nftables",
    "hostnameOverride": NODE,
    "clusterCIDR": PODS,
    "oomScoreAdj": 0,
    "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
}
NETWORK = {
    "cniVersion": "0.4.0",
    "name": "pods",
    "plugins": [
        {"type": "bridge", "bridge": "cni0", "isDefaultGateway": True, "hairpinMode": True,
         "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": PODS}]]}},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}  # fmt: skip
CONTAINERD = f"""\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
"""
COREFILE = f"""\
.:53 {{
  errors
  kubernetes {DOMAIN} in-addr.arpa {{
    kubeconfig KUBECONFIG
    pods insecure
    ttl 5
  }}
  cache 5
}}
"""
STORAGE = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "hbox.test/folders",
    "volumeBindingMode": "Immediate",
}


def main(words: Sequence[str]) -> int:
    if words[:1] == ["--inside"]:
        return _inside(Path(words[1]), words[2:])
    command = words[1:] if words[:1] == ["--"] else words
    if not command:
        print(__doc__)
        return 2
    if (lacks := _lacks()) is not None:
        print(f"no node of our own: {lacks}", file=sys.stderr)
        return 2
    for build, built in (("real", "kube-assets"), ("deploy", ASSETS)):
        subprocess.run([ROOT / "tests" / build / "assets" / "build", CACHE / built, CACHE], check=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # by way of what clears up
    folder = Path(tempfile.mkdtemp(prefix="hbox-deploy-"))
    try:
        return _outside(folder, command)
    finally:
        _clear_cgroups(folder.name)
        if os.environ.get("HBOX_DEPLOY_KEEP"):
            print(f"==> logs are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _lacks() -> str | None:
    """Why it cannot be here, or None; packages that are missing are installed, where apt-get is."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "it needs Linux, and root: namespaces, mounts and cgroups. A cluster of yours is named by HBOX_DEPLOY_KUBECONFIG and HBOX_DEPLOY_LOAD"
    if not Path("/sys/fs/cgroup/memory").is_dir():
        return "it knows cgroup v1 alone, and this machine has another"
    missing = sorted({package for name, package in PACKAGES.items() if shutil.which(name) is None})
    if missing and shutil.which("apt-get"):
        print(f"==> apt-get install {' '.join(missing)}", flush=True)
        for words in (("update", "-q"), ("install", "-q", "-y", "--no-install-recommends", *missing)):
            quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            subprocess.run(["apt-get", *words], check=False, stdout=subprocess.DEVNULL, env=quiet)
        missing = sorted({package for name, package in PACKAGES.items() if shutil.which(name) is None})
    return f"these packages of Debian are missing: {' '.join(missing)}" if missing else None


# --- from outside


def _outside(folder: Path, command: Sequence[str]) -> int:
    spaces = (
        "--net",
        "--pid",
        "--mount",
        "--uts",
        "--ipc",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--propagation",
        "private",
    )
    ours = (sys.executable, "-m", "tests.deploy.machine", "--inside", str(folder))
    # The first process of a namespace buries the orphans: a shell does.
    process = subprocess.Popen(["unshare", *spaces, "bash", "-c", '"$@"; exit $?', "init", *ours, *command], cwd=ROOT)
    try:
        first = until(lambda: _child_of(process.pid), 10, "namespaces")
        with (folder / "network.log").open("wb") as log:
            way_out = subprocess.Popen(
                ["slirp4netns", "--configure", "--disable-host-loopback", "--mtu=1400", str(first), "tap0"],
                stdout=log,
                stderr=log,
            )
        try:
            return process.wait()
        finally:
            way_out.terminate()
            way_out.wait(10)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()


def _child_of(pid: int) -> str:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return children[0] if children else ""


def _controllers() -> list[Path]:
    return [one for one in sorted(Path("/sys/fs/cgroup").iterdir()) if (one / "cgroup.procs").exists() and not one.is_symlink()]


def _clear_cgroups(name: str) -> None:
    """Of the processes that were killed with their namespaces: they may take a moment."""
    for controller in _controllers():
        for group in [*sorted((controller / name).rglob("*/"), reverse=True), controller / name]:
            deadline = time.monotonic() + 10
            while group.is_dir() and time.monotonic() < deadline:
                try:
                    group.rmdir()
                except OSError:
                    time.sleep(0.1)


# --- inside


def until(condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not within {timeout_s:g} s; HBOX_DEPLOY_KEEP=1 keeps the logs")
        time.sleep(0.2)
    return found


def run(*words: str | Path, stdin: str = "") -> str:
    done = subprocess.run([str(word) for word in words], input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}: {done.stderr or done.stdout}")
    return done.stdout


def _inside(folder: Path, command: Sequence[str]) -> int:
    built = CACHE / ASSETS
    _mounts(folder)
    _network()
    with ExitStack() as stack:

        def keep(name: str, *words: str | Path) -> None:
            stack.enter_context(_kept(folder, name, words))

        containerd = folder / "containerd.toml"
        containerd.write_text(CONTAINERD)
        keep("containerd", "containerd", "--config", containerd)
        until(lambda: _answers("ctr", "version"), READY_S, "containerd")
        socket = folder / "docker.sock"
        keep(
            "dockerd",
            "dockerd",
            "--host",
            f"unix://{socket}",
            "--pidfile",
            "/run/docker.pid",
            "--cgroup-parent",
            f"/{folder.name}/docker",
        )
        os.environ["DOCKER_HOST"] = f"unix://{socket}"
        until(lambda: _answers("docker", "info"), READY_S, "dockerd")
        _images(folder, built)
        more: dict[str, Mapping[str, str | None]] = {
            API_SERVER: {"bind-address": "0.0.0.0", "disable-admission-plugins": None, "allow-privileged": "true",
                         "kubelet-preferred-address-types": "InternalIP"},
            CONTROLLERS: {"node-monitor-grace-period": "40s"},
        }  # fmt: skip
        plane = stack.enter_context(control_plane(folder, (ETCD, API_SERVER, CONTROLLERS), more))
        kubeconfig = plane.kubeconfig
        environ = os.environ | {"KUBECONFIG": str(kubeconfig)}
        kubectl = shutil.which("kubectl", path=f"{ROOT / '.venv' / 'bin'}:{environ['PATH']}") or "kubectl"

        def apply(*objects: Mapping[str, Any]) -> None:
            content = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
            run(kubectl, "--kubeconfig", kubeconfig, "apply", "-f", "-", stdin=content)

        apply(STORAGE, _way_to_the_api(plane.ports[0]))
        scheduler = folder / "scheduler.yaml"
        scheduler.write_text(yaml.safe_dump(_scheduler(kubeconfig)))
        keep("kube-scheduler", find_programs() / "kube-scheduler", "--config", scheduler, "--secure-port", "0")
        settings = Path("/var/lib/kubelet/config.yaml")  # where kubeadm puts it, too
        settings.parent.mkdir()
        settings.write_text(yaml.safe_dump({**KUBELET, "cgroupRoot": f"/{folder.name}"}))
        keep("kubelet", built / "kubelet", "--config", settings, "--kubeconfig", kubeconfig,
             "--hostname-override", NODE, "--node-ip", ADDRESS)  # fmt: skip
        proxy = folder / "proxy.yaml"
        proxy.write_text(yaml.safe_dump({**PROXY, "clientConnection": {"kubeconfig": str(kubeconfig)}}))
        keep("kube-proxy", built / "kube-proxy", "--config", proxy)
        corefile = folder / "Corefile"
        corefile.write_text(COREFILE.replace("KUBECONFIG", str(kubeconfig)))
        keep("coredns", built / "coredns", "-conf", corefile)
        ready = (kubectl, "--kubeconfig", str(kubeconfig), "wait", f"node/{NODE}", "--for=condition=Ready", "--timeout=1s")
        until(lambda: _answers(*ready), READY_S, "the node")
        volumes = threading.Thread(target=lambda: asyncio.run(_volumes(kubeconfig, folder / "volumes")), daemon=True)
        volumes.start()
        print(f"==> a cluster of one node is ready; its logs are in {folder}", flush=True)
        told = {
            "HBOX_DEPLOY_KUBECONFIG": str(kubeconfig),
            "HBOX_DEPLOY_LOAD": "ctr -n k8s.io images import",
            "HBOX_DEPLOY_BASE": BASE,
            "PATH": f"{ROOT / '.venv' / 'bin'}:{built}:{os.environ['PATH']}",
        }
        return subprocess.run(command, env=os.environ | told, check=False).returncode


def _mounts(folder: Path) -> None:
    """This network's devices in /sys; folders of the daemons' own; settings of the kernel as kubelet wants them; groups of our own."""
    sys_ = folder / "sys"
    sys_.mkdir()
    run("mount", "-t", "sysfs", "sysfs", sys_)
    run("mount", "--rbind", "/sys/fs/cgroup", sys_ / "fs" / "cgroup")
    run("mount", "--move", sys_, "/sys")
    run("mount", "--make-rshared", "/")
    for name, there in (("lib", "/var/lib"), ("log", "/var/log"), ("cni", "/etc/cni/net.d")):
        (folder / name).mkdir()
        Path(there).mkdir(parents=True, exist_ok=True)
        run("mount", "--bind", folder / name, there)
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    (folder / "cni" / "10-pods.conflist").write_text(json.dumps(NETWORK))
    for name, value in SYSCTLS.items():
        file = folder / name.replace("/", ".")
        file.write_text(f"{value}\n")
        run("mount", "--bind", file, Path("/proc/sys") / name)
    for controller in _controllers():
        for group in (controller / folder.name, controller / folder.name / "daemons"):
            group.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (group / name).exists():
                    (group / name).write_text((group.parent / name).read_text())
        (controller / folder.name / "daemons" / "cgroup.procs").write_text(str(os.getpid()))


def _network() -> None:
    run("hostname", NODE)
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "node0", "type", "bridge")
    for address in (f"{ADDRESS}/24", f"{DNS}/24"):
        run("ip", "address", "add", address, "dev", "node0")
    run("ip", "link", "set", "node0", "up")
    # Before dockerd does it, which would forbid all other ways then.
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    until(lambda: "tap0" in run("ip", "route", "show", "default"), 20, "the way out")


@contextmanager
def _kept(folder: Path, name: str, words: Sequence[str | Path]) -> Iterator[None]:
    """A program that is started again whenever it ends, as an init system would, until the end of the block."""
    ending = threading.Event()
    running: list[subprocess.Popen[bytes]] = []

    def keep() -> None:
        with (folder / f"{name}.log").open("wb") as log:
            while not ending.is_set():
                process = subprocess.Popen([str(w) for w in words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                running[:] = [process]
                process.wait()
                ending.wait(1.0)

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        for process in running:
            with suppress(ProcessLookupError):
                process.kill()
        thread.join(10)


def _answers(*words: str) -> bool:
    return subprocess.run(words, capture_output=True, check=False, timeout=30).returncode == 0


def _images(folder: Path, built: Path) -> None:
    """The stand-in for the Dockerfile's base, which pods of tests run too, and what holds a pod's namespaces: the same with a command that waits."""
    run("docker", "import", built / "base.tar", BASE)
    run("docker", "build", "--tag", PAUSE, "-", stdin=f'FROM {BASE}\nCMD ["sleep", "infinity"]\n')
    both = folder / "images.tar"
    run("docker", "save", "--output", both, PAUSE, BASE)
    run("ctr", "-n", "k8s.io", "images", "import", both)
    both.unlink()


def _scheduler(kubeconfig: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "leaderElection": {"leaderElect": False},
    }


def _way_to_the_api(port: int) -> dict[str, Any]:
    """The API server names its own address on loopback, where no pod reaches it: the Service's end is this node."""
    labels = {"kubernetes.io/service-name": "kubernetes"}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [ADDRESS]}],
    }


async def _volumes(kubeconfig: Path, folder: Path) -> NoReturn:
    """A folder for each claim, as a volume of the kind `local`, which takes the pod's fsGroup as a disk does; gone with its claim. Not by kubectl, whose
    starts would cost a fifth of a core that the tests measure with."""
    async with KubeClient.connect(str(kubeconfig), user_agent="volumes") as client:
        while True:
            with suppress(HBoxError):  # the API server may be away for a moment
                for claim in (await client.json("GET", PERSISTENTVOLUMECLAIMS.path()))["items"]:
                    if claim["status"].get("phase") == "Pending" and claim["spec"].get("storageClassName") == "standard":
                        (folder / claim["metadata"]["uid"]).mkdir(parents=True, exist_ok=True)
                        await kube_apply(client, _volume(claim, folder), field_manager="volumes")
                for volume in (await client.json("GET", PERSISTENTVOLUMES.path()))["items"]:
                    if volume["status"].get("phase") == "Released":
                        await client.json("DELETE", PERSISTENTVOLUMES.path(name=volume["metadata"]["name"]))
                        shutil.rmtree(volume["spec"]["local"]["path"], ignore_errors=True)
            await asyncio.sleep(0.5)


def _volume(claim: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    about, spec = claim["metadata"], claim["spec"]
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pvc-{about['uid']}"},
        "spec": {
            "storageClassName": "standard",
            "accessModes": spec["accessModes"],
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": about["namespace"], "name": about["name"], "uid": about["uid"]},
            "local": {"path": str(folder / about["uid"])},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
