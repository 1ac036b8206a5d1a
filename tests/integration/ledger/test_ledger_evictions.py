"""The brake on evictions is released by a word of somebody who may write queues: each word once, and none from before the ledger began."""

import pytest
from sqlalchemy import create_engine, text

from hbox_ledger.adapters.audit import prove

from .conftest import Kit, Running


def trip(running: Running) -> None:
    brake = running.ledger.state.brake
    brake.most = 1
    assert brake.refusal(1, live=10, now=running.clock[0]) is None
    assert brake.refusal(1, live=10, now=running.clock[0]) is not None


@pytest.mark.parametrize("empty_database", ["sqlite"], indirect=True)
async def test_each_new_word_releases_once_and_is_written_down(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        ledger = running.ledger
        trip(running)
        await ledger.release_evictions("monday")
        assert ledger.state.brake.paused, "that is from before this ledger began"
        await ledger.release_evictions("tuesday")
        assert not ledger.state.brake.paused
        assert ledger.released == "tuesday"
        trip(running)
        for word in ("tuesday", ""):
            await ledger.release_evictions(word)
            assert ledger.state.brake.paused, "a word that was heard, or that was taken off"
        await ledger.release_evictions("wednesday")
        assert not ledger.state.brake.paused
    engine = create_engine(database_url)
    with engine.connect() as connection:
        told = connection.execute(text("SELECT change, cause FROM audit WHERE subject = 'evictions' ORDER BY seq")).all()
    engine.dispose()
    assert [row.change for row in told] == ["released", "released"]
    assert "tuesday" in told[0].cause
    assert prove(database_url).faults == []
