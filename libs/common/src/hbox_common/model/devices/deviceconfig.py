"""`device-config.yaml`: an operator's settings for the vendors of HAMi's scheduler (ConfigMap hami-scheduler-device, v2.7 to 2.10) or Volcano's vGPU plugin.

    nvidia:
      resourceCountName: nvidia.com/gpu   # also resourceMemoryName, resourceMemoryPercentageName, resourceCoreName
      memoryFactor: 1           # HAMi: MiB to one of nvidia.com/gpumem
      defaultMemory: 0          # HAMi: MiB of a container that requests no memory; 0 = the whole card
      defaultCores: 0           # HAMi: percent of compute with a part of the memory
      defaultGPUNum: 1          # HAMi: cards of a container that requests only parts
      deviceSplitCount: 10      # pods per card without a register; a register has its own value
      preConfiguredDeviceMemory: 0   # MiB of such a card without a label for it
      gpuMemoryFactor: 1        # Volcano: MiB to one of its memory, everywhere
      knownMigGeometries: []    # both: possible divisions of cards in MIG (`mig`)
    hygon, amd, cambricon, metax, enflame, mthreads, kunlun, awsneuron, vastai, biren: names of resources by HAMi's keys
    hygon.memoryFactor, metax.sgpuTopologyAware
    iluvatars: [{commonWord, resourceCountName, resourceMemoryName, resourceCoreName}]
    vnpus: {hamiVnpuCore: false, configs: [{commonWord, resourceName, ..., templates}]}     # a list of configs to v2.8

Settings that are missing or empty keep HBox's built-in values. Annotations have their names in HAMi, whatever the resources' names. An invalid value raises
InvalidRequest that names its key: otherwise cards would be counted by other rules than their plugin's. An unknown key causes a warning, as does one for an
unsupported feature; keys for device plugins only are ignored. `nvidia` and each of `vnpus` also have `overwriteEnv` and `runtimeClassName`, `nvidia`
`gpuCorePolicy`, for the admission endpoint.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.yamltext import content_of

from ..bounds import sanitized
from . import ascend, iluvatar, mig
from .ascend import Ascend, Chip, Template
from .cards import ALL_CORES, MAX_CARDS, MAX_MEMORY_MIB
from .hami import MAX_SHARES, HamiVendor
from .identity import is_resource
from .metax import MetaxSgpu
from .nvidia import NvidiaVendor
from .vendor import Vendor
from .volcano import VolcanoVendor

#: More than anybody lists: entries, models of one, groups of one.
_MOST = 256

#: MiB to a unit of memory: a kubelet takes lists of some 60,000 devices.
_FACTOR = 1 << 16

#: Volcano's plugin has the same section, with names of its own domain.
_VOLCANO = "volcano.sh/"

#: HAMi's word for a chip: a part of annotation names.
_WORD = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,38}[A-Za-z0-9])?")
_TEMPLATE = re.compile(r"[A-Za-z0-9_.-]{1,64}")

#: Names of resources by section, kind and key; a number is the place in `Vendor.sizes`.
_NAMES: Mapping[str, Mapping[str, Mapping[str, str | int]]] = {
    "cambricon": {"MLU": {"resourceCountName": "cards", "resourceMemoryName": "memory", "resourceCoreName": "cores"}},
    "hygon": {"DCU": {"resourceCountName": "cards", "resourceMemoryName": "memory", "resourceCoreName": "cores"}},
    "metax": {
        "Metax-GPU": {"resourceCountName": "cards"},
        "Metax-SGPU": {"resourceVCountName": "cards", "resourceVMemoryName": "memory", "resourceVCoreName": "cores"},
    },
    "enflame": {
        "GCU": {"resourceNameGCU": "cards"},
        "Enflame": {
            "resourceNameVGCU": "cards",
            "resourceNameVGCUPercentage": "memory_percent",
            "resourceNameDRSGCU": 0,
            "resourceNameGCUMemory": 1,
            "resourceNameGCUCore": 2,
        },
    },
    "mthreads": {"Mthreads": {"resourceCountName": "cards", "resourceMemoryName": "memory", "resourceCoreName": "cores"}},
    "kunlun": {
        "kunlun": {"resourceCountName": "cards"},
        "XPU": {"resourceVCountName": "cards", "resourceVMemoryName": "memory"},
    },
    "awsneuron": {"AWSNeuron": {"resourceCountName": "cards", "resourceCoreName": 0}},
    "amd": {"AMD": {"resourceCountName": "cards", "resourceMemoryName": "memory", "resourceCoreName": "cores"}},
    "vastai": {"Vastai": {"resourceCountName": "cards"}},
    "biren": {"Biren": {"resourceCountName": "cards"}},
}
_NVIDIA_NAMES: Mapping[str, str | int] = {
    "resourceCountName": "cards",
    "resourceMemoryName": "memory",
    "resourceMemoryPercentageName": "memory_percent",
    "resourceCoreName": "cores",
    "resourcePriorityName": "priority",
}
_ILUVATAR_NAMES: Mapping[str, str | int] = {
    "resourceCountName": "cards",
    "resourceMemoryName": "memory",
    "resourceCoreName": "cores",
}
_ASCEND_NAMES: Mapping[str, str | int] = {
    "resourceName": "cards",
    "resourceMemoryName": "memory",
    "resourceCoreName": "cores",
}

#: What HAMi's webhook writes into pods, with the values by which it writes nothing: the admission endpoint does so for the makers that HAMi does it for.
_WRITTEN_INTO_PODS: Mapping[str, tuple[object, ...]] = {
    "overwriteEnv": (None, False),
    "runtimeClassName": (None, ""),
    "gpuCorePolicy": (None, "", "default"),
}

#: How HAMi's library holds containers to their compute.
_CORE_POLICIES = ("default", "force", "disable")

#: What keeps cards from containers that ask for none.
_HIDES_NVIDIA, _HIDES_ASCEND = ("NVIDIA_VISIBLE_DEVICES", "none"), ("ASCEND_VISIBLE_DEVICES", "")

_RUNTIME_CLASS = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)?")

#: Keys for device plugins only: their effect is in the plugins' registers.
_OF_PLUGINS = ("libCudaLogLevel", "enableNumaTopology", "disableCoreLimit", "migProfileAllowlist", "migStrategy")


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """The vendors as configured by a `device-config.yaml`, and warnings about settings without effect."""

    vendors: tuple[Vendor, ...]
    warnings: tuple[str, ...] = ()


def configured(vendors: Iterable[Vendor], text: str) -> DeviceConfig:
    """The vendors as configured by this text. Raises InvalidRequest that names the key and the correction."""
    content = content_of(text)
    reading = _Reading({vendor.kind: vendor for vendor in vendors})
    if content is not None and not isinstance(content, dict):
        raise InvalidRequest("it is no mapping", hint="write a section for each maker, as nvidia: {resourceCountName: ...}")
    for key, value in (content or {}).items():
        if (read := _SECTIONS.get(key)) is None:
            reading.unknown("", key, _SECTIONS)
        elif value is not None:
            read(reading, value)
    reading.check()
    return DeviceConfig(tuple(reading.vendors.values()), tuple(reading.warnings))


@dataclass(slots=True)
class _Reading:
    vendors: dict[str, Vendor]
    warnings: list[str] = field(default_factory=list)

    def unknown(self, where: str, key: str, known: Iterable[str]) -> None:
        near = difflib.get_close_matches(key, list(known), 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        self.warnings.append(f"{where}{sanitized(key, 64)} is no key that HBox knows{meant}")

    def check(self) -> None:
        """Raises InvalidRequest where two kinds have a resource in common."""
        owners: dict[str, str] = {}
        for vendor in self.vendors.values():
            for name in (vendor.cards, *vendor.parts):
                if name in owners:
                    both = vendor.kind if owners[name] == vendor.kind else f"{owners[name]} and {vendor.kind}"
                    raise InvalidRequest(f"{name} is named twice, for {both}", hint="give each its own resource")
                owners[name] = vendor.kind


class _Section:
    """A mapping of the file; keys that are read are known, and `close` warns of all others."""

    def __init__(self, reading: _Reading, where: str, content: object) -> None:
        if not isinstance(content, dict):
            raise InvalidRequest(f"{where} is no mapping", hint="write KEY: VALUE for each setting")
        self.where, self._reading, self._content = where, reading, content
        self._known: set[str] = set()

    def get(self, key: str) -> Any:
        self._known.add(key)
        return self._content.get(key)

    def number(self, key: str, unset: int, least: int, most: int) -> int:
        value = self.get(key)
        if value is None:
            return unset
        if type(value) is not int or not least <= value <= most:
            raise InvalidRequest(f"{self.where}.{key} is {_shown(value)}", hint=f"write a whole number, {least} to {most}")
        return value

    def flag(self, key: str) -> bool:
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise InvalidRequest(f"{self.where}.{key} is {_shown(value)}", hint="write true or false")
        return bool(value)

    def text(self, key: str, pattern: re.Pattern[str], hint: str) -> str:
        value = self.get(key)
        if not isinstance(value, str) or pattern.fullmatch(value) is None:
            raise InvalidRequest(f"{self.where}.{key} is {_shown(value)}", hint=hint)
        return value

    def entries(self, key: str) -> list[Any]:
        return _list(self.get(key), f"{self.where}.{key}")

    def named(self, vendor: Vendor, keys: Mapping[str, str | int]) -> Vendor:
        """The vendor with the resources that are named here."""
        sizes = list(vendor.sizes)
        changed: dict[str, Any] = {}
        for key, place in keys.items():
            value = self.get(key)
            if value is None or value == "":
                continue
            if not isinstance(value, str) or not is_resource(value):
                raise InvalidRequest(
                    f"{self.where}.{key} is {_shown(value)}", hint="write a resource as DOMAIN/NAME, such as example.com/gpu"
                )
            if isinstance(place, int):
                sizes[place] = value
            else:
                changed[place] = value
        if tuple(sizes) != vendor.sizes:
            changed["sizes"] = tuple(sizes)
        return replace(vendor, **changed) if changed else vendor

    def _written_by(self) -> str:
        if self.where == "nvidia" or self.where.startswith("vnpus.configs["):
            return "the admission endpoint alone writes it into pods; where there is none, write it in the pods"
        return "HBox does not write it into pods of this maker; write it in the pods"

    def written_into_pods(self, hides: tuple[str, str]) -> dict[str, Any]:
        """`overwriteEnv` and `runtimeClassName`, as fields of a vendor."""
        runtime_class = (
            self.text("runtimeClassName", _RUNTIME_CLASS, "write the name of a RuntimeClass")
            if self.get("runtimeClassName")
            else ""
        )
        return {"hidden": hides if self.flag("overwriteEnv") else None, "runtime_class": runtime_class}

    def close(self, *passed: str) -> None:
        """All is read but what HAMi's webhook and plugins act on, and keys that do nothing (`passed`)."""
        for key, inert in _WRITTEN_INTO_PODS.items():
            if self.get(key) not in inert:
                self._reading.warnings.append(f"{self.where}.{key}: {self._written_by()}")
        known = self._known.union(passed, _OF_PLUGINS)
        for key in self._content.keys() - known:
            self._reading.unknown(f"{self.where}.", key, known)


