"""Readers of health facts. Each has one method, `read`, that returns what it observed; the caller owns intervals and deadlines (`hbox_agent.health`)."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from hbox_common.clock import monotonic_s, wall_s
from hbox_common.errors import Unavailable
from hbox_common.health.dcgm import Scrape, card_states, counted_xids, parse_exporter
from hbox_common.health.lines import KernelLog
from hbox_common.health.nvmlfacts import cards_of
from hbox_common.health.ports import compute_ports, growth, port_states
from hbox_common.health.records import Record
from hbox_common.health.report import MOST_ITEMS, NODE, TEXT_BYTES, Check
from hbox_common.model.bounds import ID_BYTES, sanitized
from hbox_common.model.nodenuma import PciDevice

from .. import metrics
from ..core.kernelfacts import observations
from ..core.nvmlevents import Pairing
from ..core.reports import Observation
from .eventprocess import EventProcess, State
from .host import read_counters
from .kernellog import MADE, KernelRecords
from .nvml import Answer

#: Records that are read before other tasks run.
_AT_ONCE = 500
#: Seconds that records from before the agent's start wait for the uuids of cards.
_CARDS_S = 30.0
#: Seconds between two verifications of the cards' InfoROMs, which reads flash memory.
_INFOROM_S = 3600.0
#: Seconds between two readings of NVML that events demand.
READ_S = 5.0


class Reader(Protocol):
    async def read(self) -> Sequence[Observation]:
        """The events since the last call, and present states. Raises Unavailable, with the reason."""
        ...


class Inventory:
    """What readers know of the node's hardware for each other."""

    def __init__(self) -> None:
        self.devices: tuple[PciDevice, ...] = ()
        self.redirecting: tuple[str, ...] | None = None  #: bridges, as in `nodenuma.redirecting`
        self.cards: dict[str, str] = {}  #: uuid by PCI address without function
        self.cards_known = True  #: False until NVML was read for the first time
        self.listed: int | None = None  #: how many cards NVML listed last; None: unknown

    @property
    def rails(self) -> dict[str, str]:
        return {pci.rpartition(".")[0]: name for name, pci in compute_ports(self.devices).items()}


class KernelLogReader:
    """`seq`: of the last record whose facts are published; earlier ones are skipped. `on_gap` is called if records were lost, `on_records` with those that
    were read, also with none."""

    def __init__(
        self,
        records: KernelRecords,
        inventory: Inventory,
        *,
        seq: int,
        on_gap: Callable[[], None],
        on_records: Callable[[Sequence[Record]], None] = lambda _: None,
    ) -> None:
        self._records, self._inventory, self._on_gap, self._on_records = records, inventory, on_gap, on_records
        self._log = KernelLog()
        self._published = self.seq = seq
        self._waits_until = monotonic_s() + _CARDS_S
        self._texts: deque[tuple[int, str]] = deque(maxlen=64)

    async def read(self) -> Sequence[Observation]:
        if not self._inventory.cards_known and monotonic_s() < self._waits_until:
            return ()
        found: list[Record] = []
        for place, raw in enumerate(self._records.new(), start=1):
            head, _, text = raw.partition(";")
            seq = _seq_of(head)
            if seq is not None:
                if seq <= self._published and (seq >= MADE) is (self._published >= MADE):
                    continue  # numbers of the device and of the system call do not compare
                self.seq = seq if (seq >= MADE) is not (self.seq >= MADE) else max(self.seq, seq)
                self._texts.append((seq, text))
            found += self._log.raw(raw)
            if place % _AT_ONCE == 0:
                await asyncio.sleep(0)
        found += self._log.flush()
        self._on_records(found)
        if not found:
            return ()
        if any(record.get("kind") == "records-lost" for record in found):
            self._on_gap()
        texts = dict(self._texts)
        for record in found:
            record["text"] = sanitized(texts.get(record.get("seq", -1), "").partition("\n")[0], TEXT_BYTES)
        booted_at = wall_s() - monotonic_s()
        return observations(found, cards=self._inventory.cards, rails=self._inventory.rails, booted_at=booted_at)


