"""Jobs that are tried again after any change: a bounded number at a time, by turns of their namespaces, and within a namespace those with the oldest attempt
first.

Each attempt records a mark of the state; the job is due again once the state has another mark.
"""

from collections import deque

from hbox_common.model import JobId


class Retries:
    def __init__(self) -> None:
        #: By namespace, in the order of their turns; of each the job that was tried longest ago comes first.
        self._marks: dict[str, dict[JobId, object]] = {}
        self._namespaces: dict[JobId, str] = {}

    def __bool__(self) -> bool:
        return bool(self._namespaces)

    def __contains__(self, job: JobId) -> bool:
        return job in self._namespaces

    def add(self, job: JobId, namespace: str, mark: object) -> None:
        """An attempt for the job failed, in the state `mark`."""
        self.remove(job)
        self._namespaces[job] = namespace
        self._marks.setdefault(namespace, {})[job] = mark

    def remove(self, job: JobId) -> None:
        namespace = self._namespaces.pop(job, None)
        if namespace is not None:
            del self._marks[namespace][job]
            if not self._marks[namespace]:
                del self._marks[namespace]

    def due(self, mark: object) -> bool:
        """Whether a job was not tried as of `mark`."""
        return any(self._is_due(name, mark) for name in self._marks)

    def take(self, most: int, mark: object) -> list[JobId]:
        """So many jobs that were not tried as of `mark`, one of each namespace and then the next ones; they are in no more. A namespace that had a turn comes
        last the next time."""
        found: list[JobId] = []
        turns = deque(name for name in self._marks if self._is_due(name, mark))
        while turns and len(found) < most:
            name = turns.popleft()
            found.append(job := next(iter(self._marks[name])))
            self.remove(job)
            if name in self._marks:
                self._marks[name] = self._marks.pop(name)
                if self._is_due(name, mark):
                    turns.append(name)
        return found

    def all(self) -> list[JobId]:
        return list(self._namespaces)

    def _is_due(self, namespace: str, mark: object) -> bool:
        return next(iter(self._marks[namespace].values())) != mark