def _nvidia(reading: _Reading, content: object) -> None:
    section = _Section(reading, "nvidia", content)
    of_volcano = any(str(section.get(key)).startswith(_VOLCANO) for key in _NVIDIA_NAMES)
    geometries = _geometries(section) if section.get("knownMigGeometries") is not None else None
    unit = max(section.number("gpuMemoryFactor", 1, 0, _FACTOR), 1)
    for vendor in list(reading.vendors.values()):
        if not isinstance(vendor, NvidiaVendor):
            continue
        found: NvidiaVendor = vendor if geometries is None else replace(vendor, geometries=geometries)
        volcano = isinstance(found, VolcanoVendor)
        found = replace(found, memory_unit_mib=unit, allocated_unit_mib=unit) if volcano else _of_hami(section, found)
        if volcano == of_volcano:
            named = section.named(found, _NVIDIA_NAMES)
            if named.cards != found.cards:
                named = replace(named, no_models=frozenset({f"{named.cards}.shared"}))
            reading.vendors[vendor.kind] = named
        else:
            reading.vendors[vendor.kind] = found
    for key, unset in (("deviceMemoryScaling", 1), ("deviceCoreScaling", 1)):
        value = section.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _FACTOR):
            raise InvalidRequest(f"nvidia.{key} is {_shown(value)}", hint=f"write a number above 0, {unset} for none")
    if (section.get("deviceCoreScaling") or 1) != 1:
        reading.warnings.append(
            "nvidia.deviceCoreScaling: HBox gives away 100 percent of a card's compute, no more and no less"
        )
    section.close()


