"""The fabrics that a running platform knows."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hbox_common.events import FabricChanged, FabricGapsFound, FabricSeen
from hbox_common.model import FabricGap, HyperNode

from ..access import running_of
from ..context import Context
from ..session import bus_of, claims_of, jobs_of, last_values
from .drawing import Box


@dataclass(slots=True)
class KnownFabric:
    name: str
    domains: tuple[HyperNode, ...] = ()
    gaps: tuple[FabricGap, ...] = ()
    degraded: dict[str, tuple[int, ...]] = field(default_factory=dict)
    seen: FabricSeen | None = None

    def item(self, now: float) -> dict[str, Any]:
        """`now`: seconds since the epoch."""
        seen = self.seen
        return {
            "name": self.name,
            "source": (seen.source if seen is not None else "") or "cluster",
            "ageSeconds": max(now - seen.seen_at, 0.0) if seen is not None and seen.seen_at else None,
            "domains": len(self.domains),
            "nodes": len({node for one in self.domains for node in one.nodes}),
            "gaps": len(self.gaps),
            "held": seen.held if seen is not None else "",
        }

    def tree(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "domains": [
                {
                    "name": one.name,
                    "tier": one.tier,
                    "tierName": one.tier_name,
                    "nodes": list(one.nodes),
                    "domains": list(one.children),
                }
                for one in self.domains
            ],
            "degradedRails": {node: list(rails) for node, rails in self.degraded.items()},
        }

    def gap_items(self) -> list[dict[str, Any]]:
        return [
            {
                "name": f"{gap.kind}/{gap.host or gap.switch}",
                "fabric": self.name,
                "kind": gap.kind,
                "unit": gap.unit,
                "host": gap.host,
                "rails": list(gap.rails),
                "switch": gap.switch,
                "card": "",
                "message": gap.message,
            }
            for gap in self.gaps
        ]

    def boxes(self) -> list[Box]:
        """The lowest domains that hold nodes, each below the domain that names it; of a node in several the first counts."""
        above = {child: one.name for one in reversed(self.domains) for child in one.children}
        found, seen = [], set[str]()
        for one in sorted(
            (one for one in self.domains if one.nodes), key=lambda one: (one.tier, above.get(one.name, ""), one.name)
        ):
            hosts = [str(node) for node in one.nodes if node not in seen]
            seen.update(hosts)
            if hosts:
                found.append(Box(one.name, above.get(one.name, self.name), hosts))
        return sorted(found, key=lambda box: box.pod)

    def lines(self, *, hosts: bool) -> Iterator[str]:
        """The tree of domains as declared. A domain with two parents is listed below both."""
        by_name = {one.name: one for one in self.domains}
        below = {child for one in self.domains for child in one.children}
        yield f"fabric {self.name}: {len(self.domains)} domains" + (f", {len(self.gaps)} gaps" if self.gaps else "")
        for top in (one for one in self.domains if one.name not in below):
            yield from self._below(top, by_name, "", hosts, frozenset())

    def _below(
        self, one: HyperNode, by_name: dict[str, HyperNode], indent: str, hosts: bool, above: frozenset[str]
    ) -> Iterator[str]:
        if one.name in above:
            return  # its own descendant
        nodes = f", {len(one.nodes)} nodes" if one.nodes else ""
        yield f"{indent}{one.name}  tier {one.tier}{f' ({one.tier_name})' if one.tier_name else ''}{nodes}"
        for child in one.children:
            if child in by_name:
                yield from self._below(by_name[child], by_name, f"{indent}  ", hosts, above | {one.name})
        for node in one.nodes if hosts else ():
            rails = self.degraded.get(node, ())
            yield f"{indent}  {node}" + (f"  without rail {', '.join(map(str, rails))}" if rails else "")


async def occupied(ctx: Context) -> tuple[list[KnownFabric], dict[str, list[str]]]:
    """The fabrics, and by node the jobs that have a place there."""
    known = await fabrics_of(ctx)
    async with bus_of(running_of(ctx)) as bus:
        claims = [claim for page in await claims_of(bus) for claim in page.claims]
        names = {job.id: f"{job.namespace}/{job.name}" for job in (await jobs_of(bus))[0]}
    jobs: dict[str, dict[str, None]] = defaultdict(dict)
    for claim in claims:
        jobs[claim.node][names.get(claim.job) or f"{claim.namespace}/{claim.pod}"] = None
    return known, {node: sorted(names) for node, names in jobs.items()}


async def fabrics_of(ctx: Context) -> list[KnownFabric]:
    """By name; those without domains and source are left out."""
    async with bus_of(running_of(ctx)) as bus:
        values = await last_values(bus, [FabricChanged, FabricSeen, FabricGapsFound])
    found: dict[str, KnownFabric] = {}
    for event in values:
        assert isinstance(event, FabricChanged | FabricSeen | FabricGapsFound)
        known = found.setdefault(event.fabric, KnownFabric(event.fabric))
        match event:
            case FabricChanged(hypernodes=domains):
                known.domains = domains
            case FabricGapsFound(gaps=gaps, degraded=degraded):
                known.gaps, known.degraded = gaps, {str(node): rails for node, rails in degraded.items()}
            case FabricSeen():
                known.seen = event
    return [found[name] for name in sorted(found) if found[name].domains or (found[name].seen and found[name].seen.source)]  # type: ignore[union-attr]
