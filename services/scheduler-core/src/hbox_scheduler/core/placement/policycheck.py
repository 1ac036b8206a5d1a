"""Validation of a policy: plugins and actions read their arguments when they run, so its actions run once on an empty cluster."""

from ..actions.registry import run_actions
from ..cluster import Columns
from ..cluster.snapshot import Cluster
from ..framework import Session
from ..framework.conf import Conf
from ..policy import policy_from
from ..policy.registry import plugins_of


def policy_warnings(conf: Conf) -> list[str]:
    """Warnings about the policy: keys without effect, and arguments that its plugins and actions ignore. Raises InvalidRequest for an invalid argument."""
    policy = policy_from(conf)
    session = Session(
        columns=Columns(),
        cluster=Cluster([], []),
        conf=conf,
        tiers=plugins_of(conf),
        learned=policy.learned,
    )
    run_actions(session)
    return [*map(str, conf.ignored), *session.outcome.warnings]
