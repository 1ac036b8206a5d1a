"""How the tree is found in a snapshot that is never whole: links are down, cables are swapped, cards have no names.

1. **Units.** Two leaves belong together when the hosts that are on both are at least 0.7 of those on either (single link): of a unit with a leaf for each
   rail every leaf has the same hosts, but for those whose link is down or elsewhere. A host belongs to the unit that has most of its links. A leaf where no
   host belongs by that vote carries management or storage and makes no unit, nor do machines with few links beside those with many.
2. **Rails.** The rail of a leaf is its rank in the unit by the name of the card that most hosts have there. A card that is on another leaf than most cards of
   its name is swapped (within the unit) or miswired (beyond). Card numbers alone say nothing: mlx5_4 is rail 3 on some machines.
3. **Pods.** The same one level up, with units in place of hosts and switches above leaves in place of leaves; the chips of a director count as one switch.
   Dragonfly groups come out as pods. Switches further up only say which pods reach each other; one without hosts is never a root, nor does it join pods.
4. **Names** are those of the former tree where most leaves (spines) are the same. A new one is called by what its switches' names have in common, where
   that is nobody else's, or by a hash of their GUIDs: what changes elsewhere renames nothing.

The method is measured on a capture of 458 machines: 25 units of 25 at up to 10 % of links down and 2 % of cables swapped, where connected components find 3 and
identical sets of hosts 190 (tests/property/test_fabric_properties.py; sources: fabric-groups).
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeVar

from hbox_common.errors import InvalidRequest
from hbox_common.model.fabric import HostLink, Snapshot, Switch, Trunk

from .graph import Finding, Graph, Kind, Pod, Port, Role, Root, Unit
from .names import SPEEDS, natural

SIMILAR = 0.7
#: Pairs of leaves that have a machine in common: a fabric of 10,000 cards has some 10,000, with a tenth of its cables swapped 60,000.
MAX_PAIRS = 500_000
#: Kinds of machines, by the names of their cards.
MAX_MODELS = 64
#: Leaves of one host that are compared with each other; more links than this has no machine.
MAX_LEAVES_OF_A_HOST = 64

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose card it is, as somebody on the machine itself says."""

    host: str
    hca: str = ""


@dataclass(slots=True)
class _Group:
    """A unit while it is found out."""

    leaves: list[str]
    hosts: list[str]
    name: str = ""


def build(
    snapshot: Snapshot, *, former: Graph | None = None, inventory: Mapping[str, Owner] | None = None, other_hcas: str = ""
) -> Graph:
    """The tree of a snapshot.

    Raises InvalidRequest for one that no fabric has, and that would take hours.

    former: the tree before, for names and for hosts that lost most of their links. inventory: owners of cards by GUID, which win over descriptions.
    other_hcas: regular expression of cards that are not for compute, where the operator knows; else votes decide.
    """
    links = [_named(link, inventory or {}) for link in snapshot.hosts]
    ignored = re.compile(other_hcas) if other_hcas else None
    voting = [link for link in links if link.host and link.up and link.switch and not (ignored and ignored.fullmatch(link.hca))]
    groups = _units(voting, former)
    _name_units(groups, snapshot.switches, former)
    groups.sort(key=lambda group: natural(group.name))
    wiring = _Wiring(snapshot, links, groups)
    units = wiring.units()
    pods = _pods(snapshot, units, former)
    found = [*wiring.findings(), *_uplinks(snapshot, units), *_trunks(snapshot.trunks, snapshot.switches)]
    in_units = {host for unit in units for host in unit.hosts}
    return Graph(
        switches=snapshot.switches,
        units=units,
        pods=pods,
        roots=_roots(snapshot, units, pods),
        ports=tuple(wiring.ports),
        findings=tuple(sorted(found, key=_order)),
        levels=_levels(snapshot, units, pods),
        others=tuple(sorted({link.host for link in links if link.host} - in_units, key=natural)),
        degraded={host: tuple(sorted(rails)) for host, rails in sorted(wiring.degraded.items())},
        problems=snapshot.problems,
        cables=len(snapshot.trunks),
    )


def _named(link: HostLink, inventory: Mapping[str, Owner]) -> HostLink:
    owner = inventory.get(link.card)
    return link if owner is None else replace(link, host=owner.host, hca=owner.hca or link.hca)


