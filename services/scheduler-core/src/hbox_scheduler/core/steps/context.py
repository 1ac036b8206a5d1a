"""State shared by all steps of a cycle: the cluster's bookings, the queue of jobs, and the plans in flight."""

from dataclasses import dataclass

from ..cluster import Bookings
from ..framework.views import Views
from ..placement.plans import Plans
from ..placement.runner import SessionRunner
from ..placement.sessions import Sessions
from ..protocol.inflight import InFlight
from ..protocol.limits import Limits
from ..queueing.schedulingqueue import SchedulingQueue
from ..queueing.unschedulable import UnschedulableJobs
from ..quotas.queues import Queues


@dataclass(frozen=True, slots=True)
class SchedulerContext:
    """Of one scheduler."""

    sessions: Sessions
    runner: SessionRunner
    plans: Plans
    views: Views
    bookings: Bookings
    queues: Queues
    queue: SchedulingQueue
    unschedulable: UnschedulableJobs
    flights: InFlight
    limits: Limits
