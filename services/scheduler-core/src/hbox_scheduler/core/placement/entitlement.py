"""Whether a queue is entitled to more of a pod's resources, as the ledger judges it."""

from collections.abc import Collection

from hbox_common.model import POOLED, QueueName, QueueTree, TreeAmounts, amounts_in, in_pool, named_models
from hbox_common.model.resources import PODS
from hbox_common.model.rights import CARDS_BY_NAME, AtParting

from ..cluster.task import Task
from ..quotas.models import concerned


def may_reclaim(task: Task, queues: QueueTree, name: QueueName, pools: Collection[str]) -> bool:
    """Whether the queue, or one above it, is entitled to one more such pod, of whichever model, in one of these pools."""
    return any(_may_reclaim_in(pool, task, queues, name) for pool in pools if queues.may_use(name, pool or POOLED))


def _may_reclaim_in(pool: str, task: Task, queues: QueueTree, name: QueueName) -> bool:
    path, tree = queues.path(name)[::-1], TreeAmounts(queues)
    asked = amounts_in(pool, {resource: units for resource, units in task.requests.items() if units > 0 and resource != PODS})
    rule = AtParting(tree.rights, CARDS_BY_NAME)
    if rule.entitled(path, asked, tree.used):
        return True
    if task.cards is None or not queues.by_model:
        return False
    models = concerned(task, named_models(*(queues.rights(one).entitlement for one in path)))
    return any(rule.entitled(path, {**asked, in_pool(model, pool): task.cards.count}, tree.used) for model in models)