def _order(finding: Finding) -> tuple[object, ...]:
    return list(Kind).index(finding.kind), natural(finding.host), finding.rails, natural(finding.switch), finding.card


# Units.


def _units(links: Sequence[HostLink], former: Graph | None) -> list[_Group]:
    on: dict[str, Counter[str]] = defaultdict(Counter)  #: links by leaf, of a host
    hosts: dict[str, set[str]] = defaultdict(set)  #: of a leaf
    for link in links:
        on[link.host][link.switch] += 1
        hosts[link.switch].add(link.host)
    part = _parts(hosts, on)
    main = _main_hosts(on)
    group_of: dict[str, str] = {}
    before = _group_before(former, part) if former is not None else {}
    for host, leaves in on.items():
        votes: Counter[str] = Counter()
        for leaf, count in leaves.items():
            votes[part[leaf]] += count
        most = max(votes.values())
        best = sorted(group for group, count in votes.items() if count == most)
        known = before.get(host, "")
        group_of[host] = known if known in votes and (known in best or 2 * most < main.typical) else best[0]
    members: dict[str, list[str]] = defaultdict(list)
    for host, name in group_of.items():
        members[name].append(host)
    leaves_of: dict[str, list[str]] = defaultdict(list)
    for leaf in sorted(hosts):
        leaves_of[part[leaf]].append(leaf)
    groups = {
        name: _Group(leaves_of[name], sorted(of, key=natural))
        for name, of in members.items()
        if any(host in main.hosts for host in of)
    }
    _adopt(groups, group_of, hosts, former)
    return list(groups.values())


@dataclass(frozen=True, slots=True)
class _Main:
    typical: int  #: links of the machines that have most of all links
    hosts: frozenset[str]


def _main_hosts(on: Mapping[str, Counter[str]]) -> _Main:
    """Machines that are worth a unit: with at least half as many links as is usual, by link."""
    counts: Counter[int] = Counter()
    for leaves in on.values():
        counts[leaves.total()] += leaves.total()
    typical = max(counts, key=lambda count: (counts[count], count), default=1)
    return _Main(typical, frozenset(host for host, leaves in on.items() if 2 * leaves.total() >= typical))


