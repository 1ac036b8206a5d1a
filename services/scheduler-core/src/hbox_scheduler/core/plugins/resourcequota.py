"""resourcequota: a gang whose pods the namespace's ResourceQuotas would refuse stays at the gate (reference volcano §4)."""

from collections import defaultdict
from typing import TYPE_CHECKING

from hbox_common.model import Resources, quantity

from ..session.hooks import Vote
from ..session.nouns import Gang
from .arguments import Arguments

if TYPE_CHECKING:
    from ..policy.conf import PluginConf
    from ..session.session import Session

_REQUESTS = "requests."


class ResourceQuotaPlugin:
    """Every quota of the namespace has to hold what is used, what passed the gate in this session, and the gang's minimum. No arguments."""

    name = "resourcequota"

    def __init__(self, conf: "PluginConf") -> None:
        Arguments(conf).done()

    def open(self, session: "Session") -> None:
        self._quotas = session.cluster.quotas
        self._passed: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))

    def enqueueable(self, gang: Gang) -> Vote:
        return Vote.REJECT if self.kept_out(gang) else Vote.PERMIT

    def kept_out(self, gang: Gang) -> str:
        passed = self._passed[gang.namespace]
        for quota in self._quotas:
            if quota.namespace != gang.namespace:
                continue
            hard, used = _plain(quota.hard), _plain(quota.used)
            for name, units in (gang.min_resources or {}).items():
                taken = used.get(name, 0) + passed[name]
                if units > 0 and name in hard and taken + units > hard[name]:
                    said = (quantity(name, amount) for amount in (units, taken, hard[name]))
                    return "{} {} asked for, and ResourceQuota {} has {} taken of {}".format(
                        next(said), name, quota.name, *said
                    )
        return ""

    def enqueued(self, gang: Gang) -> None:
        for name, units in (gang.min_resources or {}).items():
            self._passed[gang.namespace][name] += units


def _plain(amounts: Resources) -> dict[str, int]:
    """By resource; `cpu` and `requests.cpu` mean the same."""
    return {name.removeprefix(_REQUESTS): units for name, units in amounts.items()}
