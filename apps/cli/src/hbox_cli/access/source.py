"""What a source of data answers. The items are those that `hbox ... -o json` prints, whatever the source."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from hbox_common.events import Budget, Event, Usage, UsageKey

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which jobs; None and () = all."""

    namespace: str | None = None
    queue: str | None = None
    states: Sequence[str] = ()
    limit: int | None = None

    def of(self, items: Sequence[Item]) -> list[Item]:
        found = [
            item
            for item in items
            if (self.namespace is None or item["name"].startswith(f"{self.namespace}/"))
            and (self.queue is None or item["queue"] == self.queue)
            and (not self.states or item["state"] in self.states)
        ]
        return found[: self.limit]


class Source(Protocol):
    """All methods raise Unavailable where the source does not answer, NotFound for an unknown name, and InvalidRequest where the user may not read it, with
    `HTTP 403` in the message."""

    def jobs(self, wanted: Wanted) -> list[Item]:
        """Oldest first."""
        ...

    def job(self, name: str) -> Item:
        """By its name, namespace/name, uid, or a pod's name."""
        ...

    def why(self, job: str) -> Item:
        """The job, and what is known of why it waits."""
        ...

    def placement(self, job: str) -> Item:
        """The job, with `decisions`: those that gave it places, oldest first, of those kept; and `since`: when their scheduler started, seconds since the
        epoch."""
        ...

    def node_rules(self, job: str, node: str) -> Item:
        """The job, with `failed`: labels of all rules that the node fails for a pod of it."""
        ...

    def evicted(self, name: str) -> Item:
        """The receipts of evictions of a job or pod of this name, and what the jobs do `now`."""
        ...

    def queues(self) -> list[Item]: ...

    def queue(self, name: str) -> Item: ...

    def share(self, name: str, resource: str) -> Item: ...

    def nodes(self) -> list[Item]: ...

    def devices(self) -> list[Item]:
        """Cards of all nodes."""
        ...

    def node(self, name: str) -> Item: ...

    def usage(self, by: "Sequence[UsageKey]", *, since: int, until: int) -> "tuple[list[Usage], list[Budget]]": ...

    def events(self, take: "Callable[[Event], None]", *, follow: bool) -> None:
        """Calls `take` with each event; with `follow`, new ones until Ctrl-C."""
        ...

    def evictions(self) -> Mapping[str, Any]:
        """Whether evictions are paused."""
        ...