def _parts(members: Mapping[str, set[str]], of: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Name of the part of each key; keys whose members are alike are in one part."""
    shared: Counter[tuple[str, str]] = Counter()
    for keys in of.values():
        shared.update(combinations(sorted(keys)[:MAX_LEAVES_OF_A_HOST], 2))
        if len(shared) > MAX_PAIRS:
            raise InvalidRequest(
                f"more than {MAX_PAIRS} pairs of switches have a machine in common", hint="no fabric is cabled like this"
            )
    joined = _Joined(members)
    for (a, b), count in shared.items():
        if count >= SIMILAR * (len(members[a]) + len(members[b]) - count):
            joined.join(a, b)
    return {key: joined.of(key) for key in members}


class _Joined:
    """Disjoint sets."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._above = {key: key for key in keys}

    def of(self, key: str) -> str:
        above = self._above
        while above[key] != key:
            above[key] = above[above[key]]
            key = above[key]
        return key

    def join(self, a: str, b: str) -> None:
        a, b = sorted((self.of(a), self.of(b)))
        self._above[b] = a


def _group_before(former: Graph, part: Mapping[str, str]) -> dict[str, str]:
    """Of hosts: the group of today that has most leaves of their former unit."""
    out = {}
    for unit in former.units:
        votes = Counter(part[leaf] for leaf in unit.leaves if leaf in part)
        if votes:
            group = max(sorted(votes), key=lambda name: votes[name])
            out.update(dict.fromkeys(unit.hosts, group))
    return out


def _adopt(groups: dict[str, _Group], group_of: Mapping[str, str], hosts: Mapping[str, set[str]], former: Graph | None) -> None:
    """Leaves of no unit, most of whose hosts are of one, and at least half of that one's: a leaf that lost many links. Else its past decides."""
    was = {leaf: unit for unit in former.units for leaf in unit.leaves} if former is not None else {}
    taken = {leaf for group in groups.values() for leaf in group.leaves}
    for leaf in sorted(set(hosts) - taken):
        votes = Counter(group_of[host] for host in hosts[leaf])
        name = max(sorted(votes), key=lambda name: votes[name])
        group = groups.get(name)
        if group is None or votes[name] < SIMILAR * len(hosts[leaf]):
            continue
        known = leaf in was and len(set(was[leaf].leaves) & set(group.leaves)) * 2 > len(group.leaves)
        if known or 2 * votes[name] >= len(group.hosts):
            group.leaves.append(leaf)


# Names.


def _name_units(groups: Sequence[_Group], switches: Mapping[str, Switch], former: Graph | None) -> None:
    names = names_of(
        [group.leaves for group in groups],
        switches,
        {unit.name: unit.leaves for unit in former.units} if former is not None else {},
        "unit",
    )
    for group, name in zip(groups, names, strict=True):
        group.name = name


def names_of(
    parts: Sequence[Sequence[str]], switches: Mapping[str, Switch], former: Mapping[str, Sequence[str]], word: str
) -> list[str]:
    """A name for each part, by its switches (GUIDs): the one it had, else what its switches' names have in common, else a hash."""
    names = [""] * len(parts)
    overlaps = []
    index = {guid: place for place, part in enumerate(parts) for guid in part}
    for name, guids in former.items():
        for place, shared in Counter(index[guid] for guid in guids if guid in index).items():
            overlaps.append((-shared, name, place))
    taken: set[str] = set()
    for _, name, place in sorted(overlaps):
        if not names[place] and name not in taken:
            names[place] = name
            taken.add(name)
    wanted = [_common_name([switches[guid].name for guid in part]) for part in parts]
    unique = Counter(wanted)
    for place in sorted(range(len(parts)), key=lambda place: sorted(parts[place])):
        if names[place]:
            continue
        common = wanted[place]
        digest = hashlib.sha256(" ".join(sorted(parts[place])).encode()).hexdigest()
        if common and unique[common] == 1 and common not in taken:
            names[place] = common
        else:
            names[place] = next(name for size in range(8, 65, 4) if (name := f"{word}-{digest[:size]}") not in taken)
        taken.add(names[place])
    return names


_TOKEN = re.compile(r"[-_.:/]+")
_NOT_NAME = re.compile(r"[^a-z0-9]+")


def _common_name(names: Sequence[str]) -> str:
    """The longest beginning, in whole words, that at least 0.7 of the names have; "" where there is none that could name an object."""
    votes: Counter[str] = Counter()
    for name in names:
        tokens = [word for word in _TOKEN.split(name.lower()) if word]
        whole = len(tokens) if len(names) == 1 else len(tokens) - 1
        votes.update({"-".join(tokens[:length]) for length in range(1, whole + 1)})
    best = max((text for text, count in votes.items() if count >= SIMILAR * len(names)), key=len, default="")
    return _NOT_NAME.sub("-", best).strip("-")[:50].strip("-")


# Rails.


class _Wiring:
    """Which rail each link is of, and which links are not where those of their name are."""

    def __init__(self, snapshot: Snapshot, links: Sequence[HostLink], groups: Sequence[_Group]) -> None:
        self._switches = snapshot.switches
        self._groups = {group.name: group for group in groups}
        self._unit_of = {host: group.name for group in groups for host in group.hosts}
        self._unit_at = {leaf: group.name for group in groups for leaf in group.leaves}
        self._links = links
        self._of_host: dict[str, list[HostLink]] = defaultdict(list)
        for link in links:
            if link.host in self._unit_of:
                self._of_host[link.host].append(link)
        self._other = self._other_hcas()
        self._rails: dict[str, _Rails] = {name: self._rails_of(group) for name, group in self._groups.items()}
        self._align()
        self.degraded: dict[str, set[int]] = defaultdict(set)
        self.ports = [self._port(link) for link in links]

    def units(self) -> tuple[Unit, ...]:
        out = []
        for name, group in self._groups.items():
            rails = self._rails[name]
            leaves = sorted(group.leaves, key=lambda leaf: (rails.of_leaf.get(leaf, 0), leaf))
            out.append(Unit(name, tuple(leaves), tuple(group.hosts), len(rails.numbers), rails.optimised))
        return tuple(out)

    def findings(self) -> list[Finding]:
        out: list[Finding] = []
        unnamed: Counter[tuple[str, int]] = Counter(
            (port.unit, port.rail) for port in self.ports if port.role is Role.UNKNOWN and port.unit
        )
        lacking: dict[tuple[str, int], list[str]] = defaultdict(list)
        for host, unit in self._unit_of.items():
            out += self._of_one(host, unit, lacking)
        for (unit, rail), hosts in lacking.items():
            if unnamed[unit, rail] >= len(hosts):
                continue  # theirs are among those that do not say whose they are
            for host in hosts:
                hca, card = self._lost(host, unit, rail)
                self.degraded[host].add(rail)
                out.append(Finding(Kind.LINK_DOWN, host, hca, (rail,), unit=unit, card=card))
        for port in self.ports:
            if port.role is Role.UNKNOWN and port.link.switch:
                owners = lacking.get((port.unit, port.rail), ())
                owner = owners[0] if len(owners) == 1 == unnamed[port.unit, port.rail] else ""
                where = self._switches[port.link.switch].name
                rails = (port.rail,) if port.rail else ()
                out.append(Finding(Kind.UNNAMED, owner, "", rails, where, unit=port.unit, card=port.link.card))
        return [*out, *self._speeds(), *self._other_leaves()]

    def _other_hcas(self) -> dict[str, frozenset[str]]:
        """By unit: cards of which most are on leaves of no unit, or of another. Few of a kind are judged by all units."""
        inside: Counter[tuple[str, str]] = Counter()
        outside: Counter[tuple[str, str]] = Counter()
        for host, links in self._of_host.items():
            unit = self._unit_of[host]
            for link in links:
                if link.switch:
                    where = inside if self._unit_at.get(link.switch) == unit else outside
                    where[unit, link.hca] += 1
                    where["", link.hca] += 1
        out: dict[str, set[str]] = defaultdict(set)
        for (unit, hca), count in outside.items():
            key = (unit, hca) if count + inside[unit, hca] >= 3 else ("", hca)
            if unit and outside[key] > inside[key]:
                out[unit].add(hca)
        return {unit: frozenset(hcas) for unit, hcas in out.items()}

    def _rails_of(self, group: _Group) -> "_Rails":
        leaves, other = set(group.leaves), self._other.get(group.name, frozenset())
        at: dict[str, Counter[str]] = defaultdict(Counter)  #: cards by leaf
        of: dict[str, Counter[str]] = defaultdict(Counter)  #: leaves by card
        spread: Counter[int] = Counter()
        for host in group.hosts:
            here = [link for link in self._of_host[host] if link.switch in leaves and link.hca not in other]
            for link in here:
                at[link.switch][link.hca] += 1
                of[link.hca][link.switch] += 1
            spread[max(Counter(link.switch for link in here).values(), default=0)] += 1
        home = {hca: _most(counts) for hca, counts in of.items()}
        if len(leaves) > 1 and _most(spread) <= 1:
            order = sorted(at, key=lambda leaf: (natural(_most(at[leaf])), leaf))
            of_leaf = {leaf: rail for rail, leaf in enumerate(order, 1)}
            hcas = [_most(at[leaf]) for leaf in order]
            return _Rails(True, of_leaf, {hca: of_leaf[leaf] for hca, leaf in home.items()}, home, hcas)
        usual = sorted((hca for hca, counts in of.items() if hca and 2 * counts.total() >= len(group.hosts)), key=natural)
        return _Rails(False, {}, {hca: rail for rail, hca in enumerate(usual, 1)}, home, usual)

    def _align(self) -> None:
        """A unit without some leaf has the rail numbers of those that have all: the others' cards say which is missing."""
        whole = Counter(tuple(rails.hcas) for rails in self._rails.values() if rails.optimised)
        usual = whole.most_common(MAX_MODELS)
        for rails in self._rails.values():
            if not rails.optimised:
                continue
            wider = [hcas for hcas, _ in usual if len(hcas) > len(rails.hcas) and _contains(hcas, rails.hcas)]
            if wider:
                best = max(wider, key=lambda hcas: (whole[hcas], hcas))
                number = {hca: rail for rail, hca in enumerate(best, 1)}
                renamed = {rail: number[hca] for rail, hca in enumerate(rails.hcas, 1)}
                rails.of_leaf = {leaf: renamed[rail] for leaf, rail in rails.of_leaf.items()}
                rails.of_hca = {hca: renamed[rail] for hca, rail in rails.of_hca.items()}

    def _port(self, link: HostLink) -> Port:
        at = self._unit_at.get(link.switch, "")
        if not link.host:
            return Port(link, Role.UNKNOWN, self._rails[at].of_leaf.get(link.switch, 0) if at else 0, at)
        unit = self._unit_of.get(link.host, "")
        if not unit or link.hca in self._other.get(unit, ()):
            return Port(link, Role.OTHER, 0, at)
        rails = self._rails[unit]
        rail = rails.of_leaf.get(link.switch, 0) if rails.optimised and at == unit else 0
        return Port(link, Role.COMPUTE, rail or rails.of_hca.get(link.hca, 0), at)

    def _of_one(self, host: str, unit: str, lacking: dict[tuple[str, int], list[str]]) -> list[Finding]:
        """What is wrong with the cables of a host; rails without any cable go to `lacking`."""
        rails, other = self._rails[unit], self._other.get(unit, frozenset())
        out: list[Finding] = []
        there: set[int] = set()
        swapped: set[int] = set()
        for link in self._of_host[host]:
            if link.hca in other or not link.up or not link.switch:
                continue
            meant = rails.of_hca.get(link.hca, 0)
            if self._unit_at.get(link.switch) != unit:
                expected = self._switches[rails.home[link.hca]].name if link.hca in rails.home else ""
                actual = self._switches[link.switch].name
                numbers = (meant,) if meant else ()
                out.append(Finding(Kind.MISWIRE, host, link.hca, numbers, actual, "", expected, actual, unit, link.card))
                there.update(numbers)
                self.degraded[host].update(numbers)
            elif not rails.optimised:
                there.add(meant)
            else:
                rail = rails.of_leaf.get(link.switch, meant)
                there.add(rail)
                if meant and meant != rail:
                    swapped |= {meant, rail}
                    there.add(meant)
        if swapped:
            out.append(Finding(Kind.RAIL_SWAP, host, "", tuple(sorted(swapped)), unit=unit))
            self.degraded[host] |= swapped
        for rail in rails.numbers - there:
            lacking[unit, rail].append(host)
        return out

    def _lost(self, host: str, unit: str, rail: int) -> tuple[str, str]:
        """Card (name, GUID) that a host should have on a rail: one that is down there, else what most others have."""
        for link in self._of_host[host]:
            if not link.up and self._rails[unit].of_hca.get(link.hca) == rail:
                return link.hca, link.card
        have = {link.hca for link in self._of_host[host]}
        usual = [hca for hca, number in self._rails[unit].of_hca.items() if number == rail and hca not in have]
        return (min(usual, key=natural) if usual else ""), ""

    def _speeds(self) -> list[Finding]:
        """Links below what most of their unit have."""
        usual: dict[str, Counter[tuple[int, str]]] = defaultdict(Counter)
        concerned = [port for port in self.ports if port.role is Role.COMPUTE and port.link.up and port.link.speed]
        for port in concerned:
            usual[port.unit][port.link.width, port.link.speed] += 1
        out = []
        for port in concerned:
            link = port.link
            width, speed = _most(usual[port.unit])
            kind = _below(link.speed, link.width, speed, width)
            if kind is not None:
                rails = (port.rail,) if port.rail else ()
                expected, actual = f"{width}x{speed}", f"{link.width}x{link.speed}"
                self.degraded[link.host] |= set(rails)
                out.append(Finding(kind, link.host, link.hca, rails, "", "", expected, actual, port.unit, link.card))
        return out

    def _other_leaves(self) -> list[Finding]:
        cards: dict[str, Counter[str]] = defaultdict(Counter)
        for port in self.ports:
            if port.role is Role.OTHER and port.link.switch and not port.unit:
                cards[port.link.switch][port.link.hca if port.link.host in self._unit_of else ""] += 1
        return [
            Finding(Kind.OTHER_LEAF, hca=_most(hcas), switch=self._switches[leaf].name, card=leaf)
            for leaf, hcas in cards.items()
        ]


@dataclass(slots=True)
class _Rails:
    optimised: bool  #: each rail has a leaf of its own
    of_leaf: dict[str, int]
    of_hca: dict[str, int]
    home: dict[str, str]  #: the leaf where most cards of a name are
    hcas: list[str]  #: the usual card of each rail

    @property
    def numbers(self) -> frozenset[int]:
        return frozenset(self.of_leaf.values() if self.optimised else self.of_hca.values()) - {0}


def _most(counts: Counter[K]) -> K:
    """The most frequent, of equals the least."""
    most = max(counts.values())
    return min((key for key, count in counts.items() if count == most), key=str)


def _contains(long: Sequence[str], short: Sequence[str]) -> bool:
    """In the same order."""
    rest = iter(long)
    return all(one in rest for one in short)


def _below(speed: str, width: int, usual_speed: str, usual_width: int) -> Kind | None:
    if SPEEDS.get(speed, 0) < SPEEDS.get(usual_speed, 0) and speed in SPEEDS:
        return Kind.SLOW
    return Kind.NARROW if 0 < width < usual_width else None


# Above the leaves.


def _uplinks(snapshot: Snapshot, units: Sequence[Unit]) -> list[Finding]:
    """Leaves with fewer cables upwards than most leaves that share their spines."""
    unit_at = {leaf: unit.name for unit in units for leaf in unit.leaves}
    up: dict[str, Counter[str]] = {leaf: Counter() for leaf in unit_at}
    below: dict[str, set[str]] = defaultdict(set)
    for trunk in snapshot.trunks:
        if trunk.up and (trunk.a in unit_at) != (trunk.b in unit_at):
            leaf, spine = (trunk.a, trunk.b) if trunk.a in unit_at else (trunk.b, trunk.a)
            up[leaf][spine] += 1
            below[spine].add(leaf)
    usual = Counter(counts.total() for counts in up.values())
    out = []
    for leaf, counts in up.items():
        siblings: Counter[str] = Counter()
        for spine in counts:
            siblings.update(below[spine])
        near = [one for one, shared in siblings.items() if one != leaf and 2 * shared >= len(counts)]
        expected = _most(Counter(up[one].total() for one in near)) if len(near) > 1 else (_most(usual) if counts else 0)
        if counts.total() >= expected:
            continue
        lost = []
        for spine in sorted({spine for one in near for spine in up[one]}):
            have = _most(Counter(up[one][spine] for one in near))
            if counts[spine] < have:
                lost.append(snapshot.switches[spine].name)
        out.append(
            Finding(
                Kind.UPLINK_MISSING,
                switch=snapshot.switches[leaf].name,
                peer=", ".join(lost[:4]) + (" ..." if len(lost) > 4 else ""),
                expected=str(expected),
                actual=str(counts.total()),
                unit=unit_at[leaf],
                card=leaf,
            )
        )
    return out


def _trunks(trunks: Sequence[Trunk], switches: Mapping[str, Switch]) -> list[Finding]:
    """Cables between switches below what most of the same two models have."""
    usual: dict[tuple[str, str], Counter[tuple[int, str]]] = defaultdict(Counter)
    for trunk in trunks:
        if trunk.up and trunk.speed:
            usual[_models(trunk, switches)][trunk.width, trunk.speed] += 1
    out = []
    for trunk in trunks:
        if not trunk.up or not trunk.speed:
            continue
        width, speed = _most(usual[_models(trunk, switches)])
        kind = _below(trunk.speed, trunk.width, speed, width)
        if kind is not None:
            ends = switches[trunk.a].name, f"{switches[trunk.b].name} (port {trunk.a_port} to {trunk.b_port})"
            out.append(Finding(kind, "", "", (), *ends, f"{width}x{speed}", f"{trunk.width}x{trunk.speed}", card=trunk.a))
    return out


def _models(trunk: Trunk, switches: Mapping[str, Switch]) -> tuple[str, str]:
    a, b = sorted((switches[trunk.a].model, switches[trunk.b].model))
    return a, b


def _pods(snapshot: Snapshot, units: Sequence[Unit], former: Graph | None) -> tuple[Pod, ...]:
    unit_at = {leaf: unit.name for unit in units for leaf in unit.leaves}
    below: dict[str, set[str]] = defaultdict(set)  #: units of a switch, or of a director
    links: dict[str, Counter[str]] = defaultdict(Counter)  #: cables of a unit to each
    chips: dict[str, set[str]] = defaultdict(set)
    for trunk in snapshot.trunks:
        if trunk.up and (trunk.a in unit_at) != (trunk.b in unit_at):
            leaf, spine = (trunk.a, trunk.b) if trunk.a in unit_at else (trunk.b, trunk.a)
            chassis = snapshot.switches[spine].chassis or spine
            chips[chassis].add(spine)
            below[chassis].add(unit_at[leaf])
            links[unit_at[leaf]][chassis] += 1
    # Spines of a pod have the same units but for what is broken: one of each set is compared.
    sets: dict[frozenset[str], list[str]] = defaultdict(list)
    for chassis, below_it in below.items():
        sets[frozenset(below_it)].append(chassis)
    first = {min(of): set(over_units) for over_units, of in sets.items()}
    over: dict[str, list[str]] = defaultdict(list)
    for chassis, over_units in first.items():
        for name in over_units:
            over[name].append(chassis)
    part = _parts(first, over)
    part_of = {chassis: part[min(of)] for of in sets.values() for chassis in of}
    members: dict[str, list[str]] = defaultdict(list)
    for unit in units:
        votes: Counter[str] = Counter()
        for chassis, count in links[unit.name].items():
            votes[part_of[chassis]] += count
        members[_most(votes) if votes else ("" if not snapshot.trunks else unit.name)].append(unit.name)
    spines_of: dict[str, list[str]] = defaultdict(list)
    for chassis, key in part_of.items():
        spines_of[key] += chips[chassis]
    found = []
    for key, names in members.items():
        spines = sorted(spines_of.get(key, ()))
        found.append((spines, sorted(names, key=natural)))
    before = {pod.name: pod.spines for pod in former.pods} if former is not None else {}
    leaves = {unit.name: unit.leaves for unit in units}
    guids = [spines or [leaf for name in names for leaf in leaves[name]] for spines, names in found]
    titles = names_of(guids, snapshot.switches, before, "pod")
    taken = {unit.name for unit in units}
    pods = []
    for (spines, names), of, title in zip(found, guids, titles, strict=True):
        digest = hashlib.sha256(" ".join(sorted(of)).encode()).hexdigest()[:12]
        pods.append(Pod(f"pod-{digest}" if title in taken else title, tuple(names), tuple(spines)))
    return tuple(sorted(pods, key=lambda pod: natural(pod.units[0])))


def _roots(snapshot: Snapshot, units: Sequence[Unit], pods: Sequence[Pod]) -> tuple[Root, ...]:
    """Pods by who reaches whom, over cables and over the machines themselves. Where no source says how switches are cabled, all do."""
    if not pods:
        return ()
    if not snapshot.trunks:
        return (Root("fabric", tuple(pod.name for pod in pods)),)
    joined = _Joined([*snapshot.switches, *(f"unit {unit.name}" for unit in units)])
    for trunk in snapshot.trunks:
        if trunk.up:
            joined.join(trunk.a, trunk.b)
    for unit in units:
        for leaf in unit.leaves:
            joined.join(leaf, f"unit {unit.name}")
    parts: dict[str, list[str]] = defaultdict(list)
    for pod in pods:
        parts[joined.of(f"unit {pod.units[0]}")].append(pod.name)
    whole = sorted(parts.values(), key=lambda names: (-len(names), names))
    return tuple(Root("fabric" if not place else f"fabric-{names[0]}", tuple(names)) for place, names in enumerate(whole))


def _levels(snapshot: Snapshot, units: Sequence[Unit], pods: Sequence[Pod]) -> dict[str, int]:
    """Least distance to a unit's leaf, plus 1. A switch that only one of several pods reaches is no core: a leaf without hosts."""
    around: dict[str, set[str]] = defaultdict(set)
    for trunk in snapshot.trunks:
        if trunk.up:
            around[trunk.a].add(trunk.b)
            around[trunk.b].add(trunk.a)
    levels = {leaf: 1 for unit in units for leaf in unit.leaves}
    spine_of = {spine: pod.name for pod in pods for spine in pod.spines}
    level, edge = 1, list(levels)
    while edge:
        level += 1
        reached = {other for guid in edge for other in around[guid]} - levels.keys()
        for guid in reached:
            levels[guid] = level
        edge = sorted(reached)
    if len(pods) > 1:
        for guid, found in levels.items():
            if found == 3 and len({spine_of.get(other, "") for other in around[guid] if levels[other] == 2}) == 1:
                levels[guid] = 1
    return levels
