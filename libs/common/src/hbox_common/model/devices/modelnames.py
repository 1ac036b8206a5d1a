"""The rule by which a name selects card models; placement, quotas, victim selection and previews share it.

As in HAMi (sources: hami-nvidia), a pod names a model by a part of its name. Nodes report one model in several forms: `NVIDIA A100-SXM4-80GB` in HAMi's
register, `NVIDIA-A100-SXM4-80GB` in NVIDIA's label and in resource names. The comparison ignores case and treats `-` and blanks as equal.
"""

from collections.abc import Iterable
from functools import lru_cache


def names_model(name: str, model: str) -> bool:
    """Whether `name` is a part of the model's name. No name selects a model that has none; dashes and blanks alone select no model."""
    return bool(model) and bool(part := _plain(name)) and part in _plain(model)


def any_names_model(names: Iterable[str], model: str) -> bool:
    """Whether any of `names` is a part of the model's name."""
    return any(names_model(name, model) for name in names)


@lru_cache(maxsize=4096)
def _plain(name: str) -> str:
    return "-".join(name.lower().replace("-", " ").split())
