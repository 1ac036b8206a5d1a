"""The state folder of one platform: what is where in it, who runs in it, and what other commands may know of that."""

import fcntl
import json
import os
import pwd
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from hbox_common.errors import Conflict, InvalidRequest, NotFound

#: Of platforms without the setting: `hbox_common.model.SCHEDULER_NAME`, without the import of the model, which takes 0.3 s.
SCHEDULER_NAMES = ("hbox",)
#: Attempts to lock the folder, and seconds between them: a command that tests the lock holds it for a moment.
_ASKED, _ASKED_S = 10, 0.02


@dataclass(frozen=True, slots=True)
class Running:
    """Content of `DIR/platform.json`: the addresses of the platform that runs in DIR."""

    pid: int  #: of the supervisor
    nats_url: str
    kubeconfig: str
    database_url: str
    emulated: bool  #: the cluster is the sandbox's
    policy: str
    health: Mapping[str, str] = field(default_factory=dict)  #: service -> http://host:port
    scheduler_names: tuple[str, ...] = SCHEDULER_NAMES
    time_scale: float = 1.0  #: the cluster's clock runs at this multiple of the machine's
    time_scale_since: float = 0.0  #: when both agree, in seconds since the epoch; 0: always
    nats_users: str = ""  #: the folder with the seeds of the broker's users; "": it is open
    console: str = ""  #: http://host:port of the HTTP API
    seed_file: str = ""  #: of the one user that this command connects as, instead of the folder
    nats_ca: str = ""  #: authority of the broker's certificate; "": the broker has none, or the machine's authorities verify it

    def nats_seed(self, user: str) -> Path | None:
        """The file with the seed of a user of the broker, named as `hbox_common.brokerkeys` names it; None where the broker is open."""
        if self.seed_file:
            return Path(self.seed_file)
        return Path(self.nats_users) / f"{user}.nk" if self.nats_users else None


