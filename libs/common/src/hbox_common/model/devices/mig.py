"""MIG: cards of NVIDIA that are divided into instances of fixed sizes (sources: hami-nvidia, volcano-deviceshare).

Two ways of dividing are in use, and a card's profiles determine its own.

- **By placement** (HAMi v2.10): a profile lists its possible start positions on the card and the number of the card's slices that it covers there. Profiles
  fit together if their placements do not overlap. A part is written `1g.5gb@6`: profile, and the slice at which it starts.
- **By geometry** (HAMi to v2.9, Volcano): a list of groups that the card may be divided into, each a number of instances of each size. An idle card takes the
  first group with an instance that is large enough, and keeps it until it is idle again. A part is written `<group>-<position>`, the position counting all
  instances of the group in order: the `[...]` behind a card's id in these schedulers' annotations. As profiles, these are named `<group>/<size>`, with
  placements of no slices at their positions.

The smallest sufficient size is allocated; if it is full, the next one. The instance's memory is booked, and its compute if the profile states it. A card in use
without a readable part accepts nothing more: its free part is unknown.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hbox_common.errors import InvalidRequest

from .cards import ALL_CORES, MAX_MEMORY_MIB, Card, CardAllocation, Profile
from .layout import Layout, parts_of

#: How the plugin calls cards that are divided.
MIG = "mig"

#: More than any card has: profiles, placements of one, slices.
_PROFILES, _PLACEMENTS, _SLICES = 64, 64, 256

#: Of a pod's record of its instances.
_RECORD_CHARS = 64 * 1024

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_PART = re.compile(r"[A-Za-z0-9._-]{1,32}@\d{1,3}|[A-Za-z0-9._-]{1,32}-\d{1,3}")

#: Profiles that start as high as they can, so that larger ones find room below; others as low.
_FROM_ABOVE = ("1g.", "3g.")


@dataclass(frozen=True, slots=True)
class Instance:
    """One that a card could be divided into."""

    profile: Profile
    part: str


@dataclass(slots=True)
class Taken:
    """What of a card is in instances already."""

    spans: list[tuple[int, int]] = field(default_factory=list)  #: by placement: first slice, and the one behind the last
    group: str = ""  #: by geometry
    positions: set[int] = field(default_factory=set)

    def has(self, start: int, size: int) -> bool:
        return any(start < end and begin < start + size for begin, end in self.spans)


def taken_of(card: Card, parts: Iterable[str], pods: int) -> Taken | None:
    """The placements of these parts on the card, which at least `pods` containers use. None if they are incomplete, or match no division of a card."""
    found, known = Taken(), 0
    for part in parts:
        if not _add(card, found, part):
            return None
        known += 1
    return None if pods > known else found


def free_of(card: Card, held: CardAllocation) -> Taken | None:
    """What is taken of the card, as `taken_of`."""
    return taken_of(card, [part for joined in held.parts for part in parts_of(joined)], held.pods)


def instance(card: Card, taken: Taken, memory_mib: int) -> Instance | None:
    """The instance that a request for so much memory gets."""
    large = [profile for profile in card.effective_traits.profiles if profile.memory_mib >= memory_mib]
    if not large:
        return None
    if _by_geometry(card):
        groups = dict.fromkeys(_group(profile) for profile in large)
        return next(
            (
                found
                for group in groups
                if taken.group in ("", group)
                and (found := _of_group([p for p in large if _group(p) == group], group, taken)) is not None
            ),
            None,
        )
    for profile in sorted(large, key=lambda p: (p.memory_mib, min((size for _, size in p.placements), default=0))):
        from_above = profile.name.startswith(_FROM_ABOVE)
        for start, size in sorted(profile.placements, reverse=from_above):
            if not taken.has(start, size):
                return Instance(profile, f"{profile.name}@{start}")
    return None


def admits(card: Card, held: CardAllocation, part: str) -> bool:
    """Whether these parts of one pod fit on the card in addition to all others. Parts of one pod may use the same place in turn (init containers)."""
    if card.effective_traits.mode != MIG:
        return not part and not held.parts
    taken, wanted = free_of(card, held), parts_of(part)
    if taken is None or not wanted:
        return False
    for one in wanted:
        alone = Taken()
        if not _add(card, alone, one):
            return False
        if alone.group and (taken.group not in ("", alone.group) or not taken.positions.isdisjoint(alone.positions)):
            return False
        if any(taken.has(start, end - start) for start, end in alone.spans):
            return False
    return True


def registered_profiles(position: int, value: object) -> tuple[Profile, ...]:
    """`migProfiles` of one card of a register annotation. Raises InvalidRequest, naming the card by its position. Profiles whose name contains a `+` (media
    extensions) are left out: two of them share something that their placements do not show."""
    if value is None:
        return ()
    wrong = InvalidRequest(f"card {position}: migProfiles is no list of profiles with a name, memoryMB and placements")
    if not isinstance(value, list):
        raise wrong
    if len(value) > _PROFILES:
        raise InvalidRequest(f"card {position}: {len(value)} MIG profiles, at most {_PROFILES} are read")
    found = []
    for entry in value:
        if not isinstance(entry, dict):
            raise wrong
        fields = {str(name).lower(): what for name, what in entry.items()}
        name, places = fields.get("name"), fields.get("placements")
        if not isinstance(name, str) or not (places is None or isinstance(places, list)):
            raise wrong
        if "+" in name:
            continue
        if not _NAME.fullmatch(name) or len(places or ()) > _PLACEMENTS:
            raise wrong
        found.append(
            Profile(
                name,
                _number(fields.get("memorymb"), 1, MAX_MEMORY_MIB, wrong),
                _number(fields.get("core", 0), 0, ALL_CORES, wrong),
                tuple(dict.fromkeys(_placement(place, wrong) for place in places or ())),
            )
        )
    if len({profile.name for profile in found}) < len(found):
        raise InvalidRequest(f"card {position}: two MIG profiles have the same name")
    return tuple(found)


def _placement(place: object, wrong: InvalidRequest) -> tuple[int, int]:
    if not isinstance(place, dict):
        raise wrong
    fields = {str(name).lower(): what for name, what in place.items()}
    start = _number(fields.get("start", 0), 0, _SLICES - 1, wrong)
    return start, _number(fields.get("size"), 1, _SLICES, wrong)


def _number(value: object, least: int, most: int, wrong: InvalidRequest) -> int:
    if type(value) is not int or not least <= value <= most:
        raise wrong
    return value


@dataclass(frozen=True, slots=True)
class Geometry:
    """A group that cards of some models may be divided into."""

    group: str
    #: name, MiB and number of its instances, in the order in which positions count them
    sizes: tuple[tuple[str, int, int], ...]

    def profiles(self) -> tuple[Profile, ...]:
        found, position = [], 0
        for name, memory_mib, count in self.sizes:
            places = tuple((position + i, 0) for i in range(count))
            found.append(Profile(f"{self.group}/{name}", memory_mib, 0, places))
            position += count
        return tuple(found)


def geometry(group: str, *sizes: tuple[str, int, int]) -> Geometry:
    """Raises InvalidRequest for what no card can be divided into."""
    for name, memory_mib, count in sizes:
        if not (_NAME.fullmatch(name) and 0 < memory_mib <= MAX_MEMORY_MIB and 0 < count <= _PLACEMENTS):
            raise InvalidRequest(f"MIG geometry {group[:40]!r}: an instance is {name[:40]!r}, {memory_mib} MiB, {count} of it")
    if not _NAME.fullmatch(group) or len(sizes) > _PROFILES:
        raise InvalidRequest(f"MIG geometry {group[:40]!r}: its name, or the number of its sizes, is none")
    return Geometry(group, sizes)


#: Models, by a part of their name -> the groups that they may be divided into.
Geometries: TypeAlias = tuple[tuple[tuple[str, ...], tuple[Geometry, ...]], ...]

#: As HAMi to v2.9 divides them by default, under the numbers that it gives its groups.
KNOWN_GEOMETRIES: Geometries = (
    (
        ("A30",),
        (geometry("0", ("1g.6gb", 6144, 4)), geometry("1", ("2g.12gb", 12_288, 2)), geometry("2", ("4g.24gb", 24_576, 1))),
    ),
    (
        ("A100-SXM4-40GB", "A100-40GB-PCIe", "A100-PCIE-40GB"),
        (
            geometry("0", ("1g.5gb", 5120, 7)),
            geometry("1", ("2g.10gb", 10_240, 3), ("1g.5gb", 5120, 1)),
            geometry("2", ("3g.20gb", 20_480, 2)),
            geometry("3", ("7g.40gb", 40_960, 1)),
        ),
    ),
    (
        ("A100-SXM4-80GB", "A100-80GB-PCIe", "A100-PCIE-80GB"),
        (
            geometry("0", ("1g.10gb", 10_240, 7)),
            geometry("1", ("2g.20gb", 20_480, 3), ("1g.10gb", 10_240, 1)),
            geometry("2", ("3g.40gb", 40_960, 2)),
            geometry("3", ("7g.79gb", 80_896, 1)),
        ),
    ),
)


def known_profiles(model: str, geometries: Geometries) -> tuple[Profile, ...]:
    """By geometry, of the first entry of which a name is a part of the model's; none where no entry is."""
    for models, groups in geometries:
        if any(name in model for name in models):
            return tuple(profile for group in groups for profile in group.profiles())
    return ()


