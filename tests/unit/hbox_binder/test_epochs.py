"""Which epoch counts: the ledger's word, not that of a message."""

import pytest

from hbox_binder.adapters.epochs import AHEAD_S, Epochs
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.model import Epoch

NOW = 1_000_000


class Ledger:
    """In some epoch, or away (None)."""

    def __init__(self, epoch: int | None) -> None:
        self.epoch, self.asked = epoch, 0

    async def ask(self) -> Epoch:
        self.asked += 1
        if self.epoch is None:
            raise Unavailable("nobody answers")
        return Epoch(self.epoch)


def watching(epoch: int | None) -> tuple[Ledger, Epochs]:
    ledger = Ledger(epoch)
    return ledger, Epochs(ledger.ask, wall=lambda: NOW, every_s=0.0)


async def test_an_epoch_that_the_ledger_has_not_come_to_is_nobodys_and_changes_nothing() -> None:
    _, epochs = watching(7)
    assert await epochs.check(Epoch(7)) == 7
    for lie in (8, 2**40):
        with pytest.raises(InvalidRequest, match="the ledger's epoch is 7"):
            await epochs.check(Epoch(lie))
    assert await epochs.check(Epoch(7)) == 7


async def test_a_new_epoch_is_asked_for_once_and_what_is_older_is_stale_without_asking() -> None:
    ledger, epochs = watching(7)
    await epochs.check(Epoch(7))
    ledger.epoch = 9
    assert await epochs.check(Epoch(9)) == 9
    assert [await epochs.check(Epoch(n)) for n in (7, 8, 9)] == [9, 9, 9]
    assert ledger.asked == 2


async def test_of_old_decisions_in_a_stream_it_is_known_at_once_that_they_are_old() -> None:
    _, epochs = watching(9)
    assert await epochs.check(Epoch(3)) == 9


async def test_while_no_ledger_answers_an_epoch_near_the_clock_is_believed_until_one_does() -> None:
    ledger, epochs = watching(None)
    assert await epochs.check(Epoch(NOW + 100)) == NOW + 100
    assert await epochs.check(Epoch(NOW)) == NOW + 100
    ledger.epoch = NOW
    assert await epochs.check(Epoch(NOW)) == NOW, "one false message makes it deaf for as long as the ledger is away"


async def test_one_far_from_the_clock_waits_for_the_ledger() -> None:
    ledger, epochs = watching(None)
    far = Epoch(int(NOW + AHEAD_S) + 1)
    with pytest.raises(Unavailable):
        await epochs.check(far)
    ledger.epoch = far
    assert await epochs.check(far) == far, "the ledger's clock was wrong once"
