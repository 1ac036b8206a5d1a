"""`dry-run`: what a change of queues would do, asked before it is made. JSON on both sides; nothing is changed and nobody is evicted."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from hbox_common.errors import InvalidRequest
from hbox_common.model import (
    ROOT_QUEUE,
    Claim,
    Queue,
    QueueName,
    QueueTree,
    Resources,
    amounts_in,
    capacity_units,
    is_model,
    parse_quantity,
)
from hbox_common.model.reclaimpreview import Excess, ReclaimPreview, Shares, effect_of

MOST_QUEUES = 100
MOST_PODS = 500  #: named of one queue
PODS_NAMED = 4000  #: in one answer, some 150 bytes each: of the 1 MiB that a broker takes by default

_AMOUNTS = ("guarantee", "deserved", "capability")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ChangedQueue(_Model):
    """New rules of one queue, or a new one; what is not named stays. Amounts are quantities as in a Queue object; null takes a resource out.
    `parent` root: none. An empty list of names: as if not named."""

    name: QueueName = Field(min_length=1, max_length=253)
    guarantee: dict[str, str | int | None] = {}
    deserved: dict[str, str | int | None] = {}
    capability: dict[str, str | int | None] = {}
    parent: str | None = None
    weight: int | None = Field(default=None, ge=1, le=65535)
    priority: int | None = Field(default=None, ge=-(2**31), lt=2**31)
    reclaimable: bool | None = None
    pools: tuple[str, ...] | None = None
    namespaces: tuple[str, ...] | None = None
    priority_classes: tuple[str, ...] | None = None
    non_preemptible_classes: tuple[str, ...] | None = None
    pool_amounts: dict[str, dict[str, dict[str, str | int]]] | None = None  #: by pool and share, in place of all before
    lent_pools: tuple[str, ...] | None = None
    lent_to: tuple[str, ...] | None = None

    @field_validator("pool_amounts")
    @classmethod
    def _by_pool(
        cls, pools: dict[str, dict[str, dict[str, str | int]]] | None
    ) -> dict[str, dict[str, dict[str, str | int]]] | None:
        for pool, shares in (pools or {}).items():
            for share, quantities in shares.items():
                if share not in _AMOUNTS:
                    raise ValueError(f"pool {pool}: {share!r} is none of {', '.join(_AMOUNTS)}")
                for resource, quantity in quantities.items():
                    _units(resource, quantity)
        return pools

    @field_validator(*_AMOUNTS)
    @classmethod
    def _quantities(cls, amounts: dict[str, str | int | None]) -> dict[str, str | int | None]:
        for resource, quantity in amounts.items():
            if quantity is not None:
                _units(resource, quantity)
        return amounts

    @field_validator("pools", "namespaces", "priority_classes", "non_preemptible_classes", "lent_pools", "lent_to")
    @classmethod
    def _names(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if wrong := [name for name in names or () if not name.strip() or "," in name]:
            raise ValueError(f"{wrong[0]!r} is no name")
        return names

    def of(self, queue: Queue) -> Queue:
        """The queue with these rules."""
        plain: dict[str, Any] = {
            key: value
            for key in (
                "weight",
                "priority",
                "reclaimable",
                "pools",
                "namespaces",
                "priority_classes",
                "non_preemptible_classes",
                "lent_pools",
                "lent_to",
            )
            if (value := getattr(self, key)) is not None
        }
        if self.parent is not None:
            plain["parent"] = "" if self.parent == ROOT_QUEUE else self.parent
        amounts: dict[str, Any] = {
            name: _changed(getattr(queue, name), given) for name in _AMOUNTS if (given := getattr(self, name))
        }
        if self.pool_amounts is not None:
            there: dict[str, Resources] = {}
            for pool, shares in self.pool_amounts.items():
                for share, quantities in shares.items():
                    units = {resource: _units(resource, quantity) for resource, quantity in quantities.items()}
                    there.setdefault(share, {}).update(amounts_in(pool, units))
            plain["pool_amounts"] = there
        return replace(queue, fault="", **plain, **amounts)


class DryRunRequest(_Model):
    """Changes that are made together. `pods`: how many of those who would leave are named of each queue."""

    queues: tuple[ChangedQueue, ...] = Field(min_length=1, max_length=MOST_QUEUES)
    pods: int = Field(default=100, ge=0, le=MOST_PODS)

    @model_validator(mode="after")
    def _once(self) -> "DryRunRequest":
        names = [queue.name for queue in self.queues]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"queue {twice[0]} is named twice")
        return self


class FaultAnswer(_Model):
    queue: str
    fault: str


class VictimAnswer(_Model):
    """A pod that would be asked for, with the `units` that its leaving gives."""

    namespace: str
    pod: str
    job: str
    queue: str
    priority: int
    node: str
    units: int


class ReclaimPreviewAnswer(_Model):
    """`units` that `queue` may have to give back: `to` whom, empty where anybody below its share may ask; `takable`: how much of it could be had, with
    `pods` pods; the first of them, in the order in which they would be chosen, in `leavers`."""

    queue: str
    to: str
    resource: str
    units: int
    takable: int
    because: str
    pods: int
    leavers: tuple[VictimAnswer, ...]


class ExcessAnswer(_Model):
    """A queue that would use more of a resource than `limit`; `more`: by how much more than now."""

    queue: str
    resource: str
    used: int
    limit: int
    more: int


class DryRunAnswer(_Model):
    """What would be: `faults` that are not there now, `over_deserved` every queue that would use more than its share, `over_capability` where nothing new
    starts for a while. Of the moment `epoch`, `index`."""

    epoch: int
    index: int
    frozen: bool
    faults: tuple[FaultAnswer, ...]
    give_back: tuple[ReclaimPreviewAnswer, ...]
    over_deserved: tuple[ExcessAnswer, ...]
    over_capability: tuple[ExcessAnswer, ...]


def judge(
    asked: DryRunRequest,
    tree: QueueTree,
    claims: Sequence[Claim],
    *,
    epoch: int = 0,
    index: int = 0,
    frozen: bool = False,
    shares: Shares | None = None,
) -> DryRunAnswer:
    """What the changes would do to this tree with these claims. shares: as of `effect_of`."""
    effect = effect_of(tree, [one.of(tree.get(one.name) or Queue(one.name)) for one in asked.queues], claims, shares)
    left = PODS_NAMED
    gives = []
    for one in effect.gives:
        named = one.claims[: min(asked.pods, left)]
        left -= len(named)
        gives.append(_preview(one, named))
    return DryRunAnswer(
        epoch=epoch,
        index=index,
        frozen=frozen,
        faults=tuple(FaultAnswer(queue=queue, fault=fault) for queue, fault in effect.faults),
        give_back=tuple(gives),
        over_deserved=tuple(map(_excess, effect.over_deserved)),
        over_capability=tuple(map(_excess, effect.over_capability)),
    )


def _preview(one: ReclaimPreview, named: Sequence[Claim]) -> ReclaimPreviewAnswer:
    units = [claim.amounts.get(one.resource, 0) for claim in one.claims]
    leavers = tuple(
        VictimAnswer(
            namespace=claim.namespace,
            pod=claim.pod,
            job=claim.job,
            queue=claim.queue,
            priority=claim.priority,
            node=claim.node,
            units=claim.amounts.get(one.resource, 0),
        )
        for claim in named
    )
    return ReclaimPreviewAnswer(
        queue=one.queue,
        to=one.to,
        resource=one.resource,
        units=one.units,
        takable=sum(units),
        because=one.because,
        pods=len(units),
        leavers=leavers,
    )


def _excess(one: Excess) -> ExcessAnswer:
    return ExcessAnswer(queue=one.queue, resource=one.resource, used=one.used, limit=one.limit, more=one.more)


def _changed(amounts: Resources, given: Mapping[str, str | int | None]) -> Resources:
    return {resource: units for resource, units in amounts.items() if resource not in given} | {
        resource: _units(resource, quantity) for resource, quantity in given.items() if quantity is not None
    }


def _units(resource: str, quantity: str | int) -> int:
    try:
        units = capacity_units(resource, str(quantity))
    except InvalidRequest as e:
        raise ValueError(f"{resource}: {e.message}") from e
    if units < 0:
        raise ValueError(f"{resource}: {quantity} is negative")
    if is_model(resource) and units != parse_quantity(str(quantity)):
        raise ValueError(f"{resource}: {quantity} is no whole number of cards")
    return units
