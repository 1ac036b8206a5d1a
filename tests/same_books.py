"""Comparison of the ledger's books in use with books that are read from its database."""

from typing import Any

from hbox_common.store import Store
from hbox_ledger.adapters import load
from hbox_ledger.core.ledgerstate import LedgerState


async def assert_as_in_the_database(state: LedgerState, store: Store) -> None:
    """Raises AssertionError where they differ."""
    read = await store.read(load.load)
    for mine, other in zip(_compared(state), _compared(read.state), strict=True):
        assert mine == other


def _compared(state: LedgerState) -> tuple[Any, ...]:
    records = {
        id: (r.claim, r.decision, r.reason, r.beneficiary, r.generation, r.deadline, r.slots, r.forced)
        for id, r in state.live.items()
    }
    sums = [
        {key: held for key, amounts in some.items() if (held := {name: units for name, units in amounts.items() if units})}
        for some in (state.used, state.protected, state.borrowed, {name: node.used for name, node in state.by_node.items()})
    ]
    evicting = set(state.evicting.claims()), dict(state.evicting.nominations())
    return records, sums, state.gangs, state.nominations.all(), state.open.keys(), evicting, state.index
