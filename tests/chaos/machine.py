"""Small filesystems and a clock shim for a platform, so that faults can fill its disks and set its clock.

The filesystems are tmpfs, mounted with root's rights or in a user namespace that `__main__` enters. RLIMIT_FSIZE is no substitute: its signal kills
nats-server, and no process gets the error of a full disk (ENOSPC). If one of both is not available, its faults are left out and `missing` states why.
"""

import errno
import shutil
import struct
import subprocess
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SHIM = Path(__file__).with_name("clock_shim.c")

#: Of each small filesystem. JetStream refuses streams that claim more than its own limit, not than the disk has.
DISK_MIB = 96

_BLOCK = bytes(2**16)


@dataclass(frozen=True, slots=True)
class Clock:
    """The wall clock of all Python processes that were started with `env`."""

    file: Path
    env: Mapping[str, str]

    def set(self, offset_s: float, *, pid: int = 0) -> None:
        """How far it is off from now on; for one process, or (0) for all."""
        with self.file.open("r+b") as file:  # in place: shorter for a moment, it would kill those who have it mapped
            file.write(struct.pack("qq", round(offset_s * 1e9), pid))


@dataclass(frozen=True, slots=True)
class Disk:
    """A small filesystem."""

    folder: Path

    def fill(self) -> None:
        """Write until the disk is full."""
        with (self.folder / "ballast").open("wb", buffering=0) as ballast:
            for size in (len(_BLOCK), 1):
                try:
                    while ballast.write(_BLOCK[:size]):
                        pass
                except OSError as e:
                    if e.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        (self.folder / "ballast").unlink()


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of the platform with the state folder `state`."""

    state: Path
    words: tuple[str, ...] = ()  #: arguments of `hbox up`
    disks: Mapping[str, Disk] = field(default_factory=dict)  #: by the process that stores its data there
    clock: Clock | None = None
    missing: tuple[str, ...] = ()

    @property
    def env(self) -> Mapping[str, str]:
        """Variables that the platform's processes need in addition to the inherited environment."""
        return self.clock.env if self.clock is not None else {}


@contextmanager
def machine(folder: Path, *, full_disks: Collection[str] = ("nats-server", "quota-ledger")) -> Iterator[Machine]:
    """A machine in `folder`, for the time of the block. `full_disks`: processes whose data is on a separate filesystem."""
    state = folder / "state"
    places = {"nats-server": state / "nats", "quota-ledger": folder / "books"}
    words = ("--database", f"sqlite:///{places['quota-ledger'] / 'ledger.db'}")
    missing: list[str] = []
    disks: dict[str, Disk] = {}
    with ExitStack() as held:
        for name, place in places.items():
            place.mkdir(parents=True)
            if name not in full_disks:
                continue
            if why := _mount(place):
                missing.append(f"no full disk of {name}: {why}")
            else:
                held.callback(_unmount, place)
                disks[name] = Disk(place)
        clock = _clock(folder)
        if clock is None:
            missing.append("no clock is set: there is no C compiler, or not Linux")
        yield Machine(state, words, disks, clock, tuple(missing))


def _mount(place: Path) -> str:
    """Mount a tmpfs; the reason if that fails, else an empty string."""
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "chaos", place], capture_output=True, text=True, check=False
        )
    except OSError as e:
        return f"mount: {e.strerror}"
    return done.stderr.strip() or "mount failed" if done.returncode else ""


def _unmount(place: Path) -> None:
    subprocess.run(["umount", "--lazy", place], check=False)


def _clock(folder: Path) -> Clock | None:
    compiler = shutil.which("cc")
    if compiler is None or not Path("/proc/self").exists():
        return None
    library, file = folder / "clock_shim.so", folder / "clock"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, SHIM, "-ldl"], check=True)
    file.write_bytes(bytes(16))
    return Clock(file, {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(file)})
