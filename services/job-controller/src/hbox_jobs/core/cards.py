"""What a pod asks of its node's cards, in HAMi's words (reference hami §2.1).

- `nvidia.com/gpu: n` takes n cards whole, unless the same container names a part of each: `gpumem` (MiB), else `gpumem-percentage`.
- `gpucores` is the percentage of each card's compute; with a part of the memory and no `gpucores`, no share is promised (0); without either,
  or with all of the memory, the card is taken alone (100), as HAMi's webhook sets it from v2.10.
- `gpumem` wins over `gpumem-percentage`, and `gpumem: 0` counts as not written, as in HAMi.

Unlike HAMi's webhook, parts without `nvidia.com/gpu` are refused instead of being completed to one card: HBox does not change pods.
"""

from collections.abc import Sequence

from hbox_common.errors import InvalidRequest
from hbox_common.model import CardRequest, parse_quantity
from hbox_common.model.annotations import USE_GPU_TYPE
from hbox_common.model.bounds import MODELS, VALUE_BYTES, is_plain, not_plain, oversized
from hbox_common.model.devices import (
    ALL_CORES,
    GPU,
    GPU_CORES,
    GPU_MEMORY,
    GPU_MEMORY_PERCENT,
    MAX_CARDS,
    MAX_MEMORY_MIB,
)

from .requests import Container


def card_request(containers: Sequence[Container], gpu_types: str = "") -> CardRequest | None:
    """What the pod of these containers (init containers among them) asks for; None where no container names a card.

    `gpu_types`: the annotation nvidia.com/use-gputype, models separated by commas.
    Raises InvalidRequest that names container and resource, and says what to write instead.
    """
    asking = [
        c for c in containers if any(c.asked(name) is not None for name in (GPU, GPU_CORES, GPU_MEMORY, GPU_MEMORY_PERCENT))
    ]
    asking = [c for c in asking if _asks(c)]
    if not asking:
        return None
    if len(asking) > 1:
        names = ", ".join(c.name for c in asking)
        raise InvalidRequest(
            f"several containers ask for cards ({names}): not supported yet", hint="ask for them in one container"
        )
    return _of_container(asking[0], _models(gpu_types))


def _models(gpu_types: str) -> tuple[str, ...]:
    models = tuple(t.strip() for t in gpu_types.split(",") if t.strip())
    if len(models) > MODELS:
        raise InvalidRequest(oversized(f"annotation {USE_GPU_TYPE}", len(models), MODELS))
    for model in models:
        if not is_plain(model, VALUE_BYTES):
            raise InvalidRequest(not_plain(f"a model in annotation {USE_GPU_TYPE}", model, VALUE_BYTES))
    return models


def _asks(container: Container) -> bool:
    return any(_whole(container, name) for name in (GPU, GPU_CORES, GPU_MEMORY, GPU_MEMORY_PERCENT))


def _of_container(container: Container, models: tuple[str, ...]) -> CardRequest:
    count = _whole(container, GPU) or 0
    cores = _whole(container, GPU_CORES)
    memory = _whole(container, GPU_MEMORY) or 0
    percent = _whole(container, GPU_MEMORY_PERCENT)
    if count == 0:
        named = next(n for n in (GPU_MEMORY, GPU_MEMORY_PERCENT, GPU_CORES) if _whole(container, n))
        raise _wrong(container, named, f"given without {GPU}", f"add {GPU}: 1")
    if count > MAX_CARDS:
        raise _wrong(container, GPU, f"is {count}", f"at most {MAX_CARDS} cards fit one pod")
    if cores is not None and cores > ALL_CORES:
        raise _wrong(container, GPU_CORES, f"is {cores}", "write the percentage of one card's compute, 0 to 100")
    if memory > MAX_MEMORY_MIB:
        raise _wrong(container, GPU_MEMORY, f"is {memory}", "write the MiB of one card")
    if percent is not None and not 1 <= percent <= 100:
        raise _wrong(container, GPU_MEMORY_PERCENT, f"is {percent}", "write the percentage of one card's memory, 1 to 100")
    if memory:
        return CardRequest(count=count, cores=cores or 0, memory_mib=memory, models=models)
    if percent is None or percent == 100:
        return CardRequest(count=count, cores=ALL_CORES if cores is None else cores, models=models)
    return CardRequest(count=count, cores=cores or 0, memory_percent=percent, models=models)


def _whole(container: Container, name: str) -> int | None:
    quantity = container.asked(name)
    if quantity is None:
        return None
    try:
        value = parse_quantity(quantity)
    except InvalidRequest as e:
        raise _wrong(container, name, f"is {quantity!r}, not a quantity", "write a whole number") from e
    if value < 0 or value != value.to_integral_value():
        raise _wrong(container, name, f"is {quantity}", "write a whole number, 0 or more")
    return int(value)


def _wrong(container: Container, name: str, what: str, hint: str) -> InvalidRequest:
    return InvalidRequest(f"container {container.name}: {name} {what}", hint=hint)
