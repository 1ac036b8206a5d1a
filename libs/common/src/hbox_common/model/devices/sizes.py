"""Standard sizes: names such as `24GB-inference` for a container's device requests, independent of the vendor (requirements D3).

A catalogue is data. Each size states its purpose, its amounts, and the ways in which it may be provided, the best one first:

    share      a part of a shared card, isolated by software (HAMi's vGPU and the like)
    partition  a part of a card isolated by the hardware (MIG)
    whole      exclusive cards

`becomes` of a size fixes the result, for components that do not see the nodes (the admission endpoint), and for all others. Without it a size is resolved to
resources and annotations of the present cluster: the first of its ways that some kind of device on the nodes allows; of several kinds the one that the size
names first, else the one with most such cards.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.yamltext import content_of

from ..bounds import KEY_BYTES, is_plain, sanitized
from .cards import ALL_CORES, MAX_CARDS, MAX_MEMORY_MIB, Card
from .registry import VENDORS
from .vendor import Vendor

#: Before a size's name, as a container's resource.
PREFIX = "sizes.hbox.io/"

#: Of a catalogue: far more than anybody can choose from.
MAX_SIZES = 200

#: Of one size's pods: which mode, which models.
MAX_ANNOTATIONS = 8

_MIG = "mig"
_GIB = 1024


class Way(StrEnum):
    SHARE = "share"
    PARTITION = "partition"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Size:
    """What each unit of it needs. `memory_mib`: of each card, 0 = any. `cores`: percent of each card's compute, 0 = no share promised."""

    name: str
    use: str
    ways: tuple[Way, ...]
    memory_mib: int = 0
    cores: int = 0
    cards: int = 1
    kinds: tuple[str, ...] = ()  #: HAMi's common words, the preferred first; empty: any
    becomes: "Becomes | None" = None  #: where an operator has settled it


@dataclass(frozen=True, slots=True)
class Becomes:
    """What a size is in one cluster, whichever cards it has at the moment. `annotations`: of the pod."""

    kind: str
    way: Way
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a size becomes in a cluster. `resources`: of the container, for one unit; `annotations`: of the pod."""

    size: Size
    kind: str
    way: Way
    resources: Mapping[str, int]
    annotations: Mapping[str, str] = field(default_factory=dict)
    cards: int = 0  #: of the cluster, that can take it


#: What a cluster has without a catalogue of its own.
DEFAULT = (
    Size("4GB-notebook", "notebook", (Way.SHARE,), 4 * _GIB, 10),
    Size("8GB-compute", "light compute", (Way.SHARE, Way.PARTITION), 8 * _GIB, 25),
    Size("16GB-inference", "inference", (Way.SHARE, Way.PARTITION, Way.WHOLE), 16 * _GIB, 30),
    Size("24GB-inference", "inference", (Way.SHARE, Way.PARTITION, Way.WHOLE), 24 * _GIB, 50),
    Size("10GB-strict", "inference under a strict SLA", (Way.PARTITION,), 9 * _GIB),
    Size("20GB-strict", "inference under a strict SLA", (Way.PARTITION, Way.WHOLE), 19 * _GIB),
    Size("40GB-strict", "inference under a strict SLA", (Way.PARTITION, Way.WHOLE), 38 * _GIB),
    Size("whole-training", "training", (Way.WHOLE,)),
    Size("whole-node-training", "training", (Way.WHOLE,), cards=8),
)


def parse_sizes(text: bytes | str) -> tuple[Size, ...]:
    """A catalogue: a YAML list of sizes, or a ConfigMap with the key `sizes.yaml`. Raises InvalidRequest that names the entry."""
    content = content_of(text)
    if isinstance(content, dict) and content.get("kind") == "ConfigMap":
        content = content_of(str((content.get("data") or {}).get("sizes.yaml", "")))
    if not isinstance(content, list) or not content:
        raise InvalidRequest("a catalogue is a list of sizes", hint="`hbox sizes --default` prints one to begin with")
    if len(content) > MAX_SIZES:
        raise InvalidRequest(f"{len(content)} sizes, at most {MAX_SIZES} are read")
    sizes = tuple(_size(place, entry) for place, entry in enumerate(content, 1))
    twice = [name for name, count in Counter(size.name for size in sizes).items() if count > 1]
    if twice:
        raise InvalidRequest(f"duplicate size {twice[0]}")
    return sizes


def as_content(sizes: Iterable[Size]) -> list[dict[str, Any]]:
    """The reverse of `parse_sizes`."""
    return [
        {"name": size.name, "use": size.use, "ways": [str(way) for way in size.ways]}
        | ({"memoryMiB": size.memory_mib} if size.memory_mib else {})
        | ({"cores": size.cores} if size.cores else {})
        | ({"cards": size.cards} if size.cards != 1 else {})
        | ({"kinds": list(size.kinds)} if size.kinds else {})
        | ({"becomes": _becoming(size.becomes)} if size.becomes else {})
        for size in sizes
    ]


def choose(size: Size, cards: Sequence[Card]) -> Choice | None:
    """The result of the size on these cards; None: it fits none of them."""
    if (found := settled(size)) is not None:
        count = sum(can_take(found, card) for card in cards)
        return replace(found, cards=count) if count else None
    for way in size.ways:
        fitting = Counter(card.kind for card in cards if _can(way, size, card))
        kinds = [kind for kind in size.kinds if kind in fitting] or (
            [] if size.kinds else [kind for kind, _ in sorted(fitting.items(), key=lambda each: (-each[1], each[0]))]
        )
        if kinds:
            return _choice(size, way, VENDORS.kind(kinds[0]), cards, fitting[kinds[0]])
    return None


def settled(size: Size) -> Choice | None:
    """The result of the size according to its own `becomes`; None without it."""
    if (word := size.becomes) is None:
        return None
    vendor = VENDORS.kind(word.kind)
    amounts = (
        vendor.amounts_of(size.cards) if word.way is Way.WHOLE else vendor.amounts_of(size.cards, size.memory_mib, size.cores)
    )
    return Choice(size, word.kind, word.way, amounts, word.annotations)


def settle(size: Size, choice: Choice) -> Size:
    """The size with this choice for its word."""
    return replace(size, becomes=Becomes(choice.kind, choice.way, choice.annotations))


def can_take(choice: Choice, card: Card) -> bool:
    """Whether the card, idle, can take one card's share of it."""
    return card.kind == choice.kind and _can(choice.way, choice.size, card)


