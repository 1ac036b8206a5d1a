"""What a session of the service ends with, for each job that it was opened for."""

from collections.abc import Sequence
from dataclasses import dataclass

from hbox_common.model import CardSlice, PodRef, PodUid
from hbox_common.model.consolidation import MoveTerms

from ..cluster import Booking
from ..cluster.entities import Member
from ..cluster.task import Task
from ..explain.outcomes import Headline
from ..explain.reasons import Reasons
from ..queueing.jobs import Entry


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """One pod's place among what its job is given."""

    task: Task
    pod: PodRef
    row: int
    slices: tuple[CardSlice, ...]

    @property
    def uid(self) -> PodUid:
        return self.pod.uid

    @property
    def name(self) -> str:
        return self.pod.name

    @property
    def resource_version(self) -> str:
        return self.pod.resource_version

    @property
    def rank(self) -> int:
        return self.pod.rank

    @property
    def volume_claims(self) -> tuple[str, ...]:
        return self.pod.volume_claims


@dataclass(frozen=True, slots=True)
class Move:
    """Another place for the successor of a pod that leaves."""

    leaves: Booking
    task: Task
    row: int
    slices: tuple[CardSlice, ...]


@dataclass(frozen=True, slots=True)
class JobPlacement:
    """What one job gets, whose bookings have to go for it, and which of those are promised other places."""

    entry: Entry
    placements: tuple[PodPlacement, ...]
    victims: tuple[Booking, ...]
    moves: tuple[Move, ...] = ()
    terms: MoveTerms | None = None  #: of the moves


@dataclass(frozen=True, slots=True)
class Placed:
    """The members of a job that got places, which are on the columns."""

    entry: Entry
    members: Sequence[Member]


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Why a job gets nothing; `reasons` where it is about nodes; `headline`: of its explanation; `lacks_room`: nothing but a change of nodes can help it."""

    entry: Entry
    message: str
    reasons: Reasons | None
    headline: Headline
    lacks_room: bool = False


@dataclass(frozen=True, slots=True)
class Untried:
    """The turn of a job did not come."""

    entry: Entry
