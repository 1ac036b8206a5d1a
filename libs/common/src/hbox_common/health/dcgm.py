"""The text of DCGM's exporter. A field without a value prints a number that means "none"; labels hold free text, and their names differ by version."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .records import Record, pci_of

_ROW = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\d+)?\s*$")
_LABEL = re.compile(r'([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_CODE = re.compile(r"[1-9]\d{0,4}")
_ESCAPE = re.compile(r"\\(.)")

#: dcgm_fields.h: blank, not found, not supported, not permitted; as 32-bit, 64-bit and floating-point number.
_BLANKS = ((2147483632.0, 2147483647.0), (140737488355328.0, 140737488355343.0))
_BLANK_64 = 9223372036854775000.0

#: Of one line.
MOST_CHARS = 16 * 1024

#: Fields that change rarely.
LASTING = (
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "DCGM_FI_DEV_ROW_REMAP_PENDING",
)
TEMPERATURE, HOT_C = "DCGM_FI_DEV_GPU_TEMP", 85
#: The exporter's own counters of a window, and DCGM's health.
XIDS, CLOCK_EVENTS = "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_CLOCK_EVENTS_COUNT"
HEALTH, WARNING = "DCGM_EXP_GPU_HEALTH_STATUS", 10


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    labels: Mapping[str, str]  #: names in lower case
    value: float | None  #: None: the exporter has no value

    @property
    def card(self) -> str | None:
        """The UUID of the card; of a MIG instance, that of its card."""
        return self.labels.get("uuid") or None

    @property
    def instance(self) -> str | None:
        return self.labels.get("gpu_i_id") or None


@dataclass(slots=True)
class Scrape:
    samples: list[Sample] = field(default_factory=list)

    @property
    def node(self) -> str | None:
        return next((s.labels["hostname"] for s in self.samples if s.labels.get("hostname")), None)

    @property
    def model(self) -> str | None:
        return next((s.labels["modelname"] for s in self.samples if s.labels.get("modelname")), None)

    @property
    def cards(self) -> dict[str, str | None]:
        """PCI address by UUID of all cards that have rows."""
        out: dict[str, str | None] = {}
        for sample in self.samples:
            if sample.card is not None and not out.get(sample.card):
                out[sample.card] = pci_of(sample.labels.get("pci_bus_id", ""))
        return out

    def values(self, name: str) -> dict[str, float | None]:
        """The value of a field by card; of a divided card, that of the card itself where there is one."""
        out: dict[str, float | None] = {}
        for sample in self.samples:
            if sample.name == name and sample.card is not None and (sample.instance is None or sample.card not in out):
                out[sample.card] = sample.value
        return out


def parse_exporter(text: str) -> Scrape:
    """All samples of the text; lines that are none are left out."""
    out = Scrape()
    for line in text.splitlines():
        if line.startswith("#") or not line.strip() or len(line) > MOST_CHARS:
            continue
        found = _ROW.match(line.strip())
        if found is None:
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        labels = {name.lower(): _ESCAPE.sub(_unescaped, text) for name, text in _LABEL.findall(found[2] or "")}
        out.samples.append(Sample(found[1], labels, None if _blank(value) else value))
    return out


def card_states(scrape: Scrape) -> dict[str, Record]:
    """What a judgement needs of each card, by UUID: the fields LASTING, the temperature from HOT_C on, clock events counted in the exporter's window, and
    DCGM's health from WARNING on, by watch and code. Values that move all the time are left out, since each change is a fact."""
    states: dict[str, Record] = {card: {} for card in scrape.cards}
    for name in (*LASTING, TEMPERATURE):
        for card, value in scrape.values(name).items():
            if value is not None and (name != TEMPERATURE or value >= HOT_C):
                states[card][name] = value
    for sample in scrape.samples:
        if sample.card is None or not sample.value:
            continue
        if sample.name == CLOCK_EVENTS:
            states[sample.card].setdefault(CLOCK_EVENTS, {})[sample.labels.get("clock_event", "")] = sample.value
        elif sample.name == HEALTH and sample.value >= WARNING:
            what = f"{sample.labels.get('health_watch', '')}/{sample.labels.get('health_error_code', '')}"
            states[sample.card].setdefault(HEALTH, {})[what] = sample.value
    return states


def counted_xids(scrape: Scrape) -> dict[tuple[str, int], float]:
    """How often the exporter counted an XID in its window, by UUID and code."""
    return {
        (sample.card, int(code)): sample.value
        for sample in scrape.samples
        if sample.name == XIDS and sample.card and sample.value and _CODE.fullmatch(code := sample.labels.get("xid", ""))
    }


def scrape_of(card: str, state: Mapping[str, Any]) -> Scrape:
    """The samples of which `card_states` made the state of a card."""
    out = Scrape()

    def add(name: str, value: Any, **labels: str) -> None:
        if isinstance(value, int | float):
            out.samples.append(Sample(name, {"uuid": card, **labels}, float(value)))

    for name, value in state.items():
        if not isinstance(value, Mapping):
            add(name, value)
            continue
        for what, count in value.items():
            watch, _, code = what.partition("/")
            add(
                name,
                count,
                **({"clock_event": what} if name == CLOCK_EVENTS else {"health_watch": watch, "health_error_code": code}),
            )
    return out


def _unescaped(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]


def _blank(value: float) -> bool:
    return not math.isfinite(value) or value >= _BLANK_64 or any(low <= value <= high for low, high in _BLANKS)