def _choice(size: Size, way: Way, vendor: Vendor, cards: Sequence[Card], count: int) -> Choice:
    own = [card for card in cards if card.kind == vendor.kind]
    annotations: dict[str, str] = {}
    modes = {card.effective_traits.mode for card in own}
    if vendor.mode_annotation and _MIG in modes and modes != {_MIG}:
        shared = sorted(modes - {_MIG, ""})
        if way is Way.PARTITION:
            annotations[vendor.mode_annotation] = _MIG
        elif shared:
            annotations[vendor.mode_annotation] = ",".join(shared)
    if way is Way.WHOLE:
        models = sorted({card.model for card in own if _can(way, size, card) and card.model})
        if vendor.models_annotation and models and any(not _can(way, size, card) for card in own):
            annotations[vendor.models_annotation] = ",".join(models)
        return Choice(size, vendor.kind, way, vendor.amounts_of(size.cards), annotations, count)
    return Choice(size, vendor.kind, way, vendor.amounts_of(size.cards, size.memory_mib, size.cores), annotations, count)


def _can(way: Way, size: Size, card: Card) -> bool:
    if (
        not VENDORS.knows(card.kind)
        or not card.healthy
        or card.effective_traits.cordoned
        or (size.memory_mib and card.memory_mib < size.memory_mib)
    ):
        return False
    vendor, mode = VENDORS.kind(card.kind), card.effective_traits.mode
    if way is Way.WHOLE:
        return mode != _MIG
    if not vendor.memory or not size.memory_mib:
        return False
    if way is Way.SHARE:
        return mode != _MIG and card.shares > 1
    profiles = card.effective_traits.profiles
    return mode == _MIG and (not profiles or any(profile.memory_mib >= size.memory_mib for profile in profiles))


