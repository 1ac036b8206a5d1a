"""Counts of placed members on every node by pod term, for inter-pod affinity and topology spread.

A term consists of a selector and namespaces. After the first query for a term, every placement updates its counts. Terms without a query cost nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from hbox_common.model import PodTerm, selects

from .arrays import Bools, Ints
from .columns import Columns
from .entities import Member

#: Terms; the namespace of their pod, which applies to terms without namespaces; whether to exclude members that are being deleted.
TermKey: TypeAlias = tuple[tuple[PodTerm, ...], str, bool]


#: The fields of `PodConstraints` that contain terms about other pods.
Constraint: TypeAlias = Literal["affinity", "anti_affinity", "preferred_affinity", "preferred_anti_affinity"]


@dataclass(slots=True)
class TermCounts:
    """Placed members that have one term among their constraints, by node."""

    term: PodTerm
    namespace: str
    counts: Ints
    weight: int = 0


@dataclass(slots=True)
class Population:
    """Placed members of a session, by node row."""

    columns: Columns
    namespace_labels: Mapping[str, Mapping[str, str]]
    _members: dict[int, tuple[Member, int]] = field(default_factory=dict)  #: id(member) -> member, row
    _constrained: dict[int, tuple[Member, int]] = field(default_factory=dict)  #: the members with inter-pod terms
    _matching: dict[TermKey, Ints] = field(default_factory=dict)
    _by_term: dict[Constraint, dict[tuple[PodTerm, str, int], TermCounts]] = field(default_factory=dict)

    _beginning: "Callable[[], Population] | None" = None  #: until the first query: source of the initial members
    _since: list[tuple[Sequence[Member], bool]] = field(default_factory=list)  #: placed (True) or displaced members until then
    _constraining: bool = True  #: whether any member may have inter-pod terms

    @classmethod
    def beginning_with(
        cls,
        before: "Callable[[], Population]",
        columns: Columns,
        namespace_labels: Mapping[str, Mapping[str, str]],
        *,
        constrained: bool,
    ) -> "Population":
        """A population with the members of `before`, which the first query evaluates. `constrained`: whether one of them may have inter-pod terms."""
        return cls(columns, namespace_labels, _beginning=before, _constraining=constrained)

    def _begin(self) -> None:
        if self._beginning is not None:
            before, since, self._beginning, self._since = self._beginning(), self._since, None, []
            self._members, self._constrained = dict(before._members), dict(before._constrained)
            for members, came in since:
                if came:
                    self.put_all(members)
                else:
                    self.take_all(members)

    def put(self, member: Member, row: int) -> None:
        if self._beginning is not None:
            self._since.append(((member,), True))
            self._constraining = self._constraining or bool(member.constraints)
            return
        self._members[id(member)] = (member, row)
        if member.constraints:
            self._constrained[id(member)] = (member, row)
        self._count(member, row, 1)

    def put_all(self, members: Sequence[Member]) -> None:
        """Add members, each on its current row."""
        constrained = (not members[:1] or not members[0].gang.plain) and any(member.constraints for member in members)
        if self._beginning is not None:
            self._since.append((members, True))
            self._constraining = self._constraining or constrained
        elif self._matching or constrained:
            for member in members:
                self.put(member, member.row)
        else:
            places = zip(members, [member.row for member in members], strict=True)
            self._members.update(zip(map(id, members), places, strict=True))

    def take(self, member: Member) -> None:
        if self._beginning is not None:
            self._since.append(((member,), False))
            return
        found = self._members.pop(id(member), None)
        if found is not None:
            self._constrained.pop(id(member), None)
            self._count(member, found[1], -1)

    def take_all(self, members: Sequence[Member]) -> None:
        if self._beginning is not None:
            self._since.append((members, False))
        elif self._matching or any(member.constraints for member in members):
            for member in members:
                self.take(member)
        else:
            for member in members:
                self._members.pop(id(member), None)

    def of(self, terms: tuple[PodTerm, ...], namespace: str, *, staying: bool = False) -> Ints:
        """`[N]`: number of members that match all terms of a pod in `namespace`. `staying`: exclude members that are being deleted. Callers must not modify the
        array."""
        self._begin()
        key = (terms, namespace, staying)
        found = self._matching.get(key)
        if found is None:
            found = self._matching[key] = np.zeros(self.columns.size, dtype=np.int64)
            for member, row in self._members.values():
                if self._counts(key, member):
                    found[row] += 1
        return found

    def _counts(self, key: TermKey, member: Member) -> bool:
        terms, namespace, staying = key
        return not (staying and member.leaving) and self.matches(terms, namespace, member)

    def matches(self, terms: tuple[PodTerm, ...], namespace: str, member: Member) -> bool:
        return all(self._meant(term, namespace, member) and selects(term.selector, member.labels) for term in terms)

    def term_counts(self, constraint: Constraint) -> Iterator[TermCounts]:
        """The terms of placed members for this constraint, with the rows of these members."""
        if self._beginning is not None and not self._constraining:
            return iter(())
        self._begin()
        found = self._by_term.get(constraint)
        if found is None:
            found = self._by_term[constraint] = {}
            for member, row in self._constrained.values():
                self._count_term(constraint, member, row, 1)
        return (one for one in found.values() if one.counts.any())

    def per_domain(self, counts: Ints, topology_key: str) -> tuple[Ints, Bools]:
        """`[N]` sums of `counts` over each node's domain, and `[N]` nodes that have the key at all."""
        codes = self.columns.descriptions.column(topology_key).codes[: self.columns.size]
        alive = self.columns.alive[: self.columns.size]
        sums = np.bincount(codes, weights=counts * alive).astype(np.int64)
        return sums[codes], (codes > 0) & alive

    def _meant(self, term: PodTerm, namespace: str, member: Member) -> bool:
        if member.namespace in term.namespaces:
            return True
        if term.namespace_selector is not None:
            return selects(term.namespace_selector, self.namespace_labels.get(member.namespace, {}))
        return not term.namespaces and member.namespace == namespace

    def _count(self, member: Member, row: int, times: int) -> None:
        for key, counts in self._matching.items():
            if self._counts(key, member):
                counts[row] += times
        if not member.constraints:
            return
        for constraint in self._by_term:
            self._count_term(constraint, member, row, times)

    def _count_term(self, constraint: Constraint, member: Member, row: int, times: int) -> None:
        table = self._by_term[constraint]
        for weight, term in _terms(constraint, member):
            key = (term, member.namespace, weight)
            found = table.get(key)
            if found is None:
                found = table[key] = TermCounts(term, member.namespace, np.zeros(self.columns.size, dtype=np.int64), weight)
            found.counts[row] += times


def _terms(constraint: Constraint, member: Member) -> list[tuple[int, PodTerm]]:
    constraints = member.constraints
    match constraint:
        case "affinity":
            return [(0, term) for term in constraints.affinity]
        case "anti_affinity":
            return [(0, term) for term in constraints.anti_affinity]
        case "preferred_affinity":
            return [(one.weight, one.term) for one in constraints.preferred_affinity]
        case "preferred_anti_affinity":
            return [(one.weight, one.term) for one in constraints.preferred_anti_affinity]
