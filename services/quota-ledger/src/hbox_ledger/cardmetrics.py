"""Allocations of each card as metrics: under HBox's names, and under those of HAMi's scheduler, so that its dashboards keep working (sources: hami-metrics).

A separate page, /metrics/cards: 10,000 cards are 100,000 lines, which not every scrape should carry. It is rendered in parts between turns of the ledger, so
that no turn waits for it; figures of two cards may be some milliseconds apart.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from hbox_common.model import Card, CardAllocation, CardId, Claim, NodeName, QueueName, QueueTree
from hbox_common.model.cardparts import WHOLE, part_of_share, share_on
from hbox_common.model.devices import ALL_CORES
from hbox_common.model.devices.partitions import CARD
from hbox_common.telemetry import escaped

from .core.accounts.usage import CARD as CARD_UNITS
from .core.cardstates import share_of_card
from .core.ledgerstate import LedgerState

T = TypeVar("T")

#: Nodes, or claims, that are rendered at once: some milliseconds.
_IN_ONE_GO = 64
_MIB = 1 << 20
_IDLE = CardAllocation()


@dataclass(frozen=True, slots=True)
class _OfCards:
    """A metric with one line for each card. `labels`: in addition to the common ones."""

    name: str
    help: str
    value: Callable[[Card, CardAllocation], float]
    hami: bool = False
    labels: Callable[[Card], str] = lambda _: ""
    of_part: bool = False  #: the value is multiplied by the part of a card that a unit of the node's cards is


_CARDS = (
    _OfCards("hbox_card_memory_bytes", "A card's memory; 0: not known", lambda card, _: card.memory_mib * _MIB),
    _OfCards("hbox_card_memory_allocated_bytes", "Of it, given to pods", lambda _, held: held.memory_mib * _MIB),
    _OfCards("hbox_card_compute_allocated_ratio", "Of its compute, given to pods, 0 to 1", lambda _, held: held.cores / ALL_CORES),
    _OfCards("hbox_card_shares", "Pods that may be on it at once", lambda card, _: card.shares),
    _OfCards("hbox_card_shares_allocated", "Pods, or containers of pods, that are on it", lambda _, held: held.pods),
    _OfCards("hbox_card_part_ratio", "Of a card of the machine, that this is: below 1 for replicas and MIG parts", lambda _, __: 1.0, of_part=True),
    _OfCards("hami_gpu_memory_limit_bytes", "As hbox_card_memory_bytes", lambda card, _: card.memory_mib * _MIB, hami=True),
    _OfCards("hami_gpu_core_limit_ratio", "Its compute, in percent", lambda _, __: ALL_CORES, hami=True),
    _OfCards(
        "hami_gpu_memory_allocated_bytes", "As hbox_card_memory_allocated_bytes", lambda _, held: held.memory_mib * _MIB,
        hami=True, labels=lambda card: f',device_cores="{card.effective_traits.units}"',
    ),
    _OfCards("hami_gpu_shared_count", "As hbox_card_shares_allocated", lambda _, held: held.pods, hami=True),
    _OfCards("hami_gpu_core_allocated_ratio", "Of its compute, given to pods, in percent", lambda _, held: held.cores, hami=True),
    _OfCards(
        "hami_node_gpu_overview", "As hami_gpu_memory_allocated_bytes", lambda _, held: held.memory_mib * _MIB, hami=True,
        labels=lambda card: f',device_cores="{card.effective_traits.units}",device_memory_limit="{card.memory_mib}"',
    ),
    _OfCards(
        "hami_node_gpu_memory_allocated_ratio", "Of its memory, given to pods, 0 to 1",
        lambda card, held: held.memory_mib / card.memory_mib if card.memory_mib else 0.0, hami=True,
    ),
)  # fmt: skip

_QUEUES = ("hbox_card_queue_ratio", "Of a card, given to pods of the queue, 0 to 1")

_CLAIMS = (
    ("hami_vgpu_memory_allocated_bytes", "Of a card's memory, given to a pod"),
    ("hami_vgpu_core_allocated_ratio", "Of a card's compute, given to a pod, in percent"),
)


#: Of all metrics of the page under HBox's names.
NAMES = frozenset({_QUEUES[0], *(metric.name for metric in _CARDS if not metric.hami)})


async def cards_page(
    books: Callable[[], LedgerState], *, pods: bool, label: Callable[[QueueTree, QueueName], str]
) -> AsyncIterator[bytes]:
    """The page in Prometheus's text format, metric by metric. `books`: returns the current state, which a failed commit replaces. `pods`: include the metrics
    of pods, with namespace and name. `label`: of a queue."""
    for metric in _CARDS:
        yield _head(metric.name, metric.help)
        for names in _in_parts(list(books().nodes)):
            state = books()
            yield "".join(line for name in names for line in _of_node(state, name, metric)).encode()
            await asyncio.sleep(0)
    yield _head(*_QUEUES)
    for names in _in_parts(list(books().with_cards)):
        state = books()
        yield "".join(line for name in names for line in _queues_of_node(state, name, label)).encode()
        await asyncio.sleep(0)
    for number, (name, text) in enumerate(_CLAIMS if pods else ()):
        yield _head(name, text)
        for claims in _in_parts(list(books().live)):
            state = books()
            records = [record for claim in claims if (record := state.live.get(claim)) is not None]
            yield "".join(line for record in records for line in _of_claim(state, record.claim, number, name)).encode()
            await asyncio.sleep(0)


def _in_parts(names: list[T]) -> Iterator[list[T]]:
    for start in range(0, len(names), _IN_ONE_GO):
        yield names[start : start + _IN_ONE_GO]


def _head(name: str, text: str) -> bytes:
    return f"# HELP {name} {text}\n# TYPE {name} gauge\n".encode()


def _of_node(state: LedgerState, name: NodeName, metric: _OfCards) -> Iterator[str]:
    node, held = state.nodes.get(name), state.by_node.get(name)
    if node is None or node.gone:
        return
    part = part_of_share(share_on(node) or WHOLE) / CARD if metric.of_part else 1
    for card in node.cards:
        value = part * metric.value(card, held.cards.get(card.id, _IDLE) if held is not None else _IDLE)
        if metric.hami:
            labels = f'node="{escaped(name)}",device_uuid="{escaped(card.uuid)}",device_index="{card.index}",device_type="{escaped(card.model)}"'
        else:
            labels = f'node="{escaped(name)}",card="{card.index}",uuid="{escaped(card.uuid)}",kind="{escaped(card.kind)}",model="{escaped(card.model)}"'
        yield f"{metric.name}{{{labels}{metric.labels(card)}}} {value:.10g}\n"


def _queues_of_node(state: LedgerState, name: NodeName, label: Callable[[QueueTree, QueueName], str]) -> Iterator[str]:
    """One line for each card and queue: pods of several queues may share a card."""
    node, parts = state.nodes.get(name), defaultdict[tuple[CardId, str], int](int)
    if node is None:
        return
    for id in state.with_cards.get(name, ()):
        claim = state.live[id].claim
        for taken in claim.slices if claim.queue else ():
            if (card := node.card(taken.card, taken.index)) is not None:
                parts[card.id, label(state.queues, claim.queue)] += share_of_card(card, taken.cores, taken.memory_mib)
    cards = {card.id: card for card in node.cards}
    for (id_, queue), part in parts.items():
        labels = f'node="{escaped(name)}",card="{cards[id_].index}",uuid="{escaped(cards[id_].uuid)}",queue="{escaped(queue)}"'
        yield f"{_QUEUES[0]}{{{labels}}} {min(part, CARD_UNITS) / CARD_UNITS:.10g}\n"


def _of_claim(state: LedgerState, claim: Claim, number: int, metric: str) -> Iterator[str]:
    """The container is unknown here: the pod's whole part of a card is reported for its first container."""
    node = state.nodes.get(claim.node)
    for taken in claim.slices:
        card = node.card(taken.card, taken.index) if node is not None else None
        if card is not None:
            labels = f'namespace="{escaped(claim.namespace)}",node="{escaped(claim.node)}",pod="{escaped(claim.pod)}",container_index="0"'
            value = taken.cores if number else taken.memory_mib * _MIB
            yield f'{metric}{{{labels},device_uuid="{escaped(card.uuid)}"}} {value:.10g}\n'
