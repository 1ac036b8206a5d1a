"""nodegroup: queues and the groups of nodes that they may or would rather use (Queue `spec.affinity`; sources: volcano-nodegroup)."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.errors import InvalidRequest
from hbox_common.model import QueueName, Resources
from hbox_common.model.annotations import NODE_GROUP_LIMITS
from hbox_common.model.queue import AVOIDED_GROUPS, FORBIDDEN_GROUPS, PREFERRED_GROUPS, REQUIRED_GROUPS
from hbox_common.model.resources import capacity_units

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats, Ints
from ..cluster.entities import HOLDING, Member, QueueInfo, Status
from ..explain.labels import Label
from ..framework.hooks import Events, PodMask, PodScore
from .arguments import Arguments

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

GROUP_LABEL = "volcano.sh/nodegroup-name"

_SCORE_REQUIRED, _SCORE_PREFERRED, _SCORE_RATHER_NOT = 100.0, 50.0, -1.0


@dataclass(frozen=True, slots=True)
class _GroupRules:
    """The rules of one queue, own or inherited. Groups by name -> score; groups that are not named are forbidden."""

    scores: Mapping[str, float]
    limits: Mapping[str, Resources]


class NodeGroup(PodMask, PodScore, Events):
    """Arguments: strict (true: a queue without rules may use no node; false: it may use the nodes that are in no group); enablePreferredOrder (false; true: of
    n preferred groups the first scores 50, each further one 50/n less)."""

    name = "nodegroup"
    sees_plain_pods = True

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        self._strict = arguments.switch("strict", True)
        self._ordered = arguments.switch("enablePreferredOrder", False)
        arguments.done()
        self._hierarchy = conf.hierarchy
        self._session: Session | None = None
        self._rules: dict[QueueName, _GroupRules | None] = {}
        self._used: dict[tuple[QueueName, str], Ints] = {}

    def open(self, session: "Session") -> None:
        self._session = session
        for queue in session.queues.values():
            try:
                self._rules[queue.name] = self._rules_of(queue)
            except InvalidRequest as e:
                session.refuse(queue, e)
        limited = {name for name, rules in self._rules.items() if rules is not None and rules.limits}
        for gang in session.gangs if limited else ():
            for member in gang.members if gang.queue in limited else ():
                if member.row >= 0 and (member.status in HOLDING or member.status is Status.PIPELINED):
                    self.placed(member, member.row)

    def settled(self, member: Member) -> bool:
        """Whether what others have does not concern it."""
        rules = self._rules.get(member.gang.queue)
        return rules is None or not rules.limits

    def failures(self, member: Member, columns: Columns) -> Iterator[tuple[str, Bools]]:
        rules = self._rules.get(member.gang.queue)
        column = columns.descriptions.column(GROUP_LABEL)
        codes = column.codes[: columns.size]
        if rules is None:
            outside = codes != 0 if not self._strict else np.ones(columns.size, dtype=np.bool_)
            yield Label.NODE_GROUP, outside
            return
        allowed = np.array([value in rules.scores for value in column.values], dtype=np.bool_)
        yield Label.NODE_GROUP, ~allowed[codes]
        if rules.limits:
            full = np.array([self._full(member, str(value or ""), rules) for value in column.values], dtype=np.bool_)
            yield Label.NODE_GROUP_LIMIT, full[codes]

    def score(self, member: Member, columns: Columns) -> Floats | None:
        rules = self._rules.get(member.gang.queue)
        if rules is None:
            return None
        column = columns.descriptions.column(GROUP_LABEL)
        return np.array([rules.scores.get(str(value or ""), 0.0) for value in column.values])[column.codes[: columns.size]]

    def placed(self, member: Member, row: int) -> None:
        self._count(member, row, 1)

    def displaced(self, member: Member, row: int) -> None:
        self._count(member, row, -1)

    def _count(self, member: Member, row: int, times: int) -> None:
        assert self._session is not None
        rules = self._rules.get(member.gang.queue)
        if rules is None or not rules.limits or row < 0:
            return
        state = self._session.columns.states[row]
        group = state.labels.get(GROUP_LABEL, "") if state is not None else ""
        key = (member.gang.queue, group)
        used = self._used.setdefault(key, self._session.zeros())
        used += times * member.request

    def _full(self, member: Member, group: str, rules: _GroupRules) -> bool:
        limits = rules.limits.get(group)
        if limits is None:
            return False
        assert self._session is not None
        used = self._used.get((member.gang.queue, group), self._session.zeros())
        resources = self._session.columns.resources
        return any(
            used[resources[name]] + member.request[resources[name]] > limit
            for name, limit in limits.items()
            if name in resources and member.request[resources[name]] > 0
        )

    def _rules_of(self, queue: QueueInfo) -> _GroupRules | None:
        """The queue's own, or under a hierarchy those of its nearest ancestor that has any."""
        assert self._session is not None
        found: QueueInfo | None = queue
        seen: set[QueueName] = set()
        while self._hierarchy and found is not None and not found.node_groups and found.name not in seen:
            seen.add(found.name)
            found = self._session.queues.get(found.parent) if found.parent else None
        limits = _limits_of(queue)
        if found is None or not found.node_groups:
            return None
        scores: dict[str, float] = dict.fromkeys(found.node_groups.get(REQUIRED_GROUPS, ()), _SCORE_REQUIRED)
        preferred = tuple(dict.fromkeys(found.node_groups.get(PREFERRED_GROUPS, ())))
        for place, group in enumerate(preferred):
            worth = _SCORE_PREFERRED * (len(preferred) - place) / len(preferred) if self._ordered else _SCORE_PREFERRED
            scores[group] = scores.get(group, 0.0) + worth
        for group in found.node_groups.get(FORBIDDEN_GROUPS, ()):
            scores.pop(group, None)
        for group in found.node_groups.get(AVOIDED_GROUPS, ()):
            scores[group] = _SCORE_RATHER_NOT
        return _GroupRules(scores, limits)


def _limits_of(queue: QueueInfo) -> dict[str, Resources]:
    text = queue.annotations.get(NODE_GROUP_LIMITS, "")
    if not text:
        return {}
    try:
        return {
            str(group): {name: capacity_units(name, amount) for name, amount in limits.items()}
            for group, limits in json.loads(text).items()
        }
    except (ValueError, AttributeError, TypeError, RecursionError) as e:
        raise InvalidRequest(
            f"queue {queue.name}, annotation {NODE_GROUP_LIMITS}: {text[:200]!r} is not an object of groups with amounts",
            hint='write {"group": {"cpu": "8"}}',
        ) from e
