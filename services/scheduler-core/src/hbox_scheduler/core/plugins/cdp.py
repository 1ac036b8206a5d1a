"""cdp: cool-down protection; a member that started a short while ago is no victim (sources: volcano-cdp)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hbox_common.model.annotations import COOLDOWN

from ..cluster.entities import Gang, Member
from ..framework.hooks import Evictable, Preemptable, Reclaimable, ShuffleGuard
from .arguments import Arguments
from .durations import duration_s

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session


class Cdp(Preemptable, Reclaimable, Evictable, ShuffleGuard):
    """No arguments."""

    name = "cdp"
    time_dependent = True
    guards = True

    def __init__(self, conf: "PluginConf") -> None:
        Arguments(conf).done()

    def open(self, session: "Session") -> None:
        self._now = session.now

    def preemptable(self, preemptor: Member | Gang, candidates: Sequence[Member]) -> list[Member]:  # noqa: ARG002  # the hook's signature
        return self.may_leave(candidates)

    reclaimable = preemptable

    def evictable(self, preemptor: Gang, candidates: Sequence[Member], *, reclaim: bool) -> list[Member]:  # noqa: ARG002
        return self.may_leave(candidates)

    def may_leave(self, members: Sequence[Member]) -> list[Member]:
        return [member for member in members if not self._cooling(member)]

    def _cooling(self, member: Member) -> bool:
        text = member.annotations.get(COOLDOWN) or member.labels.get(COOLDOWN, "")
        cooldown_s = duration_s(text) if text else None
        return cooldown_s is not None and member.started_at is not None and member.started_at + cooldown_s > self._now
