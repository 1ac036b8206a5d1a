"""HAMi's protocol between the binder of a pod and the device plugin of its node (sources: hami-annotations, hami-node-lock).

kubelet's Allocate does not name the pod, so a plugin looks for the one pod in allocation on its node: the owner of the node's lock. It removes the cards of one
container per call from that pod's annotations; when no vendor has any left, it writes the phase `success` and releases the lock. On a fault it writes `failed`
and releases the lock, and kubelet fails the pod.

    of a pod    hami.io/vgpu-node, vgpu-time         its node, and the time of binding (also a label: HAMi's monitor lists by it)
                <vendor>-devices-to-allocate         cards not handed over yet; `;` per container when all are
                <vendor>-devices-allocated           the same, permanent
                hami.io/bind-phase, bind-time        allocating, then success or failed
    of a node   hami.io/mutex.lock                   `<RFC 3339>,<namespace>,<pod>`

Cards are written `<uuid>,<word>,<MiB>,<cores>:`, a container's closed by `;`, init containers first, empty for containers without cards.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

ASSIGNED_NODE, ASSIGNED_TIME = "hami.io/vgpu-node", "hami.io/vgpu-time"
BIND_PHASE, BIND_TIME = "hami.io/bind-phase", "hami.io/bind-time"
NODE_LOCK = "hami.io/mutex.lock"

#: HAMi's, and that of Volcano's plugin.
BIND_PHASES = (BIND_PHASE, "volcano.sh/bind-phase")


class BindPhase(StrEnum):
    """Phase of a pod in its annotation `hami.io/bind-phase`."""

    ALLOCATING = "allocating"
    SUCCESS = "success"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class NodeLock:
    """Who holds a node's lock. `at`: since when, in seconds since the epoch; NaN where it is no time. A lock of HAMi before 2.5 names no pod."""

    at: float
    namespace: str = ""
    pod: str = ""

    def of(self, namespace: str, pod: str) -> bool:
        return (self.namespace, self.pod) == (namespace, pod)


def format_lock(namespace: str, pod: str, now: float) -> str:
    """The value of `hami.io/mutex.lock`; `now` in seconds since the epoch."""
    return f"{datetime.fromtimestamp(int(now), UTC).isoformat().replace('+00:00', 'Z')},{namespace},{pod}"


def parse_lock(text: str) -> NodeLock:
    """Parse the annotation. Never raises: any client with write access to nodes may have written it."""
    time, _, owner = text.partition(",")
    namespace, divider, pod = owner.partition(",")
    try:
        at = datetime.fromisoformat(time).timestamp()
    except (ValueError, OverflowError):
        at = float("nan")
    return NodeLock(at, namespace, pod) if divider and "," not in pod else NodeLock(at)


def assignment(node: str, now: float) -> dict[str, str]:
    """The annotations that say where a pod was put, whichever vendors' cards it has, at `now`, in seconds since the epoch."""
    seconds = str(int(now))
    return {
        ASSIGNED_NODE: node,
        ASSIGNED_TIME: seconds,
        BIND_PHASE: BindPhase.ALLOCATING,
        BIND_TIME: seconds,
    }
