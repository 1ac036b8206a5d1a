"""Labels of namespaces, for pods that mean others by the namespace that they are in: those that some `namespaceSelector` asks about, and no more."""

from collections import Counter
from collections.abc import Iterable, Mapping

from hbox_common.model import PodTerm


class Namespaces:
    """Published as a whole, and again if any part changes: namespaces are few, and change rarely."""

    def __init__(self) -> None:
        self._labels: dict[str, Mapping[str, str]] = {}
        self._asked: Counter[str] = Counter()
        self._published: Mapping[str, Mapping[str, str]] | None = None  # unknown: an earlier process may have published any
        self._stale = False

    def put(self, name: str, labels: Mapping[str, str]) -> None:
        """A namespace as it is now."""
        if self._labels.get(name) != labels:
            self._labels[name] = labels
            self._stale = bool(self._asked)

    def gone(self, name: str) -> None:
        if self._labels.pop(name, None) is not None:
            self._stale = bool(self._asked)

    def ask(self, terms: Iterable[PodTerm], times: int = 1) -> None:
        """A pod has these terms; -1: no longer."""
        for term in terms:
            for match in term.namespace_selector.matches if term.namespace_selector is not None else ():
                before = self._asked[match.key]
                self._asked[match.key] += times
                if not self._asked[match.key]:
                    del self._asked[match.key]
                self._stale |= before == 0

    @property
    def due(self) -> bool:
        """Whether the namespaces have to be published."""
        if self._stale:
            self._stale = self.all() != self._published
        return self._stale

    def take(self) -> Mapping[str, Mapping[str, str]] | None:
        """All that is asked about, where that has changed."""
        if not self.due:
            return None
        self._published, self._stale = self.all(), False
        return self._published

    def all(self) -> Mapping[str, Mapping[str, str]]:
        """Namespaces that have any of the labels, with those."""
        asked = self._asked.keys()
        named = ((name, {key: labels[key] for key in asked & labels.keys()}) for name, labels in self._labels.items())
        return {name: labels for name, labels in named if labels}
