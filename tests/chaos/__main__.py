"""`make chaos N=100` kills every process N times under load; FAULTS=100 adds that many faults of all kinds. Exit status 1: a guarantee was violated."""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from tests.e2e.platform_world import Up, up

from hbox_cli.platform.assets import find_programs
from hbox_cli.platform.brokers import BROKER

from .campaign import campaign
from .faults import Fault, kills, of_a_cluster, schedule
from .machine import Machine, machine
from .versions import checkout, each_in_turn

#: Faults between two audits: about one audit per round of kills.
AUDIT_EVERY = 8
#: Seconds for which a service of another version runs.
OLDER_S = 10.0
ROOMY_NODES, FULL_NODES = 150, 40
#: Size of a cluster of brokers.
BROKERS = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=0, help="number of kills of each process")
    parser.add_argument("--faults", type=int, default=0, help="number of faults of all kinds, after the kills")
    parser.add_argument("--real", action="store_true", help="use a real control plane; etcd and kube-apiserver are killed too")
    parser.add_argument("--standby", action="store_true", help="run a standby of four services")
    parser.add_argument(
        "--older", metavar="COMMIT", default="", help="replace each service in turn by that of COMMIT for a while"
    )
    parser.add_argument("--brokers", type=int, default=1, choices=(1, BROKERS), help="number of brokers in the cluster")
    parser.add_argument(
        "--cluster",
        type=int,
        default=0,
        metavar="N",
        help="three brokers, each killed N times, all at once N/4 times, one wiped, one rolled back",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the faults, their order and length, and the load")
    parser.add_argument(
        "--hold",
        type=float,
        nargs=2,
        default=(5.0, 30.0),
        metavar="S",
        help="shortest and longest duration of a fault, in seconds",
    )
    parser.add_argument("--only", default="", help="run only faults whose name contains this")
    parser.add_argument(
        "--roomy", action="store_true", help="keep the cluster half empty, instead of requesting more than it has"
    )
    parser.add_argument("--rate", type=float, default=12.0, help="pods per second")
    parser.add_argument("--slack", type=float, default=1.0, help="factor on the limits, for a machine with other load")
    arguments = parser.parse_args()
    if arguments.cluster:
        arguments.brokers = BROKERS
    _be_able_to_mount()
    folder = Path(tempfile.mkdtemp(prefix="hbox-chaos-"))
    words = [*(["--api", "assets"] if arguments.real else []), *(["--standby"] if arguments.standby or arguments.older else [])]
    words += ["--brokers", str(arguments.brokers)]
    with (
        checkout(arguments.older) if arguments.older else nullcontext() as older,
        machine(folder, full_disks=("nats-server", "quota-ledger")[arguments.brokers > 1 :]) as one,
        up(one.state, *one.words, *words, env=one.env) as platform,
    ):
        for what in one.missing:
            print(what)
        report = asyncio.run(
            campaign(
                one,
                [*_faults(arguments, one, platform), *(each_in_turn(older, OLDER_S) if older else [])],
                seed=arguments.seed,
                rate=arguments.rate,
                slack=arguments.slack,
                audit_every=AUDIT_EVERY if arguments.kills or arguments.cluster else 0,
                full=not arguments.roomy,
                nodes=ROOMY_NODES if arguments.roomy else FULL_NODES,
            )
        )
        if arguments.real:
            report.violations += _audit_by_others(one.state / "kubeconfig")
        platform.stop()
        if report.violations:  # the ledger's filesystem is unmounted with the machine
            shutil.copytree(folder / "books", folder / "evidence")
    if arguments.faults or arguments.older:
        print(report.table())
    print(report.summary())
    if report.violations:
        print(f"logs are in {folder / 'state' / 'logs'}, the ledger's database is in {folder / 'evidence'}")
        return 1
    shutil.rmtree(folder)
    return 0


def _audit_by_others(kubeconfig: Path) -> list[str]:
    """Audit the cluster with `kubeload`, a load generator that shares no code with HBox, if it is installed with the control plane."""
    program = shutil.which("kubeload", path=os.pathsep.join([str(find_programs()), os.environ.get("PATH", "")]))
    if program is None:
        print("no audit by kubeload: it is neither in the folder of kube-apiserver nor on PATH")
        return []
    done = subprocess.run(
        [program, "-mode", "audit"],
        env=os.environ | {"KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    print(f"kubeload: {(done.stdout or done.stderr).strip()}")
    return [f"kubeload: {line}" for line in done.stdout.splitlines()] if done.returncode else []


def _be_able_to_mount() -> None:
    """Without root: restart in a user namespace with mount rights, if the kernel allows one."""
    if os.geteuid() != 0 and shutil.which("unshare") is not None:
        inside = ("unshare", "--user", "--map-root-user", "--mount")
        if subprocess.run([*inside, "true"], check=False, capture_output=True).returncode == 0:
            os.execvp(inside[0], [*inside, sys.executable, "-m", "tests.chaos", *sys.argv[1:]])


def _faults(arguments: argparse.Namespace, on: Machine, platform: Up) -> Sequence[Fault]:
    only: str = arguments.only
    faults = [f for f in kills(arguments.kills, arguments.seed, platform.pids()) if only in f.name]
    brokers = sorted(name for name in platform.pids() if name.startswith(BROKER))
    if arguments.cluster:
        of_brokers = of_a_cluster(arguments.cluster, arguments.seed, brokers, hold_s=tuple(arguments.hold))
        faults += [f for f in of_brokers if only in f.name]
    if not arguments.faults:
        return faults
    count = arguments.faults * (50 if only else 1)
    others = schedule(count, arguments.seed, on, hold_s=tuple(arguments.hold), emulated=not arguments.real, brokers=brokers)
    return [*faults, *[f for f in others if only in f.name][: arguments.faults]]


if __name__ == "__main__":
    sys.exit(main())
