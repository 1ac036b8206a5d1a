"""The text of DCGM's exporter. A field without a value prints a number that means "none"; labels hold free text, and their names differ by version."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .records import pci_of

_ROW = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\d+)?\s*$")
_LABEL = re.compile(r'([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")

#: dcgm_fields.h: blank, not found, not supported, not permitted; as 32-bit, 64-bit and floating-point number.
_BLANKS = ((2147483632.0, 2147483647.0), (140737488355328.0, 140737488355343.0))
_BLANK_64 = 9223372036854775000.0


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
        if line.startswith("#") or not line.strip():
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


def _unescaped(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]


def _blank(value: float) -> bool:
    return not math.isfinite(value) or value >= _BLANK_64 or any(low <= value <= high for low, high in _BLANKS)
