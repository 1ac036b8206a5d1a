"""Nodes of a made-up cluster, from a few words: `16x8` or `16x8:NVIDIA-A100-SXM4-80GB`."""

import re
from collections.abc import Sequence

from hbox_common.errors import InvalidRequest

from .model import TraceNode

DEFAULT_MODEL = "NVIDIA-H100-80GB-HBM3"

#: What a machine has for each of its cards, and what one without cards has: a DGX H100 has 112 cores and 2 TiB for its 8.
CARD_CPU_MILLI, CARD_MEMORY_MIB = 14_000, 256 * 1024
BARE_CPU_MILLI, BARE_MEMORY_MIB = 64_000, 512 * 1024

MOST_NODES, MOST_CARDS = 20_000, 16

_TEXT = re.compile(r"(?P<nodes>[0-9]{1,6})(?:x(?P<cards>[0-9]{1,3})(?::(?P<model>[A-Za-z0-9][A-Za-z0-9._-]{0,62}))?)?")


def machines(texts: Sequence[str]) -> tuple[TraceNode, ...]:
    """The nodes that these ask for, `node-0001` and so on. Each is NODES, NODESxCARDS or NODESxCARDS:MODEL. Raises InvalidRequest."""
    made: list[TraceNode] = []
    for text in texts:
        found = _TEXT.fullmatch(text)
        if found is None:
            raise InvalidRequest(
                f"{text!r} does not say how many nodes", hint=f"write NODESxCARDS[:MODEL], like 16x8 or 16x8:{DEFAULT_MODEL}"
            )
        nodes, cards = int(found["nodes"]), int(found["cards"] or 0)
        if len(made) + nodes > MOST_NODES or cards > MOST_CARDS:
            raise InvalidRequest(f"{text!r} is too much", hint=f"at most {MOST_NODES} nodes in all, of {MOST_CARDS} cards")
        model = (found["model"] or DEFAULT_MODEL) if cards else ""
        made += (_machine(number, cards, model) for number in range(len(made) + 1, len(made) + nodes + 1))
    return tuple(made)


def _machine(number: int, cards: int, model: str) -> TraceNode:
    cpu, memory = (cards * CARD_CPU_MILLI, cards * CARD_MEMORY_MIB) if cards else (BARE_CPU_MILLI, BARE_MEMORY_MIB)
    return TraceNode(f"node-{number:04}", cpu_milli=cpu, memory_mib=memory, cards=cards, model=model)