@dataclass(frozen=True, slots=True)
class Layout:
    folder: Path

    @property
    def nats(self) -> Path:
        return self.folder / "nats"

    @property
    def nats_users(self) -> Path:
        """Seeds of the users of a broker of our own."""
        return self.folder / "nats-users"

    @property
    def kube(self) -> Path:
        """Of a real control plane of our own, and credentials."""
        return self.folder / "kube"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def database(self) -> Path:
        return self.folder / "ledger.db"

    @property
    def health_database(self) -> Path:
        return self.folder / "health.db"

    @property
    def books_of(self) -> Path:
        """A file with the name of the cluster to which ledger and streams belong; no file if the cluster was emulated."""
        return self.folder / "books-of"

    @property
    def kubelets(self) -> Path:
        """Of the emulated cluster: a folder for each of its first nodes."""
        return self.folder / "kubelets"

    @property
    def report(self) -> Path:
        return self.folder / "report.json"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def prepare(self, notify: Callable[[str], None]) -> None:
        """Makes the folders, ours alone: tokens, keys and the ledger are in them. What this process and its children make from now on is, too.

        Raises InvalidRequest where they cannot be made or written, or are open to others and no folder of ours.
        """
        os.umask(0o077)
        try:
            for folder in (self.folder, self.nats, self.logs):
                folder.mkdir(parents=True, exist_ok=True)
            self._close(notify)
            probe = self.folder / ".write"
            probe.write_text("")
            probe.unlink(missing_ok=True)  # another supervisor may be starting here; the lock keeps it out
        except OSError as e:
            raise InvalidRequest(
                f"the state folder {self.folder} cannot be written: {e.strerror}", hint="choose another with --state"
            ) from e

    def _close(self, notify: Callable[[str], None]) -> None:
        """Restrict the folder to 0700 and its files to 0600 if an earlier version or a user left them open to others."""
        here = self.folder.stat()
        if here.st_uid != os.geteuid():
            whose = (
                f"the state folder {self.folder} belongs to user {_user(here.st_uid)}, who can read all that is written there"
            )
            if os.geteuid() != 0:
                raise InvalidRequest(whose, hint="choose a folder of your own with --state")
            notify(whose)
        if here.st_mode & 0o077:
            if here.st_mode & stat.S_ISVTX or self.folder.resolve() in (Path("/"), Path.home().resolve()):
                raise InvalidRequest(
                    f"the state folder {self.folder} is one that others use", hint="choose a folder of its own with --state"
                )
            self.folder.chmod(0o700)
            notify(f"the state folder {self.folder} was open to others (mode {stat.S_IMODE(here.st_mode):04o}): it is 0700 now")
        for path in (*self.folder.iterdir(), *self.kube.rglob("*")):
            mode = path.lstat().st_mode
            if mode & 0o077 and (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) and path.lstat().st_uid == os.geteuid():
                path.chmod(stat.S_IMODE(mode) & 0o700)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for one supervisor. The kernel drops the lock at any end of the process. Raises Conflict if another supervisor has it."""
        with (self.folder / "lock").open("a+") as file:
            try:
                _take(file)
            except BlockingIOError as e:
                file.seek(0)
                pid = file.read().strip() or "?"
                raise Conflict(
                    f"a platform runs in {self.folder} already (process {pid})",
                    hint=f"stop it with Ctrl-C or `kill {pid}`, or choose another folder with --state",
                ) from e
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield

    @property
    def busy(self) -> bool:
        """Whether a supervisor holds the folder now. Raises InvalidRequest for a folder that this user may not look into."""
        try:
            with (self.folder / "lock").open("a+") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: of two who ask at once neither is a supervisor
        except BlockingIOError:
            return True
        except PermissionError as e:
            raise InvalidRequest(
                f"the state folder {self.folder} cannot be looked into: {e.strerror}",
                hint="ask as the user whose platform it is",
            ) from e
        except OSError:
            return False
        return False

    def write_running(self, running: Running) -> None:
        _replace(self.folder / "platform.json", asdict(running))

    def write_pids(self, pids: Mapping[str, int]) -> None:
        _replace(self.folder / "pids.json", dict(pids))

    def write_settings(self, environments: Mapping[str, Mapping[str, str]]) -> None:
        """What each service is started with, for `hbox diag`: its variables of ours. Passwords among them, as in platform.json."""
        ours = ("HBOX_", "OTEL_")
        _replace(
            self.folder / "settings.json",
            {name: {k: v for k, v in sorted(env.items()) if k.startswith(ours)} for name, env in environments.items()},
        )

    def settings(self) -> dict[str, dict[str, str]]:
        """What `write_settings` wrote; empty where it cannot be read."""
        try:
            found = json.loads((self.folder / "settings.json").read_text())
            return {str(name): {str(k): str(v) for k, v in env.items()} for name, env in found.items()}
        except (OSError, ValueError, AttributeError):
            return {}

    def forget(self) -> None:
        """Takes back what `write_running`, `write_pids` and `write_settings` wrote: nothing runs here any more."""
        for name in ("platform.json", "pids.json", "settings.json"):
            (self.folder / name).unlink(missing_ok=True)

    def database_url(self) -> str:
        """Of the platform that runs here, else of the one that ran here last: SQLite in this folder."""
        return self.running().database_url if self.busy else f"sqlite:///{self.database}"

    def running(self) -> Running:
        """The platform that runs here. Raises NotFound where none does, InvalidRequest where its file cannot be read."""
        none = NotFound(f"no platform runs in {self.folder}", hint="start one with `hbox up`, or name its folder with --state")
        if not self.busy:
            raise none
        try:
            found = json.loads((self.folder / "platform.json").read_text())
            return Running(**found | {"scheduler_names": tuple(found.get("scheduler_names", SCHEDULER_NAMES))})
        except FileNotFoundError as e:
            raise none from e
        except (OSError, ValueError, TypeError) as e:
            raise InvalidRequest(f"{self.folder / 'platform.json'} cannot be read: {e}", hint="restart the platform") from e


def _take(file: IO[str]) -> None:
    """Take the lock. Raises BlockingIOError if a supervisor has it, and not if a command only tests it at the moment."""
    for _ in range(_ASKED):
        with suppress(BlockingIOError):
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(_ASKED_S)
    return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _replace(path: Path, content: Mapping[str, Any]) -> None:
    """Readers see the old file or the new one, never half of it."""
    draft = path.with_suffix(".tmp")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)  # the address of a database has its password
    draft.write_text(json.dumps(content, indent=2) + "\n")
    draft.replace(path)
