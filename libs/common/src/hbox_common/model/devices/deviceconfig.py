"""`device-config.yaml`: what an operator sets for the vendors of HAMi's scheduler (ConfigMap hami-scheduler-device) or Volcano's vGPU plugin.

Read are the settings by which cards are asked for and divided; names of resources, and what only plugins and webhooks act on, are not. An entry that cannot be
understood is an InvalidRequest that names it: cards would be counted by other rules than their plugin's.

    nvidia:
      memoryFactor: 1           # HAMi: MiB to one of nvidia.com/gpumem
      defaultMemory: 0          # HAMi: MiB where a container names no memory; 0 = the whole card
      defaultCores: 0           # HAMi: percent of compute with a part of the memory
      defaultGPUNum: 1          # HAMi: cards where a container names only parts
      gpuMemoryFactor: 1        # Volcano: MiB to one of its memory, everywhere
      knownMigGeometries: []    # both: how cards in MIG may be divided (`mig`)
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.yamltext import content_of

from . import mig
from .cards import ALL_CORES, MAX_CARDS, MAX_MEMORY_MIB
from .nvidia import NvidiaVendor
from .vendor import Vendor
from .volcano import VolcanoVendor

#: More than anybody lists: entries, models of one, groups of one.
_MOST = 256

#: MiB to a unit of memory: a kubelet takes lists of some 60,000 devices.
_FACTOR = 1 << 16


def configured(vendors: Iterable[Vendor], text: str) -> tuple[Vendor, ...]:
    """The vendors as this text sets them. Raises InvalidRequest that names the entry."""
    content = content_of(text)
    section = content.get("nvidia") if isinstance(content, dict) else None
    if section is None:
        return tuple(vendors)
    if not isinstance(section, dict):
        raise InvalidRequest("device-config.yaml: nvidia is no mapping")
    return tuple(_nvidia(vendor, section) if isinstance(vendor, NvidiaVendor) else vendor for vendor in vendors)


def _nvidia(vendor: NvidiaVendor, section: Mapping[str, Any]) -> Vendor:
    if "knownMigGeometries" in section:
        vendor = replace(vendor, geometries=_geometries(section["knownMigGeometries"]))
    if isinstance(vendor, VolcanoVendor):
        unit = max(_number(section, "gpuMemoryFactor", 1, _FACTOR), 1)
        return replace(vendor, memory_unit_mib=unit, allocated_unit_mib=unit)
    return replace(
        vendor,
        memory_unit_mib=max(_number(section, "memoryFactor", 1, _FACTOR), 1),
        memory_unnamed_mib=_number(section, "defaultMemory", 0, MAX_MEMORY_MIB),
        cores_unnamed=_number(section, "defaultCores", 0, ALL_CORES),
        count_unnamed=max(_number(section, "defaultGPUNum", 1, MAX_CARDS), 1),
    )


def _number(section: Mapping[str, Any], name: str, unset: int, most: int) -> int:
    value = section.get(name, unset)
    if type(value) is not int or not 0 <= value <= most:
        raise InvalidRequest(
            f"device-config.yaml: nvidia.{name} is {str(value)[:40]!r}", hint=f"write a whole number, 0 to {most}"
        )
    return value


def _geometries(value: object) -> mig.Geometries:
    where = "device-config.yaml: nvidia.knownMigGeometries"
    found = []
    for entry in _list(value, where):
        models = _list(entry.get("models"), f"{where}: models") if isinstance(entry, dict) else []
        if not isinstance(entry, dict) or not models or not all(isinstance(model, str) and model for model in models):
            raise InvalidRequest(f"{where}: an entry has models, which are names, and allowedGeometries")
        groups = enumerate(_list(entry.get("allowedGeometries"), f"{where}: allowedGeometries of {models[0][:40]!r}"))
        found.append((tuple(models), tuple(_group(number, group, where) for number, group in groups if group)))
    return tuple(found)


def _group(number: int, group: object, where: str) -> mig.Geometry:
    """HAMi's are lists, which it calls by their numbers; Volcano's have a name."""
    name, sizes = str(number), group
    if isinstance(group, dict):
        name, sizes = str(group.get("group", number)), group.get("geometries")
    found = []
    for size in _list(sizes, f"{where}: group {name[:40]!r}"):
        if not isinstance(size, dict) or not isinstance(size.get("name"), str):
            raise InvalidRequest(f"{where}: group {name[:40]!r}: an instance has name, memory and count")
        found.append((size["name"], _number(size, "memory", 0, MAX_MEMORY_MIB), _number(size, "count", 1, _MOST)))
    return mig.geometry(name, *found)


def _list(value: object, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > _MOST:
        raise InvalidRequest(f"{where} is no list of at most {_MOST} entries")
    return value
