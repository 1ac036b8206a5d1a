"""The policy's file: read at the start, and looked at again while the service runs.

A mounted ConfigMap swaps a symlink and an editor may write a file in two steps, so what counts is the content, once it has stood still from one look to
the next. A policy that is wrong in any way changes nothing: the one before it stays in force.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from hbox_common.errors import InvalidRequest

from .. import metrics
from ..core.policy.conf import Conf, parse_conf
from ..core.policy.registry import PLUGINS
from ..core.session import Cluster
from ..core.simulate.cycles import Plan, simulate
from ..core.state import Columns

log = logging.getLogger(__name__)

EVERY_S = 0.5


class PolicyFile:
    """`conf` is the policy in force, `problem` why what the file says now is not; "" = it is."""

    def __init__(self, path: Path) -> None:
        """Raises InvalidRequest that names file, line and key."""
        self._path = path
        self._seen: bytes | str = self._read()
        self._judged = self._seen
        self.conf = self._parse(self._seen)
        self.problem = ""

    async def watch(self, changed: Callable[[Conf], None]) -> NoReturn:
        """Tell of each new policy, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            if await asyncio.to_thread(self._look):
                changed(self.conf)

    def _look(self) -> bool:
        """Whether there is a new policy."""
        before, self._seen = self._seen, self._read()
        if self._seen != before or self._seen == self._judged:
            return False
        self._judged = self._seen
        try:
            conf = self._parse(self._seen)
        except InvalidRequest as e:
            self.problem = str(e)
            metrics.POLICY_REFUSED.set(1)
            log.error("%s; the policy before it stays in force", self.problem)
            return False
        self.problem = ""
        metrics.POLICY_REFUSED.set(0)
        if conf == self.conf:
            return False
        self.conf = conf
        log.info("%s: the new policy is in force", self._path)
        return True

    def _read(self) -> bytes | str:
        """The content, or why there is none."""
        try:
            return self._path.read_bytes()
        except OSError as e:
            return e.strerror or str(e)

    def _parse(self, content: bytes | str) -> Conf:
        try:
            if isinstance(content, str):
                raise InvalidRequest(f"cannot be read: {content}", hint="name a volcano-scheduler.conf")
            conf = parse_conf(content.decode(), plugins=list(PLUGINS))
            # Arguments are the plugins' and the actions' own business: an empty cluster tells whether they are right.
            for warning in simulate(Columns(), Cluster([], []), conf, Plan(now=0.0)).warnings:
                log.warning("HBOX_SCHEDULER_CONF: %s: %s", self._path, warning)
        except UnicodeDecodeError as e:
            raise InvalidRequest(f"HBOX_SCHEDULER_CONF: {self._path}: {e}", hint="the policy has to be YAML in UTF-8") from e
        except InvalidRequest as e:
            raise InvalidRequest(f"HBOX_SCHEDULER_CONF: {self._path}: {e.message}", hint=e.hint) from e
        return conf
