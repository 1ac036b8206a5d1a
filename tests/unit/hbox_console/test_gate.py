"""Clients take turns, however many requests each has."""

import asyncio

import pytest

from hbox_common.errors import Unavailable
from hbox_console.adapters.gate import MOST_PER_CLIENT, Gate


async def test_clients_take_turns() -> None:
    gate, begun = Gate(), list[str]()

    async def compute(user: str) -> None:
        await gate.enter(user)
        begun.append(user)

    await asyncio.gather(*(compute(user) for user in ("many", "many", "many", "one", "other")))
    assert begun == ["many", "one", "other", "many", "many"]
    await compute("later")
    assert begun[-1] == "later"


async def test_computations_of_one_client_are_limited() -> None:
    gate = Gate()
    waiting = [asyncio.ensure_future(gate.enter("many")) for _ in range(MOST_PER_CLIENT)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await gate.enter("many")
    waiting[0].cancel()
    await gate.enter("one")
    await asyncio.gather(*waiting[1:])
    await gate.enter("many")
