"""Descriptions of Kubernetes' kinds and fields, as the models of the official client have them, for `kubectl explain` on the emulated API server."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from kubernetes.client import models


@dataclass(frozen=True, slots=True)
class ModelTexts:
    """`fields`: by name in JSON; fields without a description are absent."""

    kind: str
    fields: Mapping[str, str]


@cache
def texts_of(group: str, version: str, kind: str) -> ModelTexts | None:
    """The texts of a model such as ("core", "v1", "PodSpec"); None if the client has no such model. Its version may have other fields than the server's."""
    name = f"{version.capitalize()}{kind}"
    model = getattr(models, name, None) or getattr(models, f"{group.capitalize()}{name}", None)
    if model is None:
        return None
    text, _, _ = inspect.cleandoc(model.__doc__ or "").partition("\n\nAttributes:")
    described = {
        field.serialization_alias or name: field.description for name, field in model.model_fields.items() if field.description
    }
    return ModelTexts(" ".join(text.split()), described)
