"""What a pod asks of its node's cards. How a vendor's resources are read is the vendor's (`hbox_common.model.devices`)."""

from collections.abc import Collection, Mapping, Sequence

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS, CardRequest, Vendor
from hbox_common.model.bounds import MODELS, VALUE_BYTES, is_plain, not_plain, oversized

from .requests import Container

_NONE: Mapping[str, str] = {}


def card_request(
    containers: Sequence[Container], models: Mapping[str, str] = _NONE, unsupported: Collection[str] = ()
) -> CardRequest | None:
    """What the pod of these containers (init containers among them) asks for; None where no container names a card.

    `models`: by annotation, models separated by commas. `unsupported`: annotations that the pod has though its vendor's cannot be honoured.
    Raises InvalidRequest that names container and resource, and says what to write instead.
    """
    asking = [
        (container, vendor, request)
        for container in containers
        for vendor in VENDORS
        if (request := _of_container(container, vendor, models)) is not None
    ]
    if not asking:
        return None
    container, vendor, request = asking[0]
    if any(other is not container for other, _, _ in asking):
        names = ", ".join(other.name for other, _, _ in asking)
        raise InvalidRequest(
            f"several containers ask for cards ({names}): not supported yet", hint="ask for them in one container"
        )
    if len(asking) > 1:
        cards = " and ".join(other.cards for _, other, _ in asking)
        raise InvalidRequest(f"container {container.name} asks for {cards}", hint="a pod has cards of one vendor")
    if refused := frozenset(unsupported).intersection(vendor.unsupported):
        raise InvalidRequest(
            f"annotation {min(refused)} is not supported yet: remove it, or choose by {vendor.models_annotation}"
        )
    return request


def _of_container(container: Container, vendor: Vendor, models: Mapping[str, str]) -> CardRequest | None:
    asked = {name: amount for name in (vendor.cards, *vendor.parts) if (amount := container.asked(name)) is not None}
    if not asked:
        return None
    try:
        return vendor.request(asked, _models(vendor.models_annotation, models))
    except InvalidRequest as e:
        raise InvalidRequest(f"container {container.name}: {e.message}", hint=e.hint) from e


def _models(annotation: str, written: Mapping[str, str]) -> tuple[str, ...]:
    models = tuple(t.strip() for t in written.get(annotation, "").split(",") if t.strip())
    if len(models) > MODELS:
        raise InvalidRequest(oversized(f"annotation {annotation}", len(models), MODELS))
    for model in models:
        if not is_plain(model, VALUE_BYTES):
            raise InvalidRequest(not_plain(f"a model in annotation {annotation}", model, VALUE_BYTES))
    return models
