"""What all ways of a cycle work with: the cluster's books, whose turn it is, and what is under way."""

from dataclasses import dataclass

from .limits import Limits
from .lineup import Lineup
from .parking import Parking
from .planner import Planner
from .proposals import InFlight
from .queues import Queues
from .state import Bookings
from .taking import Takings


@dataclass(frozen=True, slots=True)
class Parts:
    """Of one scheduler."""

    takings: Takings
    planner: Planner
    bookings: Bookings
    queues: Queues
    lineup: Lineup
    parking: Parking
    flights: InFlight
    limits: Limits
