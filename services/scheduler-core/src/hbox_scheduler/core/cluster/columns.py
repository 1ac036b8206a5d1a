"""The cluster in columns.

Nodes are rows; a new node reuses the row of a deleted one. Amounts are int64 in base units. `allocatable[R, N]` and `used[R, N]` hold resources; cards are
`[N, D]`, ordered by their index on the node, with `card_index` -1 where a node has fewer than D. All updates add or subtract integers, so reverting one
restores every cell exactly.

`leaving` and `card_*_leaving` hold the amounts of terminating pods, less the amounts of nominated ones: `future()` shows the columns after both.

Three logs record changes for readers: `changes` (any cell of a row), `described` (data independent of bookings: labels, health, sizes) and `risen` (rows
whose capacity may have increased, which retries pending jobs).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from hbox_common.model import (
    POOL,
    VENDORS,
    Card,
    CardId,
    CardSlice,
    KindRest,
    NodeName,
    NodeRest,
    NodeState,
    NodeZones,
    Verdict,
    any_names_model,
    counted_as,
    is_host_port,
    model_resource,
    name_slices,
)
from hbox_common.model.cardparts import WHOLE, part_of_share, share_on
from hbox_common.model.devices import card_id
from hbox_common.model.devices.cardids import numbered
from hbox_common.model.numa import PodAsk
from hbox_common.model.resources import PODS

from .amounts import Amount
from .arrays import Bools, Ints, Rows
from .cardsets import CardSets
from .changelog import ChangeLog
from .choices import Choices
from .emptyrooms import KeptRooms
from .hostports import HostPorts, Ports
from .interning import Descriptions, grown
from .noderests import RestCodes
from .sliceparts import SliceParts
from .totals import PresentTotals
from .zones import Seen, ZoneBooks

_ROWS, _RESOURCES, _CARDS = 64, 8, 8
#: Maximum number of sets of slices of a row that `Columns.named` keeps.
_NAMED_OF_ROW = 8

#: The shared column of all resources that no node has and no queue names; every node has 0 of it. Users may request any name, and each column costs time in
#: every session.
UNOFFERED = 0

#: Columns are released only if there are at least twice this number.
_FEW_RESOURCES = 4

#: Codes of models beyond two for each model that nodes had when codes were last released.
SPARE_MODELS = 32


@dataclass(slots=True)  # not frozen: one is made for each run, and those take three times as long
class Batch:
    """Equal pods booked together: `counts[n]` pods on each of `rows[n]` (distinct), and the card cells that they take, one entry per slice. Not changed after
    it was made."""

    rows: Ints
    counts: Ints
    amount: Amount
    card_rows: Ints
    card_positions: Ints
    cores: int
    memory_mib: Ints
    ports: Ports = ()
    #: row and slices of each pod, in place of card cells, where each is chosen by itself
    slices: Sequence[tuple[int, tuple[CardSlice, ...]]] = ()
    aligned: PodAsk | None = None  #: of each pod, what kubelets align


#: Taints by which Kubernetes marks the condition of a node.
CONDITION_TAINTS = frozenset(
    f"node.kubernetes.io/{name}" for name in ("not-ready", "unreachable", "unschedulable", "network-unavailable")
)


class Columns:
    """State of all nodes. Only the rows below `size` are in use, and of these only the `alive`."""

    def __init__(self) -> None:
        self._actual: Columns | None = None  #: of a view: the columns of which it is one
        self.size = 0
        self.row_of: dict[NodeName, int] = {}
        self.names: list[NodeName] = []
        self.states: list[NodeState | None] = []
        #: by row: the position of each card by all ids that claims may contain: its id, its former id and its index
        self._position_of: dict[int, dict[CardId, int]] = {}
        #: by row and identity of a session's slices, which are kept with the result: the same slices with ids (`named`)
        self._named: dict[int, dict[int, tuple[Sequence[CardSlice], tuple[CardSlice, ...]]]] = {}
        self.verdicts: dict[NodeName, Verdict] = {}
        self._free_rows: list[int] = []
        self._resource: dict[str, int] = {}
        self._vacant: list[int] = [*range(_RESOURCES - 1, UNOFFERED, -1)]  #: unassigned columns, in descending order
        self._references: dict[str, int] = {
            PODS: 1
        }  #: number of nodes that have the resource, and of rules that name it (`refer`)
        self._unoffered = False  #: whether `resource` ever returned `UNOFFERED`
        #: a resource got another column, so that amounts by column have to be computed again; the reader resets it
        self.renamed = False
        #: returns further resources whose columns must not be released: those that pods hold; None: no column is ever released
        self.in_use: Callable[[], Collection[str]] | None = None
        #: by (name, resource of the vendor, share): vendors may have cards of one name, and units may be parts of cards
        self._model: dict[tuple[str, str, str], int] = {}
        self._model_names = [""]
        self._model_resources = [""]  #: by code: the resource under which queues count the model's cards
        self._model_shares = [WHOLE]  #: by code: the part of a card that a unit is (`cardparts.share_on`)
        self._most_models = SPARE_MODELS
        self._models_released = 0
        #: shares that nodes offer or offered, the smallest first, with that of whole cards; empty while all cards are whole
        self.shares: tuple[str, ...] = ()

        self.alive: Bools = np.zeros(_ROWS, dtype=np.bool_)
        self.ready: Bools = np.zeros(_ROWS, dtype=np.bool_)
        self.schedulable: Bools = np.zeros(_ROWS, dtype=np.bool_)
        self.healthy: Bools = np.zeros(_ROWS, dtype=np.bool_)
        #: scopes of verdicts that leave the node open to other work: no pods with several cards, no gangs over several nodes, an RDMA adapter off
        self.single_card: Bools = np.zeros(_ROWS, dtype=np.bool_)
        self.single_node: Bools = np.zeros(_ROWS, dtype=np.bool_)
        self.rail_off: Bools = np.zeros(_ROWS, dtype=np.bool_)
        self.scoped_rows: set[int] = set()  #: rows with such a scope
        self.resting: Ints = np.zeros(_ROWS, dtype=np.int64)  #: code of the node's rests (`refused`); 0 = none
        #: what the node's kubelet refuses is not known yet (`NodeState.report_due`); and which rows these are
        self.unreported: Bools = np.zeros(_ROWS, dtype=np.bool_)
        self.unreported_rows: set[int] = set()
        self.rests: dict[NodeName, tuple[KindRest, ...]] = {}  #: of nodes that rest
        self.refused = RestCodes()
        self.reserved: Ints = np.zeros(_ROWS, dtype=np.int64)  #: a bit for each reservation that the row is set aside for
        self.allocatable: Ints = np.zeros((_RESOURCES, _ROWS), dtype=np.int64)
        self.used: Ints = np.zeros((_RESOURCES, _ROWS), dtype=np.int64)
        self.leaving: Ints = np.zeros((_RESOURCES, _ROWS), dtype=np.int64)
        self.card_index: Ints = np.full((_ROWS, _CARDS), -1, dtype=np.int64)
        self.card_memory: Ints = np.zeros((_ROWS, _CARDS), dtype=np.int64)
        self.card_shares: Ints = np.zeros((_ROWS, _CARDS), dtype=np.int64)
        self.card_model: Ints = np.zeros((_ROWS, _CARDS), dtype=np.int64)
        self.card_ok: Bools = np.zeros((_ROWS, _CARDS), dtype=np.bool_)
        self.card_cores_used: Ints = np.zeros((_ROWS, _CARDS), dtype=np.int64)
        self.card_memory_used: Ints = np.zeros((_ROWS, _CARDS), dtype=np.int64)
        self.card_pods: Ints = np.zeros((_ROWS, _CARDS), dtype=np.int64)
        self.card_cores_leaving: Ints = np.zeros((_ROWS, _CARDS), dtype=np.int64)
        self.card_memory_leaving: Ints = np.zeros((_ROWS, _CARDS), dtype=np.int64)
        self.card_pods_leaving: Ints = np.zeros((_ROWS, _CARDS), dtype=np.int64)
        self.choices: Choices | None = None  #: recorder of node choices
        #: `[N]`: number of the lowest domain of the fabric that a row is in; None: no fabric is known
        self.units: Ints | None = None
        self.descriptions = Descriptions(_ROWS)
        self.ports, self.ports_leaving = HostPorts(), HostPorts()
        self.parts, self.parts_leaving = SliceParts(), SliceParts()
        self.zones = ZoneBooks()
        self._reported_zones: dict[NodeName, NodeZones] = {}  #: of nodes that are not known yet too
        self.card_sets = CardSets()
        #: what cards the row has, whichever they are: a code of `card_sets`
        self.card_set: Ints = np.zeros(_ROWS, dtype=np.int64)
        self.card_ids: Ints = np.zeros(_ROWS, dtype=np.int64)  #: which cards these are: likewise
        #: whether amounts alone do not decide which pods fit (`CardSets.judged`)
        self.card_judged: Bools = np.zeros(_ROWS, dtype=np.bool_)
        self.any_judged = False  #: whether a row ever was
        self.any_adapters = False  #: whether of any card it was ever known which RDMA adapters are near

        self._totals = PresentTotals()  #: of the actual columns; not of views
        self._alive_rows: Ints | None = None  #: cache of `alive_rows`; None after a node was added or removed

        self._pools: tuple[str, ...] = ("",)
        self._pools_at = -1

        self.empty = KeptRooms()  #: of the actual columns; not of views
        self.changes = ChangeLog()
        self.described = ChangeLog()
        self.risen = ChangeLog()
        self.undone = 0  #: entries of `changes` by trials, which left no change
        self.returned = 0  #: how often a row was described, or something taken back: else rows only fill
        self.column(PODS)  # every pod asks for one, which does not count as a request (`Member.best_effort`)

    # Interning.

    def resource(self, name: str) -> int:
        """The row of `allocatable` and `used` for this resource; `UNOFFERED` if no node has it and no queue names it."""
        found = self._resource.get(name)
        if found is None:
            self._unoffered = True
            return UNOFFERED
        return found

    def column(self, name: str) -> int:
        """As `resource`, but assigns a column of its own, even if no node has the resource. Unless the resource is referred to or in use, the column may be
        released between sessions."""
        found = self._resource.get(name)
        if found is None:
            found = self._resource[name] = self._new_column()
            self.renamed |= self._unoffered
        return found

    def _new_column(self) -> int:
        if not self._vacant:
            size: int = len(self.allocatable)
            for field in ("allocatable", "used", "leaving"):
                setattr(self, field, grown(getattr(self, field), 0, 2 * size))
            self._totals.reset()
            self._vacant = [*range(2 * size - 1, size - 1, -1)]
        return self._vacant.pop()

    def refer(self, before: Collection[str], now: Collection[str]) -> None:
        """Count the resources that a rule names which changed from `before` to `now`. Each gets a column of its own while a rule names it. Call it between
        sessions: it releases columns if few of them are still needed."""
        if before == now:
            return
        for name in now:
            self._references[name] = self._references.get(name, 0) + 1
            self.column(name)
        gone = False
        for name in before:
            self._references[name] -= 1
            if not self._references[name]:
                del self._references[name]
                gone = True
        if gone:
            self._release_unneeded()

    def _offer(self, before: NodeState | None, now: NodeState | None) -> None:
        """Count the resources of a node that changed from `before` to `now` (None: no node)."""
        names = before.allocatable.keys() if before is not None else {}.keys()
        self.refer(names, now.allocatable.keys() if now is not None else {}.keys())

    def _release_unneeded(self) -> None:
        """Release the columns of resources that no node has, no rule names and no pod holds, if there are about as many of them as of others. The other
        columns move together, in their order."""
        needed = max(len(self._references), _FEW_RESOURCES)
        if self.in_use is None or len(self._resource) < 2 * needed:
            return
        kept = self._references.keys() | self.in_use()
        left = sorted((column, name) for name, column in self._resource.items() if name in kept)
        if len(left) == len(self._resource):
            return
        size = _RESOURCES
        while size <= len(left):
            size *= 2
        for field in ("allocatable", "used", "leaving"):
            amounts = np.zeros((size, len(self.alive)), dtype=np.int64)
            amounts[1 : len(left) + 1] = getattr(self, field)[[column for column, _ in left]]
            setattr(self, field, amounts)
        self._resource = {name: place for place, (_, name) in enumerate(left, UNOFFERED + 1)}
        self._vacant = [*range(size - 1, len(left), -1)]
        self._totals.reset()
        self.renamed = True

    @property
    def resources(self) -> Mapping[str, int]:
        """Column by resource, without those that share `UNOFFERED`."""
        return self._resource

    def amount(self, requests: Mapping[str, int]) -> Amount:
        """The request's positive amounts, by resource column, in the request's order; host ports have no columns."""
        asked: dict[int, int] = {}
        for name, units in requests.items():
            if units > 0 and not is_host_port(name):
                column = self.resource(name)
                asked[column] = asked.get(column, 0) + units
        return tuple(asked.items())

    def model(self, name: str, cards: str, share: str = "") -> int:
        """The code of a vendor's model. `cards`: the resource that counts the vendor's cards; `share`: from `share_on`."""
        if not name and not share:
            return 0
        code = self._model.get((name, cards, share))
        if code is None:
            code = self._model[name, cards, share] = len(self._model_names)
            self._model_names.append(name)
            self._model_resources.append(model_resource(cards, name))
            self._model_shares.append(share or WHOLE)
            if share and share not in self.shares:
                self.shares = tuple(sorted({*self.shares, share, WHOLE}, key=part_of_share))
        return code

    @property
    def model_codes(self) -> tuple[int, int]:
        """Version of the models' codes: results by code are valid while it is unchanged."""
        return self._models_released, len(self._model_names)

    def _release_models(self) -> None:
        """Release the codes of models that no node has. The codes of the others change, and their rows count as described anew."""
        present = self.card_model[: self.size][self.alive[: self.size]]
        left = np.unique(np.append(present, 0))
        kept: list[int] = left.tolist()
        code_of = np.zeros(len(self._model_names), dtype=np.int64)
        code_of[left] = np.arange(len(left))
        before = self.card_model[: self.size]
        now = code_of[before]
        moved = np.flatnonzero((now != before).any(axis=1)).tolist()
        self.card_model[: self.size] = now
        self._model_names = [self._model_names[code] for code in kept]
        self._model_resources = [self._model_resources[code] for code in kept]
        self._model_shares = [self._model_shares[code] for code in kept]
        codes = {code: place for place, code in enumerate(kept)}
        self._model = {key: codes[code] for key, code in self._model.items() if code in codes}
        parts = {share for _, _, share in self._model if share}
        self.shares = tuple(sorted({*parts, WHOLE}, key=part_of_share)) if parts else ()
        self._most_models = 2 * len(kept) + SPARE_MODELS
        self._models_released += 1
        self.returned += 1
        self.described.extend(moved)
        self.changes.extend(moved)

    @property
    def model_names(self) -> Sequence[str]:
        """Card models by code; 0 is no model. Models of two vendors may have one name."""
        return self._model_names

    @property
    def model_resources(self) -> Sequence[str]:
        """By model code, the resource under which its cards are counted; empty for no model."""
        return self._model_resources

    def models_allowed(self, names: Sequence[str]) -> Bools:
        """`[codes]`: whether one of `names` selects the model (`names_model`)."""
        return np.array([any_names_model(names, model) for model in self._model_names], dtype=np.bool_)

    def models_counted(self, resources: Sequence[str]) -> Bools:
        """By model code, whether its cards count as one of these resources, models or shares."""
        counted = zip(self._model_resources, self._model_shares, strict=True)
        return np.array([name in resources or share in resources for name, share in counted], dtype=np.bool_)

    # Nodes.

    def put_node(self, node: NodeState) -> int:
        """Describe a node anew and return its row. True to the cluster only after the caller has re-booked the row if its cards moved."""
        row = self.row_of.get(node.name)
        if row is None:
            row = self._new_row(node.name)
            if (reported := self._reported_zones.get(node.name)) is not None:
                self.zones.describe(row, reported)
        self._offer(self.states[row], node)
        self.states[row] = node
        self.alive[row] = True
        self._totals.stale.add(row)
        self.resting[row] = self.refused.code(self.rests.get(node.name, ()))
        self.ready[row] = node.ready
        self._set_unreported(row, node.report_due > 0.0)
        self.schedulable[row] = not node.unschedulable
        self.allocatable[:, row] = 0
        for name, units in node.allocatable.items():
            column = self.column(name)
            self.allocatable[column, row] = units
        cards = sorted(node.cards, key=lambda card: card.index)
        if len(cards) > self.card_index.shape[1]:
            self._grow_cards(len(cards))
        self.card_index[row] = -1
        self.card_memory[row] = 0
        self.card_shares[row] = 0
        self.card_model[row] = 0
        resource, share = (VENDORS.of(node.allocatable) or VENDORS.default).cards, share_on(node)
        self._position_of[row] = _positions_of(cards)
        self._named.pop(row, None)
        for position, card in enumerate(cards):
            self.card_index[row, position] = card.index
            self.card_memory[row, position] = card.memory_mib
            self.card_shares[row, position] = card.shares
            self.card_model[row, position] = self.model(
                card.model, VENDORS.kind(card.kind).cards if VENDORS.knows(card.kind) else resource, share
            )
        if len(self._model_names) > self._most_models:
            self._release_models()
        self.card_set[row], self.card_ids[row] = self.card_sets.codes(cards, node.device_facts)
        if self.card_sets.full:
            self.card_sets.forget({*self.card_set.tolist(), *self.card_ids.tolist()})
        self.card_judged[row] = judged = self.card_sets.judged(cards)
        self.any_judged |= judged
        self.any_adapters = self.any_adapters or any(card.adapters is not None for card in cards)
        self.descriptions.put(row, node)
        self._judge(row, cards)
        return row

    @contextmanager
    def repaired(self, rows: Collection[int]) -> Iterator[None]:
        """In the context the nodes of these rows are ready, schedulable and sound, with all of their cards. Retries no pending job."""
        before = [(row, state, self.verdicts.pop(state.name, None)) for row in rows if (state := self.states[row]) is not None]
        try:
            for row, state, _ in before:
                self._put_trial(row, _as_repaired(state))
            yield
        finally:
            for row, state, verdict in before:
                if verdict is not None:
                    self.verdicts[state.name] = verdict
                self._put_trial(row, state)

    def _put_trial(self, row: int, state: NodeState) -> None:
        """Describe a node with the same resources and cards in another condition."""
        self.states[row] = state
        self.ready[row], self.schedulable[row] = state.ready, not state.unschedulable
        self.descriptions.put(row, state)
        self._judge(row, sorted(state.cards, key=lambda card: card.index), rises=False)

    # Pools of nodes, as counted (`model.counted_as`): `pooled` is the empty one.

    @property
    def pools_known(self) -> bool:
        """Whether a node was ever of another pool than `pooled`."""
        values = self.descriptions.column(POOL).values
        return len(values) > 1 and any(counted_as(value or "") for value in values[1:])

    def pools_there(self) -> tuple[str, ...]:
        """Those that nodes are of now, by name."""
        if not self.pools_known:
            return ("",)
        if self._pools_at != self.described.end:
            column = self.descriptions.column(POOL)
            codes = np.unique(column.codes[: self.size][self.alive[: self.size]]).tolist()
            self._pools_at, self._pools = (
                self.described.end,
                tuple(sorted({counted_as(column.values[code] or "") for code in codes})),
            )
        return self._pools

    def pool_of(self, row: int) -> str:
        """Of one node."""
        column = self.descriptions.column(POOL)
        return counted_as(column.values[column.codes[row]] or "")

    def in_pool(self, pool: str, rows: Rows) -> Bools:
        """`[n]`: nodes of this pool."""
        return self.descriptions.column(POOL).matching(lambda value: counted_as(value or "") == pool, rows)

    def described_nodes(self) -> Iterator[tuple[NodeState, Verdict | None]]:
        """The last known state and verdict of every node."""
        return ((state, self.verdicts.get(state.name)) for state in self.states if state is not None)

    def repaired_nodes(self) -> Iterator[tuple[NodeState, Verdict | None]]:
        """As `described_nodes`, with all nodes in service and all cards sound."""
        return ((_as_repaired(state), None) for state in self.states if state is not None)

    def put_verdict(self, verdict: Verdict) -> None:
        """Record the health of a node; for an unknown node only if it reports a fault."""
        self.verdicts[verdict.node] = verdict
        row = self.row_of.get(verdict.node)
        if row is None:
            self._forget_sound(verdict.node)
        else:
            state = self.states[row]
            assert state is not None
            self._judge(row, sorted(state.cards, key=lambda card: card.index))

    def rest(self, rest: NodeRest) -> None:
        """Set the rests of a node; a rest without kinds ends them."""
        self._put_rests(rest.node, tuple(one for one in rest.refused if one.until))

    def end_rests(self, wall: float) -> None:
        """End the rests that are over at `wall` (seconds since the epoch)."""
        over = [name for name, kinds in self.rests.items() if not all(one.lasts(wall) for one in kinds)]
        for name in over:
            self._put_rests(name, tuple(one for one in self.rests[name] if one.lasts(wall)))

    def _put_rests(self, name: NodeName, kinds: tuple[KindRest, ...]) -> None:
        if kinds:
            self.rests[name] = kinds
        elif self.rests.pop(name, None) is None:
            return
        if self.refused.full:
            self.refused.clear()
            for other in self.rests:
                self._code_rests(other)
        else:
            self._code_rests(name)

    def _code_rests(self, name: NodeName) -> None:
        row, code = self.row_of.get(name), self.refused.code(self.rests.get(name, ()))
        if row is not None and self.resting[row] != code:
            self.resting[row] = code
            self.returned += 1
            self.changes.add(row)
            self.described.add(row)
            self.risen.add(row)

    def put_zones(self, zones: NodeZones) -> bool:
        """Record the NUMA nodes that a kubelet reports, also for unknown nodes. Returns whether placements may be affected: the caller then books again
        the pods that the kubelet has not counted."""
        if zones.gone:
            self._reported_zones.pop(zones.node, None)
        else:
            self._reported_zones[zones.node] = zones
        row = self.row_of.get(zones.node)
        if row is None or not self.zones.describe(row, zones):
            return False
        self.rezoned(row)
        return True

    def rezoned(self, row: int) -> None:
        """The books of its zones are others now, though nothing else is booked on the row."""
        self.returned += 1
        self.changes.add(row)
        self.risen.add(row)

    def _forget_sound(self, name: NodeName) -> None:
        """Nothing has to be kept of a node that is gone, or yet to come, and that is well."""
        if (verdict := self.verdicts.get(name)) is not None and not verdict.restricts:
            del self.verdicts[name]

    def drop_node(self, name: NodeName) -> None:
        self.rests.pop(name, None)
        self._forget_sound(name)
        row = self.row_of.pop(name, None)
        if row is None:
            return
        self.resting[row] = 0
        self._set_unreported(row, False)
        self._scope(row, None)
        self.zones.drop(row)
        self.alive[row] = False
        self._alive_rows = None
        self.reserved[row] = 0
        self._offer(self.states[row], None)
        self.states[row] = None
        self._position_of.pop(row, None)
        self._named.pop(row, None)
        self.descriptions.drop(row)
        self.clear_usage(row)
        self._free_rows.append(row)
        self.changes.add(row)
        self.described.add(row)

    def _set_unreported(self, row: int, value: bool) -> None:
        self.unreported[row] = value
        if value:
            self.unreported_rows.add(row)
        else:
            self.unreported_rows.discard(row)

    def reserve(self, reserved: Ints) -> None:
        """Set rows aside, and no others. reserved: `[N]`, a bit for each reservation; rows that lose one are open to more than before."""
        before = self.reserved[: self.size]
        changed = np.flatnonzero(before != reserved).tolist()
        opened = np.flatnonzero(before & ~reserved).tolist()
        self.reserved[: self.size] = reserved
        self.returned += 1
        self.described.extend(changed)
        self.changes.extend(changed)
        self.risen.extend(opened)

    def clear_usage(self, row: int) -> None:
        """Nothing booked on this row."""
        self.returned += 1
        self._totals.stale.add(row)
        self.used[:, row] = 0
        self.leaving[:, row] = 0
        self.ports.clear(row)
        self.ports_leaving.clear(row)
        self.parts.clear(row)
        self.parts_leaving.clear(row)
        self.zones.clear(row)
        for field in _CARD_BOOKS:
            getattr(self, field)[row] = 0

    def _judge(self, row: int, cards: Sequence[Card], *, rises: bool = True) -> None:
        verdict = self.verdicts.get(self.names[row])
        self.healthy[row] = verdict is None or verdict.healthy
        self._scope(row, verdict)
        self.card_ok[row] = False
        for position, card in enumerate(cards):
            self.card_ok[row, position] = (
                card.healthy and not card.effective_traits.cordoned and not (verdict and verdict.marks_unhealthy(card))
            )
        self.returned += 1
        self.changes.add(row)
        self.described.add(row)
        if rises:
            self.risen.add(row)

    def _scope(self, row: int, verdict: Verdict | None) -> None:
        """Set the scopes of a row that concern only some pods; None: there are none."""
        self.single_card[row] = verdict is not None and not verdict.multi_gpu
        self.single_node[row] = verdict is not None and not verdict.multi_node
        self.rail_off[row] = verdict is not None and bool(verdict.rails_off)
        if self.single_card[row] or self.single_node[row] or self.rail_off[row]:
            self.scoped_rows.add(row)
        else:
            self.scoped_rows.discard(row)

    def kind(self, row: int) -> bytes:
        """What the row has, resources and cards: equal for nodes that are equal in these. Ports, labels and taints are not in it."""
        return b"".join(
            (
                self.allocatable[:, row].tobytes(),
                self.card_set[row].tobytes(),
                *(getattr(self, field)[row].tobytes() for field in _CARD_KIND),
            )
        )

    def booked(self, row: int) -> tuple[bytes, bytes]:
        """What is booked on the row: of resources, and on its cards. Nodes of one kind are equal that are equal in these."""
        cards = [self.card_cores_used[row].tobytes(), self.card_memory_used[row].tobytes(), self.card_pods[row].tobytes()]
        if self.parts:
            cards.append(repr(self.parts.of(row)).encode())
        if row in self.zones:  # by these cards are chosen too
            cards.append(b"%d" % self.zones.number(row))
        return self.used[:, row].tobytes(), b"".join(cards)

    # Bookings.

    def apply(self, batch: Batch, times: int = 1) -> None:
        """Book a batch (`times=1`) or take it back (`times=-1`). Taking back is not logged as a rise: no reader saw the lower amounts."""
        self.returned += times < 0
        if len(batch.rows) == 1:
            self._apply_on_one_row(batch, times)
            return
        for column, units in batch.amount:
            self.used[column, batch.rows] += times * units * batch.counts
        for name, units in batch.ports:
            self.ports.book(batch.rows.repeat(batch.counts).tolist(), name, times * units)
        if batch.card_rows.size:
            cells = batch.card_rows * self.card_index.shape[1] + batch.card_positions
            np.add.at(self.card_cores_used.reshape(-1), cells, times * batch.cores)
            np.add.at(self.card_memory_used.reshape(-1), cells, times * batch.memory_mib)
            np.add.at(self.card_pods.reshape(-1), cells, times)
        for row, slices in batch.slices:
            self._book_cards(row, slices, times)
        rows = batch.rows.tolist()
        if batch.aligned is not None and self.zones:
            for row, count in zip(rows, batch.counts.tolist(), strict=True):
                self.zones.book(row, batch.aligned, times * count)
        self._totals.stale.update(rows)
        self.changes.extend(rows)

    def _apply_on_one_row(self, batch: Batch, times: int) -> None:
        """As `apply`, cell by cell: a third of the time of arrays of one element."""
        row, pods = batch.rows.item(), times * batch.counts.item()
        used = self.used
        for column, units in batch.amount:
            used[column, row] += pods * units
        for name, units in batch.ports:
            self.ports.book((row,) * abs(pods), name, times * units)
        cores, memory, on = self.card_cores_used[row], self.card_memory_used[row], self.card_pods[row]
        for position, mib in zip(batch.card_positions.tolist(), batch.memory_mib.tolist(), strict=True):
            cores[position] += times * batch.cores
            memory[position] += times * mib
            on[position] += times
        for _, slices in batch.slices:
            self._book_cards(row, slices, times)
        if batch.aligned is not None:
            self.zones.book(row, batch.aligned, pods)
        self._totals.stale.add(row)
        self.changes.add(row)

    def undo(self, row: int, requests: Mapping[str, int], slices: Sequence[CardSlice], aligned: PodAsk | None = None) -> None:
        """Take back what was booked for one pod in the same session. Not logged as a rise: no reader saw the lower amounts."""
        self._book(row, requests, slices, -1, aligned)

    def book(
        self,
        row: int,
        requests: Mapping[str, int],
        slices: Sequence[CardSlice],
        times: int = 1,
        *,
        aligned: PodAsk | None = None,
    ) -> None:
        """Book one pod on one row, or take it back. Slices of cards that the node does not have count nowhere. aligned: what kubelets align of it, while its
        kubelet has not counted it."""
        self._book(row, requests, slices, times, aligned)
        if times < 0:
            self.risen.add(row)

    def _book(
        self, row: int, requests: Mapping[str, int], slices: Sequence[CardSlice], times: int, aligned: PodAsk | None
    ) -> None:
        if aligned is not None:
            self.zones.book(row, aligned, times)
        for name, units in requests.items():
            if name not in self._resource and is_host_port(name):
                self.ports.book((row,), name, times * units)
            elif units:
                column = self.resource(name)  # first: it may put larger arrays in place
                self.used[column, row] += times * units
        self._book_cards(row, slices, times)
        self._totals.stale.add(row)
        self.returned += times < 0
        self.changes.add(row)

    def _book_cards(self, row: int, slices: Sequence[CardSlice], times: int) -> None:
        for position, s in self._positions(row, slices):
            self.card_cores_used[row, position] += times * s.cores
            self.card_memory_used[row, position] += times * s.memory_mib
            self.card_pods[row, position] += times * s.slots
            if s.part:
                self.parts.book(row, self._here(row, s, position), times)

    def depart(
        self,
        row: int,
        requests: Mapping[str, int],
        slices: Sequence[CardSlice],
        times: int = 1,
        *,
        aligned: PodAsk | None = None,
        pod: str = "",
    ) -> None:
        """What is booked for one pod will go (`times=1`), or what will be free is promised to one (`times=-1`). pod: "namespace/name"."""
        if self.zones:
            self.zones.depart(row, aligned, pod, times)
        self._totals.stale.add(row)
        for name, units in requests.items():
            if is_host_port(name):
                self.ports_leaving.book((row,), name, times * units)
            elif units:
                column = self.resource(name)
                self.leaving[column, row] += times * units
        for position, s in self._positions(row, slices):
            self.card_cores_leaving[row, position] += times * s.cores
            self.card_memory_leaving[row, position] += times * s.memory_mib
            self.card_pods_leaving[row, position] += times * s.slots
            if s.part:
                self.parts_leaving.book(row, self._here(row, s, position), times)

    def depart_uniform(
        self,
        row: int,
        amount: Amount,
        ports: Ports,
        count: int,
        slices: Sequence[CardSlice],
        *,
        aligned: PodAsk | None = None,
        pods: Sequence[str] = (),
    ) -> None:
        """As `depart` for `count` pods with equal requests; `slices` of all of them. pods: their names, if there are zone books."""
        leaving = self.leaving
        self._totals.stale.add(row)
        for pod in pods:
            self.zones.depart(row, aligned, pod)
        for column, units in amount:
            leaving[column, row] += count * units
        for name, units in ports:
            self.ports_leaving.book((row,), name, count * units)
        for position, s in self._positions(row, slices):
            self.card_cores_leaving[row, position] += s.cores
            self.card_memory_leaving[row, position] += s.memory_mib
            self.card_pods_leaving[row, position] += s.slots
            if s.part:
                self.parts_leaving.book(row, self._here(row, s, position))

    def present(self, rows: Ints) -> Ints:
        """`[R]` base units: the sum over these nodes of the larger of allocatable and used, without what leaves. While a device plugin restarts, allocatable
        falls below used, and the pods still hold their cards."""
        some: Rows = slice(0, self.size) if len(rows) == self.size else rows  # a view, not a copy, of all nodes
        held = self.used[:, some] - self.leaving[:, some]
        return np.asarray(np.maximum(self.allocatable[:, some], held).sum(axis=1))

    @property
    def alive_rows(self) -> Ints:
        """The rows of all nodes, in ascending order. Read-only."""
        if self._alive_rows is None:
            self._alive_rows = np.flatnonzero(self.alive[: self.size]).astype(np.int64)
            self._alive_rows.setflags(write=False)
        return self._alive_rows

    def total(self) -> Ints:
        """`[R]` base units: `present` of all nodes. Its cost follows the rows that changed since the last call; of a view it is computed anew."""
        return (
            self.present(self.alive_rows)
            if self._actual is not None
            else self._totals.of(self.alive, self.allocatable, self.used, self.leaving)
        )

    @property
    def actual(self) -> "Columns":
        """The columns as they are; for a view (`future`, `cards_of`, ...), those of which it is one."""
        return self if self._actual is None else self._actual

    def _view(self) -> Self:
        view = copy(self)
        view._totals = PresentTotals()
        view._actual = self.actual  # no reference to itself: else only the garbage collector frees the arrays
        return view

    def future(self) -> Self:
        """The columns as they will be once all that leaves has left and all that is promised has come. To be read only, and at once: bookings
        made later do not show in it."""
        view = self._view()
        view.used = self.used - self.leaving
        view.zones = self.zones.seen_as(Seen.LATER)
        view.ports = self.ports.without(self.ports_leaving)
        view.card_cores_used = self.card_cores_used - self.card_cores_leaving
        view.card_memory_used = self.card_memory_used - self.card_memory_leaving
        view.card_pods = self.card_pods - self.card_pods_leaving
        if self.parts_leaving:
            view.parts = self.parts.without(self.parts_leaving)
        return view

    def emptied(self) -> Self:
        """The columns as if nothing ran anywhere and all cards were well. To be read only, and at once."""
        view = self._view()
        view.card_ok = self.card_index >= 0
        for field in ("used", "card_cores_used", "card_memory_used", "card_pods"):
            setattr(view, field, np.zeros_like(getattr(self, field)))
        view.ports, view.parts = HostPorts(), SliceParts()
        view.zones = self.zones.seen_as(Seen.EMPTY)
        return view

    def trial(self) -> Self:
        """A copy of the columns whose resources and cards can be booked without effect on the original."""
        view = self._view()
        for field in ("used", "card_cores_used", "card_memory_used", "card_pods"):
            setattr(view, field, getattr(self, field).copy())
        view.parts = self.parts.copy()
        view.zones = self.zones.copy()
        return view

    @property
    def moving(self) -> bool:
        """Whether anything leaves or is promised. Of one resource both may be equal, while the cards are different ones."""
        return bool(self.leaving.any() or self.card_pods_leaving.any() or self.card_memory_leaving.any() or self.ports_leaving)

    def not_nominated(self) -> Self:
        """A view of the columns with nominations added to the bookings: its free resources are free now and stay free. Read-only; stale after any change."""
        if not self.moving:
            return self
        view = self.future()
        view.zones = self.zones.seen_as(Seen.BOTH)
        np.maximum(view.used, self.used, out=view.used)
        view.ports = self.ports.maximum(view.ports)
        np.maximum(view.card_cores_used, self.card_cores_used, out=view.card_cores_used)
        np.maximum(view.card_memory_used, self.card_memory_used, out=view.card_memory_used)
        np.maximum(view.card_pods, self.card_pods, out=view.card_pods)
        view.parts = self.parts.maximum(view.parts)
        return view

    def cards_of(self, row: int) -> Self:
        """The cards of one row, as row 0, as they will be. Nothing else of this view means anything."""
        view = self._view()
        for field in (*_CARD_KIND, *_CARD_CODES):
            setattr(view, field, getattr(self, field)[row : row + 1])
        view._position_of = {0: self._position_of[row]} if row in self._position_of else {}
        view._named = {}
        view.parts = self.parts.only(row).without(self.parts_leaving.only(row))
        view.zones = self.zones.only(row).seen_as(Seen.LATER)
        for field in ("card_cores", "card_memory", "card_pods"):
            used, leaving = getattr(self, f"{field}_used" if field != "card_pods" else field), getattr(self, f"{field}_leaving")
            setattr(view, f"{field}_used" if field != "card_pods" else field, used[row : row + 1] - leaving[row : row + 1])
        return view

    def vacant(self) -> Self:
        """The columns with nothing booked. To be read only."""
        view = self._view()
        view.used = np.zeros_like(self.used)
        view.ports, view.parts = HostPorts(), SliceParts()
        view.zones = self.zones.seen_as(Seen.EMPTY)
        for field in ("card_cores_used", "card_memory_used", "card_pods"):
            setattr(view, field, np.zeros_like(getattr(self, field)))
        return view

    def unbooked(self, *, in_service: bool) -> Self:
        """A copy of the columns with nothing booked, leaving, reserved or resting, to be booked without effect on the original. `in_service`: also with all
        nodes in service and all cards sound."""
        view = self.emptied() if in_service else self.vacant()
        view._resource, view._vacant = dict(self._resource), [*self._vacant]
        for field in ("leaving", "reserved", *_CARD_BOOKS):
            setattr(view, field, np.zeros_like(getattr(self, field)))
        view.ports_leaving, view.parts_leaving = HostPorts(), SliceParts()
        view.rests, view.resting, view.unreported = {}, np.zeros_like(self.resting), np.zeros_like(self.unreported)
        view.changes, view.risen, view.choices = ChangeLog(), ChangeLog(), None
        if in_service:
            view.ready = view.schedulable = view.healthy = self.alive
            view.descriptions = self.descriptions.tolerated(CONDITION_TAINTS)
        return view

    def _positions(self, row: int, slices: Sequence[CardSlice]) -> list[tuple[int, CardSlice]]:
        if not slices or (position_of := self._position_of.get(row)) is None:
            return []
        return [(position, s) for s in slices if (position := position_of.get(s.card)) is not None]

    def positions(self, row: int, slices: Sequence[CardSlice]) -> list[int]:
        """The position of each slice's card on the row; -1 if the node does not have the card."""
        position_of = self._position_of.get(row, {})
        return [position_of.get(s.card, -1) for s in slices]

    def named(self, row: int, slices: Sequence[CardSlice]) -> tuple[CardSlice, ...]:
        """The slices with ids and current indices of their cards, as plans and claims have them. Sessions create slices with an index alone, and one object for
        all pods that take whole cards with the same indices."""
        state = self.states[row] if slices else None
        if state is None:
            return tuple(slices)
        if len(slices) == 1:
            return name_slices(slices, state.cards)
        known = self._named.setdefault(row, {})
        if (found := known.get(id(slices))) is None:
            if len(known) >= _NAMED_OF_ROW:
                known.clear()
            found = known[id(slices)] = slices, name_slices(slices, state.cards)
        return found[1]

    def _here(self, row: int, s: CardSlice, position: int) -> tuple[CardSlice, ...]:
        """The slice with the current index of its card, which is at `position`."""
        index = int(self.card_index[row, position])
        return (s,) if s.index == index else (replace(s, index=index),)

    # Growth.

    def _new_row(self, name: NodeName) -> int:
        if self._free_rows:
            row = self._free_rows.pop()
            self.names[row] = name
        else:
            row = self.size
            if row == len(self.alive):
                self._grow_rows(2 * row)
            self.size += 1
            self.names.append(name)
            self.states.append(None)
        self.row_of[name] = row
        self._alive_rows = None
        return row

    def _grow_rows(self, rows: int) -> None:
        self._totals.reset()
        for field in ("alive", "ready", "schedulable", "healthy", "resting", "unreported", "reserved", *_SCOPES, *_CARD_CODES):
            setattr(self, field, grown(getattr(self, field), 0, rows))
        for field in ("allocatable", "used", "leaving"):
            setattr(self, field, grown(getattr(self, field), 1, rows))
        for field in _CARD_FIELDS:
            setattr(self, field, grown(getattr(self, field), 0, rows, -1 if field == "card_index" else 0))
        self.descriptions.grow(rows)

    def _grow_cards(self, cards: int) -> None:
        for field in _CARD_FIELDS:
            setattr(self, field, grown(getattr(self, field), 1, cards, -1 if field == "card_index" else 0))


def _as_repaired(state: NodeState) -> NodeState:
    """The node ready and schedulable, with all of its cards sound."""
    return replace(
        state,
        ready=True,
        unschedulable=False,
        taints=tuple(taint for taint in state.taints if taint.key not in CONDITION_TAINTS),
        cards=tuple(
            replace(card, healthy=True, traits=None if card.traits is None else replace(card.traits, cordoned=False))
            for card in state.cards
        ),
    )


def _positions_of(cards: Sequence[Card]) -> dict[CardId, int]:
    found: dict[CardId, int] = {}
    for position, card in enumerate(cards):
        if card.former:
            found[card_id(card.former)] = position
    for position, card in enumerate(cards):
        found[numbered(card.index)] = found[card.id] = position
    return found


_CARD_BOOKS = (
    "card_cores_used", "card_memory_used", "card_pods", "card_cores_leaving", "card_memory_leaving", "card_pods_leaving",
)  # fmt: skip
_SCOPES = ("single_card", "single_node", "rail_off")
_CARD_KIND = ("card_index", "card_memory", "card_shares", "card_model", "card_ok")
_CARD_CODES = ("card_set", "card_ids", "card_judged")
_CARD_FIELDS = (*_CARD_KIND, *_CARD_BOOKS)
