"""What a binding tells the device plugin of its node, by what is known of the node's cards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hbox_common.errors import InvalidRequest
from hbox_common.events import Bind
from hbox_common.model import VENDORS, CardSlice, NodeName, NodeState, name_slices
from hbox_common.model.devices import Card, Layout, find_card, parse_layout, relocated, short_card
from hbox_common.model.devices.handshake import ASSIGNED_NODE
from hbox_common.model.devices.mig import RECORD


@dataclass(frozen=True, slots=True)
class Allocation:
    """`locks`: of the node, to be taken before the binding. `annotations` and `labels`: of the pod, written by it. `by_version`: the plugin makes something and
    writes on the version of the pod that it read before: whoever writes on the pod after its binding makes it fail."""

    locks: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    by_version: bool = False


_NOTHING = Allocation()


@dataclass(frozen=True, slots=True)
class _Cards:
    cards: tuple[Card, ...]
    registered: tuple[str, ...]
    lost: tuple[Card, ...] = ()
    uid: str = ""
    gone: bool = False
    former: tuple[Card, ...] = ()  #: cards of the node object that this one replaced


#: Deleted nodes that are remembered, the newest.
MAX_GONE = 4_096


class NodeCards:
    """The cards of all nodes by the last states that topology-collector published. A deleted node is remembered: binds that the ledger decided before its
    deletion are refused, also if a node object of that name with other cards exists by then."""

    def __init__(self) -> None:
        self._nodes: dict[NodeName, _Cards] = {}
        self._gone: dict[NodeName, None] = {}  #: deleted nodes, in the order of their deletion

    def see(self, state: NodeState) -> bool:
        """Take the state of a node. Returns whether this changes what is known of its cards."""
        old = self._nodes.get(state.name)
        former: tuple[Card, ...] = ()
        if old is not None:
            former = old.former if old.uid == state.uid and not state.gone else old.cards or old.former
        new = _Cards(state.cards, state.registered, state.lost, state.uid, state.gone, former)
        self._nodes[state.name] = new
        self._gone.pop(state.name, None)
        if state.gone:
            self._gone[state.name] = None
            if len(self._gone) > MAX_GONE:
                oldest = next(iter(self._gone))
                del self._gone[oldest], self._nodes[oldest]
        return new != old

    def knows(self, bind: Bind) -> bool:
        """Whether the node has all cards of the bind. Where it has not, what came to the ledger has not come here yet."""
        if not bind.slices:
            return True
        node = self._nodes.get(bind.node)
        return node is not None and all(find_card(node.cards, s.card, s.index) is not None for s in bind.slices)

    def lacking(self, bind: Bind) -> str:
        """Why the cards of the bind, which its node does not have now, will not appear there: the node was deleted or has lost a card; "" if they may appear.
        Such a bind is refused, so that the scheduler places the pod again."""
        node = self._nodes.get(bind.node)
        if node is None:
            return ""
        if node.gone:
            return f"node {bind.node} was deleted"
        missing = [s.card for s in bind.slices if find_card(node.cards, s.card, s.index) is None]
        lost = next((card for card in missing if find_card((*node.lost, *node.former), card) is not None), None)
        return f"node {bind.node} has lost card {short_card(lost)}" if lost is not None else ""

    def takes_turns(self, bind: Bind) -> bool:
        """Whether a lock of its node is to be taken."""
        node = self._nodes.get(bind.node)
        if not bind.slices or node is None or not node.registered or not self.knows(bind):
            return False
        return bool(VENDORS.node_locks(name_slices(bind.slices, node.cards), node.cards, node.registered))

    def reads_names(self, bind: Bind) -> bool:
        """Whether a device plugin of its node reads what the pod has by names of its containers."""
        node = self._nodes.get(bind.node)
        return (
            node is not None
            and bool(node.registered)
            and VENDORS.by_name(name_slices(bind.slices, node.cards), node.cards, node.registered)
        )

    def allocation(self, bind: Bind, now: float, containers: Sequence[str] = ()) -> Allocation:
        """Of a bind whose cards are known. `containers`: the names of the pod's, init containers first, where `reads_names`. Raises InvalidRequest for a layout
        that is none, or that names a card which `slices` does not."""
        node = self._nodes.get(bind.node)
        if not bind.slices or node is None or not node.registered:
            return _NOTHING
        slices = name_slices(bind.slices, node.cards)
        layout, init = _layout(bind, slices)
        annotations = VENDORS.annotate(
            layout, node.cards, node.registered, node=bind.node, now=now, init=init, containers=containers
        )
        if not annotations:
            return _NOTHING
        locks = VENDORS.node_locks(slices, node.cards, node.registered)
        # A label's value has 63 characters at most; a node's name may have 253.
        labels = {ASSIGNED_NODE: bind.node} if len(bind.node) <= _LABEL_BYTES else {}
        return Allocation(locks, annotations, labels, by_version=RECORD in annotations)


_LABEL_BYTES = 63


def _layout(bind: Bind, slices: tuple[CardSlice, ...]) -> tuple[Layout, int]:
    """The layout, and the number of its init containers. `slices`: those of the bind, with the current indices of their cards on the node.

    Raises InvalidRequest for a layout that cannot be parsed or names a card which `slices` does not."""
    if not bind.layout:
        return (slices,), 0
    layout, init = parse_layout(relocated(bind.layout, bind.slices, slices))
    given = {s.index for s in slices}
    if not all(s.index in given for one in layout for s in one):
        raise InvalidRequest(f"the layout {bind.layout!r} has cards that the claim has not")
    return layout, init