#: Pod annotation with its instances, in addition to the one that names its cards (HAMi v2.10).
RECORD = "hami.io/vgpu-mig-allocations"


def record(layout: Layout, cards: Mapping[int, Card]) -> str:
    """The value of `RECORD` for a layout: one entry an instance by placement; empty where there is none. Raises InvalidRequest for one that no card has."""
    entries = []
    for container, slices in enumerate(layout):
        for device, s in enumerate(slices):
            if "@" not in s.part:
                continue
            card, taken = cards[s.index], Taken()
            if not _add(card, taken, s.part):
                raise InvalidRequest(f"card {card.uuid} cannot be divided into {s.part[:64]!r}")
            [(start, end)] = taken.spans
            name = s.part.partition("@")[0]
            entries.append(
                {
                    "containerIndex": container,
                    "deviceIndex": device,
                    "gpuUUID": card.uuid,
                    "profile": name,
                    "placement": {"start": start, "size": end - start},
                }
            )
    return json.dumps(entries, separators=(",", ":")) if entries else ""


def with_record(allocated: str, text: str) -> str:
    """The annotation that names a pod's cards, with each instance in brackets behind its id, as in HAMi up to v2.9. If the record cannot be read, nothing is
    added, and the card counts as used by an unknown instance."""
    if not text or len(text) > _RECORD_CHARS:
        return allocated
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return allocated
    parts: dict[tuple[int, int], tuple[str, str]] = {}
    for entry in entries if isinstance(entries, list) else ():
        found = _recorded(entry) if isinstance(entry, dict) else None
        if found is not None:
            parts[found[0]] = found[1]
    containers = []
    for container, cards in enumerate(allocated.split(";")):
        records = cards.split(":")
        for device, one in enumerate(records):
            uuid, comma, rest = one.partition(",")
            known, part = parts.get((container, device), ("", ""))
            if comma and known == uuid.strip():
                records[device] = f"{known}[{part}],{rest}"
        containers.append(":".join(records))
    return ";".join(containers)


