"""A pod's requests for cards. The vendors define how their resources are read (`hbox_common.model.devices`).

A plain request is one of a single container (not an init container) for equal cards of one kind, without constraints: it is `count` and amounts. All other
requests are published container by container (`PodDevices`), with the sum in the same fields. The rules of HAMi's webhook for whole pods apply here
(sources: hami-webhook).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS, CardRequest, Vendor
from hbox_common.model.bounds import MODELS, VALUE_BYTES, is_plain, not_plain, oversized
from hbox_common.model.devices import COMMON_WISHES, Ask, PodDevices, check_wishes

from .requests import Container

#: Of one annotation that vendors read: the ids of a few hundred cards.
WISH_BYTES = 8192

_NONE: Mapping[str, str] = {}


def card_request(
    containers: Sequence[Container],
    init_containers: Sequence[Container] = (),
    annotations: Mapping[str, str] = _NONE,
    unsupported: Collection[str] = (),
) -> CardRequest | None:
    """The request of a pod with these containers; None if no container names a card.

    `annotations`: the pod's annotations that vendors read (`VENDORS.wishes`, models). `unsupported`: those that its vendor cannot honour.
    Raises InvalidRequest with the container, the resource and the correct form.
    """
    everyone = (*init_containers, *containers)
    asks = tuple(
        ask
        for position, container in enumerate(everyone)
        for vendor in VENDORS.whose((*container.requests, *container.limits))
        if (ask := _of_container(container, position, vendor, annotations)) is not None
    )
    if not asks:
        return None
    if (privileged := next((one.name for one in everyone if one.privileged), None)) is not None:
        raise InvalidRequest(
            f"container {privileged} is privileged",
            hint="a pod with cards has no privileged container: it would see all cards of its node",
        )
    vendors = [vendor for vendor in VENDORS if any(ask.kind == vendor.kind for ask in asks)]
    for vendor in vendors:
        if refused := frozenset(unsupported).intersection(vendor.unsupported):
            raise InvalidRequest(
                f"annotation or label {min(refused)} is not supported: remove it"
                + (f", or choose by {vendor.models_annotation}" if vendor.models_annotation else "")
            )
    wishes = _wishes(vendors, annotations)
    models = _models(vendors[0].models_annotation, annotations)
    ask, init = asks[0], len(init_containers)
    plain = CardRequest(
        ask.count, ask.cores, ask.memory_mib, ask.memory_percent, models, container=ask.container, containers=len(everyone)
    )
    if len(asks) == 1 and ask.container >= init and not wishes and not ask.part and not vendors[0].always_fits:
        return plain
    wishes += [(name, text) for vendor in vendors if (text := annotations.get(name := vendor.models_annotation))]
    devices = PodDevices(
        asks,
        containers=len(everyone),
        init=init,
        sidecars=tuple(position for position, one in enumerate(init_containers) if one.sidecar),
        wishes=tuple(sorted(wishes)),
    )
    check_wishes(devices)
    return _sum(devices)


def as_admitted(container: Container, annotations: Mapping[str, str] = _NONE) -> Container:
    """The container of a pod with these annotations as the admission endpoint leaves it: with the numbers of cards where a part of a card is named alone, and
    amounts as they are given. Raises nothing: what is wrong stays wrong."""
    more: dict[str, str | float] = {}
    for vendor in VENDORS.whose((*container.requests, *container.limits)):
        try:
            completion = vendor.complete(_asked(container, vendor), annotations)
        except InvalidRequest:
            continue
        more |= {name: str(amount) for name, amount in completion.amounts.items()}
    return replace(container, requests={**container.requests, **more}) if more else container


def counted(devices: PodDevices) -> dict[str, int]:
    """How many cards of each kind the pod has at one time, by the resource that counts them. Some kinds' pods name others: slices, cores, one die of two."""
    peak: dict[str, int] = {}
    lasting: dict[str, int] = {}
    for container in range(devices.containers):
        own: dict[str, int] = {}
        for ask in devices.of(container):
            own[ask.kind] = own.get(ask.kind, 0) + ask.count
        for kind, count in own.items():
            peak[kind] = max(peak.get(kind, 0), lasting.get(kind, 0) + count)
            if not devices.ends_early(container):
                lasting[kind] = lasting.get(kind, 0) + count
    return {VENDORS.kind(kind).cards: count for kind, count in peak.items()}


def _of_container(container: Container, position: int, vendor: Vendor, annotations: Mapping[str, str]) -> Ask | None:
    asked = _asked(container, vendor)
    if not asked:
        return None
    try:
        ask = vendor.ask(asked, annotations)
        if ask is not None and ask.completed:
            part = next(name for name in vendor.parts if asked.get(name))
            raise InvalidRequest(f"{part} given without {vendor.cards}", hint=f"add {vendor.cards}: {ask.count}")
    except InvalidRequest as e:
        raise InvalidRequest(f"container {container.name}: {e.message}", hint=e.hint) from e
    return replace(ask, container=position) if ask is not None else None


def _asked(container: Container, vendor: Vendor) -> dict[str, str | float]:
    return {name: amount for name in (vendor.cards, *vendor.parts) if (amount := container.asked(name)) is not None}


def _wishes(vendors: Sequence[Vendor], annotations: Mapping[str, str]) -> list[tuple[str, str]]:
    """Annotations that say more than models do. Raises InvalidRequest for what is too long, or no text."""
    names = dict.fromkeys((*COMMON_WISHES, *(name for vendor in vendors for name in vendor.wishes)))
    usual = {pair for vendor in vendors for pair in vendor.usual.items()}
    found = [(name, text) for name in names if (text := annotations.get(name, "").strip()) and (name, text) not in usual]
    for name, text in found:
        if not is_plain(text, WISH_BYTES):
            raise InvalidRequest(not_plain(f"annotation {name}", text, WISH_BYTES))
    return found


def _models(annotation: str, written: Mapping[str, str]) -> tuple[str, ...]:
    models = tuple(t.strip() for t in written.get(annotation, "").split(",") if t.strip()) if annotation else ()
    if len(models) > MODELS:
        raise InvalidRequest(oversized(f"annotation {annotation}", len(models), MODELS))
    for model in models:
        if not is_plain(model, VALUE_BYTES):
            raise InvalidRequest(not_plain(f"a model in annotation {annotation}", model, VALUE_BYTES))
    return models


def _sum(devices: PodDevices) -> CardRequest:
    """The request with what masks and sums by number read: the cards that it has at one time, and the least that is asked of any."""
    lasting = most = 0
    for container in range(devices.containers):
        own = sum(ask.count for ask in devices.of(container))
        most = max(most, lasting + own)
        if not devices.ends_early(container):
            lasting += own
    asks = devices.asks
    return CardRequest(
        most,
        cores=min(ask.cores for ask in asks),
        memory_mib=min(ask.memory_mib for ask in asks),
        memory_percent=min(ask.memory_percent for ask in asks),
        devices=devices,
        containers=devices.containers,
    )
