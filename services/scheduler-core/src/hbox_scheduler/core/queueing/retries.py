"""Jobs that are tried again when anything changed: so many at a time, by turns of their namespaces, and of one namespace those first that were tried longest
ago.

A job was tried as of a mark, which stands for the state then; it is due again once the state has another one.
"""

from itertools import islice

from hbox_common.model import JobId


class Retries:
    def __init__(self) -> None:
        self._marks: dict[
            str, dict[JobId, object]
        ] = {}  #: by namespace; of each the job that was tried longest ago comes first
        self._namespaces: dict[JobId, str] = {}

    def __bool__(self) -> bool:
        return bool(self._namespaces)

    def __contains__(self, job: JobId) -> bool:
        return job in self._namespaces

    def add(self, job: JobId, namespace: str, mark: object) -> None:
        """The job was tried in vain as of `mark`."""
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
        return any(next(iter(jobs.values())) != mark for jobs in self._marks.values())

    def take(self, most: int, mark: object) -> list[JobId]:
        """So many jobs that were not tried as of `mark`, as many of each namespace as there are turns; they are in no more."""
        found: list[JobId] = []
        while len(found) < most and self._marks:
            turns = list(self._marks)[: most - len(found)]
            taken = [job for name in turns for job, tried in islice(self._marks[name].items(), 1) if tried != mark]
            if not taken and len(turns) == len(self._marks):
                break
            for job in taken:
                self.remove(job)
            for name in turns:
                if name in self._marks:
                    self._marks[name] = self._marks.pop(name)
            found += taken
        return found

    def all(self) -> list[JobId]:
        return list(self._namespaces)
