"""States that were judged and mean nothing: an equal report of the same state is not judged again.

Agents restate all states of a node: after each start, every few hours, and some in each report. Most states are healthy, and their judgement is most of the
work of a report. A state is skipped if the node has no incident and no finding is held back, and if the last fact of its check, entity and code had an equal
value and led to no finding. A judgement depends on nothing else but the node (labels, unit, cards, boot), on what its facts stated (driver, accepted number of
cards), and on the rules: a change of any of these forgets what was judged. Events are judged each time.

Only a digest of each value is kept: 10,000 cards have 50 MiB of values.
"""

from dataclasses import dataclass, field
from hashlib import blake2b

import msgspec

from hbox_common.health.report import Check, Fact

from .memory import NodeMemory

#: States of a node whose digests are kept. A node with eight cards of seven MIG instances and with 16 ports has about 100.
MOST_STATES = 256

_ENCODER = msgspec.msgpack.Encoder()


@dataclass(slots=True)
class _Judged:
    driver: int | None
    accepted: int | None
    digests: dict[tuple[str, str, str], bytes] = field(default_factory=dict)


class Unchanged:
    def __init__(self) -> None:
        self._nodes: dict[str, _Judged] = {}

    def forget(self, name: str) -> None:
        self._nodes.pop(name, None)

    def forget_all(self) -> None:
        self._nodes.clear()

    def means_nothing(self, name: str, node: NodeMemory, fact: Fact) -> bool:
        """Whether the state was judged with this value, without a finding."""
        judged = self._nodes.get(name)
        if judged is None or node.open or node.held or not is_state(fact):
            return False
        if (judged.driver, judged.accepted) != (node.driver, node.accepted):
            return False
        known = judged.digests.get((fact.check, fact.entity, fact.code))
        return known is not None and known == _digest(fact)

    def note(self, name: str, node: NodeMemory, fact: Fact, *, findings: bool) -> None:
        """Keep the judgement of a state."""
        if not is_state(fact):
            return
        judged = self._nodes.get(name)
        if judged is None or (judged.driver, judged.accepted) != (node.driver, node.accepted):
            judged = self._nodes[name] = _Judged(node.driver, node.accepted)
        key = fact.check, fact.entity, fact.code
        if findings:
            judged.digests.pop(key, None)
        elif key in judged.digests or len(judged.digests) < MOST_STATES:
            judged.digests[key] = _digest(fact)


def is_state(fact: Fact) -> bool:
    """Events count each time; of a check that this version does not know, each fact may be one."""
    match fact.check:
        case Check.NVML | Check.PORTS | Check.UNITS:
            return True
        case Check.DCGM:
            return not fact.code.isdigit()
    return False


def _digest(fact: Fact) -> bytes:
    """Of the value as it is on the wire: 1, 1.0 and true differ."""
    return blake2b(_ENCODER.encode(fact.value), digest_size=16).digest()
