"""Protocol buffers' wire format, as far as the kubelet's messages need it: varints, and fields of bytes (protobuf.dev/programming-guides/encoding).

Unknown field numbers are skipped, so that a newer kubelet's message is read as an older one's.
"""

from collections.abc import Iterable, Iterator

from hbox_common.errors import InvalidRequest

_VARINT, _I64, _LEN, _I32 = 0, 1, 2, 5
_FIXED = {_I64: 8, _I32: 4}
_UINT64 = 2**64
#: Of a varint: 64 bits, seven in each byte.
_VARINT_BYTES = 10


class Allowance:
    """How many fields and packed numbers may still be read of one answer, all messages within it included: of two bytes each, those of 64 MiB would take
    minutes and gigabytes."""

    __slots__ = ("_left", "_most")

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def take(self) -> None:
        """Raises InvalidRequest where it is used up."""
        self._left -= 1
        if self._left < 0:
            raise InvalidRequest(f"a protobuf message has more than {self._most} fields")


def fields(body: bytes, allowance: Allowance | None = None) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field in its order: an unsigned integer, or bytes. Raises InvalidRequest where the bytes are no message."""
    at = 0
    while at < len(body):
        if allowance is not None:
            allowance.take()
        key, at = _varint(body, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise InvalidRequest("a protobuf message has a field of number 0")
        if kind == _VARINT:
            value, at = _varint(body, at)
            yield number, value
            continue
        if kind == _LEN:
            length, at = _varint(body, at)
        elif kind in _FIXED:
            length = _FIXED[kind]
        else:
            raise InvalidRequest(f"a protobuf message has a field of wire type {kind}")
        if at + length > len(body):
            raise InvalidRequest("a protobuf message ends within a field")
        yield number, body[at : at + length]
        at += length


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = 0
    for count in range(_VARINT_BYTES):
        if at + count >= len(body):
            raise InvalidRequest("a protobuf message ends within a number")
        byte = body[at + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value % _UINT64, at + count + 1
    raise InvalidRequest("a protobuf message has a number of more than 64 bits")


def int64(value: int | bytes) -> int:
    """A field of type int64 or uint64 as a signed number. Raises InvalidRequest for bytes."""
    if isinstance(value, bytes):
        raise InvalidRequest("a protobuf field holds bytes, a number is expected")
    return value - _UINT64 if value >= _UINT64 // 2 else value


def int64s(value: int | bytes, allowance: Allowance) -> Iterator[int]:
    """A repeated field of numbers, packed or not."""
    if isinstance(value, int):
        yield int64(value)
        return
    at = 0
    while at < len(value):
        allowance.take()
        number, at = _varint(value, at)
        yield int64(number)


def message(value: int | bytes) -> bytes:
    """A field that holds a message. Raises InvalidRequest for a number."""
    if isinstance(value, int):
        raise InvalidRequest("a protobuf field holds a number, a message is expected")
    return value


def text(value: int | bytes) -> str:
    """A string field. Bytes that are not UTF-8, which a kubelet passes on from a plugin, become surrogates: `is_plain` is false for them. Raises InvalidRequest
    for a number."""
    return message(value).decode(errors="surrogateescape")


def put_int(number: int, value: int) -> bytes:
    """A field of a number; nothing where it is 0, the default."""
    return _number(number << 3 | _VARINT) + _number(value % _UINT64) if value else b""


def put_ints(number: int, values: Iterable[int]) -> bytes:
    """A repeated field of numbers, packed."""
    packed = b"".join(_number(value % _UINT64) for value in values)
    return put_bytes(number, packed) if packed else b""


def put_bytes(number: int, value: bytes) -> bytes:
    """A field of bytes or of a message, also where it is empty."""
    return _number(number << 3 | _LEN) + _number(len(value)) + value


def put_text(number: int, value: str) -> bytes:
    """A field of a string; nothing where it is empty, the default."""
    return put_bytes(number, value.encode()) if value else b""


def _number(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