def _seq_of(head: str) -> int | None:
    """From `priority,seq,usec,flags`; None of a continuation line, and of the mark of overwritten records."""
    parts = head.split(",", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isascii() and parts[1].isdigit() and len(parts[1]) <= 20 else None


class NvmlSource(Protocol):
    async def ask(self, *, inforom: bool) -> Answer: ...


class NvmlReader:
    """States of cards. A card that is listed no more, or that states no uuid, is in `inventory` and not in `listed`. `cards`: NVML's last index of each card of
    this boot by uuid, -1 of one that is listed no more; the reader changes it. While `is_released`, NVML is not read: a card is to be reset."""

    def __init__(
        self,
        nvml: NvmlSource,
        inventory: Inventory,
        *,
        cards: dict[str, int],
        on_answer: Callable[[Answer], None],
        is_released: Callable[[], bool] = lambda: False,
    ) -> None:
        self._nvml, self._inventory, self._cards, self._on_answer = nvml, inventory, cards, on_answer
        self._is_released = is_released
        self._inforom_at = -_INFOROM_S
        self._inforom: dict[str, object] = {}

    async def read(self) -> Sequence[Observation]:
        if self._is_released():
            return ()
        verify = monotonic_s() - self._inforom_at >= _INFOROM_S
        answer = await self._nvml.ask(inforom=verify)
        self._inventory.cards_known = True
        if not answer.lines and not answer.problem:
            return ()
        self._on_answer(answer)
        node, cards = cards_of(answer.lines, problem=answer.problem)
        if verify and "problem" not in node:
            self._inforom_at = monotonic_s()
        # A lost card answers nothing, and keeps its index until the driver is loaded again.
        named = {uuid for uuid, _ in cards}
        unnamed = {index: uuid for uuid, index in self._cards.items() if uuid not in named}
        found: list[Observation] = []
        indices: dict[str, int] = {}
        for stated, state in cards:
            uuid = sanitized(stated, ID_BYTES) or unnamed.get(state["index"], "")
            if not uuid:
                continue
            indices[uuid] = state["index"]
            if "inforom_validate" in state:
                self._inforom[uuid] = state["inforom_validate"]
            elif uuid in self._inforom:
                state["inforom_validate"] = self._inforom[uuid]
            if "pci" in state:
                self._inventory.cards = {p: u for p, u in self._inventory.cards.items() if u != uuid} | {state["pci"]: uuid}
            found.append(Observation(Check.NVML, f"gpu:{uuid}", "card", state))
        self._inventory.listed = None if "problem" in node else len(node["listed"])
        if "problem" not in node:
            self._cards.update(dict.fromkeys(self._cards, -1))
        self._cards.update(indices)
        for uuid in list(self._cards)[: max(0, len(self._cards) - MOST_ITEMS)]:
            del self._cards[uuid]
        value = {**node, "inventory": sorted(self._cards)}
        return [Observation(Check.NVML, NODE, "cards", value, node.get("problem", "")), *found]


class EventsReader:
    """Events of NVML that the kernel log does not have. `on_change`: called, at most every READ_S, when an event shows that NVML's state of a card changed."""

    def __init__(self, process: EventProcess, pairing: Pairing, *, on_change: Callable[[], None]) -> None:
        self._process, self._pairing, self._on_change = process, pairing, on_change
        self._changed = False
        self._changed_at = -READ_S

    async def read(self) -> Sequence[Observation]:
        process, pairing = self._process, self._pairing
        await process.advance()
        now = monotonic_s()
        events, dropped = process.taken()
        for event in events:
            pairing.add(event, now)
        self._changed = self._changed or dropped > 0 or any(event.about_state for event in events)
        if self._changed and now - self._changed_at >= READ_S:
            self._changed, self._changed_at = False, now
            self._on_change()
        paired = pairing.paired
        due = pairing.due(now)
        metrics.NVML_EVENTS.labels("paired").inc(pairing.paired - paired)
        metrics.NVML_EVENTS.labels("published").inc(len(due))
        found = [event.observation(wall_s() - (now - at)) for at, event in due]
        if dropped:
            text = f"the agent dropped {dropped} events of NVML"
            found.append(Observation(Check.NVML_EVENTS, NODE, "lost", {"count": dropped}, text, event=True))
        if process.state in _STATES:
            value = {"state": _STATES[process.state], "cards": process.cards, "refused": process.refused}
            found.append(Observation(Check.NVML_EVENTS, NODE, "events", value))
        return [*found, *self._hangs()]

    def _hangs(self) -> Sequence[Observation]:
        value = {"reader": Check.NVML_EVENTS.value, "since": round(self._process.hangs_since, 1)}
        text = self._process.problem if self._process.hangs_since else ""
        return [Observation(Check.AGENT, NODE, f"hangs:{Check.NVML_EVENTS}", value, text)]

    @property
    def problem(self) -> str:
        """Why no events are received."""
        return self._process.problem

    async def close(self) -> None:
        await self._process.close()


#: What is published of the process; else its last state stays in force.
_STATES = {State.READY: "waiting", State.RELEASED: "released", State.UNSUPPORTED: "unsupported"}


class PortsReader:
    """States of the RDMA ports that belong to cards, with what their error counters grew since the last reading, and the highest rate of a port of the node.
    A port that was there once and is not now is `missing`."""

    def __init__(self, host: Path, inventory: Inventory) -> None:
        self._host, self._inventory = host, inventory
        self._known: dict[str, str] = {}
        self._last: dict[str, Record] = {}
        self._last_at = 0.0
        self._best_gbps = 0.0

    async def read(self) -> Sequence[Observation]:
        ports = compute_ports(self._inventory.devices)
        self._known |= ports
        if not self._known:
            return ()
        states = port_states(await asyncio.to_thread(read_counters, self._host, tuple(self._known)), self._known)
        for name in self._known.keys() - states.keys():
            states[name] = {"pci": self._known[name], "missing": True}
        now = monotonic_s()
        growths = {name: growth(self._last.get(name, {}), state) for name, state in states.items()}
        seconds, self._last, self._last_at = now - self._last_at, {name: dict(state) for name, state in states.items()}, now
        self._best_gbps = max([self._best_gbps, *(state.get("gbps", 0.0) for state in states.values())])
        for name, state in states.items():
            if self._best_gbps:
                state["best_gbps"] = self._best_gbps
            if growths[name]:
                state |= {"growth": growths[name], "growth_s": round(seconds, 1)}
        return [Observation(Check.PORTS, f"rail:{name}", "port", state) for name, state in states.items()]


class ExporterSource(Protocol):
    def read(self) -> str:
        """The exporter's text. Blocks. Raises Unavailable."""
        ...


class DcgmReader:
    """States of cards by DCGM's exporter, and which cards it shows. `cards`: those of NVML's reader. `xids`: publish the XIDs that the exporter counts, too."""

    def __init__(self, exporter: ExporterSource, inventory: Inventory, *, cards: Mapping[str, int], xids: bool) -> None:
        self._exporter, self._inventory, self._cards, self._xids = exporter, inventory, cards, xids
        self._shown: set[str] = set()  #: since the start: the inventory of a node whose NVML is not read
        self._counts: dict[tuple[str, int], float] = {}

    async def read(self) -> Sequence[Observation]:
        scrape = await asyncio.to_thread(lambda: parse_exporter(self._exporter.read()))
        states = dict(list(card_states(scrape).items())[:MOST_ITEMS])
        if len(self._shown) < MOST_ITEMS:
            self._shown |= states.keys()
        value = {
            "rows": sorted(states),
            "inventory": sorted(self._cards or self._shown),
            "nvml_count": self._inventory.listed,
        }
        found = [Observation(Check.DCGM, NODE, "exporter", value)]
        found += [Observation(Check.DCGM, f"gpu:{uuid}", "card", state) for uuid, state in states.items()]
        return found + self._events(scrape) if self._xids else found

    def _events(self, scrape: Scrape) -> list[Observation]:
        """XIDs that the exporter counted since the last reading."""
        before, self._counts = self._counts, counted_xids(scrape)
        return [
            Observation(
                Check.DCGM, f"gpu:{uuid}", str(code), {"kind": "xid", "code": code, "pci": scrape.cards.get(uuid)},
                f"XID {code}, counted by DCGM's exporter", event=True,
            )
            for (uuid, code), count in self._counts.items()
            if count > before.get((uuid, code), 0.0)
        ]  # fmt: skip


#: Units and modules whose absence stops jobs.
UNITS = ("nvidia-fabricmanager", "nvidia-persistenced", "nvidia-imex", "openibd")
MODULES = ("nvidia", "nvidia_peermem", "nvidia_uvm", "mlx5_ib")
_SLICES = ("sys/fs/cgroup/system.slice", "sys/fs/cgroup/systemd/system.slice")


class UnitsReader:
    """systemd's units by their control groups, since its socket is not in the container: a unit with processes is `active`. Modules by /proc/modules."""

    def __init__(self, host: Path, inventory: Inventory) -> None:
        self._host, self._inventory = host, inventory
        self._driver = False  #: NVIDIA's driver was loaded once: until then the node is one without cards

    async def read(self) -> Sequence[Observation]:
        return await asyncio.to_thread(self._read)

    def _read(self) -> Sequence[Observation]:
        try:
            text = (self._host / "proc/modules").read_text(errors="replace")
        except OSError as e:
            raise Unavailable(f"/proc/modules: {e.strerror}") from e
        loaded = {line.split(" ", 1)[0] for line in text.splitlines()}
        self._driver = self._driver or "nvidia" in loaded
        if not self._driver:
            return ()
        folder = next((one for name in _SLICES if (one := self._host / name).is_dir()), None)
        units = {} if folder is None else {unit: _active(folder / f"{unit}.service") for unit in UNITS}
        modules = {name: name in loaded for name in MODULES}
        found = [Observation(Check.UNITS, NODE, "units", {"units": units, "modules": modules})]
        if self._inventory.redirecting is not None:
            found.append(Observation(Check.UNITS, NODE, "acs", {"redirecting": self._inventory.redirecting}))
        return found


def _active(folder: Path) -> str:
    try:
        return (
            "active"
            if (folder / "cgroup.procs").read_text().strip() or any(one.is_dir() for one in folder.iterdir())
            else "inactive"
        )
    except OSError:
        return "inactive"