def identity(text: str) -> tuple[str, str]:
    """A card's id in such an annotation, and the part behind it; an empty part where there is none that could be one."""
    uuid, bracket, rest = text.partition("[")
    part = rest.removesuffix("]") if bracket and rest.endswith("]") else ""
    return (uuid, part) if _PART.fullmatch(part) else (uuid, "")


def _recorded(entry: Mapping[str, Any]) -> tuple[tuple[int, int], tuple[str, str]] | None:
    container, device, uuid, profile = (entry.get(name) for name in ("containerIndex", "deviceIndex", "gpuUUID", "profile"))
    placement = entry.get("placement")
    start = placement.get("start", 0) if isinstance(placement, dict) else None
    if type(container) is not int or type(device) is not int or type(start) is not int or not 0 <= start < _SLICES:
        return None
    if not isinstance(uuid, str) or not isinstance(profile, str) or not _NAME.fullmatch(profile):
        return None
    return (container, device), (uuid, f"{profile}@{start}")


def _add(card: Card, taken: Taken, part: str) -> bool:
    """Whether the card can be divided so; `taken` then has it too."""
    name, at, start = part.partition("@")
    if at:
        if not (start.isascii() and start.isdecimal() and len(start) <= 3):
            return False
        for profile in card.effective_traits.profiles:
            for begin, size in profile.placements:
                if profile.name == name and begin == int(start) and size:
                    taken.spans.append((begin, begin + size))
                    return True
        return False
    group, dash, position = part.rpartition("-")
    if not dash or not (position.isascii() and position.isdecimal() and len(position) <= 3) or taken.group not in ("", group):
        return False
    if not any(_group(p) == group and (int(position), 0) in p.placements for p in card.effective_traits.profiles):
        return False
    taken.group = group
    taken.positions.add(int(position))
    return True


def _by_geometry(card: Card) -> bool:
    return any(size == 0 for profile in card.effective_traits.profiles for _, size in profile.placements)


def _group(profile: Profile) -> str:
    return profile.name.partition("/")[0]


def _of_group(profiles: Sequence[Profile], group: str, taken: Taken) -> Instance | None:
    for profile in sorted(profiles, key=lambda p: p.memory_mib):
        for position, _ in profile.placements:
            if position not in taken.positions:
                return Instance(profile, f"{group}-{position}")
    return None
