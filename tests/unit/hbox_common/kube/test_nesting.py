"""Documents that are nested more deeply than a decoder follows."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.kube.nesting import LEVELS, decoded, shallow

from ....searching import examples

VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='[]{}",\\a'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='[]{}",\\a'), inner, max_size=3),
)


def below(levels: int, value: Any) -> Any:
    for _ in range(levels):
        value = [value, 1]
    return value


@examples(100)
@given(value=VALUES)
def test_shallow_document_stays_as_it_is(value: Any) -> None:
    text = json.dumps(value).encode()
    assert shallow(text) == text


@examples(100)
@given(value=VALUES, after=VALUES)
def test_values_below_the_limit_are_null_and_others_stay(value: Any, after: Any) -> None:
    text = json.dumps([below(LEVELS + 1, value), after]).encode()
    cut = json.loads(shallow(text))
    assert cut[1] == after
    found = cut[0]
    for _ in range(LEVELS - 2):
        found = found[0]
    assert found in ([None, 1], [[value, 1], 1]), "a value without brackets inside may stay"


def test_decoder_reads_a_deep_document_without_its_deepest_values() -> None:
    deep = b'{"a":' * 9_999 + b"1" + b"}" * 9_999
    assert decoded(msgspec.json.Decoder(list[Any]), b"[" + deep + b',"x"]')[1] == "x"


@pytest.mark.parametrize(
    "text", [b"[" * 20_000, b'{"a":' * 20_000, b'["' + b"[" * 9, b"]" * 20_000, b'"\\"' * 100_000, b"[" * 3000 + b"}" * 3000]
)
def test_text_that_is_no_json_is_a_fault_of_its_own(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decoded(msgspec.json.Decoder(list[Any]), text)
