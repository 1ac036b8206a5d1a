"""What a session of the service ends with, for each job that it was opened for."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hbox_common.model import CardSlice, PodRef, PodUid, Resources, amounts_in
from hbox_common.model.consolidation import MoveTerms
from hbox_common.model.resources import add

from ..cluster import Booking
from ..cluster.entities import Member
from ..cluster.task import Task
from ..explain.reasons import Reasons
from ..queueing.jobs import Entry


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """One pod's place among what its job is given."""

    task: Task
    pod: PodRef
    row: int
    slices: tuple[CardSlice, ...]
    models: Resources = field(default_factory=dict)  #: cards by model
    pool: str = ""  #: in which it counts

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

    def amounts(self) -> Resources:
        """What all its places take together."""
        amounts: Resources = {}
        for placed in self.placements:
            add(amounts, amounts_in(placed.pool, placed.task.requests))
            add(amounts, amounts_in(placed.pool, placed.models))
        return amounts


@dataclass(frozen=True, slots=True)
class Placed:
    """The members of a job that got places, which are on the columns. `models`: by column, the resources of card models."""

    entry: Entry
    members: Sequence[Member]
    models: Mapping[int, str]

    def amounts(self) -> Resources:
        """What all their places take together."""
        amounts: Resources = {}
        for (task, pool), count in Counter((member.task, member.pool) for member in self.members).items():
            add(amounts, amounts_in(pool, task.requests), count)
        for member in self.members:
            add(amounts, amounts_in(member.pool, {self.models[column]: cards for column, cards in member.models}))
        return amounts


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Why a job gets nothing; `reasons` where it is about nodes; `lacks_room`: nothing but a change of nodes can help it."""

    entry: Entry
    message: str
    reasons: Reasons | None
    lacks_room: bool = False


@dataclass(frozen=True, slots=True)
class Untried:
    """The turn of a job did not come."""

    entry: Entry