def _of_hami(section: _Section, vendor: NvidiaVendor) -> NvidiaVendor:
    policy = section.get("gpuCorePolicy") or _CORE_POLICIES[0]
    if policy not in _CORE_POLICIES:
        raise InvalidRequest(
            f"nvidia.gpuCorePolicy is {_shown(policy)}", hint=f"write {', '.join(_CORE_POLICIES[:-1])} or {_CORE_POLICIES[-1]}"
        )
    return replace(
        vendor,
        **section.written_into_pods(_HIDES_NVIDIA),
        core_policy="" if policy == _CORE_POLICIES[0] else policy,
        memory_unit_mib=max(section.number("memoryFactor", 1, 0, _FACTOR), 1),
        memory_unnamed_mib=section.number("defaultMemory", 0, 0, MAX_MEMORY_MIB),
        cores_unnamed=section.number("defaultCores", 0, 0, ALL_CORES),
        count_unnamed=max(section.number("defaultGPUNum", 1, 0, MAX_CARDS), 1),
        shares_unregistered=section.number("deviceSplitCount", vendor.shares_unregistered, 1, MAX_SHARES),
        memory_unregistered_mib=section.number("preConfiguredDeviceMemory", 0, 0, MAX_MEMORY_MIB),
    )


def _of_maker(where: str) -> Callable[[_Reading, object], None]:
    def read(reading: _Reading, content: object) -> None:
        section = _Section(reading, where, content)
        for kind, keys in _NAMES[where].items():
            vendor = section.named(reading.vendors[kind], keys)
            if where == "hygon" and isinstance(vendor, HamiVendor):
                vendor = replace(vendor, memory_unit_mib=max(section.number("memoryFactor", 1, 0, _FACTOR), 1))
            if isinstance(vendor, MetaxSgpu):
                vendor = replace(vendor, topology_aware=section.flag("sgpuTopologyAware"))
            reading.vendors[kind] = vendor
        section.close()

    return read


