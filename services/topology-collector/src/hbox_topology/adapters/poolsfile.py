"""The file that assigns nodes to pools.

pools:
- name: lab
  nodes: [gpu-01, gpu-02]
- name: vision
  selector: {matchLabels: {team: vision}}
"""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hbox_common.errors import InvalidRequest
from hbox_common.kube.objects import LabelSelector, Requirement
from hbox_common.kube.selectors import selector_of
from hbox_common.model import Selector
from hbox_common.runtime import WatchedFile
from hbox_common.yamltext import content_of

from ..core.pools import PoolRule

#: A label's value, as Kubernetes has it.
_NAME = r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Expression(_Part):
    key: str = Field(min_length=1)
    operator: str = Field(pattern="^(In|NotIn|Exists|DoesNotExist)$")
    values: list[str] = []

    @model_validator(mode="after")
    def _values_where_they_count(self) -> "_Expression":
        if (self.operator in ("In", "NotIn")) != bool(self.values):
            raise ValueError(f"operator {self.operator} takes {'values' if self.operator in ('In', 'NotIn') else 'no values'}")
        return self


class _Selector(_Part):
    match_labels: dict[str, str] = Field(default={}, alias="matchLabels")
    match_expressions: list[_Expression] = Field(default=[], alias="matchExpressions")


class _Pool(_Part):
    name: str = Field(pattern=_NAME)
    nodes: list[str] = []
    selector: _Selector | None = None

    @model_validator(mode="after")
    def _of_something(self) -> "_Pool":
        if not self.nodes and (self.selector is None or not (self.selector.match_labels or self.selector.match_expressions)):
            raise ValueError(f"pool {self.name} names neither nodes nor labels")
        return self


class _File(_Part):
    pools: list[_Pool] = []


def pools_file(path: Path) -> WatchedFile[tuple[PoolRule, ...]]:
    """Raises InvalidRequest that names file and field."""
    return WatchedFile(path, rules_of, setting="HBOX_POOLS_FILE", what="a file of pools")


def rules_of(text: str) -> tuple[PoolRule, ...]:
    """Raises InvalidRequest that names the field, or the line that is no YAML."""
    read: Any = content_of(text)
    try:
        found = _File.model_validate({} if read is None else read)
    except ValidationError as e:
        first = e.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise InvalidRequest(
            f"{where}: {first['msg'].removeprefix('Value error, ')}",
            hint="write pools: with a name, and nodes or a selector, each",
        ) from e
    return tuple(PoolRule(one.name, frozenset(one.nodes), _selector(one.selector)) for one in found.pools)


def _selector(selector: _Selector | None) -> Selector | None:
    if selector is None:
        return None
    expressions = tuple(
        Requirement(key=one.key, operator=one.operator, values=tuple(one.values)) for one in selector.match_expressions
    )
    return selector_of(LabelSelector(match_labels=selector.match_labels, match_expressions=expressions))
