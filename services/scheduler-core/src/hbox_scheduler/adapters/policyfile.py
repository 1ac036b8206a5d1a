"""The policy's file: the volcano-scheduler.conf that is followed while it is right."""

import logging
from pathlib import Path

from hbox_common.runtime import WatchedFile

from .. import metrics
from ..core.framework.conf import Conf, parse_conf
from ..core.placement.policycheck import policy_warnings
from ..core.policy.inputs import check_inputs
from ..core.policy.registry import PLUGINS

log = logging.getLogger(__name__)

_SETTING = "HBOX_SCHEDULER_CONF"


def policy_file(path: Path) -> WatchedFile[Conf]:
    """Raises InvalidRequest that names file, line and key."""

    def parse(text: str) -> Conf:
        conf = parse_conf(text, plugins=list(PLUGINS))
        check_inputs(conf)
        for warning in policy_warnings(conf):
            log.warning("%s: %s: %s", _SETTING, path, warning)
        return conf

    return WatchedFile(
        path,
        parse,
        setting=_SETTING,
        what="a volcano-scheduler.conf",
        refused=lambda wrong: metrics.POLICY_REFUSED.set(int(wrong)),
    )
