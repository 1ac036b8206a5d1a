"""What happens to jobs on sick hardware, by annotation of the job or of its queue."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from .annotations import ON_SICK_HARDWARE


class SickPolicy(StrEnum):
    RESTART = "restart"  #: the whole gang ends at the verdict and starts elsewhere
    CHECKPOINT = "checkpoint"  #: as restart, but its pods get the time that they declare for a checkpoint (`hbox.io/checkpoint-on-notice`)
    SHRINK = "shrink"  #: only pods on the hardware end, if the gang keeps its minimum; else as restart
    IGNORE = "ignore"  #: the job stays


def sick_policy(annotations: Mapping[str, str]) -> SickPolicy | None:
    """The policy that these annotations state; None if they state none, or an unknown one."""
    stated = annotations.get(ON_SICK_HARDWARE)
    if stated is None:
        return None
    try:
        return SickPolicy(stated)
    except ValueError:
        return None


def first_policy(path: Iterable[Mapping[str, str]]) -> SickPolicy | None:
    """The policy from the annotations of a queue and its ancestors, the queue's own first."""
    return next(filter(None, map(sick_policy, path)), None)


def unknown_policy(annotations: Mapping[str, str]) -> str:
    """Text about an unknown policy in these annotations; "" if there is none."""
    if ON_SICK_HARDWARE not in annotations or sick_policy(annotations) is not None:
        return ""
    return (
        f"annotation {ON_SICK_HARDWARE} is {annotations[ON_SICK_HARDWARE][:64]!r}, ignored; it may be {', '.join(SickPolicy)}"
    )
