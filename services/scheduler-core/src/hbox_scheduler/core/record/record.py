"""A record of a scheduler's inputs and decisions: calls to bytes, and back.

A record is one line of text with the format's name, and then frames: a length, a checksum (four bytes each, big-endian) and a piece of one deflate stream,
which ends on a whole entry. So a file whose writer was killed is readable up to the last whole frame. Inflated, it is a sequence of msgpack values: the head,
with the scheduler's parameters, and one entry for each call: its name, its arguments, its result, and the answers that plugins received meanwhile.

`INPUTS` names the recorded calls, and the type hints of `Scheduler` their types: values are encoded as on the bus. Iterable arguments are collected first, so
that the recorder and the scheduler see the same.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from struct import Struct
from typing import Any, BinaryIO, get_args, get_origin, get_type_hints

import msgpack
from pydantic import TypeAdapter, ValidationError

from hbox_common.errors import InvalidRequest
from hbox_common.events import GivenUp, JobVerdict, Plan
from hbox_common.model import JobId, PlanId, SchedulerId
from hbox_common.model.bounds import sanitized

from ..framework.conf import Conf, PluginConf
from ..framework.hooks import HOOKS
from ..protocol.limits import Limits, Proposals
from ..scheduler import Scheduler

FORMAT = 1
MAGIC = b"HBox record of scheduler-core, format "

#: The methods that change a scheduler's state, whose calls a record holds: all messages (`on_...`), and these.
INPUTS = (
    *(name for name in dir(Scheduler) if name.startswith("on_")),
    "follow",
    "invalidate_sessions",
    "refuse",
    "unpublished",
    "cycle",
)

#: The last entry of a record that was ended on purpose; its one argument is the reason.
END = "end"

_FRAME = Struct(">II")
#: No frame is larger; a length beyond this is damage.
MAX_FRAME = 2**30
_HOOKS = {hook.__name__: hook for hook in HOOKS}


@dataclass(frozen=True, slots=True)
class Head:
    """How the scheduler of a record was made."""

    version: str  #: of HBox
    scheduler: SchedulerId
    limits: Limits
    conf: Conf
    wall: float  #: when the record began, in seconds since the epoch


@dataclass(frozen=True, slots=True)
class Asked:
    """What a plugin asked others, and was answered; with `error`, why there was no answer."""

    url: str
    body: str
    answer: Any = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Decided:
    """The result of a cycle. `resend` by id: the plans are those of an earlier cycle."""

    plans: tuple[Plan, ...] = ()
    resend: tuple[PlanId, ...] = ()
    verdicts: tuple[JobVerdict, ...] = ()
    admitted: tuple[JobId, ...] = ()
    repeated: bool = False
    given_up: tuple[GivenUp, ...] = ()
    wake_at: float | None = None
    more: bool = False

    @classmethod
    def of(cls, out: Proposals) -> "Decided":
        return cls(
            plans=tuple(out.plans),
            resend=tuple(plan.id for plan in out.resend),
            verdicts=tuple(out.verdicts),
            admitted=tuple(out.admitted),
            repeated=out.repeated,
            given_up=tuple(out.given_up),
            wake_at=out.wake_at,
            more=out.more,
        )


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an input. `result` is None where it raised `error`."""

    name: str
    arguments: Mapping[str, Any]
    result: Any = None
    asked: Sequence[Asked] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Input:
    """How one method's calls are written. `collected`: arguments that may be iterables which are read once."""

    names: tuple[str, ...]
    adapters: Mapping[str, TypeAdapter[Any]]
    collected: frozenset[str]
    result: TypeAdapter[Any] | None


@cache
def _input(name: str) -> _Input:
    """Made at the first call that is written or read: all of them take longer than all else that scheduler-core imports of its own."""
    hints = get_type_hints(getattr(Scheduler, name))
    result = Decided if name == "cycle" else hints.pop("return")
    hints.pop("return", None)
    adapters: dict[str, TypeAdapter[Any]] = {}
    collected: set[str] = set()
    for parameter, hint in hints.items():
        if get_origin(hint) in (Iterable, Sequence):
            collected.add(parameter)
            several: Any = tuple[get_args(hint)[0], ...]  # type: ignore[misc]  # a type made at run time
            adapters[parameter] = TypeAdapter(several)
        elif hint is not Conf:
            adapters[parameter] = TypeAdapter(hint)
    return _Input(tuple(hints), adapters, frozenset(collected), None if result is type(None) else TypeAdapter(result))


class Encoder:
    """Calls to bytes, not yet in frames."""

    def __init__(self) -> None:
        self._pack: Callable[[Any], bytes] = msgpack.Packer(use_bin_type=True, default=str).pack

    def head(self, head: Head) -> bytes:
        return self._pack(
            {
                "version": head.version,
                "scheduler": head.scheduler,
                "limits": asdict(head.limits),
                "conf": _conf_out(head.conf),
                "wall": head.wall,
            }
        )

    def call(self, call: Call) -> bytes:
        how = _input(call.name)
        arguments = {
            name: _conf_out(value) if isinstance(value, Conf) else how.adapters[name].dump_python(value)
            for name, value in call.arguments.items()
        }
        result = None if how.result is None or call.error else how.result.dump_python(call.result)
        asked = [[one.url, one.body, one.answer, one.error] for one in call.asked]
        return self._pack([call.name, arguments, result, asked, call.error])

    def end(self, why: str) -> bytes:
        return self._pack([END, why])


