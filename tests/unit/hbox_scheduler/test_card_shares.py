"""Parts of cards, in arrays as in the rules that the ledger goes by."""

import numpy as np
import pytest

from hbox_common.model import CardRequest
from hbox_scheduler.core.devices import memory_needed


@pytest.mark.parametrize("percent", [1, 30, 33, 70, 99])
def test_a_share_of_memory_is_rounded_as_the_ledger_rounds_it(percent: int) -> None:
    request = CardRequest(1, cores=percent, memory_percent=percent)
    sizes = [1, 99, 24_564, 40_960, 81_559]
    needed = memory_needed(request, np.array(sizes, dtype=np.int64))
    assert needed.tolist() == [request.memory_on(size) for size in sizes]
