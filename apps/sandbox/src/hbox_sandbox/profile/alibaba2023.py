"""A day like Alibaba's GPU cluster trace v2023: 1,213 GPU nodes, 6,212 cards, 8,152 pods that ask for 98 % of the cards.

Generated, not copied. Sources of the tables: Weng et al., "Beware of Fragmentation" (USENIX ATC'23), its Table 1 and Figure 3, and the counts
published with the trace (github.com/alibaba/clusterdata, cluster-trace-gpu-v2023): cards per model, node classes, pods per kind of request, and
how popular the frequent shapes are. Within a kind, pods are dealt to shapes by those shares; the rare shapes are left to the frequent ones, but
for the eight-card ones, which decide how badly cards are stranded (sources: fgd-shape-mix).

What the published trace does not have is gangs: pods of several cards are grouped into gangs here, so that the day exercises them.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from hbox_sandbox.trace.model import Trace, TraceNode, TracePod


@dataclass(frozen=True, slots=True)
class NodeClass:
    nodes: int
    model: str
    cards: int
    cores: int
    memory_gib: int


NODES: Sequence[NodeClass] = (
    NodeClass(549, "G2", 8, 96, 384),
    NodeClass(387, "T4", 2, 104, 512),
    NodeClass(17, "T4", 4, 96, 384),
    NodeClass(39, "G3", 8, 128, 768),
    NodeClass(107, "P100", 2, 16, 120),
    NodeClass(22, "P100", 2, 64, 256),
    NodeClass(2, "P100", 2, 8, 60),
    NodeClass(3, "P100", 1, 8, 60),
    NodeClass(21, "V100M32", 8, 96, 768),
    NodeClass(9, "V100M32", 4, 48, 368),
    NodeClass(28, "V100M16", 4, 32, 128),
    NodeClass(19, "V100M16", 1, 8, 32),
    NodeClass(8, "V100M16", 8, 64, 256),
    NodeClass(2, "A10", 1, 128, 1024),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """`share`: how popular within its kind, in thousandths."""

    share: int
    cpu_milli: int
    memory_mib: int
    card_milli: int = 1000


@dataclass(frozen=True, slots=True)
class Kind:
    """Pods with the same number of cards. `gang`: how many of them start together; 1 = each by itself."""

    pods: int
    cards: int
    gang: int
    shapes: Sequence[Shape]


KINDS: Sequence[Kind] = (
    Kind(
        1_088,
        0,
        1,
        (
            Shape(336, 12_500, 57_344, 0),
            Shape(267, 32_000, 49_152, 0),
            Shape(170, 8_000, 30_720, 0),
            Shape(110, 15_400, 51_200, 0),
            Shape(87, 16_500, 51_200, 0),
            Shape(17, 16_000, 32_768, 0),
            Shape(13, 11_400, 57_344, 0),
        ),
    ),
    Kind(
        3_078,
        1,
        1,
        (
            Shape(340, 3_152, 5_632, 810),
            Shape(126, 11_908, 47_104, 470),
            Shape(117, 8_000, 30_720, 470),
            Shape(77, 11_908, 47_104, 650),
            Shape(75, 4_000, 20_480, 320),
            Shape(40, 4_000, 24_576, 230),
            Shape(39, 6_000, 12_288, 460),
            Shape(24, 3_152, 5_632, 590),
            Shape(23, 8_000, 30_720, 320),
            Shape(23, 4_152, 10_752, 550),
            Shape(18, 4_000, 15_360, 160),
            Shape(15, 4_152, 10_752, 370),
            Shape(14, 4_000, 28_672, 220),
            Shape(10, 4_152, 10_752, 810),
            Shape(7, 1_000, 2_048, 320),
            Shape(6, 4_000, 15_360, 110),
            Shape(6, 4_000, 22_528, 480),
            Shape(4, 8_000, 30_720, 650),
            Shape(2, 4_000, 15_360, 50),
        ),
    ),
    Kind(
        3_911,
        1,
        1,
        (
            Shape(223, 11_300, 49_152),
            Shape(153, 11_400, 49_152),
            Shape(120, 3_152, 5_632),
            Shape(83, 12_000, 24_576),
            Shape(65, 18_708, 64_512),
            Shape(50, 9_810, 41_984),
            Shape(42, 8_000, 30_720),
            Shape(41, 4_000, 24_576),
            Shape(40, 15_700, 58_368),
            Shape(39, 11_908, 47_104),
            Shape(38, 16_000, 40_960),
            Shape(24, 14_200, 58_368),
            Shape(21, 24_200, 93_184),
            Shape(14, 11_900, 77_824),
            Shape(10, 8_200, 33_792),
            Shape(9, 15_200, 80_896),
            Shape(7, 16_400, 126_976),
            Shape(4, 1_000, 6_144),
        ),
    ),
    Kind(16, 2, 4, (Shape(500, 16_200, 66_560), Shape(250, 6_000, 65_536), Shape(250, 30_200, 160_768))),
    Kind(15, 4, 3, (Shape(600, 32_200, 132_096), Shape(200, 32_000, 131_072), Shape(200, 60_200, 321_536))),
    Kind(
        44,
        8,
        4,
        (Shape(410, 88_000, 327_680), Shape(410, 64_200, 263_168), Shape(90, 64_000, 262_144), Shape(90, 120_000, 737_280)),
    ),
)


def alibaba2023(seed: int) -> Trace:
    """The day, its pods in a random order that `seed` fixes."""
    nodes = [
        TraceNode(f"{kind.model.lower()}-{cls:02d}-{i:03d}", kind.cores * 1000, kind.memory_gib * 1024, kind.cards, kind.model)
        for cls, kind in enumerate(NODES)
        for i in range(kind.nodes)
    ]
    pods: list[TracePod] = []
    for kind in KINDS:
        gangs = kind.pods // kind.gang
        for gang, shape in enumerate(_deal(kind.shapes, gangs)):
            # The last gang takes what the division left over.
            members = kind.gang if gang < gangs - 1 else kind.pods - kind.gang * (gangs - 1)
            for _ in range(members):
                pods.append(
                    TracePod(
                        f"pod-{len(pods):05d}",
                        shape.cpu_milli,
                        shape.memory_mib,
                        kind.cards,
                        shape.card_milli,
                        gang=f"gang-{kind.cards}x{gang:02d}" if kind.gang > 1 else "",
                    )
                )
    random.Random(f"nodes {seed}").shuffle(nodes)
    return Trace("alibaba-2023", tuple(nodes), tuple(pods)).shuffled(seed)


def _deal(shapes: Sequence[Shape], count: int) -> list[Shape]:
    """`count` shapes in proportion to their shares, by largest remainder: the same numbers for every seed."""
    whole = sum(shape.share for shape in shapes)
    exact = [shape.share * count / whole for shape in shapes]
    dealt = [int(x) for x in exact]
    order = sorted(range(len(shapes)), key=lambda i: exact[i] - dealt[i], reverse=True)
    for i in order[: count - sum(dealt)]:
        dealt[i] += 1
    return [shape for shape, n in zip(shapes, dealt, strict=True) for _ in range(n)]
