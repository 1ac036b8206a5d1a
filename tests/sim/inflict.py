"""Brings the faults of a run upon its world, and ends them."""

import shutil
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .api import Trouble
from .broker import Weather
from .disk import Wear
from .faults import ALL, BLIND, LEAPT_S, RIVAL, SERVICES, Fault
from .rival import Rival

if TYPE_CHECKING:
    from .world import World

#: Virtual seconds at most that messages stored before a broker's restart are lost for.
UNSYNCED_S = 1.0
#: Virtual seconds between the end of a process whose database is restored and the next one.
RESTORED_S = 2.0

_WEATHER: Mapping[str, Mapping[str, float]] = {
    "bus-late": {"slow": 200.0},
    "bus-stalled": {"slow": 4000.0},
    "bus-lost": {"lost": 0.1},
    "bus-doubled": {"doubled": 0.2},
}
_TROUBLE: Mapping[str, Mapping[str, float]] = {
    "api-late": {"slow": 200.0},
    "api-stalled": {"slow": 4000.0},
    "api-down": {"before": 1.0},
    "api-before": {"before": 0.33},
    "api-after": {"after": 0.33},
    "api-conflict": {"conflict": 0.33},
    "api-invalid": {"invalid": 0.33},
    "api-error": {"error": 0.33},
    "api-gone": {"gone": 0.5},
    "api-silent": {"silent": True},
}
_WEAR: Mapping[str, Mapping[str, float]] = {
    "disk-slow": {"slow": 100.0},
    "disk-before": {"before": 0.33},
    "disk-after": {"after": 0.33},
}


class Inflictor:
    """Schedules all faults when it is made."""

    def __init__(self, world: "World", faults: Sequence[Fault]) -> None:
        self._world = world
        self._active: dict[Fault, int] = {}  #: with the revision of the API server's store when it began
        self._rival = Rival(world) if any(fault.kind == RIVAL for fault in faults) else None
        for fault in faults:
            if fault.kind.startswith("disk-restore"):
                world.later(max(0.0, fault.at - fault.value), lambda fault=fault: self._back_up(fault))  # type: ignore[misc]
            world.later(fault.at, lambda fault=fault: self._begin(fault))  # type: ignore[misc]

    def _begin(self, fault: Fault) -> None:
        world, broker, value = self._world, self._world.broker, fault.value
        world.digest.add("fault", str(fault))
        match fault.kind:
            case "clock-jump":
                self._skew(fault.target, value)
            case "clock-leap":
                self._skew(fault.target, value)
                world.later(world.now + LEAPT_S, lambda: self._skew(fault.target, -value))
            case "kill":
                world.kill(fault.target, away_s=value)
            case "pause":
                if (process := world.processes.get(fault.target)) is not None and process.alive:
                    process.paused = True
                    world.later(world.now + value, lambda: world.loop.resume(process))
            case "bus-cut":
                for link in list(broker.links):
                    if link.process is not None and fault.target in (ALL, link.process.service):
                        broker.sever(link, value)
            case "broker-restart" | "broker-forgets":
                if broker.up:
                    broker.stop()
                    unsynced_s = UNSYNCED_S if fault.kind == "broker-forgets" else 0.0
                    stopped_ns = broker.now_ns
                    world.later(world.now + value, lambda: broker.start(unsynced_since_ns=stopped_ns - int(unsynced_s * 1e9)))
            case "stream-drops":
                broker.shrink(fault.target)
            case "stream-full":
                broker.full.add(fault.target)
                world.later(world.now + value, lambda: broker.full.discard(fault.target))
            case "rival":
                assert self._rival is not None
                self._rival.begin()
                world.later(world.now + value, self._rival.end)
            case "api-compact":
                world.api.store.compact()
            case "disk-restore" | "disk-restore-blind":
                self._restore(fault)
            case _:
                self._active[fault] = world.api.store.revision
                self._apply()
                world.later(world.now + value, lambda: self._end(fault))

    def _skew(self, service: str, by_s: float) -> None:
        world = self._world
        world.skews[service] = world.skews.get(service, 0.0) + by_s
        if (process := world.processes.get(service)) is not None:
            process.skew_s = world.skews[service]

    def _end(self, fault: Fault) -> None:
        del self._active[fault]
        self._apply()

    def _apply(self) -> None:
        world = self._world
        world.broker.weather, world.api.trouble, world.disk.wear = {}, {}, {}
        for fault, revision in self._active.items():
            for service in _services(fault.target):
                if (changes := _WEATHER.get(fault.kind)) is not None:
                    _set(world.broker.weather.setdefault(service, Weather()), changes)
                elif (changes := _TROUBLE.get(fault.kind)) is not None:
                    _set(world.api.trouble.setdefault(service, Trouble()), changes)
                elif fault.kind == "api-stale":
                    world.api.trouble.setdefault(service, Trouble()).stale_at = revision
                else:
                    _set(world.disk.wear.setdefault(service, Wear()), _WEAR[fault.kind])

    # --- databases

    def _file(self, fault: Fault) -> tuple[Path, Path]:
        database = self._world.folder / f"{fault.target}.db"
        return database, database.with_suffix(f".{fault.at:g}")

    def _back_up(self, fault: Fault) -> None:
        database, copy = self._file(fault)
        if database.exists():
            with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(copy)) as target:
                source.backup(target)

    def _restore(self, fault: Fault) -> None:
        database, copy = self._file(fault)
        if not copy.exists() or not self._world.processes[fault.target].alive:
            return
        self._world.kill(fault.target, away_s=RESTORED_S)
        for service in ("binder", "job-controller") if fault.kind == BLIND else ():
            self._world.kill(service, away_s=RESTORED_S + fault.value / 2)
        for end in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                database.with_name(database.name + end).unlink()
        shutil.copyfile(copy, database)


def _services(target: str) -> Iterable[str]:
    return SERVICES if target == ALL else (target,)


def _set(place: object, changes: Mapping[str, float]) -> None:
    for name, value in changes.items():
        setattr(place, name, value)
