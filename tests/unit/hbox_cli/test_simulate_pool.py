"""Simulations over several processes."""

import math
import os

import pytest

from hbox_cli.simulate.pool import spread
from hbox_common.errors import Unavailable


def test_each_work_comes_back_with_its_answer() -> None:
    assert dict(spread(math.sqrt, [1.0, 4.0, 9.0], jobs=2)) == {1.0: 1.0, 4.0: 2.0, 9.0: 3.0}


def test_what_a_run_raises_is_raised_here() -> None:
    with pytest.raises(ValueError, match=r"math domain error|expected a nonnegative"):
        list(spread(math.sqrt, [4.0, -1.0], jobs=2))


def test_a_process_that_is_killed_is_told() -> None:
    with pytest.raises(Unavailable, match="was killed"):
        list(spread(os._exit, [3, 4], jobs=2))