def _iluvatars(reading: _Reading, content: object) -> None:
    for number, entry in enumerate(_list(content, "iluvatars")):
        section = _Section(reading, f"iluvatars[{number}]", entry)
        word = section.text("commonWord", _WORD, "write HAMi's word for the chip, such as MR-V100")
        vendor = reading.vendors.get(word) or iluvatar.kind_of(word)
        if not isinstance(vendor, iluvatar.Iluvatar):
            raise InvalidRequest(
                f"{section.where}.commonWord is {word}, which is another maker's", hint="write the chip's own word"
            )
        reading.vendors[word] = section.named(vendor, _ILUVATAR_NAMES)
        section.close("chipName")


def _vnpus(reading: _Reading, content: object) -> None:
    soft = False
    if isinstance(content, dict):
        wrapper = _Section(reading, "vnpus", content)
        soft, entries = wrapper.flag("hamiVnpuCore"), wrapper.entries("configs")
        wrapper.close()
    else:
        entries = _list(content, "vnpus")
    for number, entry in enumerate(entries):
        section = _Section(reading, f"vnpus.configs[{number}]", entry)
        word = section.text("commonWord", _WORD, "write HAMi's word for the chip, such as Ascend910B3")
        vendor = reading.vendors.get(word)
        if vendor is not None and not isinstance(vendor, Ascend):
            raise InvalidRequest(
                f"{section.where}.commonWord is {word}, which is another maker's", hint="write the chip's own word"
            )
        chip = _chip(section, word, None if vendor is None else vendor.chip)
        made = ascend.kind_of(chip) if vendor is None else replace(vendor, chip=chip)
        unit = max(section.number("memoryFactor", made.memory_unit_mib, 0, _FACTOR), 1)
        made = replace(made, memory_unit_mib=unit, **section.written_into_pods(_HIDES_ASCEND))
        reading.vendors[word] = section.named(made, _ASCEND_NAMES)
        # The dies of a 910C are one module regardless of superPod: HAMi allocates both too.
        section.flag("superPod")
        section.close("chipName", "aiCPU")
    for kind, vendor in list(reading.vendors.items()):
        if isinstance(vendor, Ascend) and vendor.soft != soft:
            reading.vendors[kind] = replace(vendor, soft=soft)


