"""Which container of a pod got which parts of which cards: the layout; and what that takes of each card in the books.

A layout names cards by `CardSlice.index` of its pod's slices; the slices have the ids of these cards.

As text, on the wire and in the books: `index:cores:memory_mib` with `:part` where there is one, joined by commas; each container closed by `;`, init
containers first and divided from the others by `|`: `0:30:3000;|0:30:3000;;` is an init container and two others, the last of which has no card.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from hbox_common.errors import InvalidRequest

from .asking import PodDevices
from .cards import ALL_CORES, MAX_CARDS, MAX_INDEX, MAX_MEMORY_MIB, CardAllocation, CardSlice

#: One entry a container, init containers first.
Layout: TypeAlias = tuple[tuple[CardSlice, ...], ...]

#: More containers than a pod has.
MAX_CONTAINERS = 256
_PART_BYTES = 64


def format_layout(layout: Layout, init: int = 0) -> str:
    """`init`: how many of the entries are init containers."""
    texts = [",".join(_slice_text(s) for s in container) + ";" for container in layout]
    divider = "|" if init else ""
    return "".join(texts[:init]) + divider + "".join(texts[init:])


def parse_layout(text: str) -> tuple[Layout, int]:
    """The layout and the number of its init containers. Raises InvalidRequest for anything that is none."""
    before, divider, after = text.partition("|")
    init, app = (before, after) if divider else ("", before)
    first, rest = _containers(init), _containers(app)
    if len(first) + len(rest) > MAX_CONTAINERS or sum(map(len, first + rest)) > MAX_CARDS * 4:
        raise InvalidRequest("more containers or cards than a pod has")
    return tuple(first + rest), len(first)


def effective(layout: Layout, request: PodDevices) -> tuple[CardSlice, ...]:
    """What the pod takes of each card while it has it, one slice a card, by index.

    Of cores and memory the most that it needs at one time: while an init container runs (with the side-cars that started before it), or while all others do
    (sources: hami-fit). `slots`: the containers that are on the card together. `part`: joined by `+` where several containers have one.
    """
    lasting: dict[int, CardAllocation] = {}
    peak: dict[int, CardAllocation] = {}
    parts: dict[int, list[str]] = {}
    for container, slices in enumerate(layout):
        for s in slices:
            on = lasting.get(s.index, CardAllocation()).copy()
            on.book(CardSlice(s.index, s.cores, s.memory_mib, slots=s.slots))
            _raise(peak, s.index, on)
            if not request.ends_early(container):
                lasting[s.index] = on
            if s.part:
                parts.setdefault(s.index, []).append(s.part)
    return tuple(
        CardSlice(index, min(most.cores, ALL_CORES), most.memory_mib, "+".join(parts.get(index, ())), most.pods)
        for index, most in sorted(peak.items())
    )


def relocated(text: str, before: Sequence[CardSlice], after: Sequence[CardSlice]) -> str:
    """The layout `text` with the indices of `before` replaced by those of `after`, which are the same slices in the same order. A text that is no layout is
    returned unchanged."""
    index = {a.index: b.index for a, b in zip(before, after, strict=True)}
    try:
        layout, init = parse_layout(text)
    except InvalidRequest:
        return text
    moved = tuple(tuple(replace(s, index=index.get(s.index, s.index)) for s in one) for one in layout)
    return format_layout(moved, init)


def layout_fault(text: str, slices: Sequence[CardSlice], asked: int) -> str:
    """Why a layout cannot belong to a pod that requests `asked` cards and has these slices booked; empty if it can.

    Checks foreign annotations: no container may get devices that are not booked.
    """
    try:
        layout, init = parse_layout(text)
    except InvalidRequest as e:
        return e.message
    held = {s.index: s for s in slices}
    if len(held) < len(slices):
        return "its allocation contains a card twice"
    together: dict[int, CardAllocation] = {}
    for number, container in enumerate(layout):
        if len({s.index for s in container}) < len(container) and not any(s.part for s in container):
            return f"container {number} gets a card twice"
        for s in container:
            card = held.get(s.index)
            if card is None or s.cores > card.cores or s.memory_mib > card.memory_mib:
                return f"container {number} gets more of card {s.index} than the pod takes"
            if number >= init:
                together.setdefault(s.index, CardAllocation()).book(s)
    for index, on in together.items():
        card = held[index]
        if on.memory_mib > card.memory_mib or on.pods > card.slots or on.cores > card.cores:
            return f"its containers get more of card {index} than the pod takes"
    named = {s.index for container in layout for s in container}
    if named != held.keys():
        return "it takes cards that no container gets"
    if sum(s.slots for s in slices) < asked:
        return "it asks for other cards than it is given"
    return ""


def _raise(peak: dict[int, CardAllocation], index: int, to: CardAllocation) -> None:
    known = peak.setdefault(index, CardAllocation())
    known.cores = max(known.cores, to.cores)
    known.memory_mib = max(known.memory_mib, to.memory_mib)
    known.pods = max(known.pods, to.pods)


def parts_of(part: str) -> Sequence[str]:
    """The parts that `effective` joined."""
    return part.split("+") if part else ()


def _slice_text(s: CardSlice) -> str:
    plain = f"{s.index}:{s.cores}:{s.memory_mib}"
    return f"{plain}:{s.part}" if s.part else plain


def _containers(text: str) -> list[tuple[CardSlice, ...]]:
    if not text:
        return []
    if not text.endswith(";"):
        raise InvalidRequest("a container's devices end with ;")
    return [tuple(_parse(part) for part in entry.split(",") if part) for entry in text[:-1].split(";")]


def _parse(text: str) -> CardSlice:
    fields = text.split(":", 3)
    if len(fields) < 3 or not all(field.isascii() and field.isdecimal() for field in fields[:3]):
        raise InvalidRequest(f"no part of a card: {text[:60]!r}")
    index, cores, memory_mib = (int(field) for field in fields[:3])
    part = fields[3] if len(fields) > 3 else ""
    if index > MAX_INDEX or cores > ALL_CORES or memory_mib > MAX_MEMORY_MIB or len(part) > _PART_BYTES:
        raise InvalidRequest(f"no part of a card: {text[:60]!r}")
    return CardSlice(index, cores, memory_mib, part)
