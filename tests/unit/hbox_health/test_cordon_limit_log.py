import logging

import pytest

from hbox_health.app import report_held_back


def test_end_of_a_cordon_limit_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="hbox_health.app"):
        report_held_back(2)
        report_held_back(0)
    levels = [(one.levelno, one.getMessage()) for one in caplog.records]
    assert [level for level, _ in levels] == [logging.WARNING, logging.INFO]
    assert "2 unhealthy nodes are not cordoned" in levels[0][1]
    assert "0 unhealthy" not in levels[1][1]
