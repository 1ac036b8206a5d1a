"""The fabric at the time of the commit, and until a gang has begun: whether its places still are in the domains that it has to be in.

The scheduler plans by the graph that it knows, and names the domains and the graph's version (`PlanDomain`). A host that was cabled elsewhere meanwhile, or a
graph that is read anew, makes another version here. Judged by a newer version alone: where the plan is as new, or newer, nothing is known better. A domain's
name outlives changes elsewhere, so that its name and its nodes say all.

A gang of which nothing is bound when the graph changes is taken back as a whole and planned anew. Of one that has begun nothing is taken: what runs is never
moved by a change of the fabric.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hbox_common.events import Plan, PlanDomain
from hbox_common.model import HyperNode, NodeName, Refusal, RefusalReason


@dataclass(frozen=True, slots=True)
class Bound:
    """Nodes that have to be in one domain."""

    fabric: str
    domain: str
    version: int
    nodes: tuple[NodeName, ...]


class Leaf(NamedTuple):
    """A domain that contains nodes itself."""

    name: str
    size: int  #: number of its nodes


@dataclass(slots=True)
class Fabrics:
    """The last published domains of all fabrics."""

    changes: int = 0  #: rises with every one of them
    _versions: dict[str, int] = field(default_factory=dict)
    _domains: dict[str, Mapping[str, HyperNode]] = field(default_factory=dict)
    _leaves: dict[NodeName, Leaf] | None = None  #: None: not read since the last change

    def put(self, fabric: str, version: int, domains: Iterable[HyperNode]) -> None:
        """All domains of a fabric, from now on."""
        self._versions[fabric] = version
        self._domains[fabric] = {one.name: one for one in domains}
        self.changes += 1
        self._leaves = None

    def leaf(self, node: NodeName) -> Leaf | None:
        """The domain of the first fabric that contains the node itself; None if there is none."""
        if self._leaves is None:
            self._leaves = {}
            for domains in self._domains.values():
                for one in domains.values():
                    leaf = Leaf(one.name, len(one.nodes))
                    for name in one.nodes:
                        self._leaves.setdefault(name, leaf)
        return self._leaves.get(node)

    def refusal(self, plan: Plan) -> Refusal | None:
        """Why the plan's places do not do any more."""
        wrong = next(filter(None, (self.problem(bound) for bound in bounds_of(plan))), "") if plan.domains else ""
        return Refusal(RefusalReason.FABRIC_CHANGED, wrong) if wrong else None

    def problem(self, bound: Bound) -> str:
        """What has changed about it since its plan was made; "" = nothing that matters."""
        if self._versions.get(bound.fabric, 0) <= bound.version:
            return ""
        inside = self._nodes(bound.fabric, bound.domain)
        if inside is None:
            return f"the fabric changed since the plan was made: there is no domain {bound.domain} any more"
        outside = [node for node in bound.nodes if node not in inside]
        if not outside:
            return ""
        more = f" and {len(outside) - 1} more" if len(outside) > 1 else ""
        return f"the fabric changed since the plan was made: {outside[0]}{more} not in {bound.domain} any more"

    def _nodes(self, fabric: str, domain: str) -> set[NodeName] | None:
        """All nodes below a domain; None = there is no such domain."""
        domains = self._domains.get(fabric, {})
        if domain not in domains:
            return None
        seen, found = {domain}, set[NodeName]()
        waiting = [domain]
        while waiting:
            one = domains[waiting.pop()]
            found.update(one.nodes)
            below = [child for child in one.children if child in domains and child not in seen]
            seen.update(below)
            waiting += below
        return found


def bounds_of(plan: Plan) -> Iterator[Bound]:
    """Of a plan that is not malformed (`domains_fault`)."""
    for one in plan.domains:
        chosen = [plan.placements[number] for number in one.placements] if one.placements else plan.placements
        yield Bound(one.fabric, one.domain, one.version, tuple(placement.node for placement in chosen))


def domains_fault(domains: Sequence[PlanDomain], placements: int) -> str:
    """What is wrong with the domains that a plan names; "" = nothing."""
    wrong = any(not 0 <= number < placements for one in domains for number in one.placements)
    return "a domain of the plan names a placement that it does not have" if wrong else ""
