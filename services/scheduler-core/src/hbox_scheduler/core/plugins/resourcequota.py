"""resourcequota: a gang whose pods the namespace's ResourceQuotas would refuse is not enqueued (sources: volcano-resourcequota)."""

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

from hbox_common.model import GroupPhase, Resources, quantity
from hbox_common.model.resources import PODS

from ..cluster.entities import Gang, Status
from ..framework.hooks import Enqueueable, Vote
from .arguments import Arguments

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

_REQUESTS = "requests."

#: Those with scheduling gates exist too: the minimum is without them.
_EXISTING = frozenset(Status) - {Status.SUCCEEDED, Status.FAILED, Status.GATED}


class ResourceQuotaPlugin(Enqueueable):
    """Every quota of the namespace has to hold what is used, what enqueued gangs have yet to ask for, and the gang's minimum. No arguments."""

    name = "resourcequota"

    def __init__(self, conf: "PluginConf") -> None:
        Arguments(conf).done()

    def open(self, session: "Session") -> None:
        self._session = session
        self._quotas = session.cluster.facts.quotas

    @cached_property
    def _passed(self) -> dict[str, dict[str, int]]:
        """By namespace and resource: what enqueued gangs have yet to ask for. Pods that exist are in what is used."""
        passed: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        columns = self._session.columns
        for gang in self._session.gangs if self._quotas else ():
            if gang.phase is GroupPhase.INQUEUE and gang.min_resources:
                asked = sum((member.request for member in gang.of(*_EXISTING)), start=self._session.zeros())
                for name, units in gang.counted_minimum.items():
                    there = gang.count(*_EXISTING) if name == PODS else int(asked[columns.resource(name)])
                    passed[gang.namespace][name] += max(units - there, 0)
        return passed

    def enqueueable(self, gang: Gang) -> Vote:
        return Vote.REJECT if self.reject_reason(gang) else Vote.PERMIT

    def reject_reason(self, gang: Gang) -> str:
        passed = self._passed[gang.namespace]
        for quota in self._quotas:
            if quota.namespace != gang.namespace:
                continue
            hard, used = _plain(quota.hard), _plain(quota.used)
            for name, units in (gang.min_resources or {}).items():
                taken = used.get(name, 0) + passed[name]
                if units > 0 and name in hard and taken + units > hard[name]:
                    amounts = (quantity(name, amount) for amount in (units, taken, hard[name]))
                    return "{} {} asked for, and ResourceQuota {} has {} taken of {}".format(
                        next(amounts), name, quota.name, *amounts
                    )
        return ""

    def enqueued(self, gang: Gang) -> None:
        for name, units in gang.counted_minimum.items():
            self._passed[gang.namespace][name] += units


def _plain(amounts: Resources) -> dict[str, int]:
    """By resource; `cpu` and `requests.cpu` mean the same."""
    return {name.removeprefix(_REQUESTS): units for name, units in amounts.items()}
