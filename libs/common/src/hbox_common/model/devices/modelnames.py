"""Which card models a name means: the one rule of placement, quotas, victims and previews.

A pod names a model by a part of its name, as HAMi's users do (reference hami §2.1), and nodes write one model in several ways: `NVIDIA A100-SXM4-80GB` in
HAMi's register, `NVIDIA-A100-SXM4-80GB` in NVIDIA's label and in the resources that queues name. Case does not count, and `-` and blanks are equal.
"""

from collections.abc import Iterable
from functools import lru_cache


def names_model(name: str, model: str) -> bool:
    """Whether `name` is a part of the model's name. A model without a name has no parts."""
    return bool(model) and _plain(name) in _plain(model)


def any_names_model(names: Iterable[str], model: str) -> bool:
    """Whether any of `names` is."""
    return any(names_model(name, model) for name in names)


@lru_cache(maxsize=4096)
def _plain(name: str) -> str:
    return "-".join(name.lower().replace("-", " ").split())
