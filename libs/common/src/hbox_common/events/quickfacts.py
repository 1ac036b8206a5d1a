"""Facts of reports, read in a fifth of pydantic's time: a value has some forty scalars, and a union of five types costs pydantic half a microsecond for each.

msgspec reads a fact that is written as node-agent writes it, with all fields of the exact types within the bounds. Any other fact is read by pydantic, which
converts it or names the error. Both give the same facts (tests/property/test_quick_facts.py).
"""

from math import inf, nextafter
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta
from pydantic import ValidatorFunctionWrapHandler

from hbox_common.health.report import Fact
from hbox_common.model.bounds import INT64_MAX
from hbox_common.model.wire import BOUNDS

_LARGEST = nextafter(inf, 0)
_Int: TypeAlias = Annotated[int, Meta(le=INT64_MAX)]
_Float: TypeAlias = Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST)]
_Text: TypeAlias = Annotated[str, Meta(max_length=BOUNDS["str_max_length"])]
_Scalar: TypeAlias = _Text | _Int | _Float | bool | None
_Value: TypeAlias = _Scalar | tuple[_Scalar | tuple[_Scalar, ...], ...] | dict[_Text, _Scalar | dict[_Text, _Scalar]]


class _Fact(msgspec.Struct, forbid_unknown_fields=True):
    seq: _Int
    at: _Float
    check: _Text
    entity: _Text
    code: _Text
    value: dict[_Text, _Value]
    text: _Text


def fact_of(raw: Any, handler: ValidatorFunctionWrapHandler) -> Fact:
    """The fact in an item of a message. Raises what `handler`, pydantic's own validator of a fact, raises."""
    if type(raw) is dict:
        try:
            one = msgspec.convert(raw, _Fact)
        except msgspec.ValidationError:
            pass
        else:
            return Fact(one.seq, one.at, one.check, one.entity, one.code, one.value, one.text)
    fact: Fact = handler(raw)
    return fact
