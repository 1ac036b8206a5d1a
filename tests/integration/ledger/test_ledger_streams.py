"""What a ledger reads from the streams at its start."""

import pytest

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.events import BindDecided
from hbox_common.model import Epoch, Index
from hbox_ledger.adapters.streams import read_streams
from hbox_ledger.core.recovery import Position


async def test_an_unreadable_last_decision_makes_the_ledger_check_all_recent_ones(
    broker: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be newer than the database."""
    async with Bus.connect(broker.url, name="quota-ledger", instance="1") as bus:
        await bus.publish(BindDecided(epoch=Epoch(5), binds=(), index=Index(3)), "0")
        await read_streams(bus, Position(Epoch(5), Index(3)), now=1000.0)
        assert "checking all recent decisions" not in caplog.text
        await bus._connection.request(BindDecided.subject("0"), b"no message", timeout_s=5)
        await read_streams(bus, Position(Epoch(5), Index(3)), now=1000.0)
        assert "checking all recent decisions" in caplog.text
