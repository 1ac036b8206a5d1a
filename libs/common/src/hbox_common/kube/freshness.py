"""Freshness of a copy of one kind: up to which resourceVersion it is complete, and when that was last proven.

Theory of operation. An open watch without events looks the same whether nothing happens or the peer vanished, and one with events may come from an API server
whose watch cache lags. So each watch is requested for some seconds only, since the API server sends a bookmark two seconds before the end of every watch; and
when a watch is opened, a consistent list of one item returns the store's resourceVersion (`sampled`). Once the watch delivers a resourceVersion that is not
lower (`reached`), in an event or a bookmark, all changes before the sample have been delivered: the copy is proven as of the sample. A consistent list proves
the copy as of its start (`listed`). If the store's resourceVersion is lower than the copy's, the store was reset, for example restored from a
backup: then no watch proves anything until the copy is listed again.

ResourceVersions of one server are integers that increase across all kinds (KEP-5504); one that is not an integer is compared for equality.
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
        self.went_back = False  #: the store's resourceVersion is lower than the one at which this watch was opened

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
    """Whether `one` is certainly older than `other`; False if either is not a number."""
    return one.isdecimal() and other.isdecimal() and int(one) < int(other)
