"""Equal pods placed at once, on columns without a scheduler: what experiments over traces need of `allocate`."""

from ..cluster import Batch, Columns
from ..cluster.task import Task
from ..devices import pick
from ..framework.views import Views
from ..policy import Policy


def place_uniform(columns: Columns, views: Views, policy: Policy, task: Task, pods: int) -> list[Batch]:
    """Book up to `pods` pods of the task, best places first. Returns what was booked, to be taken back newest first (`Columns.apply`)."""
    booked: list[Batch] = []
    while pods:
        rows, counts = views.of(task).best(pods)
        if not len(rows):
            break
        keys = policy.card_keys(columns, rows, task) if task.cards is not None else None
        batch = pick(columns, rows, counts, task, keys)
        columns.apply(batch)
        booked.append(batch)
        pods -= int(counts.sum())
    return booked
