"""What the labels of a namespace say for the pods that are created in it.

`hbox.io/scheduler`: "true", or one of HBox's scheduler names: pods that name no scheduler get HBox's, with or without devices. `hbox.io/queue`: pods of HBox
that name no queue get this one. Labels of namespaces are written by cluster administrators: the roles `admin` and `edit` of Kubernetes cannot change them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hbox_common.model.bounds import is_name, not_a_name, sanitized

SCHEDULER_LABEL = "hbox.io/scheduler"
QUEUE_LABEL = "hbox.io/queue"

_OFF = ("", "false")


@dataclass(frozen=True, slots=True)
class NamespaceDefaults:
    """`scheduler`, `queue`: empty if the namespace has no such label. `problems`: labels that have no effect, a sentence each."""

    scheduler: str = ""
    queue: str = ""
    problems: tuple[str, ...] = ()


NO_DEFAULTS = NamespaceDefaults()


def defaults_of(labels: Mapping[str, str], schedulers: Collection[str]) -> NamespaceDefaults:
    """`schedulers`: HBox's scheduler names; the first one is written for "true"."""
    scheduler, queue = labels.get(SCHEDULER_LABEL, ""), labels.get(QUEUE_LABEL, "")
    if not scheduler and not queue:
        return NO_DEFAULTS
    problems = []
    if scheduler == "true":
        scheduler = next(iter(schedulers))
    elif scheduler in _OFF:
        scheduler = ""
    elif scheduler not in schedulers:
        problems.append(
            f"label {SCHEDULER_LABEL} of the namespace is {sanitized(scheduler, 63)!r} and has no effect: "
            f'write "true" or {" or ".join(schedulers)}'
        )
        scheduler = ""
    if queue and not is_name(queue):
        problems.append(not_a_name(f"label {QUEUE_LABEL} of the namespace", queue) + "; it has no effect")
        queue = ""
    return NamespaceDefaults(scheduler, queue, tuple(problems))