def _size(place: int, entry: Any) -> Size:
    where = f"size {place}"
    if not isinstance(entry, dict):
        raise InvalidRequest(f"{where}: a mapping with name, use and ways is expected")
    name = entry.get("name")
    if not isinstance(name, str) or not name or not is_plain(name, 63) or not all(c.isalnum() or c in "-_." for c in name):
        raise InvalidRequest(
            f"{where}: name is {sanitized(str(name), 64)!r}", hint="letters, digits, - _ and . as in 24GB-inference"
        )
    where = f"size {name}"
    unknown = sorted(set(map(str, entry)) - {"name", "use", "ways", "memoryMiB", "cores", "cards", "kinds", "becomes"})
    if unknown:
        raise InvalidRequest(f"{where}: unknown field {sanitized(unknown[0], 64)!r}")
    ways, kinds, use = entry.get("ways"), entry.get("kinds", []), entry.get("use", "")
    if not isinstance(ways, list) or not ways or any(way not in [str(one) for one in Way] for way in ways):
        raise InvalidRequest(
            f"{where}: ways are {sanitized(str(ways), 64)}", hint="some of share, partition, whole, the best one first"
        )
    if not isinstance(kinds, list) or not all(isinstance(kind, str) and VENDORS.knows(kind) for kind in kinds):
        raise InvalidRequest(
            f"{where}: kinds are {sanitized(str(kinds), 64)}", hint=f"some of {', '.join(v.kind for v in VENDORS)}"
        )
    if not isinstance(use, str) or not is_plain(use, KEY_BYTES):
        raise InvalidRequest(f"{where}: use is no short text")
    size = Size(
        name, use, tuple(Way(way) for way in ways), _whole(where, entry, "memoryMiB", MAX_MEMORY_MIB),
        _whole(where, entry, "cores", ALL_CORES), _whole(where, entry, "cards", MAX_CARDS, least=1), tuple(kinds),
    )  # fmt: skip
    if entry.get("becomes") is not None:
        size = replace(size, becomes=_becomes(where, entry["becomes"], size))
    if not size.memory_mib and size.ways != (Way.WHOLE,):
        raise InvalidRequest(
            f"{where}: without memoryMiB only whole cards can be had", hint="add memoryMiB, or write ways: [whole]"
        )
    return size


def _becoming(word: Becomes) -> dict[str, Any]:
    annotations = {"annotations": dict(word.annotations)} if word.annotations else {}
    return {"kind": word.kind, "way": str(word.way), **annotations}


def _becomes(where: str, entry: Any, size: Size) -> Becomes:
    where, hint = f"{where}: becomes", "as {kind: NVIDIA, way: share}; `hbox sizes --settle` writes it"
    if not isinstance(entry, dict) or set(map(str, entry)) - {"kind", "way", "annotations"}:
        raise InvalidRequest(f"{where}: a mapping with kind, way and annotations is expected", hint=hint)
    kind, way, annotations = entry.get("kind"), entry.get("way"), entry.get("annotations") or {}
    if not isinstance(kind, str) or not VENDORS.knows(kind):
        raise InvalidRequest(f"{where}: kind is {sanitized(str(kind), 64)!r}", hint=hint)
    if not isinstance(way, str) or way not in size.ways:
        raise InvalidRequest(f"{where}: way is {sanitized(str(way), 64)!r}", hint=f"one of its ways: {', '.join(size.ways)}")
    if way != Way.WHOLE and not VENDORS.kind(kind).memory:
        raise InvalidRequest(f"{where}: {kind} has no parts of cards", hint="write way: whole, or another kind")
    if (
        not isinstance(annotations, dict)
        or len(annotations) > MAX_ANNOTATIONS
        or not all(
            isinstance(key, str)
            and key in VENDORS.pod_annotations
            and isinstance(value, str)
            and is_plain(value, KEY_BYTES * 8)
            for key, value in annotations.items()
        )
    ):
        raise InvalidRequest(f"{where}: annotations are some that devices are chosen by, each a short text", hint=hint)
    return Becomes(kind, Way(way), annotations)


def _whole(where: str, entry: Mapping[str, Any], name: str, most: int, least: int = 0) -> int:
    value = entry.get(name, least)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidRequest(f"{where}: {name} is {sanitized(str(value), 64)}", hint=f"a whole number from {least} to {most}")
    return value
