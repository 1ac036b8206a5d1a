"""How far a copy of one kind can be trusted: up to which resourceVersion it is complete, and when that was proven last.

Theory of operation. An open watch that brings nothing looks the same whether nothing happens or the other side is gone, and one that brings
something may come from an API server whose watch cache lags. So each watch is asked to last some seconds only, for the API server sends a bookmark two
seconds before the end of every watch; and when it is opened, a consistent list of one item tells the resourceVersion at which the
store stands (`sampled`). Once the watch shows a resourceVersion that is not lower (`reached`), by an event or a bookmark, all that happened before the
sample was asked for has been delivered: the copy is proven as of then. A consistent list proves the copy as of its begin (`listed`). A store that stands
before the copy has gone back, as one restored from a backup has: no watch proves anything then, until the copy is listed anew.

ResourceVersions of one server are whole numbers that rise over all kinds (KEP-5504); one that is none is compared for equality.
"""

from dataclasses import dataclass

#: A view that was last proven so long ago is old: nothing new is decided on it. Two watches and their grace; they prove it every 6 to 11 s.
OLD_S = 20.0


@dataclass(frozen=True, slots=True)
class Freshness:
    """A copy's standing. `age_s`: seconds since the moment as of which it was proven complete, infinite before the first list; `why`: what is wrong,
    for people, empty where nothing is."""

    resource_version: str
    age_s: float
    why: str = ""

    @property
    def old(self) -> bool:
        return self.age_s > OLD_S


class Proof:
    """Times are monotonic seconds."""

    def __init__(self) -> None:
        self.proven_at = float("-inf")
        self._sample: tuple[str, float] | None = None
        self.went_back = False  #: the store stands before where this watch was opened

    @property
    def waiting(self) -> bool:
        """Whether the watch has not come to the sample yet."""
        return self._sample is not None

    def forget(self) -> None:
        """Another watch begins, with another sample."""
        self._sample = None

    def listed(self, at: float) -> None:
        """A consistent list that was begun then is complete."""
        self._prove(at)

    def sampled(self, resource_version: str, at: float, *, watched_from: str) -> None:
        """The store stood there when it was asked, at `at` or later; the watch was opened at `watched_from`."""
        self._sample = resource_version, at
        self.went_back = older(resource_version, watched_from)

    def reached(self, resource_version: str) -> bool:
        """The watch has delivered everything up to there. True where that proves the copy as of the last sample; each sample proves once."""
        if self._sample is None or self.went_back or not not_before(resource_version, self._sample[0]):
            return False
        self._prove(self._sample[1])
        self._sample = None
        return True

    def _prove(self, at: float) -> None:
        self.proven_at = max(self.proven_at, at)


def not_before(one: str, other: str) -> bool:
    """Whether `one` is as new as `other`, or newer."""
    if one.isdecimal() and other.isdecimal():
        return int(one) >= int(other)
    return one == other


def older(one: str, other: str) -> bool:
    """Whether `one` is surely older than `other`: of what is no number nobody knows."""
    return one.isdecimal() and other.isdecimal() and int(one) < int(other)