def collected(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, each such that it can be read twice."""
    how = _input(name)
    arguments = dict(zip(how.names, args, strict=False)) | dict(kwargs)
    for parameter in how.collected & arguments.keys():
        arguments[parameter] = tuple(arguments[parameter])
    return arguments


class Framer:
    """Entries to the bytes of a file."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(level=1)

    @staticmethod
    def opening() -> bytes:
        return MAGIC + b"%d\n" % FORMAT

    def frame(self, entries: bytes) -> bytes:
        """`entries`: whole ones."""
        body = self._deflate.compress(entries) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return _FRAME.pack(len(body), zlib.crc32(body)) + body


@dataclass(slots=True)
class Reader:
    """A record's head, and then its calls, once. `end`: why it was ended, "" while that is not known; `torn`: bytes of a last frame that is not whole."""

    file: BinaryIO
    name: str
    read: int = 0  #: bytes so far
    end: str = ""
    torn: int = 0
    head: Head = field(init=False)
    _entries: Iterator[Any] = field(init=False)

    def __post_init__(self) -> None:
        """Raises InvalidRequest where the file is no record, or one of another format."""
        first = self.file.readline(len(MAGIC) + 20)
        if not first.startswith(MAGIC):
            raise InvalidRequest(
                f"{self.name} is no record of scheduler-core", hint="records are written where HBOX_RECORD is set"
            )
        found = first[len(MAGIC) :].strip()
        if found != b"%d" % FORMAT:
            raise InvalidRequest(
                f"{self.name} has format {sanitized(found.decode(errors='replace'), 20)}, and this HBox reads format {FORMAT}",
                hint="replay it with the HBox that wrote it",
            )
        self.read = len(first)
        self._entries = self._unpacked()
        head = next(self._entries, None)
        if head is None:
            raise InvalidRequest(
                f"{self.name} ends before its head: it holds nothing", hint="its writer was killed within its first second"
            )
        try:
            self.head = _head_in(head)
        except (KeyError, TypeError, ValueError, ValidationError) as e:
            raise self._wrong(f"the head cannot be read ({type(e).__name__}: {sanitized(str(e), 200)})") from e

    def calls(self) -> Iterator[Call]:
        """Raises InvalidRequest where the record is damaged."""
        for entry in self._entries:
            try:
                if entry[0] == END:
                    self.end = str(entry[1])
                    return
                yield self._call(*entry)
            except (KeyError, TypeError, ValueError, LookupError, ValidationError) as e:
                raise self._wrong(f"an entry cannot be read ({type(e).__name__}: {sanitized(str(e), 200)})") from e

    def _call(self, name: str, raw: Mapping[str, Any], result: Any, asked: Sequence[Sequence[Any]], error: str) -> Call:
        if name not in INPUTS:
            raise ValueError(f"unknown input {name}")
        how = _input(name)
        arguments = {
            key: how.adapters[key].validate_python(value, by_alias=True, by_name=True)
            if key in how.adapters
            else _conf_in(value)
            for key, value in raw.items()
        }
        known = None if how.result is None or error else how.result.validate_python(result, by_alias=True, by_name=True)
        return Call(name, arguments, known, [Asked(*one) for one in asked], error)

    def _unpacked(self) -> Iterator[Any]:
        inflate = zlib.decompressobj()
        unpacker = msgpack.Unpacker(raw=False, strict_map_key=False, max_buffer_size=MAX_FRAME)
        while True:
            start = self.file.read(_FRAME.size)
            if len(start) < _FRAME.size:
                self.torn = len(start)
                return
            length, checksum = _FRAME.unpack(start)
            body = self.file.read(min(length, MAX_FRAME))
            if len(body) < length <= MAX_FRAME:
                self.torn = len(start) + len(body)
                return
            if length > MAX_FRAME or zlib.crc32(body) != checksum:
                raise self._wrong("its checksum does not match its content")
            try:
                unpacker.feed(inflate.decompress(body))
                yield from unpacker
            except (zlib.error, ValueError, msgpack.UnpackException, msgpack.BufferFull) as e:
                raise self._wrong(f"it cannot be unpacked ({type(e).__name__}: {sanitized(str(e), 200)})") from e
            self.read += len(start) + length

    def _wrong(self, what: str) -> InvalidRequest:
        return InvalidRequest(
            f"{self.name} is damaged at byte {self.read}: {what}", hint="the content before it is unreliable, too"
        )


def _conf_out(conf: Conf) -> dict[str, Any]:
    return {
        "actions": conf.actions,
        "tiers": [
            [
                {
                    "name": plugin.name,
                    "arguments": plugin.arguments,
                    "off": sorted(hook.__name__ for hook in plugin.off),
                    "hierarchy": plugin.hierarchy,
                    "line": plugin.line,
                }
                for plugin in tier
            ]
            for tier in conf.tiers
        ],
        "arguments": conf.arguments,
    }


def _conf_in(raw: Mapping[str, Any]) -> Conf:
    return Conf(
        actions=tuple(raw["actions"]),
        tiers=tuple(
            tuple(
                PluginConf(
                    name=plugin["name"],
                    arguments=plugin["arguments"],
                    off=frozenset(_HOOKS[name] for name in plugin["off"]),
                    hierarchy=plugin["hierarchy"],
                    line=plugin["line"],
                )
                for plugin in tier
            )
            for tier in raw["tiers"]
        ),
        arguments=raw["arguments"],
    )


def _head_in(raw: Mapping[str, Any]) -> Head:
    return Head(
        version=str(raw["version"]),
        scheduler=SchedulerId(raw["scheduler"]),
        limits=Limits(**raw["limits"]),
        conf=_conf_in(raw["conf"]),
        wall=float(raw["wall"]),
    )
