"""Nodes from which a pod's volumes can be reached, and why it has to wait for them: kube-scheduler's VolumeBinding, with its messages.

A PVC is bound once it names its volume and the controller has marked it as completed (KEP-1933's annotation). A PVC that waits for its first consumer, and has
a provisioner, excludes no nodes but those that the provisioner rejected recently: when the pod has a place, the binder passes the node to the provisioner, and
binds the pod when the volume exists. A PVC whose class has no provisioner restricts its pod to the nodes that reach an available volume which fits: the binder
reserves one of those on the node that the pod got. Pods without PVCs cost nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from hbox_common.model import Match, MatchOperator, NodeTerm, VolumeDemand, VolumeSupply

from .rejections import Rejections
from .staticvolumes import Reach, StaticVolumes

#: Nodes that a reason names.
_NAMED = 3


class Binding(Enum):
    """When volumes of a class are bound to their claims."""

    IMMEDIATE = auto()
    PLACED = auto()  #: for the node that the first pod was given (WaitForFirstConsumer)
    STATIC = auto()  #: likewise, but the class has no provisioner: one of the volumes that exist


@dataclass(frozen=True, slots=True)
class VolumeUse:
    """A PersistentVolumeClaim that a pod uses. `own`: made for this pod from a template of its own (a generic ephemeral volume)."""

    claim: str  #: its name, in the pod's namespace
    own: bool = False


@dataclass(frozen=True, slots=True)
class ClaimView:
    """One version of a PersistentVolumeClaim."""

    volume: str = ""
    bound: bool = False  #: to `volume`, from both sides
    lost: bool = False  #: its volume is gone
    deleting: bool = False
    storage_class: str = ""
    owner: str = ""  #: uid of the pod that it was made for
    selected: str = ""  #: the node for which a volume is being made
    single_pod: bool = False  #: ReadWriteOncePod: one pod uses it at a time
    uid: str = ""
    demand: VolumeDemand | None = None  #: what it asks of a volume, while it names none


class Volumes:
    """Claims by namespace/name, volumes and classes by name, as Kubernetes has them. Setters return the claims of which the answer may differ now."""

    def __init__(self, has_turn: Callable[[str, str], bool] = lambda _claim, _uid: True) -> None:
        """`has_turn`: whether the pod of a uid may use a claim (namespace/name) of mode ReadWriteOncePod now."""
        self._has_turn = has_turn
        self._claims: dict[str, ClaimView] = {}
        self._reach: dict[str, Reach] = {}
        #: When the volumes of a class are bound, and from where those can be reached that are made for it.
        self._classes: dict[str, tuple[Binding, Reach]] = {}
        self.rejections = Rejections()
        self._on: dict[str, set[str]] = {}  #: claims by the volume that they name
        self._of: dict[str, set[str]] = {}  #: claims by their class
        self._waiting: dict[str, set[str]] = {}  #: of these, those that name no volume
        self._static = StaticVolumes()

    def claim(self, key: str, new: ClaimView | None) -> list[str]:
        """The claim is as this now; None = it was deleted."""
        old = self._claims.pop(key, None)
        if new is None or new.volume or (old is not None and old.uid != new.uid):
            self.rejections.forget(key)
        if old is not None:
            _drop(self._on, old.volume, key)
            _drop(self._of, old.storage_class, key)
            if not old.volume:
                _drop(self._waiting, old.storage_class, key)
        if new is not None:
            self._claims[key] = new
            self._on.setdefault(new.volume, set()).add(key)
            self._of.setdefault(new.storage_class, set()).add(key)
            if not new.volume:
                self._waiting.setdefault(new.storage_class, set()).add(key)
        return [key] if old != new else []

    def rejected(self, key: str, new: ClaimView | None) -> str:
        """The node for which the claim's provisioner makes no volume, by the claim's new version; empty = there is none. To be asked before `claim`."""
        old = self._claims.get(key)
        if old is None or new is None or new.volume or new.selected or new.uid != old.uid:
            return ""
        return old.selected

    def volume(self, name: str, reach: Reach, supply: VolumeSupply | None = None, *, gone: bool = False) -> list[str]:
        """From where a volume can be reached, and what it offers to claims that have none."""
        touched: set[str] = set()
        for storage_class, claim in self._static.volume(name, reach, supply):
            if claim in self._claims:
                touched.add(claim)
            if self._binding(storage_class) is Binding.STATIC:
                touched |= self._waiting.get(storage_class, set())
        known = name in self._reach
        if known is gone or self._reach.get(name, ()) != reach:
            if gone:
                self._reach.pop(name, None)
            else:
                self._reach[name] = reach
            touched |= self._on.get(name, set())
        return sorted(touched)

    def storage_class(self, name: str, binding: Binding | None, reach: Reach = ()) -> list[str]:
        """When a class's volumes are bound (None = it was deleted), and from where those can be reached that are made for it."""
        new = None if binding is None else (binding, reach)
        if self._classes.get(name) == new:
            return []
        if new is None:
            del self._classes[name]
        else:
            self._classes[name] = new
        return sorted(self._of.get(name, ()))

    def unselected(self, namespace: str, uses: Sequence[VolumeUse]) -> list[str]:
        """Names of the PVCs for which the provisioner needs the pod's node, once it has one."""
        return [
            use.claim
            for use in uses
            if (claim := self._claims.get(f"{namespace}/{use.claim}")) is not None
            and self._waits_for_provisioner(claim)
            and not claim.selected
        ]

    def unbound_claims(self, namespace: str, uses: Sequence[VolumeUse]) -> tuple[str, ...]:
        """Names of the unbound claims of mode WaitForFirstConsumer: the binder binds them to volumes on the pod's node, before the pod."""
        names = dict.fromkeys(use.claim for use in uses)
        known = ((name, self._claims.get(f"{namespace}/{name}")) for name in names)
        return tuple(
            n
            for n, claim in known
            if claim is not None and (self._waits_for_provisioner(claim) or self._waits_for_static_volume(claim))
        )

    def provisioning_text(self, namespace: str, claims: Sequence[str]) -> str:
        """What is done for the first of these claims for which a provisioner has, or had, a node; empty if there is none."""
        for name in claims:
            if node := self._claims[f"{namespace}/{name}"].selected:
                return f'persistentvolumeclaim "{name}" waits for its volume on node {node}'
            if rejected := self.rejections.nodes(f"{namespace}/{name}"):
                nodes = ", ".join(rejected[:_NAMED]) + (f" and {len(rejected) - _NAMED} more" if len(rejected) > _NAMED else "")
                return f'no volume was made for persistentvolumeclaim "{name}" on {nodes}, to be tried again later'
        return ""

    def _waits_for_provisioner(self, claim: ClaimView) -> bool:
        return not claim.volume and not claim.bound and self._binding(claim.storage_class) is Binding.PLACED

    def _waits_for_static_volume(self, claim: ClaimView) -> bool:
        return claim.demand is not None and not claim.bound and self._binding(claim.storage_class) is Binding.STATIC

    def _binding(self, storage_class: str) -> Binding | None:
        binding, _ = self._classes.get(storage_class, (None, ()))
        return binding

    def single_pod(self, claim: str) -> bool:
        """Whether one pod at a time may use the claim (namespace/name)."""
        known = self._claims.get(claim)
        return known is not None and known.single_pod

    def needs(self, namespace: str, pod: str, uid: str, uses: Sequence[VolumeUse]) -> tuple[Reach, str]:
        """From where all volumes of a pod can be reached, or why it has to wait (empty = it need not)."""
        reach: list[tuple[NodeTerm, ...]] = []
        problems = list(self._problems(namespace, pod, uid, uses))
        if problems:
            return (), problems[0]
        open_claims: dict[str, dict[str, VolumeDemand]] = {}  # of classes that make no volumes
        for use in uses:
            key = f"{namespace}/{use.claim}"
            claim, found = self._claims[key], None
            if self._waits_for_provisioner(claim):
                found = self._where_made(key, claim)
            elif claim.demand is None or not self._waits_for_static_volume(claim):
                found = self._reach[claim.volume]
            elif (found := self._static.reserved(key, claim.uid, claim.demand)) is None:
                open_claims.setdefault(claim.storage_class, {})[key] = claim.demand
            reach += [terms for terms in found or () if terms not in reach]
        for storage_class, demands in open_claims.items():
            if (where := self._static.where(storage_class, demands)) is None:
                names = ", ".join(f'"{key.partition("/")[2]}"' for key in demands)
                return (
                    (),
                    f"no node has available persistent volumes of StorageClass {storage_class} to bind persistentvolumeclaim {names}",
                )
            reach += [terms for terms in where if terms not in reach]
        return tuple(reach), ""

    def _where_made(self, key: str, claim: ClaimView) -> Reach:
        """From where the volume can be reached that will be made for a claim."""
        _, reach = self._classes[claim.storage_class]
        if claim.selected:
            return (_only(claim.selected), *reach)
        rejected = self.rejections.nodes(key)
        return (_without(rejected), *reach) if rejected else reach

    def _problems(self, namespace: str, pod: str, uid: str, uses: Sequence[VolumeUse]) -> Iterator[str]:
        """What no node can help with comes first, as in kube-scheduler."""
        unbound: list[str] = []
        for use in uses:
            named = f'persistentvolumeclaim "{use.claim}"'
            claim = self._claims.get(f"{namespace}/{use.claim}")
            if claim is None and use.own:
                yield f"waiting for ephemeral volume controller to create the {named}"
            elif claim is None:
                yield f"{named} not found"
            elif claim.deleting:
                yield f"{named} is being deleted"
            elif use.own and claim.owner != uid:
                yield f"PVC {namespace}/{use.claim} was not created for pod {namespace}/{pod} (pod is not owner)"
            elif claim.lost or (claim.bound and claim.volume not in self._reach):
                yield f'{named} bound to non-existent persistentvolume "{claim.volume}"'
            elif claim.single_pod and not self._has_turn(f"{namespace}/{use.claim}", uid):
                yield f"{named} is ReadWriteOncePod, and another pod uses it or was created before: this pod is placed after it has ended"
            elif not claim.bound and not self._waits_for_provisioner(claim) and not self._waits_for_static_volume(claim):
                unbound.append(self._unbound(named, claim))
        yield from unbound

    def _unbound(self, named: str, claim: ClaimView) -> str:
        if claim.storage_class and claim.storage_class not in self._classes:
            return f'storageclass.storage.k8s.io "{claim.storage_class}" not found, which {named} names'
        return "pod has unbound immediate PersistentVolumeClaims"


def _drop(index: dict[str, set[str]], name: str, key: str) -> None:
    """Names of volumes that are made for a claim never come again: none is kept without claims."""
    index[name].discard(key)
    if not index[name]:
        del index[name]


def _without(nodes: tuple[str, ...]) -> tuple[NodeTerm, ...]:
    """All nodes but these."""
    return (NodeTerm(fields=(Match("metadata.name", MatchOperator.NOT_IN, nodes),)),)


def _only(node: str) -> tuple[NodeTerm, ...]:
    """This node alone."""
    return (NodeTerm(fields=(Match("metadata.name", MatchOperator.IN, (node,)),)),)
