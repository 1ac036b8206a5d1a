"""Static PersistentVolumes, for PersistentVolumeClaims whose StorageClass has no provisioner: the nodes that reach one that fits.

Volumes are grouped by the nodes that reach them (local volumes: by their node), and all claims of a pod that name one class get volumes of one group. Groups
that overlap are not combined.
"""

from collections.abc import Iterable, Mapping
from itertools import islice, product
from typing import TypeAlias

from hbox_common.model import Match, MatchOperator, NodeTerm, VolumeDemand, VolumeSupply, assign, reserved

#: For each entry one of its terms holds; none = every node reaches it.
Reach: TypeAlias = tuple[tuple[NodeTerm, ...], ...]

#: Groups that the answer for a pod names: what a pod's constraints say has to fit into a message.
_GROUPS = 4000


class StaticVolumes:
    def __init__(self) -> None:
        self._known: dict[str, tuple[Reach, VolumeSupply]] = {}
        self._free: dict[str, dict[str, VolumeSupply]] = {}  #: volumes without a claimRef, by class and name
        self._reserved: dict[str, dict[str, VolumeSupply]] = {}  #: volumes with a claimRef, by claim (namespace/name) and name
        #: Answers, by class and what is asked for: members of a job ask for the same.
        self._where: dict[str, dict[tuple[VolumeDemand, ...], Reach | None]] = {}

    def volume(self, name: str, reach: Reach, supply: VolumeSupply | None) -> list[tuple[str, str]]:
        """The volume is as this now, None = it offers nothing. For what changed by that: the class of which claims may be answered otherwise, the claim that
        this volume was or is reserved for; empty where there is none."""
        old, new = self._known.get(name), (reach, supply) if supply is not None else None
        if old == new:
            return []
        touched = []
        for pair, put in ((old, False), (new, True)):
            if pair is None:
                continue
            _, one = pair
            index, key = (self._reserved, one.claim) if one.claim else (self._free, one.storage_class)
            if put:
                index.setdefault(key, {})[name] = one
            else:
                del index[key][name]
                if not index[key]:
                    del index[key]
            if not one.claim:
                self._where.pop(one.storage_class, None)
            touched.append(("", one.claim) if one.claim else (one.storage_class, ""))
        if new is None:
            del self._known[name]
        else:
            self._known[name] = new
        return touched

    def reserved(self, claim: str, uid: str, demand: VolumeDemand) -> Reach | None:
        """From where the volume can be reached that is reserved for the claim; None = there is none."""
        found = reserved(self._reserved.get(claim, {}).values(), claim, uid, demand)
        return None if found is None else self._known[found.name][0]

    def where(self, storage_class: str, demands: Mapping[str, VolumeDemand]) -> Reach | None:
        """The nodes that reach available volumes of the class for all of these claims, one each; None = no node does."""
        if storage_class not in self._free:
            return None
        answers = self._where.setdefault(storage_class, {})
        asked = tuple(sorted(demands.values(), key=repr)) if len(demands) > 1 else tuple(demands.values())
        if asked not in answers:
            groups: dict[Reach, list[VolumeSupply]] = {}
            for name, supply in self._free[storage_class].items():
                groups.setdefault(self._known[name][0], []).append(supply)
            fitting = (reach for reach, supplies in groups.items() if len(assign(demands, supplies)) == len(demands))
            answers[asked] = _any_of(islice(fitting, _GROUPS))
        return answers[asked]


def _any_of(reaches: Iterable[Reach]) -> Reach | None:
    """The nodes within reach of any of these; None = no node. Terms that name values of the same label are one: local volumes name their nodes."""
    terms: dict[NodeTerm, None] = {}
    values: dict[tuple[str, bool], set[str]] = {}
    for reach in reaches:
        if not reach:
            return ()
        for parts in product(*reach):
            term = NodeTerm(tuple(m for p in parts for m in p.expressions), tuple(m for p in parts for m in p.fields))
            if not all(p.expressions or p.fields for p in parts):
                continue  # an empty term holds for no node
            match term:
                case NodeTerm(expressions=(Match(key=key, operator=MatchOperator.IN) as only,), fields=()):
                    values.setdefault((key, False), set()).update(only.values)
                case NodeTerm(expressions=(), fields=(Match(key=key, operator=MatchOperator.IN) as only,)):
                    values.setdefault((key, True), set()).update(only.values)
                case _:
                    terms[term] = None
    for (key, is_field), names in sorted(values.items()):
        merged = (Match(key, MatchOperator.IN, tuple(sorted(names))),)
        terms[NodeTerm(fields=merged) if is_field else NodeTerm(merged)] = None
    return (tuple(terms),) if terms else None