def _chip(section: _Section, word: str, known: Chip | None) -> Chip:
    """A chip without built-in values needs memory and compute."""
    least = 0 if known is not None else 1
    memory = section.number("memoryAllocatable", known.memory_mib if known else 0, 1, MAX_MEMORY_MIB)
    capacity = section.number("memoryCapacity", max(known.capacity_mib if known else 0, memory), 1, MAX_MEMORY_MIB)
    cores = section.number("aiCore", known.cores if known else 0, 1, _FACTOR)
    if least and not (memory and cores):
        raise InvalidRequest(
            f"{section.where}: {word} has no memoryAllocatable or aiCore", hint="HBox has no such chip: write both"
        )
    if capacity < memory:
        raise InvalidRequest(
            f"{section.where}.memoryCapacity is {capacity}", hint=f"memoryAllocatable is {memory}: write that or more"
        )
    templates = known.templates if known else ()
    if section.get("templates") is not None:
        templates = tuple(
            sorted(
                (_template(section, number, one, capacity) for number, one in enumerate(section.entries("templates"))),
                key=lambda template: template.memory_mib,
            )
        )
        if len({template.name for template in templates}) < len(templates):
            raise InvalidRequest(f"{section.where}.templates: two of them have the same name", hint="leave one out")
    if known is None:
        return Chip(word, memory, cores, templates, capacity, linked=word.startswith("Ascend910"))
    return replace(known, memory_mib=memory, cores=cores, templates=templates, capacity_mib=capacity)


def _template(section: _Section, number: int, content: object, capacity: int) -> Template:
    one = _Section(section._reading, f"{section.where}.templates[{number}]", content)
    name = one.text("name", _TEMPLATE, "write the template's name, such as vir10_3c_32g")
    found = Template(name, one.number("memory", 0, 1, capacity), one.number("aiCore", 0, 0, _FACTOR))
    if not found.memory_mib:
        raise InvalidRequest(f"{one.where}.memory is not there", hint=f"write its MiB, 1 to {capacity}")
    one.close("aiCPU")
    return found


def _geometries(section: _Section) -> mig.Geometries:
    where = "nvidia.knownMigGeometries"
    found = []
    for entry in section.entries("knownMigGeometries"):
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
        of = f"{where}: {{}} of {size['name'][:40]!r}"
        memory = _amount(of.format("memory"), size.get("memory"), 0, MAX_MEMORY_MIB)
        found.append((size["name"], memory, _amount(of.format("count"), size.get("count"), 1, _MOST)))
    return mig.geometry(name, *found)


def _amount(where: str, value: object, unset: int, most: int) -> int:
    if value is None:
        return unset
    if type(value) is not int or not 0 <= value <= most:
        raise InvalidRequest(f"{where} is {_shown(value)}", hint=f"write a whole number, 0 to {most}")
    return value


def _list(value: object, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > _MOST:
        raise InvalidRequest(f"{where} is no list of at most {_MOST} entries")
    return value


def _shown(value: object) -> str:
    return "not there" if value is None else repr(sanitized(str(value), 40))


_SECTIONS: Mapping[str, Callable[[_Reading, object], None]] = {
    "nvidia": _nvidia,
    **{where: _of_maker(where) for where in _NAMES},
    "iluvatars": _iluvatars,
    "vnpus": _vnpus,
}
